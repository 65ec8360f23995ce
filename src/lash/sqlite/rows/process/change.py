"""The state of the change feed on SQLite."""

from __future__ import annotations

from lash.errors import CorruptData
from lash.plan.process.change import ChangeCursor, FeedState
from lash.sqlite.engine.database import Reader


def read_feed(reader: Reader, after: ChangeCursor) -> FeedState:
    """Return the state of the feed for a reader that resumes at a cursor."""
    feed = reader.one(FeedState, "change_feed", after=after.seq)
    if feed is None:
        raise CorruptData("query change_feed returned no row")
    return feed


def read_end(reader: Reader) -> ChangeCursor:
    """Return the end of the feed."""
    end = reader.one(ChangeCursor, "change_end")
    if end is None:
        raise CorruptData("query change_end returned no row")
    return end
