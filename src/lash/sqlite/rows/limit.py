"""Named limits on SQLite."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

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
from lash.sqlite.engine.database import Database, Transaction
from lash.sqlite.engine.parameters import json_array


class _Offered(msgspec.Struct, frozen=True, array_like=True):
    """A place that is offered, and its run."""

    place: int
    session_key: int | None
    process_key: int | None
    process_id: str | None


class SQLiteLimitRows:
    """The limits of one SQLite storage; the contract is `lash.stores.limit.LimitRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(self, name: str, key: str, interval_us: int, burst: int) -> ReservedRow:
        def body(transaction: Transaction) -> ReservedRow:
            row = transaction.one(
                ReservedRow,
                "limit_reserve",
                name=name,
                key=key,
                interval_us=interval_us,
                burst=burst,
                now_ms=transaction.now_ms,
            )
            if row is None:
                raise CorruptData("query limit_reserve returned no row")
            return row

        return await self._database.write_briefly(body)

    async def take(self, request: PlaceRequest, concurrency: int, offer_ms: int) -> tuple[bool, Woken]:
        def body(transaction: Transaction) -> tuple[bool, Woken]:
            now_ms, line = transaction.now_ms, LineRow(request.name, request.key)
            transaction.run("limit_line", name=line.name, key=line.key, concurrency=concurrency, now_ms=now_ms)
            entered = require_entered(_enter(transaction, request), request)
            if entered.is_held:
                return True, Woken()
            woken = _serve(transaction, line, offer_ms, own=entered.place)
            return transaction.run("limit_hold", place=entered.place, now_ms=now_ms) > 0, woken

        return await self._database.write_briefly(body)

    async def leave(self, request: PlaceRequest, offer_ms: int) -> tuple[bool, Woken]:
        def body(transaction: Transaction) -> tuple[bool, Woken]:
            if not transaction.run("limit_leave", holder=request.holder, fencing=request.fence.fencing):
                return False, Woken()
            return True, _serve(transaction, LineRow(request.name, request.key), offer_ms)

        return await self._database.write_briefly(body)

    async def pass_on(self, limit: int, offer_ms: int) -> tuple[int, Woken]:
        def body(transaction: Transaction) -> tuple[int, Woken]:
            lines = transaction.all(LineRow, "limit_lines_due", limit=limit, now_ms=transaction.now_ms)
            woken = Woken()
            for line in lines:
                woken = woken.merged(_serve(transaction, line, offer_ms))
            return len(lines), woken

        return await self._database.write(body)

    async def states(self, holders: Collection[str]) -> list[PlaceStateRow]:
        wanted = json_array(holders)
        return self._database.read(lambda reader: reader.all(PlaceStateRow, "limit_states", holders=wanted))

    async def places(self, name: str, key: str, limit: int, after: int) -> list[PlaceRow]:
        return self._database.read(
            lambda reader: reader.all(PlaceRow, "limit_places", name=name, key=key, limit=limit, after=after)
        )

    async def page(self, limit: int, after: tuple[str, str]) -> list[LimitRow]:
        name, key = after
        return self._database.read(
            lambda reader: reader.all(LimitRow, "limit_page", name=name, key=key, limit=limit, now_ms=reader.now_ms)
        )

    async def prune(self, limit: int, unused_ms: int) -> int:
        def body(transaction: Transaction) -> int:
            now_ms = transaction.now_ms
            free = transaction.run("limit_prune", limit=limit, now_ms=now_ms)
            return free + transaction.run("limit_prune_lines", limit=limit, now_ms=now_ms, unused_ms=unused_ms)

        return await self._database.write_briefly(body)


def _enter(transaction: Transaction, request: PlaceRequest) -> EnteredRow | None:
    return transaction.one(
        EnteredRow,
        "limit_enter",
        name=request.name,
        key=request.key,
        holder=request.holder,
        session_id=request.session_id,
        process_id=request.process_id,
        token=request.fence.token,
        fencing=request.fence.fencing,
        now_ms=transaction.now_ms,
    )


def _serve(transaction: Transaction, line: LineRow, offer_ms: int, *, own: int = 0) -> Woken:
    """Offer the free places of a line to the runs that wait, and wake these, except for the own place."""
    now_ms, name, key = transaction.now_ms, line.name, line.key
    transaction.run("limit_drop", name=name, key=key, now_ms=now_ms)
    offered = transaction.all(_Offered, "limit_offer", name=name, key=key, until_ms=now_ms + offer_ms)
    transaction.run("limit_check_at", name=name, key=key)
    others = [each for each in offered if each.place != own]
    for each in others:
        if each.session_key is not None:
            transaction.run("work_note_wake", session_key=each.session_key)
        else:
            transaction.run("work_wake_own", process_key=each.process_key, now_ms=now_ms)
    return Woken(
        sum(each.session_key is not None for each in others),
        [each.process_id for each in others if each.process_id is not None],
    )
