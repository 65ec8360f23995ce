"""Rules that most machines need: sessions are created and deleted, and time moves."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from lash.model.session.created import CreatedSession
from lash.model.session.session import SessionMeta
from tests.proof.model.base_model import Sessions, SessionState
from tests.proof.model.kit import Machine, action
from tests.proof.model.world import World

SESSION_IDS: Final = ("s0", "s1", "s2")
session_ids: Final = st.sampled_from((*SESSION_IDS[:1] * 8, *SESSION_IDS[1:]))
"""Mostly the first, so that operations meet on it."""
JUMPS: Final = (1, 400, 400, 1_000, 1_000, 5_000, 60_000, -300)
"""How far clocks jump, in milliseconds: within a lease, exactly to its end, beyond it, and back."""


class SessionLife(Machine):
    """A machine whose sessions can be created, deleted and created again."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.sessions = Sessions(lambda: world.now_ms)

    def prepare(self) -> None:
        super().prepare()
        self.create(SESSION_IDS[0])

    @action(session_id=session_ids)
    def create(self, session_id: str) -> None:
        self.step(
            "create",
            lambda side: side.storage.sessions.create(session_id),
            lambda got: self._created(session_id, got),
        )

    @action(1, session_id=session_ids)
    def delete(self, session_id: str) -> None:
        self.step(
            "delete",
            lambda side: side.storage.sessions.delete(session_id),
            lambda _: self.forget_session(session_id),
        )

    @action(milliseconds=st.sampled_from(JUMPS))
    def jump(self, milliseconds: int) -> None:
        self.world.advance(milliseconds)
        self.count("jump back" if milliseconds < 0 else "jump")

    def forget_session(self, session_id: str) -> bool:
        """Delete the session from the model; machines with more state extend this."""
        return self.sessions.remove(session_id)

    def _created(self, session_id: str, got: CreatedSession | None) -> CreatedSession:
        assert got is not None, "creating a session never fails"
        known = self.sessions.live.get(session_id)
        state = known or self.sessions.add(session_id, got.revision)
        if known is None:
            self.count("create:again" if state.incarnation > 1 else "create:new")
        return CreatedSession(meta=self.meta_of(state), revision=state.revision, created=known is None)

    def meta_of(self, state: SessionState) -> SessionMeta:
        """Return the metadata of a session; machines with forks extend this."""
        return SessionMeta(
            session_id=state.session_id,
            name=state.session_id,
            created_at_ms=state.created_at_ms,
            owner=state.owner,
            labels=state.labels,
        )
