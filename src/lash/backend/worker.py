"""The registry of workers on every backend."""

from __future__ import annotations

from collections.abc import Collection

from lash.base.limits import check_identifier, check_identifiers, check_limit
from lash.model.worker import Holding, WorkerRecord
from lash.plan.worker import decode_holding, decode_worker
from lash.stores.worker import WorkerRows


class Workers:
    """The workers of one storage; the contract is `lash.stores.worker.WorkerStore`."""

    def __init__(self, rows: WorkerRows) -> None:
        self._rows = rows

    async def list(self) -> tuple[WorkerRecord, ...]:
        now_ms, rows = await self._rows.all()
        return tuple(decode_worker(row, now_ms) for row in rows)

    async def holding(self, worker_ids: Collection[str], *, limit: int = 100) -> dict[str, Holding]:
        wanted = check_identifiers("worker_ids", worker_ids)
        rows = {row.worker_id: row for row in await self._rows.holding(wanted, check_limit(limit))}
        return {worker_id: decode_holding(rows.get(worker_id)) for worker_id in wanted}

    async def drain(self, worker_id: str) -> bool:
        return await self._rows.drain(check_identifier("worker_id", worker_id))

    async def leave(self, worker_id: str) -> bool:
        return await self._rows.leave(check_identifier("worker_id", worker_id))
