"""Named limits on every backend."""

from __future__ import annotations

from lash.base.limits import check_limit
from lash.model.limit import LimitState, Rate, Reservation
from lash.plan.limit import check_name, check_rate, decode_limit, decode_reservation, interval_us
from lash.stores.limit import LimitRows


class Limits:
    """The limits of one storage; the contract is `lash.stores.limit.LimitStore`."""

    def __init__(self, rows: LimitRows) -> None:
        self._rows = rows

    async def reserve(self, name: str, key: str = "", *, rate: Rate) -> Reservation:
        check_rate(rate)
        row = await self._rows.reserve(*check_name(name, key), interval_us(rate), rate.burst)
        return decode_reservation(row, rate)

    async def list(self, *, limit: int = 100, after: tuple[str, str] | None = None) -> tuple[LimitState, ...]:
        start = ("", "") if after is None else check_name(*after)
        return tuple(decode_limit(row) for row in await self._rows.page(check_limit(limit), start))

    async def prune(self, *, limit: int = 1_000) -> int:
        return await self._rows.prune(check_limit(limit))
