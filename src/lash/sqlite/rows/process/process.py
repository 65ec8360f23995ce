"""The rows of processes on SQLite, and functions that the other rows of a process share."""

from __future__ import annotations

import msgspec

from lash.base.limits import MAX_INTEGER
from lash.errors import CorruptData
from lash.model.process.process import ChangeKind, PrunedProcesses
from lash.plan.key_range import KeyRange
from lash.plan.lease import LeaseRow
from lash.plan.process.change import ChangeCursor
from lash.plan.process.process import (
    NEW_PROJECTION,
    EncodedRegistration,
    ListedProcessRow,
    ProcessPageQuery,
    ProcessRow,
    PrunableProcessRow,
    RegisteredRow,
    VersionRow,
    missing_process,
)
from lash.plan.sealed import REGISTRATION
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlite.rows.process.change import read_end
from lash.sqlkit.rows import Flag, Text


class _OldestRow(msgspec.Struct, frozen=True, array_like=True):
    """The last of the oldest entries of the feed, and how many they are."""

    seq: int
    number: int


class SQLiteProcessRows:
    """The processes of one SQLite storage; the contract is `lash.stores.process.process.ProcessRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(self, encoded: EncodedRegistration) -> RegisteredRow:
        return await self._database.write_briefly(lambda transaction: register(transaction, encoded))

    async def row(self, process_id: str) -> ProcessRow | None:
        return self._database.read(lambda reader: reader.one(ProcessRow, "process_row", process_id=process_id))

    async def page(self, wanted: ProcessPageQuery) -> list[ListedProcessRow]:
        fits = wanted.filter

        def body(reader: Reader) -> list[ListedProcessRow]:
            return reader.all(
                ListedProcessRow,
                wanted.query,
                process_id=fits.process_id,
                definition_hash=wanted.definition_hash,
                wake_session_id=fits.wake_session_id,
                parent_process_id=fits.parent_process_id,
                originator_session_id=fits.originator_session_id,
                label=fits.label,
                kind=fits.kind,
                waiting=None if fits.waiting is None else int(fits.waiting),
                parked=None if fits.parked is None else int(fits.parked),
                with_state=int(wanted.with_state),
                now_ms=reader.now_ms,
                status=None if fits.status is None else fits.status.value,
                created_after_ms=fits.created_after_ms,
                created_before_ms=fits.created_before_ms,
                before=wanted.before,
                limit=wanted.limit,
            )

        return await self._database.read_in_thread(body)

    async def ids(self, within: KeyRange, limit: int) -> list[str]:
        rows = self._database.read(
            lambda reader: reader.all(Text, "process_ids", first=within.first, end=within.end, limit=limit)
        )
        return [row.text for row in rows]

    async def runnable(self, limit: int, after: str) -> list[ProcessRow]:
        return self._database.read(
            lambda reader: reader.all(ProcessRow, "process_runnable", after=after, limit=limit, now_ms=reader.now_ms)
        )

    async def versions(self) -> list[VersionRow]:
        return await self._database.read_in_thread(lambda reader: reader.all(VersionRow, "process_versions"))

    async def prune(self, ended_before_ms: int, through: ChangeCursor | None, limit: int) -> PrunedProcesses:
        def body(transaction: Transaction) -> PrunedProcesses:
            if through is not None and through.epoch != read_end(transaction).epoch:
                return PrunedProcesses()
            rows = transaction.all(
                PrunableProcessRow,
                "process_prunable",
                ended_before_ms=ended_before_ms,
                through=MAX_INTEGER if through is None else through.seq,
                limit=limit + 1,
            )
            # The feed first: entries that it is pruned of need not be kept apart from their processes.
            _forget_changes(transaction, 0 if through is None else through.seq)
            for row in rows[:limit]:
                _prune(transaction, row)
            ids = tuple(row.process_id for row in rows[:limit])
            return PrunedProcesses(pruned_process_ids=ids, more=len(rows) > limit)

        return await self._database.write(body)

    async def prune_changes(self, before_ms: int, limit: int) -> int:
        def body(transaction: Transaction) -> int:
            oldest = transaction.one(_OldestRow, "change_before", before_ms=before_ms, limit=limit, after=0)
            if oldest is None or not oldest.number:
                return 0
            _forget_changes(transaction, oldest.seq)
            return oldest.number

        return await self._database.write(body)


def find_process(reader: Reader, process_id: str) -> ProcessRow:
    """Return the row of a process, or raise ProcessNotFound or ProcessPruned."""
    row = reader.one(ProcessRow, "process_row", process_id=process_id)
    if row is None:
        pruned = reader.one(Flag, "process_is_pruned", process_id=process_id)
        raise missing_process(process_id, pruned=pruned is not None and pruned.value)
    return row


def process_lease_row(reader: Reader, process_key: int) -> LeaseRow:
    """Return the lease row that every process has."""
    row = reader.one(LeaseRow, "process_lease_row", process_key=process_key)
    if row is None:
        raise CorruptData(f"the process of key {process_key} has no lease row")
    return row


def register(transaction: Transaction, encoded: EncodedRegistration) -> RegisteredRow:
    """Insert a process unless its id is taken, inside any write transaction."""
    registration = encoded.registration
    process_id = registration.process_id
    created = transaction.run(
        "process_insert",
        process_id=process_id,
        registration_hash=encoded.registration_hash,
        registration=transaction.seals.text(REGISTRATION, encoded.body, process_id),
        recovery=registration.recovery.value,
        kind=encoded.kind,
        label=encoded.label,
        definition_hash=encoded.definition_hash,
        originator_session_id=encoded.originator_session_id,
        parent_process_id=encoded.parent_process_id,
        wake_session_id=registration.wake_session_id,
        environment_ref=registration.environment_ref,
        projection=NEW_PROJECTION,
        now_ms=transaction.now_ms,
    )
    if created:
        transaction.run(
            "process_insert_lease", process_id=process_id, runnable=int(encoded.runnable), now_ms=transaction.now_ms
        )
        transaction.run("process_forget_tombstone", process_id=process_id)
    return RegisteredRow(row=find_process(transaction, process_id), created=created > 0)


def note_change(transaction: Transaction, process_id: str, kind: ChangeKind, status: str | None = None) -> None:
    """Add an entry to the feed that is neither an event nor a registration."""
    transaction.run("change_insert", process_id=process_id, kind=kind.value, status=status, now_ms=transaction.now_ms)


def _forget_changes(transaction: Transaction, through: int) -> None:
    """Let the feed begin after a position."""
    # The floor first: it is raised no further than the end, which the rows are a part of.
    transaction.run("change_raise_floor", through=through)
    transaction.run("change_forget", through=through)


def _prune(transaction: Transaction, row: PrunableProcessRow) -> None:
    # Before the process is removed: its last event may have the highest number of the feed.
    note_change(transaction, row.process_id, ChangeKind.PRUNED, status=row.status)
    transaction.run("change_keep", process_key=row.process_key)
    transaction.run("process_delete", process_key=row.process_key)
    transaction.run(
        "process_bury",
        process_id=row.process_id,
        status=row.status,
        fencing=row.fencing,
        now_ms=transaction.now_ms,
    )
