"""The feed of changes of all sessions on PostgreSQL."""

from __future__ import annotations

from lash.errors import CorruptData
from lash.plan.session.change import FeedEnd, SessionCursor, SessionFeed
from lash.postgres.arguments import columns
from lash.postgres.engine.database import Database


async def read_changes(database: Database, after: SessionCursor, limit: int) -> SessionFeed:
    """Read what changed after a cursor, in one statement."""
    arguments = (*after.place, *columns(after.late, width=2), limit)
    feed = await database.read_one(SessionFeed, "session_changes", *arguments)
    if feed is None:
        raise CorruptData("query session_changes returned no row")
    return feed


async def read_changes_end(database: Database) -> FeedEnd:
    """Read the end of the feed."""
    end = await database.read_one(FeedEnd, "session_changes_end")
    if end is None:
        raise CorruptData("query session_changes_end returned no row")
    return end
