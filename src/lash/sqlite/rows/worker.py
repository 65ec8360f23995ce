"""The rows of workers on SQLite."""

from __future__ import annotations

import msgspec

from lash.errors import CorruptData
from lash.plan.worker import GONE_BEATS, LATE_BEATS, FleetRow, NeighbourRow, WorkerRow
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlkit.rows import Text


class SQLiteWorkerRows:
    """The workers of one SQLite storage; the contract is `lash.stores.worker.WorkerRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> tuple[int, list[WorkerRow]]:
        def body(reader: Reader) -> tuple[int, list[WorkerRow]]:
            return reader.now_ms, reader.all(WorkerRow, "worker_all")

        return self._database.read(body)

    async def holding(self, worker_id: str, limit: int) -> tuple[list[str], list[str]]:
        def body(reader: Reader) -> tuple[list[str], list[str]]:
            def names(query: str) -> list[str]:
                rows = reader.all(Text, query, worker_id=worker_id, now_ms=reader.now_ms, limit=limit)
                return [row.text for row in rows]

            return names("worker_sessions"), names("worker_processes")

        return self._database.read(body)

    async def drain(self, worker_id: str) -> bool:
        return await self._database.write_briefly(lambda write: write.run("worker_drain", worker_id=worker_id) > 0)

    async def leave(self, worker_id: str) -> bool:
        return await self._database.write_briefly(lambda write: write.run("worker_leave", worker_id=worker_id) > 0)


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """The place of a worker among the others."""

    live: int
    rank: int
    status: str


def beat(transaction: Transaction, worker: WorkerRow) -> FleetRow:
    """Write a beat, remove workers that are gone, and return what the worker learns about the others."""
    worker_id, now_ms = worker.worker_id, transaction.now_ms
    stored = msgspec.structs.asdict(worker)
    del stored["started_at_ms"], stored["seen_at_ms"]
    transaction.run("worker_beat", **stored, now_ms=now_ms)
    transaction.run("worker_remove_gone", worker_id=worker_id, gone_beats=GONE_BEATS, now_ms=now_ms)
    place = transaction.one(_Place, "worker_fleet", worker_id=worker_id, late_beats=LATE_BEATS, now_ms=now_ms)
    if place is None:
        raise CorruptData("query worker_fleet returned no row")
    near = transaction.all(NeighbourRow, "worker_neighbours", worker_id=worker_id, boot_id=worker.boot_id)
    return FleetRow(place.live, place.rank, place.status, near)
