"""Owners of triggers and schedules: the host, or a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lash.cli import exits
from lash.cli.exits import CommandFailed
from lash.cli.ids import SCHEDULE, SESSION, Noun

if TYPE_CHECKING:
    from lash.model.trigger.trigger import TriggerOwner
    from lash.stores.storage import Storage

_NAMED: Final = 5
"""How many owners an error names."""


def owner_of(session_id: str | None) -> TriggerOwner:
    """Return the session of ``--session`` as owner; without it the host."""
    from lash.model.process.process import HOST, AgentScope, SessionOriginator

    return HOST if session_id is None else SessionOriginator(scope=AgentScope(session_id=session_id))


def session_of(owner: TriggerOwner) -> str | None:
    """Return the id of the session that owns a trigger or schedule; None if the host owns it."""
    from lash.model.process.process import SessionOriginator

    return owner.scope.session_id if isinstance(owner, SessionOriginator) else None


def owner_text(owner: TriggerOwner) -> str:
    from lash.model.process.process import SessionOriginator

    return f"session {owner.scope.session_id}" if isinstance(owner, SessionOriginator) else "host"


async def find_owner(storage: Storage, noun: Noun, key: str, session_id: str | None) -> tuple[TriggerOwner, str]:
    """Return the owner and the key of a trigger or schedule that is named by its key or the beginning of it.

    Without ``--session`` it is one of the host, or else the one of the only session that has the key.
    """
    session_id = await SESSION.match_given(storage, session_id)
    found = await noun.match(storage, key, within=session_id)
    owner = owner_of(session_id)
    if session_id is not None or found != key:
        return owner, found
    stored = storage.schedules if noun is SCHEDULE else storage.triggers
    if await stored.get(owner, key) is not None:
        return owner, key
    owners = await _owners(storage, noun, key)
    if len(owners) > 1:
        listed = ", ".join(map(owner_text, owners[:_NAMED])) + (" and more" if len(owners) > _NAMED else "")
        raise CommandFailed(exits.USAGE, f"ambiguous {noun.name} {key!r}: of {listed}; name the session with --session")
    return (owners[0] if owners else owner), key


async def _owners(storage: Storage, noun: Noun, key: str) -> list[TriggerOwner]:
    """Return the sessions that have a trigger of this key; a schedule is declared with a trigger of its key."""
    from lash.model.trigger.schedule import CRON_SOURCE_TYPE
    from lash.model.trigger.trigger import TriggerFilter

    wanted = TriggerFilter(key=key, source_type=CRON_SOURCE_TYPE if noun is SCHEDULE else None)
    page = await storage.triggers.list(wanted, limit=_NAMED + 1)
    return [each.owner for each in page.subscriptions]
