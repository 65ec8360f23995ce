"""Moves a whole storage into an empty one, row by row, on either backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from lash.base.shapes import read_json
from lash.errors import ConfigError, Conflict, CorruptData
from lash.model.value import Count, Value
from lash.stores.storage import Storage
from lash.stores.table_rows import HasRows, Row, RowStore, RowTable, RowValue
from lash.transfer.progress import Meter, OnProgress

_SECRETS: Final = "lash_secrets"
"""The row in which the target records the progress of a move."""
_FREE_LEASE: Final[dict[str, RowValue]] = {
    "owner_id": None,
    "incarnation_id": None,
    "process": None,
    "token": None,
    "claimed_at_ms": 0,
    "expires_at_ms": 0,
}
_FREED: Final[dict[str, dict[str, RowValue]]] = {
    "lash_session_leases": _FREE_LEASE,
    "lash_process_leases": _FREE_LEASE,
    "lash_batches": dict.fromkeys(("claim_id", "claim_token", "claim_lease_fencing", "claim_expires_at_ms")),
}
"""Columns about holders, which are cleared in the target; fencing numbers and attempts stay."""
_FIRST_PAGE: Final = 8
_LARGEST_PAGE: Final = 500
_PAGE_BYTES: Final = 4 * 1024 * 1024


class MoveReport(Value, frozen=True, kw_only=True):
    """The rows of each table in the target, and how many of all existed when this run started."""

    rows: dict[str, Count]
    resumed_at: Count


class _Mark(msgspec.Struct, frozen=True):
    """The record of an unfinished move: the state of the source at its start, and the last key of each table.

    A key of bytes is not needed: no table has one.
    """

    counts: dict[str, int]
    pulse: tuple[int, ...]
    places: dict[str, tuple[int | str, ...]]


async def move_storage(source: Storage, target: Storage, *, progress: OnProgress | None = None) -> MoveReport:
    """Copy every row under its key into an empty storage; live activity is left out, leases and claims are freed.

    Killed and run again, it goes on behind the last row. A target that has something of its own, a target that an
    unfinished move of another source has begun, and a source that is used meanwhile are refused as `Conflict`. The
    source stays unchanged. Open the target again to use it.
    """
    move = _Move(_rows(source), _rows(target), progress)
    mark = await move.begin()
    return await move.run(mark)


def _rows(storage: Storage) -> RowStore:
    if not isinstance(storage, HasRows):
        raise ConfigError(f"a {type(storage).__name__} gives no access to its rows and cannot be moved")
    return storage.rows


class _Move:
    """One run of a move."""

    def __init__(self, source: RowStore, target: RowStore, progress: OnProgress | None) -> None:
        self._source = source
        self._target = target
        self._progress = progress

    async def begin(self) -> _Mark:
        """Return the progress of the target, after checking that it is empty or the target of this move."""
        await self._require_alike()
        if await self._source.mark() is not None:
            raise Conflict("the source is itself the target of a move that was not finished; finish that first")
        now = _Mark(counts=await _counts(self._source), pulse=await self._source.pulse(), places={})
        noted = await self._target.mark()
        if noted is None:
            await self._require_empty()
            await self._target.begin(msgspec.json.encode(now))
            return now
        mark = read_json(noted, _Mark)
        if (mark.counts, mark.pulse) != (now.counts, now.pulse):
            raise Conflict(
                "the target holds a part of a move from another source, or from this one before it was changed; "
                "remove the target and start again"
            )
        return mark

    async def run(self, mark: _Mark) -> MoveReport:
        there = await self._arrived()
        resumed_at = sum(there.values())
        meter = Meter("row", sum(mark.counts.values()), self._progress)
        meter.step(resumed_at)
        tables = {table.name: table for table in self._source.tables}
        # In the order of the target, which may have foreign keys that the source does not have.
        for table in self._target.tables:
            mark = await self._table(tables[table.name], mark, meter)
        # Before the record is dropped: an incomplete move must stay recognisable as unfinished.
        await self._require_unchanged(mark)
        arrived = await self._arrived()
        if arrived != mark.counts:
            wrong = sorted(name for name, count in mark.counts.items() if arrived[name] != count)
            raise CorruptData(f"after the move the rows are not as many as in the source, in {', '.join(wrong)}")
        await self._target.finish(await self._source.sequences(), before=msgspec.json.encode(mark))
        return MoveReport(rows=arrived, resumed_at=resumed_at)

    async def _table(self, table: RowTable, mark: _Mark, meter: Meter) -> _Mark:
        places = [table.columns.index(column) for column in table.key]
        limit = _FIRST_PAGE
        while rows := await self._source.read(table, mark.places.get(table.name), limit):
            last = tuple(_key_value(rows[-1][place]) for place in places)
            before = msgspec.json.encode(mark)
            mark = msgspec.structs.replace(mark, places={**mark.places, table.name: last})
            await self._target.write(table, _freed(table, rows), before=before, mark=msgspec.json.encode(mark))
            meter.step(len(rows))
            limit = _next_page(limit, rows)
        return mark

    async def _arrived(self) -> dict[str, int]:
        """Count the rows of the target without the record of the move."""
        found = await _counts(self._target)
        return {**found, _SECRETS: found[_SECRETS] - 1}

    async def _require_alike(self) -> None:
        here, there = await self._source.schema_number(), await self._target.schema_number()
        if here != there:
            raise Conflict(f"the source has migration {here} and the target {there}; migrate both first")
        if _columns(self._source) != _columns(self._target):
            raise ConfigError("bug in lash: the backends have different tables or columns")
        # Check now, not after hours, that sequences may be read and set.
        await self._source.sequences()
        await self._target.sequences()

    async def _require_empty(self) -> None:
        """Raise Conflict if the target has any row but the secret that every opened storage creates."""
        found = await _counts(self._target)
        full = sorted(name for name, count in found.items() if count and name != _SECRETS)
        if full:
            raise Conflict(f"the target is not empty, there are rows in {', '.join(full)}; move into a new storage")

    async def _require_unchanged(self, mark: _Mark) -> None:
        if (await _counts(self._source), await self._source.pulse()) != (mark.counts, mark.pulse):
            raise Conflict(
                "the source changed during the move, so the target is not a copy of it; stop every worker and program "
                "that uses the source, remove the target and start again"
            )


async def _counts(rows: RowStore) -> dict[str, int]:
    return {table.name: await rows.count(table) for table in rows.tables}


def _columns(rows: RowStore) -> Mapping[str, tuple[str, ...]]:
    return {table.name: table.columns for table in rows.tables}


def _freed(table: RowTable, rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows with their holders cleared."""
    free = _FREED.get(table.name)
    if free is None:
        return rows
    return [tuple(free.get(column, value) for column, value in zip(table.columns, row, strict=True)) for row in rows]


def _key_value(value: RowValue) -> int | str:
    if value is None or isinstance(value, bytes):
        raise CorruptData("a key holds neither a number nor a text")
    return value


def _next_page(limit: int, rows: Sequence[Row]) -> int:
    """Return how many rows to read next: by the bytes that a transaction should have, and at most twice as many."""
    largest = max(sum(len(value) for value in row if isinstance(value, str | bytes)) for row in rows)
    return max(1, min(limit * 2, _LARGEST_PAGE, _PAGE_BYTES // max(largest, 1)))
