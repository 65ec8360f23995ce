"""Dead letters on PostgreSQL, each change in one guarded statement."""

from __future__ import annotations

from lash.errors import DeadLetterNotFound
from lash.model.queue import Batch, DeadLetter
from lash.plan.queue.dead_letter import Burial, DeadLetterRow, decode_dead_letter, plan_burial
from lash.plan.queue.queue import decode_batch
from lash.postgres.engine.database import Database
from lash.postgres.rows.session.lookup import missing
from lash.postgres.rows.session.rows import BatchesAnswer, DeadLettersAnswer, HeldAnswer
from lash.sqlkit.rows import Text


async def bury(database: Database, burial: Burial) -> int:
    """Move what a claim holds to the dead letters, unless that was done before."""
    claim = burial.claim
    # Repeating it after a lost connection is harmless: the batches are then found to have died under this very claim.
    answer = await database.write_one(
        HeldAnswer,
        "dead_letter_bury",
        *(claim.session_id, claim.token, claim.claim_id, burial.batch_ids),
        *(burial.reason, burial.error),
        repeatable=True,
    )
    if answer is None:
        raise await missing(database, claim.session_id)
    if set(answer.held) != set(burial.batch_ids):
        # Read apart: the statement may have waited for the very one that buried them.
        buried = await database.read_all(Text, "dead_letter_of_claim", claim.session_id, burial.batch_ids, claim.token)
        plan_burial(burial, answer.held, {row.text for row in buried})
    return len(burial.batch_ids)


async def dead(database: Database, session_id: str | None, limit: int, after: int) -> tuple[DeadLetter, ...]:
    """Return a page of dead letters, of one session or of all."""
    if session_id is None:
        rows = await database.read_all(DeadLetterRow, "dead_letter_page", after, limit)
    else:
        answer = await database.read_one(DeadLettersAnswer, "dead_letter_page_of_session", session_id, after, limit)
        if answer is None:
            raise await missing(database, session_id)
        rows = answer.letters
    return tuple(decode_dead_letter(row) for row in rows)


async def requeue(database: Database, session_id: str, batch_id: str) -> Batch:
    """Put a dead letter back to the end of the queue."""
    answer = await database.write_one(BatchesAnswer, "dead_letter_revive", session_id, batch_id, repeatable=False)
    if answer is None:
        raise await missing(database, session_id)
    if not answer.batches:
        raise DeadLetterNotFound(session_id, batch_id)
    return decode_batch(answer.batches[0], session_id)
