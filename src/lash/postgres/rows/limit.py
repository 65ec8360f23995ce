"""Named limits on PostgreSQL; the server's clock decides."""

from __future__ import annotations

from collections.abc import Collection

from lash.errors import CorruptData
from lash.plan.limit import (
    EnteredRow,
    LimitRow,
    LineRow,
    PlaceRequest,
    PlaceRow,
    PlaceStateRow,
    ReservedRow,
    Woken,
    require_entered,
)
from lash.postgres.engine.database import Database, Transaction
from lash.sqlkit.rows import Number


class PostgresLimitRows:
    """The limits of one PostgreSQL storage; the contract is `lash.stores.limit.LimitRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(self, name: str, key: str, interval_us: int, burst: int) -> ReservedRow:
        arguments = (name, key, interval_us, burst)
        row = await self._database.write_one(ReservedRow, "limit_reserve", *arguments, repeatable=False)
        if row is None:
            raise CorruptData("query limit_reserve returned no row")
        return row

    async def take(self, request: PlaceRequest, concurrency: int, offer_ms: int) -> tuple[bool, Woken]:
        line = LineRow(request.name, request.key)
        async with self._database.transaction() as transaction:
            await transaction.run("limit_line", line.name, line.key, concurrency)
            entered = require_entered(await _enter(transaction, request), request)
            if entered.is_held:
                return True, Woken()
            woken = await _serve(transaction, line, offer_ms, own=entered.place)
            return await transaction.run("limit_hold", entered.place) > 0, woken

    async def leave(self, request: PlaceRequest, offer_ms: int) -> tuple[bool, Woken]:
        line = LineRow(request.name, request.key)
        async with self._database.transaction() as transaction:
            # The line first, as in every other transaction about it.
            if await transaction.one(Number, "limit_lock", line.name, line.key) is None:
                return False, Woken()
            if not await transaction.run("limit_leave", request.holder, request.fence.fencing):
                return False, Woken()
            return True, await _serve(transaction, line, offer_ms)

    async def pass_on(self, limit: int, offer_ms: int) -> tuple[int, Woken]:
        async with self._database.transaction() as transaction:
            lines = await transaction.all(LineRow, "limit_lines_due", limit)
            woken = Woken()
            for line in lines:
                woken = woken.merged(await _serve(transaction, line, offer_ms))
            return len(lines), woken

    async def states(self, holders: Collection[str]) -> list[PlaceStateRow]:
        return await self._database.read_all(PlaceStateRow, "limit_states", list(holders))

    async def places(self, name: str, key: str, limit: int, after: int) -> list[PlaceRow]:
        return await self._database.read_all(PlaceRow, "limit_places", name, key, after, limit)

    async def page(self, limit: int, after: tuple[str, str]) -> list[LimitRow]:
        return await self._database.read_all(LimitRow, "limit_page", *after, limit)

    async def prune(self, limit: int, unused_ms: int) -> int:
        async with self._database.transaction() as transaction:
            free = await transaction.run("limit_prune", limit)
            return free + await transaction.run("limit_prune_lines", unused_ms, limit)


async def _enter(transaction: Transaction, request: PlaceRequest) -> EnteredRow | None:
    return await transaction.one(
        EnteredRow,
        "limit_enter",
        *(request.name, request.key, request.holder, request.session_id, request.process_id),
        *(request.fence.token, request.fence.fencing),
    )


async def _serve(transaction: Transaction, line: LineRow, offer_ms: int, *, own: int = 0) -> Woken:
    """Offer the free places of a line to the runs that wait, and wake these, except for the own place."""
    woken = await transaction.one(Woken, "limit_serve", line.name, line.key, offer_ms, own)
    if woken is None:
        raise CorruptData("query limit_serve returned no row")
    return woken
