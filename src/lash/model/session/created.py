"""The result of creating a session, with or without its first commit."""

from __future__ import annotations

from lash.model.session.commit import CommitResult
from lash.model.session.session import SessionMeta
from lash.model.value import Count, Value


class CreatedSession(Value, frozen=True, kw_only=True):
    """The answer to ``create`` and ``fork``. The next commit must expect ``revision``."""

    meta: SessionMeta
    revision: Count
    created: bool
    commit: CommitResult | None = None
    """The result of the commit that was given to ``create``; None if the session existed without it."""
