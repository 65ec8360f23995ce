"""The feed of changes of all sessions on SQLite."""

from __future__ import annotations

from typing import Final

import msgspec

from lash.errors import CorruptData
from lash.plan.session.change import ChangedRow, DeletedRow, FeedEnd, SessionCursor, SessionFeed
from lash.sqlite.engine.database import Reader

_RUNNING: Final[list[int]] = []
"""There is one writer at a time: no transaction becomes visible after a later one."""


class _FeedState(msgspec.Struct, frozen=True, array_like=True):
    epoch: str
    known: bool


class _End(msgspec.Struct, frozen=True, array_like=True):
    epoch: str
    number: int
    session_id: str


def read_changes(reader: Reader, after: SessionCursor, limit: int) -> SessionFeed:
    """Read what changed after a cursor."""
    number, session_id = after.place
    state = reader.one(_FeedState, "session_changes", number=number, session_id=session_id)
    if state is None:
        raise CorruptData("query session_changes returned no row")
    sessions: list[ChangedRow] = []
    if number == 0:
        sessions += reader.all(ChangedRow, "session_changes_unnumbered", session_id=session_id, limit=limit)
    sessions += reader.all(ChangedRow, "session_changes_after", number=number, limit=limit)
    deleted = reader.all(DeletedRow, "session_changes_deleted", number=number, limit=limit)
    return SessionFeed(state.epoch, state.known, _RUNNING, sessions, deleted)


def read_changes_end(reader: Reader) -> FeedEnd:
    """Read the end of the feed."""
    end = reader.one(_End, "session_changes_end")
    if end is None:
        raise CorruptData("query session_changes_end returned no row")
    return FeedEnd(end.epoch, end.number, end.session_id, _RUNNING)
