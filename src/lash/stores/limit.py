"""The contract of named limits."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from lash.model.lease import LeaseFence
from lash.model.limit import LimitPlace, LimitState, Rate, Reservation

if TYPE_CHECKING:
    from lash.plan.limit import LimitRow, PlaceRequest, PlaceRow, PlaceStateRow, ReservedRow, Woken


class LimitStore(Protocol):
    """Limits by name and key: how often something starts, and how much of it runs at once.

    A limit exists as long as reservations reach into the future, or places are held or waited for.
    """

    async def reserve(self, name: str, key: str = "", *, rate: Rate) -> Reservation:
        """Reserve the next free moment under a limit: now, or later if the rate is used up. One write.

        Reservations get their moments in the order in which they are made, over all callers of the storage. Not
        idempotent, and never taken back: a caller that does not start leaves its moment unused, so the rate is never
        exceeded. Each reservation brings its rate along. A changed one decides from then on; earlier reservations keep
        their moments.
        """
        ...

    async def take(self, name: str, key: str = "", *, concurrency: int, fence: LeaseFence, step: str = "") -> bool:
        """Take a place under a limit on concurrency; return False if all are held, and wait in its line. One write.

        At most ``concurrency`` places are held, each by a live lease. They are given in the order in which runs asked,
        over all callers of the storage. A place is free once ``leave`` gives it back, or once the lease under which it
        was taken has been released or has expired. It is then offered for 30 seconds to the first run that waits, whose
        session or process is woken; the run calls ``take`` again. A run that does not come in this time loses its
        place in the line.

        Idempotent: the place belongs to the step of the session or process. A later run of it keeps a place that was
        not yet given to another run. Each call brings its concurrency along; another one decides from then on, also
        about runs that wait. A fence that does not hold raises LeaseLost.
        """
        ...

    async def leave(self, name: str, key: str = "", *, fence: LeaseFence, step: str = "") -> bool:
        """Give back a place, or stop waiting for one, and return whether there was one; the next run is woken.

        A place that a later run of the same step holds stays. It needs no live lease.
        """
        ...

    async def offered(self, name: str, key: str = "", *, fence: LeaseFence, step: str = "") -> None:
        """Return once a run that waits in memory should call ``take`` again; spurious returns are possible."""
        ...

    async def pass_on(self, *, limit: int = 100) -> int:
        """Offer the places of holders that died, and return how many lines were checked; workers call it.

        At most ``limit`` lines are checked, those in which a lease or an offer has expired while runs wait.
        """
        ...

    async def places(self, name: str, key: str = "", *, limit: int = 100, after: int = 0) -> tuple[LimitPlace, ...]:
        """Return at most ``limit`` places of a line after a number, held or waited for, in the order of their runs."""
        ...

    async def list(self, *, limit: int = 100, after: tuple[str, str] | None = None) -> tuple[LimitState, ...]:
        """Return at most ``limit`` limits in use, by name and key, after the name and key of ``after``."""
        ...

    async def prune(self, *, limit: int = 1_000) -> int:
        """Remove at most ``limit`` limits that nothing uses any more, and return how many. Workers call it."""
        ...


class LimitRows(Protocol):
    """The rows of limits in one database; `lash.backend.limit.Limits` makes a `LimitStore` of them."""

    async def reserve(self, name: str, key: str, interval_us: int, burst: int) -> ReservedRow:
        """Move the time at which the limit is free by one interval, from now at the earliest, in one statement."""
        ...

    async def take(self, request: PlaceRequest, concurrency: int, offer_ms: int) -> tuple[bool, Woken]:
        """Enter the line of a limit, offer its free places, and hold the own one if it is offered, all atomically."""
        ...

    async def leave(self, request: PlaceRequest, offer_ms: int) -> tuple[bool, Woken]:
        """Remove a place, and offer the free ones, all atomically."""
        ...

    async def pass_on(self, limit: int, offer_ms: int) -> tuple[int, Woken]:
        """Offer the free places of the lines that are due for a check, all atomically."""
        ...

    async def states(self, holders: Collection[str]) -> list[PlaceStateRow]:
        """Return the states of those of the places that exist, in one query."""
        ...

    async def places(self, name: str, key: str, limit: int, after: int) -> list[PlaceRow]: ...

    async def page(self, limit: int, after: tuple[str, str]) -> list[LimitRow]: ...

    async def prune(self, limit: int, unused_ms: int) -> int:
        """Remove so many limits that are free, and so many lines that are empty and unused for so long."""
        ...
