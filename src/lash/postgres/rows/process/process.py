"""The rows of processes on PostgreSQL, and functions that the other rows of a process share."""

from __future__ import annotations

from typing import Final

import msgspec

from lash.base.seal import Seals
from lash.errors import StoreUnavailable
from lash.model.process.process import PrunedProcesses
from lash.plan.key_range import KeyRange
from lash.plan.process.change import START, ChangeCursor
from lash.plan.process.process import (
    NEW_PROJECTION,
    EncodedRegistration,
    ListedProcessRow,
    ProcessPageQuery,
    ProcessRow,
    RegisteredRow,
    VersionRow,
    missing_process,
)
from lash.plan.sealed import REGISTRATION
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.database import Database
from lash.sqlkit.rows import Flag, Number, Text

_MAX_TRIES: Final = 10
"""How often a registration is tried again after the process of its id was pruned in between."""
_MAX_CHANGES: Final = 10_000
"""How many changes of the feed one pruning removes at most, so that its statement stays short."""


class _PruneAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Which processes were removed, and whether more could be."""

    process_ids: list[str]
    more: bool


class PostgresProcessRows:
    """The processes of one PostgreSQL storage; the contract is `lash.stores.process.process.ProcessRows`."""

    def __init__(self, database: Database, cache: ProcessCache) -> None:
        self._database = database
        self._cache = cache

    async def register(self, encoded: EncodedRegistration) -> RegisteredRow:
        return await register(self._database, self._cache, encoded)

    async def row(self, process_id: str) -> ProcessRow | None:
        return await _row(self._database, self._cache, process_id)

    async def page(self, wanted: ProcessPageQuery) -> list[ListedProcessRow]:
        fits = wanted.filter
        return await self._database.read_all(
            ListedProcessRow,
            wanted.query,
            *(wanted.before, wanted.limit),
            *(wanted.definition_hash, fits.wake_session_id, fits.originator_session_id),
            *(fits.label, fits.kind, fits.waiting, None if fits.status is None else fits.status.value),
            *(fits.created_after_ms, fits.created_before_ms, fits.parked, wanted.with_state, fits.process_id),
            fits.parent_process_id,
        )

    async def ids(self, within: KeyRange, limit: int) -> list[str]:
        rows = await self._database.read_all(Text, "process_ids", within.first, within.end, limit)
        return [row.text for row in rows]

    async def runnable(self, limit: int, after: str) -> list[ProcessRow]:
        rows = await self._database.read_all(ProcessRow, "process_runnable", limit, after)
        # The caller is about to claim them; the claims then need no read.
        self._cache.remember_all(rows)
        return rows

    async def versions(self) -> list[VersionRow]:
        return await self._database.read_all(VersionRow, "process_versions")

    async def prune(self, ended_before_ms: int, through: ChangeCursor | None, limit: int) -> PrunedProcesses:
        position = (None, None) if through is None else (str(through.transaction_id), through.seq)
        epoch = None if through is None else through.epoch
        # The feed first: entries that it is pruned of need not be kept apart from their processes.
        more = await self._prune_changes(START if through is None else through)
        # Not repeated after a lost connection: the report would leave out what the first try removed.
        answer = await self._database.write_one(
            _PruneAnswer, "process_prune", ended_before_ms, *position, limit, epoch, repeatable=False
        )
        pruned = () if answer is None else tuple(answer.process_ids)
        for process_id in pruned:
            self._cache.forget(process_id)
        return PrunedProcesses(pruned_process_ids=pruned, more=more or (answer is not None and answer.more))

    async def prune_changes(self, before_ms: int, limit: int) -> int:
        # Not repeated after a lost connection: a repetition would count nothing.
        forgotten = await self._database.write_one(Number, "change_before", before_ms, limit, repeatable=False)
        return 0 if forgotten is None else forgotten.number

    async def _prune_changes(self, through: ChangeCursor) -> bool:
        """Remove changes up to a position, and return whether there may be more of them."""
        position = (str(through.transaction_id), through.seq)
        removed = await self._database.write_one(
            Number, "change_forget", *position, _MAX_CHANGES, through.epoch, repeatable=True
        )
        return removed is not None and removed.number == _MAX_CHANGES


async def register(database: Database, cache: ProcessCache, encoded: EncodedRegistration) -> RegisteredRow:
    """Insert a process unless its id is taken, and return the row that is then stored."""
    process_id = encoded.registration.process_id
    arguments = registration_arguments(database.seals, encoded, NEW_PROJECTION, 0)
    for _ in range(_MAX_TRIES):
        row = await database.write_one(ProcessRow, "process_register", *arguments, encoded.runnable, repeatable=True)
        if row is not None:
            cache.remember(row)
            return RegisteredRow(row=row, created=True)
        row = await _row(database, cache, process_id)
        if row is not None:
            return RegisteredRow(row=row, created=False)
    raise StoreUnavailable(f"process {process_id!r} was pruned {_MAX_TRIES} times during its registration; retry it")


def registration_arguments(
    seals: Seals, encoded: EncodedRegistration, projection: str, last_sequence: int
) -> tuple[object, ...]:
    """Return the parameters of a registration, in the order of the statements that insert a process."""
    registration = encoded.registration
    body = seals.text(REGISTRATION, encoded.body, registration.process_id)
    return (
        *(registration.process_id, encoded.registration_hash, body, registration.recovery.value),
        *(encoded.kind, encoded.label, encoded.definition_hash, encoded.originator_session_id),
        *(registration.wake_session_id, registration.environment_ref, encoded.parent_process_id),
        *(projection, last_sequence),
    )


async def missing_record(database: Database, cache: ProcessCache, process_id: str) -> Exception:
    """Return the error for a process that has no row."""
    cache.forget(process_id)
    pruned = await database.read_one(Flag, "process_is_pruned", process_id)
    return missing_process(process_id, pruned=pruned is not None and pruned.value)


async def _row(database: Database, cache: ProcessCache, process_id: str) -> ProcessRow | None:
    row = await database.read_one(ProcessRow, "process_row", process_id)
    if row is None:
        cache.forget(process_id)
    else:
        cache.remember(row)
    return row
