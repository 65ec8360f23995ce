"""Waiting inside a turn: when every branch of it waits, the turn is parked and holds neither lease nor slot."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NoReturn

from lash.base.limits import MAX_IDENTIFIER_LENGTH
from lash.errors import LeaseLost
from lash.model.effect import Sleep, TurnScope
from lash.model.queue import ClaimedTurn
from lash.model.wait import CustomIdentity, Resolution, WaitIdentity, WaitKey
from lash.runtime.errors import Suspended
from lash.runtime.outage import HeldLease
from lash.runtime.steps.journal import Journal
from lash.runtime.steps.steps import nothing

if TYPE_CHECKING:
    from lash.runtime.core import Core

_SHORT_MS: Final = 20
"""Shorter pauses are slept through: parking would take as long."""
_TIMER: Final = "timer"


class TurnParking:
    """What the branches of one run of a turn wait for; the contract is `lash.runtime.steps.waits.WaitingRun`."""

    def __init__(self, core: Core, claimed: ClaimedTurn, lease: HeldLease) -> None:
        self.storage = core.storage
        self.lease = lease
        self._claimed = claimed
        self._began = time.monotonic()
        self._journal: Journal | None = None
        self._scope = TurnScope(session_id="", turn_id="")
        self._waits: list[tuple[int | None, str]] = []
        self._cancel_reason: str | None = None
        self.is_parking = False
        """Whether every branch waits, so that the run ends and the turn is to be parked."""
        self.on_yield: Callable[[bool], None] | None = None
        """Called when the run begins to wait in memory, and when it no longer does."""
        self._yielded = 0

    @property
    def seed(self) -> str:
        return f"{self._scope.session_id}\0{self._scope.turn_id}"

    @property
    def may_have_waited(self) -> bool:
        """Whether earlier runs of the turn may have been parked."""
        return self._claimed.wake_seq != 0

    @property
    def cancels_later(self) -> bool:
        """Whether a cancellation is raised where the agent would do new work."""
        return self._cancel_reason is not None

    def attach(self, journal: Journal, scope: TurnScope) -> None:
        """Follow the branches of a run that begins."""
        self._journal, self._scope = journal, scope
        self._waits = []
        journal.lines.on_quiet = self._suspend
        journal.before_new = self._deliver_cancel

    def cancel_later(self, reason: str) -> None:
        """Raise CancelledError once, where the agent would do new work: it waited there when it was cancelled."""
        self._cancel_reason = reason

    def now_ms(self) -> int:
        """Return the time of the storage, as of the claim plus what has passed since."""
        return self._claimed.lease.claimed_at_ms + round((time.monotonic() - self._began) * 1_000)

    async def until(self, due_at_ms: int) -> None:
        while (left_ms := due_at_ms - self.now_ms()) > 0:
            if left_ms > _SHORT_MS:
                await self.block(due_at_ms, _TIMER)
            await asyncio.sleep(left_ms / 1_000)

    async def block(self, until_ms: int | None, waiting_for: str) -> NoReturn:
        """Wait until the turn is parked; it never returns, and the next run starts from the beginning."""
        assert self._journal is not None, "an agent runs with a journal"
        self._journal.check_running()
        self._deliver_cancel()
        wait = (until_ms, waiting_for)
        self._waits.append(wait)
        try:
            await self._journal.lines.park()
        finally:
            if not self.is_parking:
                self._waits.remove(wait)

    async def deadline(self, key: str, timeout_ms: int) -> int:
        """Return the moment at which the time for a wait is over, the same in every run."""
        assert self._journal is not None, "an agent runs with a journal"
        record = await self._journal.recorded(f"{key}:deadline", Sleep(duration_ms=timeout_ms), nothing)
        return record.due_at_ms or 0

    @contextlib.contextmanager
    def slot_yielded(self) -> Iterator[None]:
        """Let another turn of the worker run while this one waits in memory, inside a step or a foreign task."""
        self._yielded += 1
        if self._yielded == 1 and self.on_yield is not None:
            self.on_yield(True)
        try:
            yield
        finally:
            self._yielded -= 1
            if self._yielded == 0 and self.on_yield is not None:
                self.on_yield(False)

    async def wait_key(self, identity: WaitIdentity) -> WaitKey:
        return await self.lease.bridge("the key of a wait", self.storage.waits.key, self._scope, identity)

    async def resolution(self, identity: WaitIdentity, timeout_ms: int | None) -> Resolution:
        waits, key = self.storage.waits, await self.wait_key(identity)
        name = identity.key if isinstance(identity, CustomIdentity) else key.key_id
        while True:
            wait = await self.lease.bridge("opening a wait", waits.open, key, timeout_ms=timeout_ms)
            if wait.resolution is not None:
                return wait.resolution
            if wait.deadline_ms is None or self.now_ms() < wait.deadline_ms:
                await self.block(wait.deadline_ms, f"wait {name}")
            await self.lease.bridge("the deadline of a wait", waits.expire)

    @property
    def waiting_for(self) -> str:
        """What the turn waits for, as people read it: the first of it that is not a moment."""
        named = (name for _, name in self._waits if name != _TIMER)
        return next(named, _TIMER)[:MAX_IDENTIFIER_LENGTH]

    async def park(self) -> bool:
        """Free the lease and park the turn; return False if it is ready instead, because it was woken meanwhile."""
        wake_seq, fence, leases = self._claimed.wake_seq, self._claimed.lease.fence, self.storage.leases
        assert wake_seq is not None, "only a turn that was claimed with its number of wakes is parked"
        until_ms = min((until for until, _ in self._waits if until is not None), default=None)
        name = self.waiting_for
        try:
            return await self.lease.bridge(
                "parking", leases.park, fence, wake_seq=wake_seq, until_ms=until_ms, waiting_for=name
            )
        except LeaseLost:
            # Without a holder it was parked, by a try whose answer was lost.
            if await self.lease.bridge("parking", leases.holder, fence.resource.id) is not None:
                raise
            return True

    def _suspend(self) -> None:
        """Park: every branch waits for something that another run will see."""
        if not self.is_parking and self._journal is not None:
            self.is_parking = True
            self._journal.stop(Suspended())
            self._journal.lines.suspend(Suspended())

    def _deliver_cancel(self) -> None:
        if self._cancel_reason is not None:
            reason, self._cancel_reason = self._cancel_reason, None
            raise asyncio.CancelledError(reason)
