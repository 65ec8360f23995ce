"""One turn as a protocol sees it: sent once under the client's message id, found again, and its outcome."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from lash.agents.approvals import calls_of
from lash.agents.vocabulary import ToolCall
from lash.base.limits import check_identifier
from lash.errors import (
    Advice,
    Conflict,
    InvalidInput,
    NotFound,
    SessionDeleted,
    SessionNotFound,
    StoreError,
    TurnFailed,
)
from lash.model.causal import TurnCause
from lash.model.effect import TurnScope
from lash.model.failure import traceback_in
from lash.model.queue import Batch, turn_id_of
from lash.model.session.message import Message, Role
from lash.model.session.node import MessageEntry
from lash.model.session.session import ActivePath
from lash.model.value import JSON
from lash.model.wait import AlreadyResolved, Cancelled, Question, Resolution, Resolved, UnknownOrRevoked, WaitRecord
from lash.runtime.observe.stream import oldest_cursor
from lash.runtime.turns.draft import cancelled_id, reply_id
from lash.runtime.turns.handle import SessionHandle
from lash.runtime.turns.inbox import command_of, find_letter, item_id, queued_batches
from lash.stores.storage import Storage

_STORED_ID: Final = re.compile(r"(?P<batch_id>.+):item:\d+")
"""The id of a message as lash stores it; a client that loaded the conversation from lash sends it back."""
_PAGE: Final = 64
_MOST_ASKED: Final = 100


class File(NamedTuple):
    """A file that came with a message."""

    content: bytes
    media_type: str
    label: str | None = None


class UserInput(NamedTuple):
    """A message of the user, under the id that the client gave it."""

    id: str
    text: str
    files: tuple[File, ...] = ()


class Answer(NamedTuple):
    """The answer to one open question: a value, or None if the person refused to answer."""

    wait_id: str
    resolution: Resolved | Cancelled


class Attached(NamedTuple):
    """A turn to follow, and the cursor to follow it from.

    ``is_whole`` says that everything that the turn has shown comes after the cursor. ``is_new`` says that the message
    was sent just now, ``is_continued`` that a question of the turn was answered just now.
    """

    session_id: str
    batch_id: str
    cursor: str
    is_whole: bool
    is_new: bool = False
    is_continued: bool = False

    @property
    def turn_id(self) -> str:
        return turn_id_of(self.batch_id)


async def send(handle: SessionHandle, storage: Storage, message: UserInput) -> Attached:
    """Send a message once, and return its turn; a repeated call returns the same turn."""
    session_id = handle.session_id
    known = await _known_batch(storage, session_id, check_identifier("the id of the message", message.id))
    if known is not None:
        return await attach(storage, session_id, known)
    cursor = await handle.cursor()
    attachments = [await handle.attach(each.content, each.media_type, label=each.label) for each in message.files]
    sent = await handle.send(message.text, key=message.id, attachments=attachments)
    if sent.created:
        return Attached(session_id, sent.batch_id, cursor, is_whole=True, is_new=True)
    return await attach(storage, session_id, sent.batch_id)


async def attach(storage: Storage, session_id: str, batch_id: str) -> Attached:
    """Return a turn to follow from the oldest activity that is kept."""
    cursor, is_whole = await oldest_cursor(storage, session_id)
    return Attached(session_id, batch_id, cursor, is_whole)


async def active(storage: Storage, session_id: str) -> Attached | None:
    """Return the turn that runs, waits or comes next in a session; None if nothing is queued."""
    head = await _head(storage, session_id)
    return None if head is None else await attach(storage, session_id, head.batch_id)


async def answer(handle: SessionHandle, storage: Storage, answers: Sequence[Answer]) -> Attached:
    """Answer open questions of one turn, and return it; an answer that was given before is given once.

    Raises InvalidInput for a question that is not one of this session, or an answer that does not match its schema, and
    Conflict if the question was answered differently.
    """
    waits = [await _own_wait(storage, handle.session_id, each.wait_id) for each in answers]
    turns = {wait.scope.turn_id for wait in waits if isinstance(wait.scope, TurnScope)}
    if len(turns) != 1:
        raise InvalidInput("expected answers to questions of one turn; answer those of each turn in its own request")
    batch_id = turns.pop().removeprefix("turn:")
    cursor, is_new = await handle.cursor(), False
    for wait, each in zip(waits, answers, strict=True):
        is_new |= await _resolve(storage, wait, each.resolution)
    if not is_new:
        return await attach(storage, handle.session_id, batch_id)
    return Attached(handle.session_id, batch_id, cursor, is_whole=False, is_continued=True)


async def _own_wait(storage: Storage, session_id: str, wait_id: str) -> WaitRecord:
    # The id came from outside: only a question of the session that the caller may use is answered.
    wait = await storage.waits.get_id(check_identifier("the id of the question", wait_id))
    if wait is None or not isinstance(wait.scope, TurnScope) or wait.scope.session_id != session_id or wait.ask is None:
        raise InvalidInput(f"unknown question {wait_id!r} in session {session_id!r}")
    return wait


async def _resolve(storage: Storage, wait: WaitRecord, resolution: Resolution) -> bool:
    """Resolve a wait; return False if it was resolved in the same way before."""
    given = wait.resolution
    if given is None:
        answered = await storage.waits.resolve_id(wait.key_id, resolution)
        if isinstance(answered, UnknownOrRevoked):
            raise InvalidInput(f"unknown question {wait.key_id!r}: its keys were revoked")
        given = answered.terminal if isinstance(answered, AlreadyResolved) else None
    if given is not None and given != resolution:
        raise Conflict(f"question {wait.key_id!r} was answered before, with another answer or by its deadline")
    return given is None


async def _known_batch(storage: Storage, session_id: str, message_id: str) -> str | None:
    """Return the batch of a message under the id that lash gave it; None for any other id."""
    match = _STORED_ID.fullmatch(message_id)
    if match is None:
        return None
    batch_id = match["batch_id"]
    try:
        if await storage.session(session_id).node(message_id) is not None:
            return batch_id
        queued = [each async for each in queued_batches(storage, session_id) if each.batch_id == batch_id]
        found = bool(queued) or await find_letter(storage, session_id, batch_id) is not None
    except SessionNotFound:
        return None
    return batch_id if found else None


class Asked(NamedTuple):
    """An open question: its id, what is asked, and the tool call that it is about, if it is about one."""

    wait_id: str
    question: Question
    call: ToolCall | None
    deadline_ms: int | None


class Replied(NamedTuple):
    """The turn was committed, with these messages of the assistant."""

    messages: tuple[Message, ...]


class Failed(NamedTuple):
    """The turn failed permanently; its input is a dead letter."""

    error: TurnFailed


class WasCancelled(NamedTuple):
    """The turn was cancelled."""


class Waiting(NamedTuple):
    """The session waits for a person to answer these questions."""

    asked: tuple[Asked, ...]


class Gone(NamedTuple):
    """The session was deleted."""


Outcome = Replied | Failed | WasCancelled | Waiting | Gone


async def outcome_of(storage: Storage, attached: Attached) -> Outcome | None:
    """Return how a turn ended, or what it waits for; None while it is queued or runs, and while the storage is away."""
    try:
        return await _outcome(storage, attached)
    except (NotFound, SessionDeleted):
        return Gone()
    except StoreError as error:
        if error.advice is Advice.RETRY:
            return None
        raise


async def _outcome(storage: Storage, attached: Attached) -> Outcome | None:
    session_id, turn_id, batch_id = attached.session_id, attached.turn_id, attached.batch_id
    # The queue first: a turn that is committed in between is in neither the other way round.
    queued = [each async for each in queued_batches(storage, session_id) if command_of(each) is None]
    if any(each.batch_id == batch_id for each in queued):
        return await _waiting(storage, queued[0])
    session = storage.session(session_id)
    if await session.node(reply_id(turn_id)) is not None:
        return Replied(await _said(storage, session_id, turn_id, reply_id(turn_id)))
    if await session.node(cancelled_id(turn_id)) is not None:
        return WasCancelled()
    letter = await find_letter(storage, session_id, batch_id)
    if letter is not None:
        return Failed(TurnFailed(session_id, batch_id, letter.reason, traceback_in(letter.error)))
    if await session.node(item_id(batch_id, 0)) is not None:
        # The agent returned None.
        return Replied(await _said(storage, session_id, turn_id, None))
    return WasCancelled()


async def _waiting(storage: Storage, head: Batch) -> Waiting | None:
    """Return the questions of the turn at the head of the queue, which other turns wait for too, if it is parked."""
    if not head.is_parked:
        return None
    scope = TurnScope(session_id=head.session_id, turn_id=turn_id_of(head.batch_id))
    waits = [each for each in await storage.waits.pending(scope=scope, limit=_MOST_ASKED) if each.ask is not None]
    calls = await calls_of(storage, waits)
    asked = [
        Asked(each.key_id, each.ask, calls.get(each.key_id), each.deadline_ms) for each in waits if each.ask is not None
    ]
    return Waiting(tuple(asked)) if asked else None


async def _said(storage: Storage, session_id: str, turn_id: str, leaf: str | None) -> tuple[Message, ...]:
    """Return the messages of the assistant that a turn has committed, in order."""
    cause, size = TurnCause(session_id=session_id, turn_id=turn_id), _PAGE
    while True:
        read = await storage.session(session_id).load(ActivePath(leaf_node_id=leaf, last=size))
        nodes = () if read is None else read.graph.nodes
        own = [node for node in nodes if node.caused_by == cause]
        if len(nodes) < size or len(own) < len(nodes):
            messages = (node.entry.message for node in own if isinstance(node.entry, MessageEntry))
            return tuple(message for message in messages if message.role is Role.ASSISTANT)
        size *= 2


async def _head(storage: Storage, session_id: str) -> Batch | None:
    try:
        async for batch in queued_batches(storage, session_id):
            if command_of(batch) is None:
                return batch
    except SessionNotFound:
        pass
    return None


def answer_of(wait_id: str, *, is_resolved: bool, value: JSON) -> Answer:
    """Return an answer with a value, or the refusal to answer."""
    return Answer(wait_id, Resolved(value=value) if is_resolved else Cancelled())
