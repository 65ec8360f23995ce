"""A reader of the session feed beside the clients, and what it must have seen in the end."""

from __future__ import annotations

import asyncio
import base64
import bisect
import json
import time
from typing import Any, Final

import lash
from lash.model.session.session import SessionSummary
from tests.proof.contention.history import CommitAct, Operation, State
from tests.proof.contention.verdict import Stored

_PAGE: Final = 3
"""Fewer than there are sessions at a time, so that most pages are full."""
_PAUSE_S: Final = 0.005


class FeedReader:
    """Follows the feed from its start, in small pages. No page may have a gap, or go back."""

    def __init__(self, storage: lash.Storage) -> None:
        self._sessions = storage.sessions
        self._cursor: str | None = None
        self._place: list[Any] = [0, ""]
        self.seen: dict[str, SessionSummary] = {}
        """Each session as the feed showed it last."""
        self._read_up: list[tuple[int, dict[str, int]]] = []
        """When each read that found less than a full page began, and the revisions that were known after it."""
        self.pages = 0

    async def follow(self, over: asyncio.Event) -> None:
        """Read until the event is set, after the last write; then read what is left."""
        while not over.is_set():
            await self._read()
            await asyncio.sleep(_PAUSE_S)
        while await self._read():
            pass

    async def _read(self) -> bool:
        """Read one page, and return whether it had changes."""
        began = time.monotonic_ns()
        page = await self._sessions.changes(self._cursor, limit=_PAGE)
        assert page.gap is None
        place = json.loads(base64.urlsafe_b64decode(page.cursor))[2]
        assert place >= self._place, f"the cursor went from {self._place} back to {place}"
        for change in page.changes:
            assert change.session is not None, "no session was deleted"
            before = self.seen.get(change.session_id)
            assert before is None or before.revision <= change.revision, f"{change.session_id} went back"
            self.seen[change.session_id] = change.session
        self._cursor, self._place = page.cursor, place
        self.pages += 1
        if len(page.changes) < _PAGE:
            self._read_up.append((began, {name: each.revision for name, each in self.seen.items()}))
        return bool(page.changes)

    def check(self, history: list[Operation], stored: Stored) -> None:
        """Compare with the history, and what was seen last of each session with its rows."""
        for each in history:
            if isinstance(each.act, CommitAct) and each.state is State.OK and each.end is not None:
                self._check_seen(each.act, each.end)
        seen = {name: (each.revision, _labels(each)) for name, each in self.seen.items()}
        rows = {name: (each.revision, dict(stored.labels[name].held)) for name, each in stored.sessions.items()}
        assert seen == rows

    def _check_seen(self, commit: CommitAct, end: int) -> None:
        """The first read after a commit was acknowledged shows it, or a later one, unless its page is full."""
        after = bisect.bisect_left(self._read_up, end, key=lambda each: each[0])
        assert after < len(self._read_up), "the feed was read after the last commit"
        known = self._read_up[after][1].get(commit.session, 0)
        assert commit.revision is None or commit.revision <= known, f"revision {known} was read after {commit}"


def _labels(session: SessionSummary) -> dict[str, str]:
    """Return the labels, and the owner under the empty key."""
    owner = session.meta.owner
    return session.meta.labels | ({} if owner is None else {"": owner})
