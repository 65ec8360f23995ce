"""The model that machines compare the stores with: written from the contract alone, without ``lash.plan``.

It keeps whole copies where the stores share, and plain lists where they have indexes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from lash.model.lease import Lease
from tests.proof.model.kit import Refused


@dataclasses.dataclass
class LeaseState:
    """The lease of one session: the last fencing number, and its holder, live or expired."""

    fencing: int
    holder: Lease | None = None
    paused_until_ms: int | None = None
    waiting_for: str | None = None
    """What the parked turn waits for."""
    wake_seq: int = 0
    reasons: int = 0
    """How many reasons to continue were not counted yet."""


@dataclasses.dataclass
class SessionState:
    """One session as any caller may see it."""

    session_id: str
    created_at_ms: int
    revision: int
    lease: LeaseState
    incarnation: int
    """Which of the sessions of this id it is, counted from 1."""
    leaf_node_id: str | None = None
    owner: str | None = None
    labels: dict[str, str] = dataclasses.field(default_factory=dict)


class Sessions:
    """The existing sessions, and what is left of deleted ones."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.live: dict[str, SessionState] = {}
        self.deleted: dict[str, SessionState] = {}
        self.on_remove: Callable[[SessionState], None] | None = None

    @property
    def now_ms(self) -> int:
        return self._now_ms()

    def need(self, session_id: str) -> SessionState:
        """Return the session, or refuse as every operation does."""
        if session_id in self.live:
            return self.live[session_id]
        raise Refused("SessionDeleted" if session_id in self.deleted else "SessionNotFound", session_id=session_id)

    def add(self, session_id: str, revision: int, *, forked: bool = False) -> SessionState:
        """Create the session, with a first revision if it is a fork; only the numbers of a deleted one are kept."""
        old = self.deleted.pop(session_id, None)
        assert revision == forked if old is None else revision > old.revision, "a new session starts above the old one"
        self.live[session_id] = SessionState(
            session_id=session_id,
            created_at_ms=self.now_ms,
            revision=revision,
            lease=LeaseState(fencing=0 if old is None else old.lease.fencing),
            incarnation=1 if old is None else old.incarnation + 1,
        )
        return self.live[session_id]

    def note_reason(self, session_id: str | None) -> None:
        """Note a reason to continue a turn of a session, if the session exists."""
        if session_id in self.live:
            self.live[session_id].lease.reasons += 1

    def remove(self, session_id: str) -> bool:
        """Delete the session, and return whether it existed."""
        gone = self.live.pop(session_id, None)
        if gone is not None:
            self.deleted[session_id] = gone
            if self.on_remove is not None:
                self.on_remove(gone)
        return gone is not None
