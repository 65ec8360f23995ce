"""Fenced ends of processes on PostgreSQL, written together with those of other callers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, TypeAlias

from lash.errors import Conflict, InvalidInput
from lash.model.lease import LeaseFence
from lash.model.process.event import EventDraft
from lash.model.process.process import ProcessRecord
from lash.plan.process.event import InsertEvent, encode_projection
from lash.plan.process.process import ProcessRow, decode_process, record_after, row_after
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.batcher import StatementBatcher
from lash.postgres.engine.database import Database
from lash.postgres.rows.process.append import plan_insert
from lash.postgres.rows.process.rows import EndAnswer

MAX_TOGETHER: Final = 32
"""How many ends one statement takes; the statement says the same number."""

_Arguments: TypeAlias = tuple[object, ...]


class ProcessEnds:
    """Ends processes that this storage has seen; the ends of several callers share statements."""

    def __init__(self, database: Database, seen: ProcessCache) -> None:
        self._database = database
        self._seen = seen
        self._group: StatementBatcher[_Arguments, EndAnswer] = StatementBatcher(self._write, limit=MAX_TOGETHER)

    async def end(self, fence: LeaseFence, draft: EventDraft) -> ProcessRecord | None:
        """End a process under a live lease, and free that; None if it has to be looked at why that cannot be done."""
        async with self._seen.append_lock(fence.resource.id):
            row = self._seen.get(fence.resource.id)
            if row is None:
                return None
            record = decode_process(row)
            try:
                decision = plan_insert(record, row.process_key, draft)
            except (Conflict, InvalidInput):
                # It may have ended already, or be another process by now: the facts decide.
                return None
            projection = encode_projection(decision.projection)
            answer = await self._group.submit(row.process_key, _arguments(row, decision, projection, fence))
            if answer is None:
                return None
            # Only what was committed: a row that came to nothing could later be taken for another of the same number.
            self._seen.remember(row_after(row, projection, answer.now_ms))
            return record_after(record, projection, answer.now_ms)

    async def _write(self, asked: Mapping[Hashable, _Arguments]) -> Mapping[Hashable, EndAnswer]:
        columns = [list(column) for column in zip(*asked.values(), strict=True)]
        # A repeat after a lost connection is refused, and the facts then hold the end.
        answers = await self._database.write_all(EndAnswer, "process_lease_complete", *columns, repeatable=True)
        return {answer.process_key: answer for answer in answers}


def _arguments(row: ProcessRow, decision: InsertEvent, projection: str, fence: LeaseFence) -> _Arguments:
    """Return what ``process_lease_complete`` takes of one process, in its order."""
    event = decision.event
    return (
        *(row.process_key, row.last_sequence, row.wake_session_id),
        *(event.event_type, event.replay_key, decision.payload_hash, decision.payload),
        *(projection, decision.projection.status.value),
        *(fence.owner_id, fence.incarnation_id, fence.token, fence.fencing),
        decision.work.wakes_parent,
    )
