"""Deleting sessions on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from lash.plan.session.session import HeadRow
from lash.sqlite.engine.database import Database, Transaction
from lash.sqlite.rows.process.grant import detach_session
from lash.sqlite.rows.session.fork import drop_runs, last_run, reclaim_graphs
from lash.sqlite.rows.trigger.schedule import delete_session_schedules
from lash.sqlite.rows.trigger.trigger import delete_subscriptions
from lash.sqlkit.rows import Text

_DELETED_AT_ONCE: Final = 100
"""How many sessions one transaction deletes at most: other writers wait for it."""


async def delete_sessions(database: Database, session_ids: Sequence[str]) -> list[str]:
    """Delete several sessions, and return the ids of the existing ones."""
    deleted: list[str] = []
    for start in range(0, len(session_ids), _DELETED_AT_ONCE):
        some = session_ids[start : start + _DELETED_AT_ONCE]
        deleted += await database.write(partial(_delete_some, session_ids=some))
    return deleted


async def delete_expired_sessions(database: Database, limit: int) -> list[str]:
    """Delete sessions whose expiry has passed and whose lease is not live, and return their ids."""

    def body(transaction: Transaction) -> list[str]:
        found = transaction.all(Text, "session_expired", now_ms=transaction.now_ms, limit=min(limit, _DELETED_AT_ONCE))
        return _delete_some(transaction, [row.text for row in found])

    deleted: list[str] = []
    while len(deleted) < limit and (some := await database.write(body)):
        deleted += some
    return deleted


def delete_session(transaction: Transaction, session_id: str) -> bool:
    """Delete a session with everything that it owns, inside a write transaction."""
    # The order of all nouns: schedules and subscriptions first, so that they start no more processes; then the ties to
    # processes; then the session with its effects, waits, queue and dead letters.
    delete_session_schedules(transaction, session_id)
    delete_subscriptions(transaction, session_id)
    detach_session(transaction, session_id)
    head = transaction.one(HeadRow, "session_head", session_id=session_id)
    if head is None:
        return False
    run_key = last_run(transaction, head.session_key)
    transaction.run("session_bury", session_id=session_id, now_ms=transaction.now_ms)
    transaction.run("session_delete", session_id=session_id)
    reclaim_graphs(transaction, [head.session_key, *drop_runs(transaction, run_key)])
    return True


def _delete_some(transaction: Transaction, session_ids: Sequence[str]) -> list[str]:
    return [each for each in session_ids if delete_session(transaction, each)]
