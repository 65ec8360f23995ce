"""Looking a session up before anything is done to it."""

from __future__ import annotations

from lash.plan.session import HeadRow, missing_session
from lash.sqlite.database import Reader
from lash.sqlkit.rows import Flag


def find_head(reader: Reader, session_id: str) -> HeadRow:
    """Return what a writer must know of the session, or raise SessionNotFound or SessionDeleted."""
    head = reader.one(HeadRow, "session_head", session_id=session_id)
    if head is None:
        raise missing_session(session_id, deleted=is_deleted(reader, session_id))
    return head


def is_deleted(reader: Reader, session_id: str) -> bool:
    flag = reader.one(Flag, "session_is_deleted", session_id=session_id)
    return flag is not None and flag.value
