"""Queued work on PostgreSQL; the server's clock decides."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from lash.base.ids import new_id
from lash.base.limits import check_identifier, check_integer
from lash.errors import ClaimLost
from lash.model.lease import LeaseFence, LeaseOwner
from lash.model.queue import Batch, BatchDraft, Boundary, Claim, ClaimOutcome, ClaimTurnOutcome, DeadLetter, Enqueued
from lash.model.value import JSON
from lash.plan.lease import check_claim, check_ttl
from lash.plan.queue.dead_letter import check_after, prepare_burial
from lash.plan.queue.queue import (
    BatchRow,
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
from lash.postgres.engine.database import Database
from lash.postgres.rows.queue.claim import claim_turn, claim_work
from lash.postgres.rows.queue.dead_letter import bury, dead, requeue
from lash.postgres.rows.session.lookup import missing
from lash.postgres.rows.session.rows import BatchesAnswer, KnownKeyAnswer
from lash.sqlkit.rows import Flag, Number, Text
from lash.stores.hints import Hints

_MAX_PLANS: Final = 10


class PostgresQueueStore:
    """The queued work of one PostgreSQL storage; the contract is `lash.stores.queue.QueueStore`."""

    def __init__(self, database: Database, hints: Hints) -> None:
        self._database = database
        self._hints = hints

    async def enqueue(self, draft: BatchDraft) -> Enqueued:
        encoded, batch_id = encode_batch(draft), new_id()
        # Without a source key a repeat after a lost connection would enqueue twice.
        row = await self._database.write_one(
            BatchRow,
            "queue_enqueue",
            *(draft.session_id, batch_id, draft.source_key, encoded.content_hash, encoded.lane),
            *(draft.delivery.value, draft.slot.value, draft.merge_key, draft.available_at_ms, encoded.payloads),
            repeatable=draft.source_key is not None,
        )
        if row is not None:
            batch = decode_batch(row, draft.session_id)
            self._hints.notify(process=False, session_id=ready_session(batch))
            return Enqueued(batch_id=batch_id, created=True, batch=batch)
        known = await self._database.read_one(KnownKeyAnswer, "queue_known_key", draft.session_id, draft.source_key)
        if known is None:
            raise await missing(self._database, draft.session_id)
        return recognise(encoded, known.key, known.batches[0] if known.batches else None)

    async def claim(self, fence: LeaseFence, *, boundary: Boundary, ttl_ms: int, max_batches: int = 64) -> ClaimOutcome:
        limit, moment = check_claim_size(max_batches), check_boundary(boundary)
        if limit == 0:
            return nothing_asked_for()
        choose = partial(choose_turn_work, boundary=moment, limit=limit)
        return await claim_work(self._database, fence, ttl_ms, lanes_at(moment), limit, choose)

    async def claim_turn(self, session_id: str, owner: LeaseOwner, *, ttl_ms: int) -> ClaimTurnOutcome:
        check_identifier("session_id", session_id)
        check_claim(owner, ttl_ms)
        return await claim_turn(self._database, session_id, owner, ttl_ms)

    async def claim_command(self, fence: LeaseFence, *, ttl_ms: int) -> ClaimOutcome:
        return await claim_work(self._database, fence, ttl_ms, lanes_at(Boundary.IDLE), 1, choose_command)

    async def claim_batches(self, fence: LeaseFence, batch_ids: Sequence[str], *, ttl_ms: int) -> ClaimOutcome:
        wanted = check_batch_ids(batch_ids)
        if not wanted:
            return nothing_asked_for()
        choose = partial(choose_exactly, batch_ids=wanted)
        return await claim_work(self._database, fence, ttl_ms, lanes_at(Boundary.IDLE), len(wanted), choose)

    async def renew(self, claim: Claim, *, ttl_ms: int) -> Claim:
        check_work_claim(claim)
        check_ttl(ttl_ms)
        extended = await self._database.write_one(
            Number, "queue_extend", claim.session_id, claim.token, len(claim.batches), ttl_ms, repeatable=True
        )
        if extended is None:
            await self._page(claim.session_id, limit=1, after_seq=0, pending_only=False)
            raise ClaimLost(claim.session_id, claim.claim_id)
        return msgspec.structs.replace(claim, expires_at_ms=max(claim.expires_at_ms, extended.number))

    async def abandon(self, claim: Claim, *, count_attempt: bool = True) -> int:
        check_work_claim(claim)
        uncounted = 0 if check_count_attempt(count_attempt) else 1
        given_back = await self._database.write_one(
            Number, "queue_abandon", claim.session_id, claim.token, uncounted, repeatable=True
        )
        if given_back is None:
            raise await missing(self._database, claim.session_id)
        self._hints.notify(process=False)
        return given_back.number

    async def bury(self, claim: Claim, *, reason: str, error: JSON = None) -> int:
        buried = await bury(self._database, prepare_burial(claim, reason=reason, error=error))
        self._hints.notify(process=False)
        return buried

    async def dead(
        self, *, session_id: str | None = None, limit: int = 100, after: int | None = None
    ) -> tuple[DeadLetter, ...]:
        size, place = check_limit(limit), check_after(after)
        if session_id is not None:
            check_identifier("session_id", session_id)
        return await dead(self._database, session_id, size, place)

    async def requeue(self, session_id: str, batch_id: str) -> Batch:
        check_identifier("session_id", session_id)
        check_identifier("batch_id", batch_id)
        batch = await requeue(self._database, session_id, batch_id)
        self._hints.notify(process=False)
        return batch

    async def discard(self, session_id: str, batch_id: str) -> bool:
        check_identifier("session_id", session_id)
        check_identifier("batch_id", batch_id)
        discarded = await self._database.write_one(Flag, "dead_letter_remove", session_id, batch_id, repeatable=False)
        if discarded is None:
            raise await missing(self._database, session_id)
        self._hints.notify(process=False)
        return discarded.value

    async def cancel(self, session_id: str, batch_id: str) -> Batch | None:
        check_identifier("session_id", session_id)
        check_identifier("batch_id", batch_id)
        answer = await self._database.write_one(BatchesAnswer, "queue_cancel", session_id, batch_id, repeatable=False)
        if answer is None:
            raise await missing(self._database, session_id)
        self._hints.notify(process=False)
        return decode_batch(answer.batches[0], session_id) if answer.batches else None

    async def list(self, session_id: str, *, limit: int = 1_000, after_seq: int = 0) -> tuple[Batch, ...]:
        return await self._page(session_id, limit=limit, after_seq=after_seq, pending_only=False)

    async def list_pending(self, session_id: str, *, limit: int = 1_000, after_seq: int = 0) -> tuple[Batch, ...]:
        return await self._page(session_id, limit=limit, after_seq=after_seq, pending_only=True)

    async def ready_sessions(self, *, limit: int = 100, after: str | None = None) -> tuple[str, ...]:
        size = check_limit(limit)
        if after is not None:
            check_identifier("after", after)
        rows = await self._database.read_all(Text, "queue_ready_sessions", size, after)
        return tuple(row.text for row in rows)

    async def _page(self, session_id: str, *, limit: int, after_seq: int, pending_only: bool) -> tuple[Batch, ...]:
        check_identifier("session_id", session_id)
        check_limit(limit)
        check_integer("after_seq", after_seq, at_least=0)
        answer = await self._database.read_one(BatchesAnswer, "queue_page", session_id, after_seq, limit, pending_only)
        if answer is None:
            raise await missing(self._database, session_id)
        return tuple(decode_batch(row, session_id) for row in answer.batches)
