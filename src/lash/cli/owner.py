"""Texts for the owners of triggers and schedules, and for the scopes of effects and waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lash.model.trigger.trigger import TriggerOwner


def owner_of(session_id: str | None) -> TriggerOwner:
    """Return the session of ``--session`` as owner; without it the host."""
    from lash.model.process.process import HOST, AgentScope, SessionOriginator

    return HOST if session_id is None else SessionOriginator(scope=AgentScope(session_id=session_id))


def owner_text(owner: TriggerOwner) -> str:
    from lash.model.process.process import SessionOriginator

    return f"session {owner.scope.session_id}" if isinstance(owner, SessionOriginator) else "host"
