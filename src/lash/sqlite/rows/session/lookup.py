"""Finds the row of a session, or returns the error for one that does not exist."""

from __future__ import annotations

from lash.plan.session.meta import MetaRow
from lash.plan.session.session import HeadRow, missing_session
from lash.sqlite.engine.database import Reader
from lash.sqlkit.rows import Flag, Number


def find_head(reader: Reader, session_id: str) -> HeadRow:
    """Return the head of a session as a writer needs it, or raise SessionNotFound or SessionDeleted."""
    head = reader.one(HeadRow, "session_head", session_id=session_id)
    if head is None:
        raise missing(reader, session_id)
    return head


def find_meta(reader: Reader, session_id: str) -> MetaRow:
    """Return the metadata of a session, or raise SessionNotFound or SessionDeleted."""
    row = reader.one(MetaRow, "session_meta", session_id=session_id)
    if row is None:
        raise missing(reader, session_id)
    return row


def missing(reader: Reader, session_id: str) -> Exception:
    """Return the error for a session that has no row."""
    return missing_session(session_id, deleted=is_deleted(reader, session_id))


def is_deleted(reader: Reader, session_id: str) -> bool:
    """Return whether a session of this id was deleted and not created again."""
    flag = reader.one(Flag, "session_is_deleted", session_id=session_id)
    return flag is not None and flag.value


def find_session_key(reader: Reader, session_id: str) -> int:
    """Return the key of the session, or raise SessionNotFound or SessionDeleted."""
    row = reader.one(Number, "session_key", session_id=session_id)
    if row is None:
        raise missing(reader, session_id)
    return row.number
