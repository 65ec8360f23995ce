"""The contract of named limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lash.model.limit import LimitState, Rate, Reservation

if TYPE_CHECKING:
    from lash.plan.limit import LimitRow, ReservedRow


class LimitStore(Protocol):
    """Limits by name and key. A limit exists as long as reservations reach into the future."""

    async def reserve(self, name: str, key: str = "", *, rate: Rate) -> Reservation:
        """Reserve the next free moment under a limit: now, or later if the rate is used up. One write.

        Reservations get their moments in the order in which they are made, over all callers of the storage. Not
        idempotent, and never taken back: a caller that does not start leaves its moment unused, so the rate is never
        exceeded. Each reservation brings its rate along. A changed one decides from then on; earlier reservations keep
        their moments.
        """
        ...

    async def list(self, *, limit: int = 100, after: tuple[str, str] | None = None) -> tuple[LimitState, ...]:
        """Return at most ``limit`` limits in use, by name and key, after the name and key of ``after``."""
        ...

    async def prune(self, *, limit: int = 1_000) -> int:
        """Remove at most ``limit`` limits that no reservation uses any more, and return how many. Workers call it."""
        ...


class LimitRows(Protocol):
    """The rows of limits in one database; `lash.backend.limit.Limits` makes a `LimitStore` of them."""

    async def reserve(self, name: str, key: str, interval_us: int, burst: int) -> ReservedRow:
        """Move the time at which the limit is free by one interval, from now at the earliest, in one statement."""
        ...

    async def page(self, limit: int, after: tuple[str, str]) -> list[LimitRow]: ...

    async def prune(self, limit: int) -> int: ...
