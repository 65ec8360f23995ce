"""Helpers for messages, and reads of the last messages of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

import msgspec

from lash.errors import InvalidInput
from lash.model.session.checkpoint import Checkpoint
from lash.model.session.frame import AgentFrame
from lash.model.session.message import Message, Role
from lash.model.session.node import MessageEntry, Node
from lash.model.session.session import ActivePath, SessionHead
from lash.runtime.steps.values import from_json
from lash.stores.session import Session

T = TypeVar("T")

_SLICE: Final = 5_000
"""How many nodes are handled in one iteration of the event loop: about a millisecond."""


_TOKEN_BYTES: Final = 4
_FRAME_TOKENS: Final = 4


class Tail(NamedTuple):
    """One revision of a session with the last messages of a path; ``is_whole`` if there are no earlier ones."""

    head: SessionHead
    frames: tuple[AgentFrame, ...]
    checkpoint: Checkpoint
    messages: list[Message]
    is_whole: bool
    is_empty: bool
    """Whether the path has no node at all: its leaf is unknown."""


def text_of(message: Message) -> str:
    """Return the text of a message: ``message.text``."""
    return message.text


def read_reply(text: str, declared: type[T]) -> T:
    """Return a reply as a value of its declared type, or raise InvalidInput."""
    what = "the reply"
    try:
        plain = msgspec.json.decode(text)
    except msgspec.DecodeError:
        raise InvalidInput(f"{what}: expected JSON of {declared}, got {text!r:.80}") from None
    value: T = from_json(plain, declared, what)
    return value


def check_last(last: int | None) -> int | None:
    """Return the number of messages to read, None for all; raise InvalidInput if it is negative."""
    if last is not None and last < 0:
        raise InvalidInput(f"last is a number of messages, not {last}")
    return last


def last_of(messages: list[Message], last: int | None) -> list[Message]:
    """Return the last so many, or all."""
    return messages if check_last(last) is None else messages[max(0, len(messages) - (last or 0)) :]


def estimate_tokens(message: Message) -> int:
    """Return about how many tokens a message has: four bytes to a token, and a few for its frame."""
    return _FRAME_TOKENS + sum(len(part.content.encode("utf-8", "replace")) for part in message.parts) // _TOKEN_BYTES


def newest_within(
    messages: list[Message], max_tokens: int, count: Callable[[Message], int]
) -> tuple[list[Message], bool]:
    """Return the newest messages that have so many tokens together, and whether an older one did not fit.

    They begin with a message that is not the assistant's, so that calls of tools and their results are not parted. The
    last message is always among them.
    """
    total, place = 0, len(messages)
    while place > 0 and (place == len(messages) or total + count(messages[place - 1]) <= max_tokens):
        place -= 1
        total += count(messages[place])
    is_cut = place > 0
    while is_cut and place < len(messages) - 1 and messages[place].role is Role.ASSISTANT:
        place += 1
    return messages[place:], is_cut


async def read_tail(
    session: Session, last: int | None, *, leaf_node_id: str | None = None, least_nodes: int = 1
) -> Tail | None:
    """Read the end of the path to a node, by default the head's leaf: ``last`` messages, or all of them.

    It is one read of ``last`` or ``least_nodes`` nodes, or more if too many of these are not messages. Returns None
    before the first commit.
    """
    size = None if last is None else max(last, least_nodes)
    while True:
        read = await session.load(ActivePath(leaf_node_id=leaf_node_id, last=size))
        if read is None:
            return None
        head, frames, checkpoint, nodes = read.head, read.frames, read.checkpoint, list(read.graph.nodes)
        is_empty = not nodes
        is_whole = size is None or len(nodes) < size or nodes[0].parent_node_id is None
        # Only the list holds the nodes from here on.
        read = None
        messages = await _messages_of(nodes)
        if is_whole or last is None or size is None or len(messages) >= last:
            return Tail(head, frames, checkpoint, messages, is_whole, is_empty)
        size *= 2


async def _messages_of(nodes: list[Node]) -> list[Message]:
    """Return the messages among some nodes; empties the list.

    Many nodes are handled and freed in slices, so that the event loop is not blocked.
    """
    messages: list[Message] = []
    while nodes:
        if messages:
            await asyncio.sleep(0)
        part = nodes[-_SLICE:]
        del nodes[-_SLICE:]
        messages.extend(node.entry.message for node in reversed(part) if isinstance(node.entry, MessageEntry))
    messages.reverse()
    return messages
