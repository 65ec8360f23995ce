"""Claims on SQLite: read the head of the queue, decide, write, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lash.base.limits import saturating_add
from lash.errors import CorruptData
from lash.model.lease import Busy, LeaseFence
from lash.model.queue import Claim, NothingClaimed
from lash.plan.park import is_ready
from lash.plan.queue.claim import (
    BacklogRow,
    CandidateRow,
    ClaimedRows,
    DecideClaim,
    HeadRequest,
    NewClaim,
    QueueFacts,
    QueueHead,
)
from lash.plan.queue.claim_turn import ClaimedTurnRows, NewLease, TurnClaim, TurnClaimDecision
from lash.plan.queue.queue import COMMAND_LANE, BatchRow
from lash.sqlite.engine.database import Database, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.lease import lease_row, take_lease, unpark
from lash.sqlite.rows.session.lookup import find_head
from lash.sqlkit.rows import Flag, Number


class SQLiteClaimRows:
    """The claims of one SQLite storage; the contract is `lash.stores.queue.ClaimRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(
        self, request: HeadRequest, decide: DecideClaim, claim: NewClaim, fence: LeaseFence
    ) -> ClaimedRows | NothingClaimed:
        def body(transaction: Transaction) -> ClaimedRows | NothingClaimed:
            key = find_head(transaction, request.session_id).session_key
            seqs = decide(_queue_head(transaction, key, request))
            if isinstance(seqs, NothingClaimed):
                return seqs
            return ClaimedRows(transaction.now_ms, _stamp(transaction, seqs, claim, fence.fencing))

        return await self._database.write_briefly(body)

    async def claim_turn(
        self,
        request: HeadRequest,
        decide: Callable[[QueueHead], TurnClaimDecision],
        claim: NewClaim,
        lease: NewLease,
    ) -> tuple[TurnClaim, ClaimedTurnRows] | Busy | NothingClaimed:
        def body(transaction: Transaction) -> tuple[TurnClaim, ClaimedTurnRows] | Busy | NothingClaimed:
            session = find_head(transaction, request.session_id)
            queue = _queue_head(transaction, session.session_key, request)
            decision = decide(queue)
            if not isinstance(decision, TurnClaim):
                return decision
            recorded = transaction.one(Flag, "effect_any", scope_id=decision.scope_id)
            take_lease(transaction, decision.fencing, request.session_id, lease.owner, claim.ttl_ms, token=lease.token)
            batches = _stamp(transaction, decision.seqs, claim, decision.fencing)
            is_recorded = recorded is not None and recorded.value
            head = session.revision, session.leaf_node_id
            return decision, ClaimedTurnRows(transaction.now_ms, batches, *head, is_recorded, queue.lease.wake_seq)

        return await self._database.write_briefly(body)

    async def extend(self, claim: Claim, ttl_ms: int) -> int | None:
        def body(transaction: Transaction) -> int | None:
            key = find_head(transaction, claim.session_id).session_key
            extended = transaction.all(
                Number,
                "queue_extend",
                session_key=key,
                claim_token=claim.token,
                count=len(claim.batches),
                expires_at_ms=saturating_add(transaction.now_ms, ttl_ms),
            )
            return min((row.number for row in extended), default=None)

        return await self._database.write_briefly(body)

    async def release(self, claim: Claim, uncounted: int) -> int:
        def body(transaction: Transaction) -> int:
            key = find_head(transaction, claim.session_id).session_key
            return transaction.run("queue_abandon", session_key=key, claim_token=claim.token, uncounted=uncounted)

        return await self._database.write_briefly(body)


def _queue_head(transaction: Transaction, session_key: int, request: HeadRequest) -> QueueHead:
    """Make due work ready, and return the facts of a claim."""
    lease, now_ms = lease_row(transaction, request.session_id), transaction.now_ms
    if is_ready(lease, now_ms):
        unpark(transaction, session_key)
    transaction.run("queue_promote", session_key=session_key, now_ms=now_ms)

    def first(lane: str, count: int) -> list[CandidateRow]:
        return transaction.all(
            CandidateRow,
            "queue_candidates",
            session_key=session_key,
            lane=lane,
            limit=count,
            lease_fencing=request.fencing,
            now_ms=now_ms,
        )

    commands = first(COMMAND_LANE, 1)
    backlog = transaction.one(BacklogRow, "queue_backlog", session_key=session_key)
    if backlog is None:
        raise CorruptData("query queue_backlog returned no row")
    facts = QueueFacts(
        candidates=[candidate for lane in request.lanes for candidate in first(lane, request.limit)],
        command_seq=commands[0].seq if commands else None,
        any_late=backlog.any_late,
        any_claimed=backlog.any_claimed,
        next_available_at_ms=backlog.next_available_at_ms,
    )
    return QueueHead(now_ms=now_ms, lease=lease, facts=facts)


def _stamp(transaction: Transaction, seqs: Sequence[int], claim: NewClaim, fencing: int) -> list[BatchRow]:
    """Write the claim into these batches, under the lease with this fencing number, and return them in order."""
    rows = transaction.all(
        BatchRow,
        "queue_stamp",
        seqs=json_array(seqs),
        claim_id=claim.claim_id,
        claim_token=claim.token,
        lease_fencing=fencing,
        expires_at_ms=saturating_add(transaction.now_ms, claim.ttl_ms),
    )
    return sorted(rows, key=lambda row: row.seq)
