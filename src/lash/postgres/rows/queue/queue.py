"""Batches on PostgreSQL; the server's clock decides."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lash.backend.queue_page import QUEUE_PAGES
from lash.base.seal import Seals
from lash.model.queue import BatchDraft
from lash.plan.queue.page import PreparedQueuePage, QueuedRow
from lash.plan.queue.queue import BatchRow, EncodedBatch, KnownKey, SourceKeyRow
from lash.plan.sealed import BATCH
from lash.postgres.engine.database import Database
from lash.postgres.rows.session.lookup import missing
from lash.sqlkit.rows import OptionalText, Text


class _KnownKeyAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A reserved source key, and its batch if it is still queued."""

    key: SourceKeyRow
    batches: list[BatchRow]


class BatchesAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Some batches of a session that exists."""

    session_key: int
    batches: list[BatchRow]


class PostgresQueueRows:
    """The batches of one PostgreSQL storage; the contract is `lash.stores.queue.QueueRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def enqueue(self, batch: EncodedBatch, batch_id: str) -> BatchRow | KnownKey:
        row = await self._database.write_one(
            BatchRow,
            "queue_enqueue",
            *enqueue_arguments(self._database.seals, batch, batch_id),
            # Without a source key, a retry after a lost connection would enqueue twice.
            repeatable=batch.draft.source_key is not None,
        )
        return await read_known_key(self._database, batch.draft) if row is None else row

    async def cancel(self, session_id: str, batch_id: str) -> BatchRow | None:
        answer = await self._database.write_one(BatchesAnswer, "queue_cancel", session_id, batch_id, repeatable=False)
        if answer is None:
            raise await missing(self._database, session_id)
        return answer.batches[0] if answer.batches else None

    async def page(self, session_id: str, *, limit: int, after_seq: int, pending_only: bool) -> Sequence[BatchRow]:
        answer = await self._database.read_one(BatchesAnswer, "queue_page", session_id, after_seq, limit, pending_only)
        if answer is None:
            raise await missing(self._database, session_id)
        return answer.batches

    async def page_all(self, wanted: PreparedQueuePage) -> Sequence[QueuedRow]:
        ids = () if wanted.ids is None else wanted.ids
        arguments = (wanted.after, wanted.state, wanted.limit, *ids)
        return await self._database.read_all(QueuedRow, QUEUE_PAGES[wanted.way], *arguments)

    async def ready_sessions(self, limit: int, after: str | None) -> Sequence[str]:
        return [row.text for row in await self._database.read_all(Text, "queue_ready_sessions", limit, after)]

    async def ready_agents(self, limit: int) -> Sequence[str | None]:
        return [row.text for row in await self._database.read_all(OptionalText, "queue_ready_agents", limit)]


def enqueue_arguments(seals: Seals, batch: EncodedBatch, batch_id: str) -> tuple[object, ...]:
    """Return the columns of a new batch in the order of the statements' parameters."""
    draft, payloads = batch.draft, seals.text(BATCH, batch.payloads, batch_id)
    return (
        *(draft.session_id, batch_id, draft.source_key, batch.content_hash, batch.lane),
        *(draft.delivery.value, draft.slot.value, draft.merge_key, draft.available_at_ms, payloads),
        *(draft.wake_session_id, draft.priority, batch.agent),
    )


async def read_known_key(database: Database, draft: BatchDraft) -> KnownKey:
    """Return the source key that a batch was not enqueued for; raise SessionNotFound or SessionDeleted without it."""
    known = await database.read_one(_KnownKeyAnswer, "queue_known_key", draft.session_id, draft.source_key)
    if known is None:
        raise await missing(database, draft.session_id)
    return KnownKey(key=known.key, batch=known.batches[0] if known.batches else None)
