"""The registry of workers on every backend."""

from __future__ import annotations

from lash.base.limits import check_identifier, check_limit
from lash.model.worker import Holding, WorkerRecord
from lash.plan.worker import decode_worker
from lash.stores.worker import WorkerRows


class Workers:
    """The workers of one storage; the contract is `lash.stores.worker.WorkerStore`."""

    def __init__(self, rows: WorkerRows) -> None:
        self._rows = rows

    async def list(self) -> tuple[WorkerRecord, ...]:
        now_ms, rows = await self._rows.all()
        return tuple(decode_worker(row, now_ms) for row in rows)

    async def holding(self, worker_id: str, *, limit: int = 100) -> Holding:
        sessions, processes = await self._rows.holding(check_identifier("worker_id", worker_id), check_limit(limit))
        return Holding(session_ids=tuple(sessions), process_ids=tuple(processes))

    async def drain(self, worker_id: str) -> bool:
        return await self._rows.drain(check_identifier("worker_id", worker_id))

    async def leave(self, worker_id: str) -> bool:
        return await self._rows.leave(check_identifier("worker_id", worker_id))
