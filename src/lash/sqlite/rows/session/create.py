"""Creating a session with its first commit, in one transaction."""

from __future__ import annotations

from functools import partial

from lash.model.session.commit import CommitResult
from lash.plan.session.commit import PreparedCommit
from lash.plan.session.first_commit import starting_at
from lash.plan.session.meta import EncodedMeta, MetaRow
from lash.plan.session.turn import TurnRow
from lash.sqlite.engine.database import Transaction
from lash.sqlite.rows.session.commit import apply_commit, find_turn
from lash.sqlite.rows.session.fork import insert_session
from lash.sqlite.rows.session.lookup import find_meta
from lash.stores.session import DecideFirstCommit


def create_committed(
    transaction: Transaction, encoded: EncodedMeta, prepared: PreparedCommit, decide: DecideFirstCommit
) -> tuple[MetaRow, TurnRow | None, CommitResult | None]:
    """Create the session inside a write transaction, unless its id is taken."""
    session_id = encoded.meta.session_id
    is_new = insert_session(transaction, encoded)
    row = find_meta(transaction, session_id)
    if not is_new:
        return row, find_turn(transaction, row.session_key, prepared.commit.turn_id), None
    moved = starting_at(prepared, row.revision)
    result = apply_commit(transaction, moved, partial(decide, moved))
    return find_meta(transaction, session_id), None, result
