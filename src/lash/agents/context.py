"""How much of a conversation a model gets: the newest messages that fit, a summary of older ones, and cut results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from lash.agents.vocabulary import ModelReply, ModelRequest
from lash.errors import ConfigError
from lash.model.session.message import Message, Part, PartKind, PluginOrigin, ResponseMeta, Role
from lash.model.value import Value
from lash.runtime.turns.messages import estimate_tokens

SUMMARY: Final = "lash.summary"
"""The plugin id of a summary, in the origin of its message."""
_ASK: Final = (
    "Summarize the conversation above for the assistant that continues it. Keep facts, names, numbers, decisions, open "
    "questions and the results of tools that are still needed. Reply with the summary alone."
)
_INTRODUCTION: Final = "Summary of the earlier conversation:\n\n"


class Context(Value, frozen=True, kw_only=True):
    """What a model gets of a conversation.

    ``max_tokens``: only the newest messages that fit. ``compact_at``: when the conversation has more tokens than this,
    the model writes a summary of all but the last ``keep`` tokens, which takes their place from then on. Results of
    tools that are longer than ``max_result`` characters are cut in their middle; the session keeps them whole.
    ``count`` counts the tokens of a message; by default it is an estimate, four bytes to a token.
    """

    max_tokens: int | None = None
    compact_at: int | None = None
    keep: int = 4_000
    max_result: int | None = 100_000
    count: Callable[[Message], int] = estimate_tokens
    ask: str = _ASK
    """What the model is asked for a summary with."""

    def __post_init__(self) -> None:
        limits = (self.keep, self.max_tokens, self.compact_at, self.max_result)
        if any(limit is not None and limit < 1 for limit in limits):
            raise ConfigError(f"expected numbers of tokens and characters above 0, got {self!r}")
        if self.compact_at is not None and self.keep >= self.compact_at:
            raise ConfigError(f"expected keep below compact_at, got {self.keep} and {self.compact_at}")


WHOLE: Final = Context()
"""The whole conversation, with results of at most 100,000 characters."""


def visible(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation with its last summary instead of the messages that the summary stands for."""
    place = next((index for index in reversed(range(len(messages))) if is_summary(messages[index])), None)
    if place is None:
        return list(messages)
    summary = messages[place]
    last = summary.parts[0].response_meta.id if summary.parts and summary.parts[0].response_meta else None
    covered = next((index for index, message in enumerate(messages) if message.id == last), place)
    kept = [message for message in messages[covered + 1 :] if message is not summary]
    return [_as_input(summary), *kept]


def is_summary(message: Message) -> bool:
    return isinstance(message.origin, PluginOrigin) and message.origin.plugin_id == SUMMARY


def to_compact(messages: Sequence[Message], context: Context) -> list[Message]:
    """Return the messages that a new summary is to stand for; none if the conversation is short enough."""
    counts = [context.count(message) for message in messages]
    if context.compact_at is None or sum(counts) <= context.compact_at:
        return []
    total, place = 0, len(messages)
    while place > 0 and total + counts[place - 1] <= context.keep:
        place -= 1
        total += counts[place]
    # What is kept begins with a message of a user: a call and its result are not parted.
    while place < len(messages) and messages[place].role is Role.ASSISTANT:
        place += 1
    older = list(messages[: min(place, len(messages) - 1)])
    # A summary alone gains nothing.
    return [] if all(map(is_summary, older)) else older


def summary_request(older: Sequence[Message], context: Context) -> ModelRequest:
    """Return the request for a summary."""
    ask = Message.of_text("summary", Role.USER, context.ask)
    return ModelRequest(messages=(*cut(older, context), ask))


def summary_message(reply: ModelReply, older: Sequence[Message]) -> Message:
    """Return the message that stands for older ones. Its node is part of the graph like any other."""
    meta = ResponseMeta(id=older[-1].id)
    part = Part(id="summary", kind=PartKind.TEXT, content=reply.text, response_meta=meta)
    return Message(id="", role=Role.SYSTEM, parts=(part,), origin=PluginOrigin(plugin_id=SUMMARY))


def cut(messages: Sequence[Message], context: Context) -> list[Message]:
    """Return the messages with results of tools that are at most so long."""
    limit = context.max_result
    if limit is None or not any(_is_long(part, limit) for message in messages for part in message.parts):
        return list(messages)
    return [
        msgspec.structs.replace(message, parts=tuple(_cut(part, limit) for part in message.parts))
        for message in messages
    ]


def _is_long(part: Part, limit: int) -> bool:
    return part.kind is PartKind.TOOL_RESULT and len(part.content) > limit


def _cut(part: Part, limit: int) -> Part:
    if not _is_long(part, limit):
        return part
    head, tail = part.content[: limit - limit // 4], part.content[len(part.content) - limit // 4 :]
    left_out = len(part.content) - len(head) - len(tail)
    return msgspec.structs.replace(part, content=f"{head}\n[… {left_out} characters left out …]\n{tail}")


def _as_input(summary: Message) -> Message:
    part = msgspec.structs.replace(summary.parts[0], content=_INTRODUCTION + summary.parts[0].content)
    return msgspec.structs.replace(summary, role=Role.USER, parts=(part,))
