"""Claiming queued work on SQLite, inside any write transaction."""

from __future__ import annotations

from collections.abc import Sequence

from lash.base.ids import new_id
from lash.base.limits import saturating_add
from lash.errors import CorruptData
from lash.model.lease import LeaseOwner
from lash.model.queue import Boundary, Claim, ClaimedTurn, ClaimTurnOutcome
from lash.plan.queue.begin import MAX_INPUT, NO_FENCING, Beginning, plan_begin
from lash.plan.queue.queue import (
    COMMAND_LANE,
    BacklogRow,
    BatchRow,
    CandidateRow,
    QueueFacts,
    decode_batch,
    lanes_at,
)
from lash.sqlite.engine.database import Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.lease import lease_row, take_lease
from lash.sqlite.rows.session.lookup import find_head
from lash.sqlkit.rows import Flag


def claim_turn(transaction: Transaction, session_id: str, owner: LeaseOwner, ttl_ms: int) -> ClaimTurnOutcome:
    """Take the lease and claim what comes next under it, or change nothing."""
    row, now_ms = lease_row(transaction, session_id), transaction.now_ms
    head = find_head(transaction, session_id)
    facts = ready_work(transaction, head.session_key, lanes_at(Boundary.IDLE), MAX_INPUT, NO_FENCING)
    decision = plan_begin(row, facts, session_id=session_id, owner=owner, now_ms=now_ms)
    if not isinstance(decision, Beginning):
        return decision
    recorded = transaction.one(Flag, "effect_any", scope_id=decision.scope_id)
    return ClaimedTurn(
        lease=take_lease(transaction, decision.fencing, session_id, owner, ttl_ms),
        claim=stamp_claim(transaction, session_id, decision.seqs, fencing=decision.fencing, ttl_ms=ttl_ms),
        revision=head.revision,
        recorded=recorded is not None and recorded.value,
    )


def ready_work(
    transaction: Transaction, session_key: int, lanes: tuple[str, ...], limit: int, fencing: int
) -> QueueFacts:
    """Make ready what has become due, and return what a claim under the lease of this number must know."""
    transaction.run("queue_promote", session_key=session_key, now_ms=transaction.now_ms)

    def first(lane: str, count: int) -> list[CandidateRow]:
        return transaction.all(
            CandidateRow,
            "queue_candidates",
            session_key=session_key,
            lane=lane,
            limit=count,
            lease_fencing=fencing,
            now_ms=transaction.now_ms,
        )

    commands = first(COMMAND_LANE, 1)
    backlog = transaction.one(BacklogRow, "queue_backlog", session_key=session_key)
    if backlog is None:
        raise CorruptData("a query that always answers did not")
    return QueueFacts(
        candidates=[candidate for lane in lanes for candidate in first(lane, limit)],
        command_seq=commands[0].seq if commands else None,
        any_late=backlog.any_late,
        any_claimed=backlog.any_claimed,
        next_available_at_ms=backlog.next_available_at_ms,
    )


def stamp_claim(transaction: Transaction, session_id: str, seqs: Sequence[int], *, fencing: int, ttl_ms: int) -> Claim:
    """Put a claim on the batches of these places, made under the lease of this number."""
    claim_id, token, expires_at_ms = new_id(), new_id(), saturating_add(transaction.now_ms, ttl_ms)
    rows = transaction.all(
        BatchRow,
        "queue_stamp",
        seqs=json_array(seqs),
        claim_id=claim_id,
        claim_token=token,
        lease_fencing=fencing,
        expires_at_ms=expires_at_ms,
    )
    return Claim(
        session_id=session_id,
        claim_id=claim_id,
        token=token,
        lease_fencing=fencing,
        claimed_at_ms=transaction.now_ms,
        expires_at_ms=expires_at_ms,
        batches=tuple(decode_batch(row, session_id) for row in sorted(rows, key=lambda row: row.seq)),
    )
