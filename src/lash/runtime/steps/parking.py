"""Waiting inside a run: when every branch waits, the run ends and its turn or process is parked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Generic, TypeVar

from lash.model.effect import Sleep
from lash.model.wait import Question, Resolution, WaitIdentity, WaitKey
from lash.runtime.errors import Suspended
from lash.runtime.outage import HeldLease
from lash.runtime.steps.journal import Journal
from lash.runtime.steps.steps import nothing
from lash.stores.storage import Storage

R = TypeVar("R")

_SHORT_MS: Final = 20
"""Shorter pauses are slept through: parking would take as long."""


class Parking(Generic[R]):
    """What the branches of one run wait for; each wait has a moment at which it ends, and a reason."""

    def __init__(self, storage: Storage, lease: HeldLease, *, began_ms: int, timer: R) -> None:
        """Prepare a run that began at a moment of the storage's clock; ``timer`` is the reason of a pause."""
        self.storage = storage
        self.lease = lease
        self.is_parking = False
        """Whether every branch waits, so that the run ends and the turn or process is to be parked."""
        self._began_ms = began_ms
        self._began = time.monotonic()
        self._timer = timer
        self._attached: Journal | None = None
        self._waits: list[tuple[int | None, R]] = []
        self._cancel_reason: str | None = None

    def attach(self, journal: Journal) -> None:
        """Follow the branches of a run that begins."""
        self._attached, self._waits = journal, []
        journal.lines.on_quiet = self._suspend
        journal.before_new = self.deliver_cancel
        journal.limits.until = self._until_admitted
        journal.limits.block = self._until_offered

    @property
    def cancels_later(self) -> bool:
        """Whether a cancellation is raised where the function would do new work."""
        return self._cancel_reason is not None

    def cancel_later(self, reason: str) -> None:
        """Raise CancelledError once, where the function would do new work: it waited there when it was cancelled."""
        self._cancel_reason = reason

    def deliver_cancel(self) -> None:
        """Raise the cancellation that was asked for before this run, once."""
        if self._cancel_reason is not None:
            reason, self._cancel_reason = self._cancel_reason, None
            raise asyncio.CancelledError(reason)

    def now_ms(self) -> int:
        """Return the time of the storage, as of the claim plus what has passed since."""
        return self._began_ms + round((time.monotonic() - self._began) * 1_000)

    async def until(self, due_at_ms: int, reason: R | None = None) -> None:
        """Return if the moment has come, or is about to, else park until then."""
        while (left_ms := due_at_ms - self.now_ms()) > 0:
            if left_ms > _SHORT_MS:
                await self.block(due_at_ms, self._timer if reason is None else reason)
            else:
                await asyncio.sleep(left_ms / 1_000)

    async def block(
        self, until_ms: int | None, reason: R, watch: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Wait until the run is parked; the next run starts from the beginning.

        It returns if the moment comes, or in a race if ``watch`` does, while another branch keeps the run in memory.
        The caller then reads again what it waits for.
        """
        self._journal.check_running()
        self.deliver_cancel()
        wait = (until_ms, reason)
        self._waits.append(wait)
        left_s = None if until_ms is None else (until_ms - self.now_ms()) / 1_000
        try:
            await self._journal.lines.park(left_s, watch)
        finally:
            if not self.is_parking:
                self._waits.remove(wait)

    async def deadline(self, key: str, timeout_ms: int) -> int:
        """Return the moment at which the time for a wait is over, the same in every run."""
        record = await self._journal.recorded(f"{key}:deadline", Sleep(duration_ms=timeout_ms), nothing)
        return record.due_at_ms or 0

    async def wait_key(self, identity: WaitIdentity) -> WaitKey:
        return await self.lease.bridge("the key of a wait", self.storage.waits.key, self._journal.scope, identity)

    async def resolution(
        self, identity: WaitIdentity, timeout_ms: int | None, ask: Question | None = None
    ) -> tuple[Resolution, int]:
        """Return how a wait was resolved, and for how many milliseconds it was open, or park until it is resolved."""
        waits, key = self.storage.waits, await self.wait_key(identity)
        while True:
            wait = await self.lease.bridge("opening a wait", waits.open, key, timeout_ms=timeout_ms, ask=ask)
            if wait.resolution is not None:
                return wait.resolution, max(0, self.now_ms() - wait.created_at_ms)
            if wait.deadline_ms is None or self.now_ms() < wait.deadline_ms:
                await self.block(wait.deadline_ms, self._reason(identity, key), partial(waits.wait, key))
            else:
                await self.lease.bridge("the deadline of a wait", waits.expire)

    @property
    def due_ms(self) -> int | None:
        """The moment at which the first of the waits ends."""
        return min((until for until, _ in self._waits if until is not None), default=None)

    @property
    def reasons(self) -> tuple[R, ...]:
        """Why the branches wait, in the order in which they began to."""
        return tuple(reason for _, reason in self._waits)

    def _reason(self, _identity: WaitIdentity, _key: WaitKey) -> R:
        """Return the reason of a wait."""
        return self._timer

    def _limit_reason(self, _limit: str) -> R:
        """Return the reason of a step that waits for its limit."""
        return self._timer

    async def _until_admitted(self, due_at_ms: int, limit: str) -> None:
        await self.until(due_at_ms, self._limit_reason(limit))

    async def _until_offered(self, limit: str, watch: Callable[[], Awaitable[None]]) -> None:
        await self.block(None, self._limit_reason(limit), watch)

    @property
    def _journal(self) -> Journal:
        assert self._attached is not None, "a function runs with a journal"
        return self._attached

    def _suspend(self) -> None:
        """Park: every branch waits for something that another run will see."""
        if not self.is_parking:
            self.is_parking = True
            self._journal.stop(Suspended())
            self._journal.lines.suspend(Suspended())
