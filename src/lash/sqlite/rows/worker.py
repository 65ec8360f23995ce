"""The rows of workers on SQLite."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from lash.backend.notification import BEAT
from lash.base.codec import decode
from lash.errors import CorruptData
from lash.plan.worker import GONE_BEATS, LATE_BEATS, FleetRow, HoldingRow, NeighbourRow, WorkerRow
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.wake import open_wake_directory


class _Held(msgspec.Struct, frozen=True, array_like=True):
    """One session or process that a worker runs."""

    worker_id: str
    is_process: bool
    id: str


class SQLiteWorkerRows:
    """The workers of one SQLite storage; the contract is `lash.stores.worker.WorkerRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> tuple[int, list[WorkerRow]]:
        def body(reader: Reader) -> tuple[int, list[WorkerRow]]:
            return reader.now_ms, reader.all(WorkerRow, "worker_all")

        return self._database.read(body)

    async def holding(self, worker_ids: Collection[str], limit: int) -> list[HoldingRow]:
        def body(reader: Reader) -> list[HoldingRow]:
            wanted = json_array(worker_ids)
            found: dict[str, HoldingRow] = {}
            for row in reader.all(_Held, "worker_holding", worker_ids=wanted, now_ms=reader.now_ms, limit=limit):
                held = found.setdefault(row.worker_id, HoldingRow(row.worker_id, [], []))
                (held.process_ids if row.is_process else held.session_ids).append(row.id)
            return list(found.values())

        return self._database.read(body)

    async def drain(self, worker_id: str) -> bool:
        drained = await self._database.write_briefly(
            lambda write: write.one(_Drained, "worker_drain", worker_id=worker_id)
        )
        directory = open_wake_directory(self._database.path)
        if drained is not None and drained.channel is not None and directory is not None:
            directory.send(drained.channel, f"operator {BEAT}")
        return drained is not None

    async def leave(self, worker_id: str) -> bool:
        return await self._database.write_briefly(lambda write: write.run("worker_leave", worker_id=worker_id) > 0)


class _Drained(msgspec.Struct, frozen=True, array_like=True):
    """A worker that was drained."""

    channel: str | None


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """The place of a worker among the others."""

    live: int
    rank: int
    status: str
    alike: str


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
    alike = decode(place.alike, list[str], "the workers that take the same sessions")
    return FleetRow(place.live, place.rank, place.status, near, alike)
