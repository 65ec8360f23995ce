"""The error for a session that does not exist; each statement finds the row of its session itself."""

from __future__ import annotations

from lash.plan.session.session import missing_session
from lash.postgres.engine.database import Database, Transaction
from lash.sqlkit.rows import Flag, Number


async def missing(database: Database, session_id: str) -> Exception:
    """Return the error for a session that has no row."""
    deleted = await database.read_one(Flag, "session_is_deleted", session_id)
    return missing_session(session_id, deleted=deleted is not None and deleted.value)


async def missing_within(transaction: Transaction, session_id: str) -> Exception:
    """Return the same error, as the transaction sees it."""
    deleted = await transaction.one(Flag, "session_is_deleted", session_id)
    return missing_session(session_id, deleted=deleted is not None and deleted.value)


async def require_session(database: Database, session_id: str) -> None:
    """Raise SessionNotFound or SessionDeleted if the session does not exist."""
    if await database.read_one(Number, "session_key", session_id) is None:
        raise await missing(database, session_id)
