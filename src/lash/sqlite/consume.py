"""The batches that a commit consumes."""

from __future__ import annotations

from collections.abc import Sequence

from lash.plan.queue.claim import HeldBatch
from lash.plan.session.commit import PreparedCommit
from lash.plan.session.session import HeadRow
from lash.sqlite.commit_head import CommitHead, only_claim
from lash.sqlite.engine.database import Transaction
from lash.sqlite.engine.parameters import json_array


class Held(HeldBatch, frozen=True, array_like=True):
    """A batch that a claim holds, whether it is the delivery of a wake, and its source key."""

    is_wake: bool
    source_key: str | None


def held_batches(transaction: Transaction, prepared: PreparedCommit, rows: Sequence[CommitHead]) -> list[Held]:
    completions, claim = prepared.commit.completions, only_claim(prepared)
    if not completions:
        return []
    if claim is not None:
        return [
            Held(claim.token, row.held_batch_id, row.held_is_wake, row.held_source_key)
            for row in rows
            if row.held_batch_id is not None
        ]
    claims = json_array((each.token, each.claim_id) for each in completions)
    return transaction.all(Held, "commit_held", session_key=rows[0].session_key, claims=claims)


def consume(transaction: Transaction, prepared: PreparedCommit, head: HeadRow, held: Sequence[Held]) -> None:
    """Remove the held batches, and finish their source keys."""
    if not held:
        return
    finished = _finish_keys(transaction, prepared, head.session_key, held)
    any_wakes = any(each.is_wake for each in held)
    if finished == len(held) and not any_wakes:
        # A trigger removes the batch of a key that is consumed (lash_source_keys_consumed), unless it delivers a wake.
        return
    tokens = json_array(each.token for each in prepared.commit.completions)
    if any_wakes:
        transaction.run("commit_acknowledge_wakes", session_key=head.session_key, tokens=tokens)
    transaction.run("commit_consume", session_key=head.session_key, tokens=tokens)


def _finish_keys(transaction: Transaction, prepared: PreparedCommit, session_key: int, held: Sequence[Held]) -> int:
    """Mark the source keys of the held batches as consumed, and return how many there were.

    A damaged key that names another batch is left: it does not remove the held one.
    """
    keyed, now_ms = [each for each in held if each.source_key is not None], transaction.now_ms
    if len(keyed) == 1:
        of, batch_id = keyed[0].source_key, keyed[0].batch_id
        return transaction.run(
            "commit_consume_key", session_key=session_key, source_key=of, batch_id=batch_id, now_ms=now_ms
        )
    if not keyed:
        return 0
    tokens = json_array(each.token for each in prepared.commit.completions)
    return transaction.run("commit_consume_keys", session_key=session_key, tokens=tokens, now_ms=now_ms)
