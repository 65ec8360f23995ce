"""The queued work of a storage, over the rows of either database."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lash.base.ids import new_id
from lash.base.limits import check_identifier, check_integer, check_limit
from lash.errors import DeadLetterNotFound
from lash.model.lease import LeaseFence, LeaseOwner, ResourceKind
from lash.model.queue import (
    Batch,
    BatchDraft,
    Boundary,
    Claim,
    ClaimedTurn,
    ClaimOutcome,
    ClaimTurnOutcome,
    DeadLetter,
    Enqueued,
    NothingClaimed,
    QueuedBatch,
    QueuedState,
)
from lash.model.session.commit import CommitBudget
from lash.model.value import JSON
from lash.plan.lease import check_claim, check_fence, check_ttl
from lash.plan.queue.claim import (
    Choose,
    HeadRequest,
    NewClaim,
    check_batch_ids,
    check_boundary,
    check_claim_size,
    check_count_attempt,
    check_work_claim,
    choose_command,
    choose_exactly,
    choose_turn_work,
    decide_claim,
    lanes_at,
    new_claim,
    nothing_asked_for,
    renewed_claim,
)
from lash.plan.queue.claim_turn import NewLease, claimed_turn, may_begin, plan_turn_claim, plan_turn_start, turn_head
from lash.plan.queue.dead_letter import check_after, check_one_choice, decode_dead_letter, plan_burial, prepare_burial
from lash.plan.queue.page import decode_queued, prepare_queue_page
from lash.plan.queue.queue import (
    COMMAND_LANE,
    EncodedBatch,
    check_size,
    decode_batch,
    decode_enqueued,
    encode_batch,
    ready_session,
)
from lash.plan.session.page import ids_of
from lash.stores.hints import Hints
from lash.stores.queue import ClaimRows, DeadLetterRows, QueueRows


class Queue:
    """The queued work of one storage; the contract is `lash.stores.queue.QueueStore`."""

    def __init__(
        self, rows: QueueRows, claims: ClaimRows, dead_letters: DeadLetterRows, hints: Hints, budget: CommitBudget
    ) -> None:
        self._rows = rows
        self._claims = claims
        self._dead_letters = dead_letters
        self._hints = hints
        self._budget = budget

    async def enqueue(self, draft: BatchDraft) -> Enqueued:
        encoded = encode_batch(draft)
        check_size(encoded, self._budget)
        enqueued = decode_enqueued(encoded, await self._rows.enqueue(encoded, new_id()))
        self._note_enqueued(encoded, enqueued)
        return enqueued

    async def enqueue_and_claim(
        self, draft: BatchDraft, owner: LeaseOwner, *, ttl_ms: int
    ) -> tuple[Enqueued, ClaimedTurn | None]:
        encoded = encode_batch(draft)
        if not may_begin(encoded):
            return await self.enqueue(draft), None
        check_size(encoded, self._budget)
        check_claim(owner, ttl_ms)
        lease, claim = NewLease(owner=owner, token=new_id()), _new_claim(ttl_ms)
        request = turn_head(draft.session_id)
        written, begun = await self._claims.enqueue_turn(encoded, new_id(), request, plan_turn_start, claim, lease)
        enqueued = decode_enqueued(encoded, written)
        if begun is None:
            self._note_enqueued(encoded, enqueued)
            return enqueued, None
        # No worker has to look. Observers of other storages see the message with what the turn does next.
        self._hints.notify(process=False, work=False, session_id=draft.session_id, later=True)
        return enqueued, claimed_turn(draft.session_id, begun.fencing, lease, claim, begun.rows)

    async def claim(self, fence: LeaseFence, *, boundary: Boundary, ttl_ms: int, max_batches: int = 64) -> ClaimOutcome:
        limit, moment = check_claim_size(max_batches), check_boundary(boundary)
        if limit == 0:
            return nothing_asked_for()
        choose = partial(choose_turn_work, boundary=moment, limit=limit)
        return await self._claim(fence, ttl_ms, lanes_at(moment), limit, choose)

    async def claim_turn(self, session_id: str, owner: LeaseOwner, *, ttl_ms: int) -> ClaimTurnOutcome:
        request = turn_head(check_identifier("session_id", session_id))
        check_claim(owner, ttl_ms)
        lease, claim = NewLease(owner=owner, token=new_id()), _new_claim(ttl_ms)
        decide = partial(plan_turn_claim, session_id=session_id, owner=owner)
        written = await self._claims.claim_turn(request, decide, claim, lease)
        if not isinstance(written, tuple):
            return written
        decision, rows = written
        return claimed_turn(session_id, decision.fencing, lease, claim, rows)

    async def claim_command(self, fence: LeaseFence, *, ttl_ms: int) -> ClaimOutcome:
        return await self._claim(fence, ttl_ms, lanes_at(Boundary.IDLE), 1, choose_command)

    async def claim_batches(self, fence: LeaseFence, batch_ids: Sequence[str], *, ttl_ms: int) -> ClaimOutcome:
        wanted = check_batch_ids(batch_ids)
        if not wanted:
            return nothing_asked_for()
        choose = partial(choose_exactly, batch_ids=wanted)
        return await self._claim(fence, ttl_ms, lanes_at(Boundary.IDLE), len(wanted), choose)

    async def renew(self, claim: Claim, *, ttl_ms: int) -> Claim:
        return renewed_claim(claim, await self._claims.extend(check_work_claim(claim), check_ttl(ttl_ms)))

    async def abandon(self, claim: Claim, *, count_attempt: bool = True) -> int:
        check_work_claim(claim)
        uncounted = 0 if check_count_attempt(count_attempt) else 1
        released = await self._claims.release(claim, uncounted)
        self._hints.notify(process=False, changed=claim.session_id)
        return released

    async def bury(self, claim: Claim, *, reason: str, error: JSON = None) -> int:
        burial = prepare_burial(claim, reason=reason, error=error)
        await self._dead_letters.bury(burial, partial(plan_burial, burial))
        self._hints.notify(process=False, changed=claim.session_id)
        return len(burial.batch_ids)

    async def dead(
        self,
        *,
        session_id: str | None = None,
        prefix: str | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> tuple[DeadLetter, ...]:
        size, behind = check_limit(limit), check_after(after)
        if session_id is not None:
            check_identifier("session_id", session_id)
        ids = check_one_choice(session_id, ids_of(prefix))
        rows = await self._dead_letters.page(session_id, ids, size, behind)
        return tuple(decode_dead_letter(row) for row in rows)

    async def requeue(self, session_id: str, batch_id: str) -> Batch:
        check_identifier("session_id", session_id)
        row = await self._dead_letters.revive(session_id, check_identifier("batch_id", batch_id))
        if row is None:
            raise DeadLetterNotFound(session_id, batch_id)
        self._hints.notify(process=False, changed=session_id)
        return decode_batch(row, session_id)

    async def discard(self, session_id: str, batch_id: str) -> bool:
        check_identifier("session_id", session_id)
        removed = await self._dead_letters.remove(session_id, check_identifier("batch_id", batch_id))
        self._hints.notify(process=False, changed=session_id)
        return removed

    async def cancel(self, session_id: str, batch_id: str) -> Batch | None:
        check_identifier("session_id", session_id)
        row = await self._rows.cancel(session_id, check_identifier("batch_id", batch_id))
        self._hints.notify(process=False, changed=session_id)
        return None if row is None else decode_batch(row, session_id)

    async def list(self, session_id: str, *, limit: int = 1_000, after_seq: int = 0) -> tuple[Batch, ...]:
        return await self._page(session_id, limit, after_seq, pending_only=False)

    async def list_pending(self, session_id: str, *, limit: int = 1_000, after_seq: int = 0) -> tuple[Batch, ...]:
        return await self._page(session_id, limit, after_seq, pending_only=True)

    async def list_all(
        self,
        *,
        prefix: str | None = None,
        state: QueuedState | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> tuple[QueuedBatch, ...]:
        wanted = prepare_queue_page(prefix=prefix, state=state, limit=limit, after=after)
        return tuple(decode_queued(row) for row in await self._rows.page_all(wanted))

    async def ready_sessions(self, *, limit: int = 100, after: str | None = None) -> tuple[str, ...]:
        size = check_limit(limit)
        if after is not None:
            check_identifier("after", after)
        return tuple(await self._rows.ready_sessions(size, after))

    async def ready_agents(self, *, limit: int = 100) -> tuple[str | None, ...]:
        return tuple(await self._rows.ready_agents(check_limit(limit)))

    def _note_enqueued(self, encoded: EncodedBatch, enqueued: Enqueued) -> None:
        if enqueued.batch is None:
            return
        draft = encoded.draft
        # Also for a repeat: the caller may repeat because the first hint was lost with the answer.
        ready = ready_session(enqueued.batch)
        changed = None if ready else draft.session_id
        # A worker has to count the command as a reason to continue a parked turn.
        is_timed = draft.available_at_ms > 0 or encoded.lane == COMMAND_LANE
        self._hints.notify(process=False, session_id=ready, changed=changed, timed=is_timed)

    async def _claim(
        self, fence: LeaseFence, ttl_ms: int, lanes: tuple[str, ...], limit: int, choose: Choose
    ) -> ClaimOutcome:
        check_fence("fence", fence, ResourceKind.SESSION)
        claim = _new_claim(check_ttl(ttl_ms))
        request = HeadRequest(session_id=fence.resource.id, fencing=fence.fencing, lanes=lanes, limit=limit)
        written = await self._claims.claim(request, partial(decide_claim, fence=fence, choose=choose), claim, fence)
        if isinstance(written, NothingClaimed):
            return written
        return new_claim(fence.resource.id, fence.fencing, claim, written)

    async def _page(self, session_id: str, limit: int, after_seq: int, *, pending_only: bool) -> tuple[Batch, ...]:
        check_identifier("session_id", session_id)
        size, behind = check_limit(limit), check_integer("after_seq", after_seq, at_least=0)
        rows = await self._rows.page(session_id, limit=size, after_seq=behind, pending_only=pending_only)
        return tuple(decode_batch(row, session_id) for row in rows)


def _new_claim(ttl_ms: int) -> NewClaim:
    return NewClaim(claim_id=new_id(), token=new_id(), ttl_ms=ttl_ms)
