"""The feed of changes of all sessions."""

from __future__ import annotations

from lash.model.gap import GapReason
from lash.model.session.session import SessionSummary
from lash.model.value import Count, Value


class SessionChange(Value, frozen=True, kw_only=True):
    """A session as it is after its last change; ``session`` is None if it was deleted.

    ``revision`` is that of the session, or the last one of a deleted session.
    """

    session_id: str
    revision: Count
    session: SessionSummary | None = None


class SessionChangePage(Value, frozen=True, kw_only=True):
    """Changes in an order that a cursor can resume; ``cursor`` is the position after the last one.

    With a ``gap`` the page is the first of the whole feed, because the reader's cursor does not belong to it: forget
    what was read before, apply this page, and go on from its cursor.
    """

    changes: tuple[SessionChange, ...]
    cursor: str
    gap: GapReason | None = None
