"""The contract of activity: what can be seen of a session while it lives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lash.model.activity import ActivityDraft, Look, Place, SeenChanges


class ActivityStore(Protocol):
    """The live activity of the sessions of a storage: best effort, kept for a while, and never part of history.

    Positions are 1, 2, 3… within a session and become visible in that order. All methods raise SessionNotFound or
    SessionDeleted where there is no session.
    """

    async def append(self, session_id: str, items: Sequence[ActivityDraft]) -> int:
        """Show something, all or nothing, and return the position of the last item.

        It neither waits for commits of the session nor makes them wait. Of what was shown before, the last 2,048
        items, 8 MB and 120 seconds are kept. It need not survive a crash of the database, after which positions may
        begin anew in another epoch.
        """
        ...

    async def read(self, session_id: str, place: Place | None = None, *, limit: int = 256) -> Look:
        """Return where a session stands now, and the activity behind a place, from one moment; one read.

        Without a place there is no activity in the answer. If anything behind the place is not kept any more, or the
        place is of another life or epoch or ahead of the session, the answer names the gap and holds no activity.
        """
        ...

    async def process_changes(self, session_id: str, cursor: str, *, limit: int = 256) -> SeenChanges | None:
        """Return changes behind a cursor of the change feed, of processes that wake the session or are granted to it.

        None says that changes behind the cursor were pruned. A process is seen as long as it exists: its pruning is
        not told. The answer may hold nothing and yet have come further in the feed.
        """
        ...
