"""The contract of activity: the live output of sessions; and the rows that a backend keeps for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from lash.model.activity import ActivityDraft, ActivityPage, ObserveCursor, SeenChanges

if TYPE_CHECKING:
    # Only backends use these; without them, import lash stays light.
    from lash.plan.activity import ActivityRow, EncodedActivity, SessionState
    from lash.plan.process.change import ChangeCursor, FeedState, SeenChangeRow


class ActivityStore(Protocol):
    """The live activity of the sessions of a storage: best effort, kept for a while, and never part of history.

    Positions are 1, 2, 3… within a session and become visible in that order. All methods raise SessionNotFound or
    SessionDeleted if the session does not exist.
    """

    async def append(self, session_id: str, items: Sequence[ActivityDraft]) -> int:
        """Store activity, all items or none, and return the position of the last one.

        It neither waits for commits of the session nor delays them. Of older activity, the last 2,048 items, 8 MB and
        120 seconds are kept. Activity need not survive a crash of the database; positions may then start again in
        another epoch.
        """
        ...

    async def read(self, session_id: str, cursor: ObserveCursor | None = None, *, limit: int = 256) -> ActivityPage:
        """Return the newest state of a session and the activity after a cursor, from one moment, in one read.

        Without a cursor the page has no activity. If activity after the cursor was deleted, or the cursor is from
        another life or epoch or ahead of the session, the page has the reason as its gap and no activity. The epoch is
        another one after the storage was restored or moved.
        """
        ...

    async def process_changes(self, session_id: str, cursor: str, *, limit: int = 256) -> SeenChanges | None:
        """Return changes after a cursor of the change feed, of processes that wake the session or are granted to it.

        Returns None if changes after the cursor were pruned, or if the feed does not have the change that the cursor
        names. A session sees a process as long as it exists; its pruning is not reported. An answer without changes may
        still have a cursor that is further on.
        """
        ...


class ActivityRows(Protocol):
    """The activity of one database; `lash.backend.activity.Activities` makes an `ActivityStore` of it.

    Arguments are checked and encoded. All methods raise SessionNotFound or SessionDeleted.
    """

    async def append(self, session_id: str, activity: EncodedActivity) -> int:
        """Insert activity, delete older activity beyond the limits, and return the last position."""
        ...

    async def read(self, session_id: str, after: int | None, limit: int) -> tuple[SessionState, Sequence[ActivityRow]]:
        """Return the state of a session and its activity after a position, from one moment; none if it is None."""
        ...

    async def process_changes(
        self, session_id: str, after: ChangeCursor, limit: int
    ) -> tuple[Sequence[SeenChangeRow], FeedState]:
        """Return a page of the change feed, and the state of the feed, from one moment."""
        ...
