"""Queued work on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from lash.base.ids import new_id
from lash.base.limits import check_identifier, check_integer, saturating_add
from lash.errors import ClaimLost, CorruptData
from lash.model.lease import LeaseFence, LeaseOwner, ResourceKind
from lash.model.queue import (
    Batch,
    BatchDraft,
    Boundary,
    Claim,
    ClaimOutcome,
    ClaimTurnOutcome,
    DeadLetter,
    Enqueued,
    NothingClaimed,
)
from lash.model.value import JSON
from lash.plan.lease import check_claim, check_fence, check_ttl, require_fence
from lash.plan.queue.dead_letter import DeadLetterRow, check_after, decode_dead_letter, prepare_burial
from lash.plan.queue.queue import (
    BatchRow,
    Choose,
    EncodedBatch,
    SourceKeyRow,
    check_batch_ids,
    check_boundary,
    check_claim_size,
    check_count_attempt,
    check_work_claim,
    choose_command,
    choose_exactly,
    choose_turn_work,
    decode_batch,
    encode_batch,
    lanes_at,
    nothing_asked_for,
    ready_session,
    recognise,
)
from lash.plan.session.session import check_limit
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlite.rows.lease import lease_row
from lash.sqlite.rows.queue.claim import claim_turn, ready_work, stamp_claim
from lash.sqlite.rows.queue.dead_letter import bury, discard, requeue, settle_cancelled
from lash.sqlite.rows.session.lookup import find_head
from lash.sqlkit.rows import Number, Text
from lash.stores.hints import Hints

T = TypeVar("T")


class SQLiteQueueStore:
    """The queued work of one SQLite storage; the contract is `lash.stores.queue.QueueStore`."""

    def __init__(self, database: Database, hints: Hints) -> None:
        self._database = database
        self._hints = hints

    async def enqueue(self, draft: BatchDraft) -> Enqueued:
        encoded, batch_id = encode_batch(draft), new_id()

        def body(transaction: Transaction) -> Enqueued:
            session_key = find_head(transaction, draft.session_id).session_key
            return enqueue_batch(transaction, session_key, encoded, batch_id)

        enqueued = await self._database.write_briefly(body)
        self._hints.notify(process=False, session_id=ready_session(enqueued.batch))
        return enqueued

    async def claim(self, fence: LeaseFence, *, boundary: Boundary, ttl_ms: int, max_batches: int = 64) -> ClaimOutcome:
        limit, moment = check_claim_size(max_batches), check_boundary(boundary)
        if limit == 0:
            return nothing_asked_for()
        choose = partial(choose_turn_work, boundary=moment, limit=limit)
        return await self._claim(fence, ttl_ms, lanes_at(moment), limit, choose)

    async def claim_turn(self, session_id: str, owner: LeaseOwner, *, ttl_ms: int) -> ClaimTurnOutcome:
        check_identifier("session_id", session_id)
        check_claim(owner, ttl_ms)
        return await self._database.write_briefly(
            lambda transaction: claim_turn(transaction, session_id, owner, ttl_ms)
        )

    async def claim_command(self, fence: LeaseFence, *, ttl_ms: int) -> ClaimOutcome:
        return await self._claim(fence, ttl_ms, lanes_at(Boundary.IDLE), 1, choose_command)

    async def claim_batches(self, fence: LeaseFence, batch_ids: Sequence[str], *, ttl_ms: int) -> ClaimOutcome:
        wanted = check_batch_ids(batch_ids)
        if not wanted:
            return nothing_asked_for()
        choose = partial(choose_exactly, batch_ids=wanted)
        return await self._claim(fence, ttl_ms, lanes_at(Boundary.IDLE), len(wanted), choose)

    async def renew(self, claim: Claim, *, ttl_ms: int) -> Claim:
        check_work_claim(claim)
        check_ttl(ttl_ms)

        def body(transaction: Transaction) -> Claim:
            key = find_head(transaction, claim.session_id).session_key
            expires_at_ms = saturating_add(transaction.now_ms, ttl_ms)
            held = transaction.all(
                Number, "queue_extend", session_key=key, claim_token=claim.token, expires_at_ms=expires_at_ms
            )
            if len(held) != len(claim.batches):
                raise ClaimLost(claim.session_id, claim.claim_id)
            rows = transaction.all(BatchRow, "queue_held", session_key=key, claim_token=claim.token)
            batches = tuple(decode_batch(row, claim.session_id) for row in rows)
            return msgspec.structs.replace(claim, expires_at_ms=min(row.number for row in held), batches=batches)

        return await self._database.write_briefly(body)

    async def abandon(self, claim: Claim, *, count_attempt: bool = True) -> int:
        check_work_claim(claim)
        uncounted = 0 if check_count_attempt(count_attempt) else 1

        def body(transaction: Transaction) -> int:
            key = find_head(transaction, claim.session_id).session_key
            return transaction.run("queue_abandon", session_key=key, claim_token=claim.token, uncounted=uncounted)

        return await self._write(body)

    async def bury(self, claim: Claim, *, reason: str, error: JSON = None) -> int:
        burial = prepare_burial(claim, reason=reason, error=error)
        return await self._write(lambda transaction: bury(transaction, burial))

    async def dead(
        self, *, session_id: str | None = None, limit: int = 100, after: int | None = None
    ) -> tuple[DeadLetter, ...]:
        page = {"limit": check_limit(limit), "after": check_after(after)}
        if session_id is not None:
            check_identifier("session_id", session_id)

        def body(reader: Reader) -> Sequence[DeadLetterRow]:
            if session_id is None:
                return reader.all(DeadLetterRow, "dead_letter_page", **page)
            key = find_head(reader, session_id).session_key
            return reader.all(DeadLetterRow, "dead_letter_page_of_session", session_key=key, **page)

        rows = await self._database.read_in_thread(body)
        return tuple(decode_dead_letter(row) for row in rows)

    async def requeue(self, session_id: str, batch_id: str) -> Batch:
        check_identifier("session_id", session_id)
        check_identifier("batch_id", batch_id)
        return await self._write(lambda transaction: requeue(transaction, session_id, batch_id))

    async def discard(self, session_id: str, batch_id: str) -> bool:
        check_identifier("session_id", session_id)
        check_identifier("batch_id", batch_id)
        return await self._write(lambda transaction: discard(transaction, session_id, batch_id))

    async def cancel(self, session_id: str, batch_id: str) -> Batch | None:
        check_identifier("session_id", session_id)
        check_identifier("batch_id", batch_id)

        def body(transaction: Transaction) -> Batch | None:
            key, now_ms = find_head(transaction, session_id).session_key, transaction.now_ms
            row = transaction.one(BatchRow, "queue_cancel", session_key=key, batch_id=batch_id, now_ms=now_ms)
            if row is None:
                return None
            settle_cancelled(transaction, key, batch_id, row.source_key)
            return decode_batch(row, session_id)

        return await self._write(body)

    async def list(self, session_id: str, *, limit: int = 1_000, after_seq: int = 0) -> tuple[Batch, ...]:
        def read(reader: Reader, session_key: int) -> Sequence[BatchRow]:
            return reader.all(BatchRow, "queue_page", session_key=session_key, after_seq=after_seq, limit=limit)

        return await self._page(session_id, limit, after_seq, read)

    async def list_pending(self, session_id: str, *, limit: int = 1_000, after_seq: int = 0) -> tuple[Batch, ...]:
        def read(reader: Reader, session_key: int) -> Sequence[BatchRow]:
            return reader.all(
                BatchRow,
                "queue_page_pending",
                session_key=session_key,
                after_seq=after_seq,
                limit=limit,
                now_ms=reader.now_ms,
            )

        return await self._page(session_id, limit, after_seq, read)

    async def ready_sessions(self, *, limit: int = 100, after: str | None = None) -> tuple[str, ...]:
        size = check_limit(limit)
        if after is not None:
            check_identifier("after", after)
        rows = self._database.read(
            lambda reader: reader.all(Text, "queue_ready_sessions", limit=size, after=after, now_ms=reader.now_ms)
        )
        return tuple(row.text for row in rows)

    async def _write(self, body: Callable[[Transaction], T]) -> T:
        """Run the body in a transaction of its own, then say that there may be work."""
        result = await self._database.write_briefly(body)
        self._hints.notify(process=False)
        return result

    async def _claim(
        self, fence: LeaseFence, ttl_ms: int, lanes: tuple[str, ...], limit: int, choose: Choose
    ) -> ClaimOutcome:
        check_fence("fence", fence, ResourceKind.SESSION)
        check_ttl(ttl_ms)

        def body(transaction: Transaction) -> ClaimOutcome:
            require_fence(lease_row(transaction, fence.resource.id), fence, transaction.now_ms)
            key = find_head(transaction, fence.resource.id).session_key
            seqs = choose(ready_work(transaction, key, lanes, limit, fence.fencing))
            if isinstance(seqs, NothingClaimed):
                return seqs
            return stamp_claim(transaction, fence.resource.id, seqs, fencing=fence.fencing, ttl_ms=ttl_ms)

        return await self._database.write_briefly(body)

    async def _page(
        self, session_id: str, limit: int, after_seq: int, read: Callable[[Reader, int], Sequence[BatchRow]]
    ) -> tuple[Batch, ...]:
        check_identifier("session_id", session_id)
        check_limit(limit)
        check_integer("after_seq", after_seq, at_least=0)

        def body(reader: Reader) -> Sequence[BatchRow]:
            return read(reader, find_head(reader, session_id).session_key)

        rows = await self._database.read_in_thread(body)
        return tuple(decode_batch(row, session_id) for row in rows)


def enqueue_batch(transaction: Transaction, session_key: int, encoded: EncodedBatch, batch_id: str) -> Enqueued:
    """Add a batch inside any write transaction, unless its source key is known."""
    draft = encoded.draft
    if draft.source_key is not None:
        reserved = transaction.run(
            "queue_reserve_key",
            session_key=session_key,
            source_key=draft.source_key,
            batch_id=batch_id,
            content_hash=encoded.content_hash,
        )
        if not reserved:
            return _recognise(transaction, session_key, encoded, draft.source_key)
    row = transaction.one(
        BatchRow,
        "queue_insert",
        session_key=session_key,
        batch_id=batch_id,
        source_key=draft.source_key,
        lane=encoded.lane,
        delivery=draft.delivery.value,
        slot=draft.slot.value,
        merge_key=draft.merge_key,
        available_at_ms=draft.available_at_ms,
        payloads=encoded.payloads,
        now_ms=transaction.now_ms,
    )
    if row is None:
        raise CorruptData(f"batch {batch_id!r} was written and is not there")
    return Enqueued(batch_id=batch_id, created=True, batch=decode_batch(row, draft.session_id))


def _recognise(transaction: Transaction, session_key: int, encoded: EncodedBatch, source_key: str) -> Enqueued:
    key = transaction.one(SourceKeyRow, "queue_known_key", session_key=session_key, source_key=source_key)
    if key is None:
        raise CorruptData(f"source key {source_key!r} is taken and is not there")
    stored = transaction.one(BatchRow, "queue_batch", session_key=session_key, batch_id=key.batch_id)
    return recognise(encoded, key, stored)
