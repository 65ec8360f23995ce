"""Batches on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from lash.backend.queue_page import QUEUE_PAGES
from lash.errors import CorruptData
from lash.model.queue import BatchState
from lash.plan.queue.page import PreparedQueuePage, QueuedRow
from lash.plan.queue.queue import COMMAND_LANE, BatchRow, EncodedBatch, KnownKey, SourceKeyRow
from lash.plan.sealed import BATCH
from lash.sqlite.engine.database import Database, Reader, SQLiteValue, Transaction
from lash.sqlite.rows.session.lookup import find_head, find_session_key
from lash.sqlkit.rows import Number, OptionalText, Text


class SQLiteQueueRows:
    """The batches of one SQLite storage; the contract is `lash.stores.queue.QueueRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def enqueue(self, batch: EncodedBatch, batch_id: str) -> BatchRow | KnownKey:
        return await self._database.write_briefly(lambda transaction: insert_batch(transaction, None, batch, batch_id))

    async def cancel(self, session_id: str, batch_id: str) -> BatchRow | None:
        def body(transaction: Transaction) -> BatchRow | None:
            key, now_ms = find_head(transaction, session_id).session_key, transaction.now_ms
            row = transaction.one(BatchRow, "queue_cancel", session_key=key, batch_id=batch_id, now_ms=now_ms)
            if row is not None:
                mark_cancelled(transaction, key, batch_id, row.source_key)
            return row

        return await self._database.write_briefly(body)

    async def page(self, session_id: str, *, limit: int, after_seq: int, pending_only: bool) -> Sequence[BatchRow]:
        def body(reader: Reader) -> Sequence[BatchRow]:
            key = find_head(reader, session_id).session_key
            page: dict[str, SQLiteValue] = {"session_key": key, "after_seq": after_seq, "limit": limit}
            if pending_only:
                return reader.all(BatchRow, "queue_page_pending", **page, now_ms=reader.now_ms)
            return reader.all(BatchRow, "queue_page", **page)

        return await self._database.read_in_thread(body)

    async def page_all(self, wanted: PreparedQueuePage) -> Sequence[QueuedRow]:
        ids: dict[str, SQLiteValue] = {} if wanted.ids is None else wanted.ids._asdict()

        def body(reader: Reader) -> Sequence[QueuedRow]:
            return reader.all(
                QueuedRow,
                QUEUE_PAGES[wanted.way],
                after=wanted.after,
                state=wanted.state,
                limit=wanted.limit,
                now_ms=reader.now_ms,
                **ids,
            )

        return await self._database.read_in_thread(body)

    async def ready_sessions(self, limit: int, after: str | None) -> Sequence[str]:
        rows = self._database.read(
            lambda reader: reader.all(Text, "queue_ready_sessions", limit=limit, after=after, now_ms=reader.now_ms)
        )
        return [row.text for row in rows]

    async def ready_agents(self, limit: int) -> Sequence[str | None]:
        rows = self._database.read(
            lambda reader: reader.all(OptionalText, "queue_ready_agents", limit=limit, now_ms=reader.now_ms)
        )
        return [row.text for row in rows]


class Stamp(NamedTuple):
    """The columns of a claim on a batch."""

    claim_id: str | None = None
    claim_token: str | None = None
    claim_lease_fencing: int | None = None
    claim_expires_at_ms: int | None = None


_UNCLAIMED: Final = Stamp()


def insert_batch(
    transaction: Transaction, session_key: int | None, batch: EncodedBatch, batch_id: str, stamp: Stamp = _UNCLAIMED
) -> BatchRow | KnownKey:
    """Insert a batch inside any write transaction, unless its source key is reserved.

    Without the key of the session, raise SessionNotFound or SessionDeleted if none has the id.
    """
    session_id, source_key = batch.draft.session_id, batch.draft.source_key
    if source_key is not None:
        # The key is reserved before the session is found, which saves a query: nearly all keys are new.
        reserved = transaction.one(
            Number,
            "queue_reserve_key",
            session_id=session_id,
            source_key=source_key,
            batch_id=batch_id,
            content_hash=batch.content_hash,
        )
        if reserved is None:
            return _known_key(transaction, find_session_key(transaction, session_id), source_key)
        session_key = reserved.number
    elif session_key is None:
        session_key = find_session_key(transaction, session_id)
    return _insert(transaction, session_key, batch, batch_id, stamp)


def _insert(transaction: Transaction, session_key: int, batch: EncodedBatch, batch_id: str, stamp: Stamp) -> BatchRow:
    draft = batch.draft
    row = transaction.one(
        BatchRow,
        "queue_insert",
        session_key=session_key,
        batch_id=batch_id,
        source_key=draft.source_key,
        lane=batch.lane,
        delivery=draft.delivery.value,
        slot=draft.slot.value,
        merge_key=draft.merge_key,
        available_at_ms=draft.available_at_ms,
        payloads=transaction.seals.text(BATCH, batch.payloads, batch_id),
        wake_session_id=draft.wake_session_id,
        priority=draft.priority,
        agent=batch.agent,
        now_ms=transaction.now_ms,
        claim_id=stamp.claim_id,
        claim_token=stamp.claim_token,
        claim_lease_fencing=stamp.claim_lease_fencing,
        claim_expires_at_ms=stamp.claim_expires_at_ms,
    )
    if row is None:
        raise CorruptData(f"query queue_insert returned no row for batch {batch_id!r}")
    if batch.lane == COMMAND_LANE:
        # A command is a reason to continue a parked turn.
        transaction.run("work_note_wake", session_key=session_key)
    return row


def mark_cancelled(transaction: Transaction, session_key: int, batch_id: str, source_key: str | None) -> None:
    """Mark the source key of a removed batch as cancelled, and acknowledge the wake that it carried."""
    if source_key is not None:
        transaction.run(
            "queue_finish_key",
            session_key=session_key,
            source_key=source_key,
            state=BatchState.CANCELLED.value,
            now_ms=transaction.now_ms,
        )
    transaction.run("event_acknowledge_batch", batch_id=batch_id)


def _known_key(transaction: Transaction, session_key: int, source_key: str) -> KnownKey:
    key = transaction.one(SourceKeyRow, "queue_known_key", session_key=session_key, source_key=source_key)
    if key is None:
        raise CorruptData(f"source key {source_key!r} exists and cannot be read (index and table disagree)")
    batch = transaction.one(BatchRow, "queue_batch", session_key=session_key, batch_id=key.batch_id)
    return KnownKey(key=key, batch=batch)
