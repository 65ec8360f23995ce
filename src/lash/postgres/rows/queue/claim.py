"""Claims on PostgreSQL: read the head of the queue, decide, and write the claim if the head is still the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from lash.base.backoff import MAX_PLANS
from lash.errors import StoreUnavailable
from lash.model.lease import Busy, LeaseFence
from lash.model.queue import Claim, NothingClaimed, turn_id_of
from lash.model.scope import turn_scope_id
from lash.plan.lease import LeaseRow, encode_process
from lash.plan.park import is_ready
from lash.plan.queue.claim import CandidateRow, ClaimedRows, DecideClaim, HeadRequest, NewClaim, QueueFacts, QueueHead
from lash.plan.queue.claim_turn import BegunTurn, ClaimedTurnRows, NewLease, TurnClaim, TurnClaimDecision
from lash.plan.queue.queue import BatchRow, EncodedBatch, KnownKey
from lash.postgres.arguments import fence_proof
from lash.postgres.engine.database import Database
from lash.postgres.rows.queue.queue import enqueue_arguments, read_known_key
from lash.postgres.rows.session.lookup import missing, require_session
from lash.sqlkit.rows import Number

D = TypeVar("D")


class _HeadAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The time, the lease and the head of a queue."""

    session_key: int
    now_ms: int
    lease: LeaseRow
    candidates: list[CandidateRow]
    command_seq: int | None
    any_late: bool
    any_claimed: bool
    next_available_at_ms: int | None

    @property
    def any_due(self) -> bool:
        """Whether delayed work, or the input of a parked turn, must be made ready before the head is valid."""
        is_due = self.next_available_at_ms is not None and self.next_available_at_ms <= self.now_ms
        return is_due or is_ready(self.lease, self.now_ms)

    @property
    def head(self) -> QueueHead:
        summary = (self.command_seq, self.any_late, self.any_claimed, self.next_available_at_ms)
        return QueueHead(now_ms=self.now_ms, lease=self.lease, facts=QueueFacts(self.candidates, *summary))


class _EnqueuedAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A batch that was enqueued, and the turn that began with it, if one did."""

    batch: BatchRow
    now_ms: int
    fencing: int | None
    revision: int
    leaf_node_id: str | None
    wake_seq: int | None


class PostgresClaimRows:
    """The claims of one PostgreSQL storage; the contract is `lash.stores.queue.ClaimRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(
        self, request: HeadRequest, decide: DecideClaim, claim: NewClaim, fence: LeaseFence
    ) -> ClaimedRows | NothingClaimed:
        for _ in range(MAX_PLANS):
            answer, seqs = await self._decided(request, decide)
            if isinstance(seqs, NothingClaimed):
                return seqs
            # A retry after a lost connection is harmless: it finds the batches held by this claim.
            claimed = await self._database.write_one(
                ClaimedRows,
                "queue_stamp",
                *(answer.session_key, seqs),
                *fence_proof(fence),
                *(claim.claim_id, claim.token, claim.ttl_ms),
                repeatable=True,
            )
            if claimed is not None:
                return claimed
        raise _kept_changing(request.session_id)

    async def claim_turn(
        self,
        request: HeadRequest,
        decide: Callable[[QueueHead], TurnClaimDecision],
        claim: NewClaim,
        lease: NewLease,
    ) -> tuple[TurnClaim, ClaimedTurnRows] | Busy | NothingClaimed:
        for _ in range(MAX_PLANS):
            answer, decision = await self._decided(request, decide)
            if not isinstance(decision, TurnClaim):
                return decision
            claimed = await self._claim_turn(answer.session_key, decision, claim, lease)
            if claimed is not None:
                return decision, claimed
        raise _kept_changing(request.session_id)

    async def enqueue_turn(
        self,
        batch: EncodedBatch,
        batch_id: str,
        request: HeadRequest,
        decide: Callable[[QueueHead], int | None],  # noqa: ARG002 (the statement decides)
        claim: NewClaim,
        lease: NewLease,
    ) -> tuple[BatchRow | KnownKey, BegunTurn | None]:
        answer = await self._database.write_one(
            _EnqueuedAnswer,
            "queue_enqueue_turn",
            *enqueue_arguments(self._database.seals, batch, batch_id),
            *_holder_arguments(lease),
            *(claim.claim_id, claim.token, claim.ttl_ms),
            repeatable=batch.draft.source_key is not None,
        )
        if answer is None:
            known = await read_known_key(self._database, batch.draft)
            begun = await self._begun_unanswered(request, known, claim, lease)
            return (known if begun is None else begun.rows.batches[0]), begun
        if answer.fencing is None or answer.wake_seq is None:
            return answer.batch, None
        # No turn of a new batch has recorded anything.
        rows = ClaimedTurnRows(
            answer.now_ms, [answer.batch], answer.revision, answer.leaf_node_id, False, answer.wake_seq
        )
        return answer.batch, BegunTurn(fencing=answer.fencing, rows=rows)

    async def extend(self, claim: Claim, ttl_ms: int) -> int | None:
        arguments = (claim.session_id, claim.token, len(claim.batches), ttl_ms)
        extended = await self._database.write_one(Number, "queue_extend", *arguments, repeatable=True)
        if extended is None:
            await require_session(self._database, claim.session_id)
        return None if extended is None else extended.number

    async def release(self, claim: Claim, uncounted: int) -> int:
        arguments = (claim.session_id, claim.token, uncounted)
        released = await self._database.write_one(Number, "queue_abandon", *arguments, repeatable=True)
        if released is None:
            raise await missing(self._database, claim.session_id)
        return released.number

    async def _decided(self, request: HeadRequest, decide: Callable[[QueueHead], D]) -> tuple[_HeadAnswer, D]:
        """Return the head of the queue, after due work was made ready, and what was decided about it.

        Each head is decided about before anything is written: the decision raises if the caller has lost its lease.
        """
        arguments = (request.session_id, request.fencing, ",".join(request.lanes), request.limit)
        for _ in range(MAX_PLANS):
            answer = await self._database.read_one(_HeadAnswer, "queue_facts", *arguments)
            if answer is None:
                raise await missing(self._database, request.session_id)
            decision = decide(answer.head)
            if not answer.any_due:
                return answer, decision
            query = "lease_unpark" if is_ready(answer.lease, answer.now_ms) else "queue_promote"
            await self._database.write_one(Number, query, answer.session_key, repeatable=True)
        raise StoreUnavailable(f"work of session {request.session_id!r} became due {MAX_PLANS} times during a claim")

    async def _claim_turn(
        self, session_key: int, decision: TurnClaim, claim: NewClaim, lease: NewLease
    ) -> ClaimedTurnRows | None:
        # A retry after a lost connection is harmless: it finds the lease and the batches held under these tokens.
        return await self._database.write_one(
            ClaimedTurnRows,
            "queue_claim_turn",
            *(session_key, ",".join(map(str, decision.seqs)), decision.fencing),
            *_holder_arguments(lease),
            *(claim.claim_id, claim.token, claim.ttl_ms, decision.scope_id),
            repeatable=True,
        )

    async def _begun_unanswered(
        self, request: HeadRequest, known: KnownKey, claim: NewClaim, lease: NewLease
    ) -> BegunTurn | None:
        """Return the turn that a first try began with the batch of a key, if its answer was lost."""
        arguments = (request.session_id, request.fencing, ",".join(request.lanes), request.limit)
        answer = await self._database.read_one(_HeadAnswer, "queue_facts", *arguments)
        if answer is None or answer.lease.token != lease.token or known.batch is None:
            return None
        fencing, batch = answer.lease.fencing, known.batch
        scope_id = turn_scope_id(request.session_id, turn_id_of(batch.batch_id))
        decision = TurnClaim(fencing=fencing, seqs=[batch.seq], scope_id=scope_id)
        rows = await self._claim_turn(answer.session_key, decision, claim, lease)
        return None if rows is None else BegunTurn(fencing=fencing, rows=rows)


def _holder_arguments(lease: NewLease) -> tuple[object, ...]:
    """Return the columns of the holder of a lease in the order of the statements' parameters."""
    owner = lease.owner
    return (owner.owner_id, owner.incarnation_id, encode_process(owner), lease.token)


def _kept_changing(session_id: str) -> StoreUnavailable:
    return StoreUnavailable(f"the queue of session {session_id!r} changed {MAX_PLANS} times during a claim")
