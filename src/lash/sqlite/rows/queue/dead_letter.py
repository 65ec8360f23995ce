"""Dead letters on SQLite, inside the transactions of the queue."""

from __future__ import annotations

from lash.errors import CorruptData, DeadLetterNotFound
from lash.model.queue import Batch, BatchState
from lash.plan.queue.dead_letter import Burial, RemovedRow, plan_burial
from lash.plan.queue.queue import BatchRow, HeldBatch, decode_batch
from lash.sqlite.engine.database import Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.session.lookup import find_head
from lash.sqlkit.rows import Text


def bury(transaction: Transaction, burial: Burial) -> int:
    """Move what a claim holds to the dead letters, unless that was done before."""
    claim = burial.claim
    key = find_head(transaction, claim.session_id).session_key
    claims = json_array([(claim.token, claim.claim_id)])
    held = transaction.all(HeldBatch, "commit_held", session_key=key, claims=claims)
    buried = transaction.all(
        Text,
        "dead_letter_of_claim",
        session_key=key,
        claim_token=claim.token,
        batch_ids=json_array(burial.batch_ids),
    )
    if plan_burial(burial, {row.batch_id for row in held}, {row.text for row in buried}):
        transaction.run(
            "dead_letter_bury",
            session_key=key,
            claim_token=claim.token,
            reason=burial.reason,
            error=burial.error,
            now_ms=transaction.now_ms,
        )
        transaction.run("commit_consume", session_key=key, tokens=json_array([claim.token]))
    return len(burial.batch_ids)


def requeue(transaction: Transaction, session_id: str, batch_id: str) -> Batch:
    """Put a dead letter back to the end of the queue."""
    key = find_head(transaction, session_id).session_key
    row = transaction.one(BatchRow, "dead_letter_revive", session_key=key, batch_id=batch_id)
    if row is None:
        raise DeadLetterNotFound(session_id, batch_id)
    if _remove(transaction, key, batch_id) is None:
        raise CorruptData(f"dead letter {batch_id!r} was read and is not there")
    return decode_batch(row, session_id)


def discard(transaction: Transaction, session_id: str, batch_id: str) -> bool:
    """Remove a dead letter as a cancelled batch is removed."""
    key = find_head(transaction, session_id).session_key
    removed = _remove(transaction, key, batch_id)
    if removed is None:
        return False
    settle_cancelled(transaction, key, batch_id, removed.source_key)
    return True


def settle_cancelled(transaction: Transaction, session_key: int, batch_id: str, source_key: str | None) -> None:
    """Note what became of a batch that nobody will handle: under its source key, and for the wake that lay in it."""
    if source_key is not None:
        transaction.run(
            "queue_settle_key",
            session_key=session_key,
            source_key=source_key,
            state=BatchState.CANCELLED.value,
            now_ms=transaction.now_ms,
        )
    transaction.run("event_acknowledge_batch", batch_id=batch_id)


def _remove(transaction: Transaction, session_key: int, batch_id: str) -> RemovedRow | None:
    return transaction.one(RemovedRow, "dead_letter_remove", session_key=session_key, batch_id=batch_id)
