"""A reader of the feed of sessions that keeps what it read, as a search index does."""

from __future__ import annotations

from lash.model.session.session import SessionSummary
from tests.proof.model.world import Side


class Replica:
    """The sessions of one side, built from nothing but its feed."""

    def __init__(self) -> None:
        self._sessions: dict[str, SessionSummary] = {}
        self._cursor: str | None = None

    async def follow(self, side: Side, limit: int) -> bool:
        """Read the feed to its end, and return whether the replica now has what the list of sessions has."""
        while True:
            page = await side.storage.sessions.changes(self._cursor, limit=limit)
            assert page.gap is None
            self._cursor = page.cursor
            for change in page.changes:
                if change.session is None:
                    self._sessions.pop(change.session_id, None)
                else:
                    self._sessions[change.session_id] = change.session
            if len(page.changes) < limit:
                break
        listed = (await side.storage.sessions.list(limit=1_000)).sessions
        return self._sessions == {each.meta.session_id: each for each in listed}
