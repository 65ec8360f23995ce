"""Parking a turn: it holds neither lease nor slot until there is a reason to continue."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from lash.base.limits import MAX_IDENTIFIER_LENGTH
from lash.errors import LeaseLost
from lash.model.effect import TurnScope
from lash.model.queue import ClaimedTurn
from lash.model.wait import CustomIdentity, WaitIdentity, WaitKey
from lash.runtime.outage import HeldLease
from lash.runtime.steps.journal import Journal
from lash.runtime.steps.parking import Parking

if TYPE_CHECKING:
    from lash.runtime.core import Core

_TIMER: Final = "timer"


class TurnParking(Parking[str]):
    """What the branches of one run of a turn wait for; the contract is `lash.runtime.steps.waits.WaitingRun`."""

    def __init__(self, core: Core, claimed: ClaimedTurn, lease: HeldLease) -> None:
        super().__init__(core.storage, lease, began_ms=claimed.lease.claimed_at_ms, timer=_TIMER)
        self._claimed = claimed
        self.on_yield: Callable[[bool], None] | None = None
        """Called when the run begins to wait in memory, and when it no longer does."""
        self._yielded = 0

    def attach(self, journal: Journal) -> None:
        super().attach(journal)
        journal.limits.slot_yielded = self.slot_yielded

    @property
    def seed(self) -> str:
        scope = self._journal.scope
        assert isinstance(scope, TurnScope), "the journal of a turn has its scope"
        return f"{scope.session_id}\0{scope.turn_id}"

    @property
    def may_have_waited(self) -> bool:
        """Whether earlier runs of the turn may have been parked."""
        return self._claimed.wake_seq != 0

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

    @property
    def waiting_for(self) -> str:
        """What the turn waits for, as people read it: the first of it that is not a moment."""
        named = (name for name in self.reasons if name != _TIMER)
        return next(named, _TIMER)[:MAX_IDENTIFIER_LENGTH]

    async def park(self) -> bool:
        """Free the lease and park the turn; return False if it is ready instead, because it was woken meanwhile."""
        wake_seq, fence, leases = self._claimed.wake_seq, self._claimed.lease.fence, self.storage.leases
        assert wake_seq is not None, "only a turn that was claimed with its number of wakes is parked"
        until_ms, name = self.due_ms, self.waiting_for
        try:
            return await self.lease.bridge(
                "parking", leases.park, fence, wake_seq=wake_seq, until_ms=until_ms, waiting_for=name
            )
        except LeaseLost:
            # Without a holder it was parked, by a try whose answer was lost.
            if await self.lease.bridge("parking", leases.holder, fence.resource.id) is not None:
                raise
            return True

    def _reason(self, identity: WaitIdentity, key: WaitKey) -> str:
        return f"wait {identity.key if isinstance(identity, CustomIdentity) else key.key_id}"

    def _limit_reason(self, limit: str) -> str:
        return f"limit {limit}"
