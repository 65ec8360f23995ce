"""Records of sessions of Strands, and the messages of an agent among them."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final, NamedTuple

from strands.types.exceptions import SessionException

from lash.adapters.names import short
from lash.base.limits import MAX_PAGE
from lash.errors import RecordConflict
from lash.model.record import Record, RecordValue
from lash.stores.storage import Storage

SESSION_PREFIX: Final = "strands:"
SESSION: Final = "strands.session"
AGENTS: Final = "strands.agents"
MESSAGES: Final = "strands.messages"
MULTI_AGENTS: Final = "strands.multi_agents"
_PART_LENGTH: Final = 200
_DIGITS: Final = 19
"""Numbers in keys have this many digits, so that the order of keys is theirs."""


class Place(NamedTuple):
    """Where a session of Strands is."""

    session_id: str

    @property
    def lash_id(self) -> str:
        """The id of its lash session."""
        return SESSION_PREFIX + short(self.session_id, _PART_LENGTH)

    @property
    def name(self) -> str | None:
        """The name of its lash session; None if the id cannot be one."""
        return self.session_id if self.lash_id == SESSION_PREFIX + self.session_id else None


def part(agent_id: str) -> str:
    """Return the id of an agent as a part of a key, without slashes."""
    return short(agent_id.replace("%", "%25").replace("/", "%2F"), _PART_LENGTH)


def key(agent_id: str, message_id: int) -> str:
    """Return the key of a message."""
    return f"{part(agent_id)}/{message_id:0{_DIGITS}}"


def decoded(record: Record) -> dict[str, Any]:
    """Return the object of a record."""
    value: dict[str, Any] = json.loads(_text(record))
    return value


def replaced(record: Record, encoded: str) -> RecordValue:
    """Return the value of a record with another object."""
    assert isinstance(record.value, dict)
    return {**record.value, "json": encoded}


async def add(storage: Storage, place: Place, agent_id: str, message_id: int, encoded: str) -> None:
    """Write a new message; raise SessionException if the agent is unknown or the number is taken by another one."""
    agent, latest = await asyncio.gather(
        storage.records.get(AGENTS, part(agent_id), session_id=place.lash_id), _latest(storage, place, agent_id)
    )
    if agent is None:
        raise SessionException(f"Agent {agent_id} in session {place.session_id} does not exist")
    value = {"json": encoded, "before": 0 if latest is None else _before(latest) + 1}
    new = key(agent_id, message_id)
    try:
        await storage.records.put(MESSAGES, new, value, session_id=place.lash_id, expected_version=0)
    except RecordConflict:
        record = await storage.records.get(MESSAGES, new, session_id=place.lash_id)
        if record is None or _text(record) != encoded:
            message = f"Message {message_id} already exists in agent {agent_id} in session {place.session_id}"
            raise SessionException(message) from None


async def page(storage: Storage, place: Place, agent_id: str, limit: int | None, offset: int) -> list[str]:
    """Return messages in order: ``limit`` of them, or all, after the first ``offset``.

    If the numbers have no gaps, which is what agents write, the messages before the offset are not read.
    """
    after: str | None = None
    skipped = 0
    if offset > 0:
        latest = await _latest(storage, place, agent_id)
        if latest is None:
            return []
        # The messages are numbered from 0 without gaps if there are as many as the last number says.
        if latest.key == key(agent_id, _before(latest)):
            after, skipped = key(agent_id, offset - 1), offset
    wanted = None if limit is None else max(0, offset - skipped + limit)
    records: list[Record] = []
    while wanted is None or len(records) < wanted:
        size = MAX_PAGE if wanted is None else min(MAX_PAGE, wanted - len(records))
        found = await storage.records.list(
            MESSAGES, session_id=place.lash_id, prefix=f"{part(agent_id)}/", after=after, limit=size
        )
        records += found
        if len(found) < size:
            break
        after = found[-1].key
    return [_text(record) for record in records[offset - skipped :]]


async def _latest(storage: Storage, place: Place, agent_id: str) -> Record | None:
    found = await storage.records.list(
        MESSAGES, session_id=place.lash_id, prefix=f"{part(agent_id)}/", limit=1, reverse=True
    )
    return found[0] if found else None


def _before(record: Record) -> int:
    """Return how many messages the agent had when a message was added, at most."""
    value = record.value
    assert isinstance(value, dict)
    before = value["before"]
    assert isinstance(before, int)
    return before


def _text(record: Record) -> str:
    assert isinstance(record.value, dict)
    return str(record.value["json"])
