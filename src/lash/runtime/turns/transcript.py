"""A conversation with the times of its messages, and the input that is not part of it yet."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from datetime import UTC, datetime

from lash.errors import SessionNotFound
from lash.model.queue import Batch
from lash.model.session.message import Message
from lash.model.session.node import MessageEntry, Node
from lash.model.session.session import ActivePath
from lash.model.value import Value
from lash.runtime.turns.inbox import input_messages, queued_batches
from lash.runtime.turns.messages import check_last
from lash.stores.storage import Storage


class MessageState(enum.StrEnum):
    """How far a message has come."""

    COMMITTED = "committed"
    """It is part of the conversation."""
    RUNNING = "running"
    """Its turn has started."""
    QUEUED = "queued"
    """Its turn has not started."""


class TranscriptEntry(Value, frozen=True, kw_only=True):
    """A message, when it was committed or sent, and its state.

    ``batch_id`` is that of a message that is not committed: `lash.SessionHandle.cancel` takes it.
    """

    message: Message
    at: datetime
    state: MessageState
    batch_id: str | None = None


async def read_transcript(storage: Storage, session_id: str, last: int | None) -> list[TranscriptEntry]:
    """Return the last committed messages, by default all of them, and all input that is not committed."""
    size = check_last(last)
    try:
        # The queue first: a message that is committed in between is in both, and in neither the other way round.
        waiting = [entry async for batch in queued_batches(storage, session_id) for entry in _waiting(batch)]
        said = [] if size == 0 else await _committed(storage, session_id, size)
    except SessionNotFound:
        return []
    known = {entry.message.id for entry in said}
    return [*said, *(entry for entry in waiting if entry.message.id not in known)]


async def _committed(storage: Storage, session_id: str, last: int | None) -> list[TranscriptEntry]:
    session, size = storage.session(session_id), last
    while True:
        read = await session.load(ActivePath(last=size))
        nodes = () if read is None else read.graph.nodes
        found = list(_entries(nodes))
        is_whole = size is None or len(nodes) < size
        if is_whole or last is None or size is None or len(found) >= last:
            return found if last is None else found[-last:]
        # Some of the nodes are not messages.
        size *= 2


def _entries(nodes: Iterable[Node]) -> Iterable[TranscriptEntry]:
    for node in nodes:
        if isinstance(node.entry, MessageEntry):
            yield TranscriptEntry(message=node.entry.message, at=node.timestamp, state=MessageState.COMMITTED)


def _waiting(batch: Batch) -> Iterable[TranscriptEntry]:
    at = datetime.fromtimestamp(batch.enqueued_at_ms / 1_000, UTC)
    state = MessageState.RUNNING if batch.attempts else MessageState.QUEUED
    for message in input_messages(batch):
        yield TranscriptEntry(message=message, at=at, state=state, batch_id=batch.batch_id)
