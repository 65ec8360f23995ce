"""What every operation on a session begins with: its row, or the error for a session that has none."""

from __future__ import annotations

from lash.model.session.session import SessionMeta
from lash.plan.session.session import Floors, HeadRow, MetaRow, missing_session
from lash.sqlite.engine.database import Reader, Transaction
from lash.sqlkit.rows import Flag


def find_head(reader: Reader, session_id: str) -> HeadRow:
    """Return what a writer must know of the session, or raise SessionNotFound or SessionDeleted."""
    head = reader.one(HeadRow, "session_head", session_id=session_id)
    if head is None:
        raise missing_session(session_id, deleted=is_deleted(reader, session_id))
    return head


def find_meta(reader: Reader, session_id: str) -> MetaRow:
    """Return the metadata of the session, or raise SessionNotFound or SessionDeleted."""
    row = reader.one(MetaRow, "session_meta", session_id=session_id)
    if row is None:
        raise missing_session(session_id, deleted=is_deleted(reader, session_id))
    return row


def is_deleted(reader: Reader, session_id: str) -> bool:
    """Say whether a session of this id was deleted, and not created again."""
    flag = reader.one(Flag, "session_is_deleted", session_id=session_id)
    return flag is not None and flag.value


def insert_session(transaction: Transaction, meta: SessionMeta, relation: str) -> bool:
    """Create a session with its lease row, unless there is one of this id; return whether it was created."""
    floors = transaction.one(Floors, "session_take_id", session_id=meta.session_id)
    if floors is None:
        return False
    transaction.run(
        "session_insert",
        session_id=meta.session_id,
        name=meta.name,
        model=meta.model,
        cwd=meta.cwd,
        relation=relation,
        revision=floors.revision,
        now_ms=transaction.now_ms,
    )
    transaction.run("session_insert_lease", session_id=meta.session_id, fencing=floors.fencing)
    return True
