"""What passes between an agent and a model: requests, pieces and replies, in the messages of a session."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeAlias

from lash.model.session.message import Message, Part, PartKind, ToolReplay
from lash.model.session.usage import TokenUsage
from lash.model.value import JSON, JSONObject, Value


class Stop(enum.StrEnum):
    """Why a model stopped."""

    END = "end"
    """The reply is complete, or the model calls tools."""
    LENGTH = "length"
    """The limit of output tokens, or the context window, was reached."""
    PAUSED = "paused"
    """The provider paused, in the middle of work of its own, and continues with the next call."""
    REFUSED = "refused"
    """The model or a filter of the provider refused to answer."""


class ToolSpec(Value, frozen=True, kw_only=True):
    """A tool as a model sees it; ``parameters`` is the JSON schema of the arguments."""

    name: str
    description: str
    parameters: JSONObject


class OutputSpec(Value, frozen=True, kw_only=True):
    """The JSON schema that the text of the last reply must fit."""

    name: str
    json_schema: JSONObject


class ToolCall(Value, frozen=True, kw_only=True):
    """A tool that the model calls, with its arguments as JSON text."""

    id: str
    name: str
    arguments: str = "{}"


class ModelRequest(Value, frozen=True, kw_only=True):
    """The conversation up to now, and what the model may do with it.

    ``files`` holds the bytes of the attachments that the messages name, by their ids.
    """

    messages: tuple[Message, ...]
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    output: OutputSpec | None = None
    files: Mapping[str, bytes] = {}


class ModelReply(Value, frozen=True, kw_only=True, tag_field="kind", tag="reply"):
    """One whole reply: reasoning, text and tool calls in the model's order, and the tokens that it took.

    It is recorded with its step, and its parts become a message of the conversation.
    """

    parts: tuple[Part, ...]
    model: str = ""
    usage: TokenUsage = TokenUsage()
    stop: Stop = Stop.END

    @property
    def text(self) -> str:
        return "".join(part.content for part in self.parts if part.kind is PartKind.PROSE)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tools that the model calls, in its order."""
        calls = (part for part in self.parts if part.kind is PartKind.TOOL_CALL)
        return tuple(
            ToolCall(id=part.tool_call_id or "", name=part.tool_name or "", arguments=part.content) for part in calls
        )

    @classmethod
    def of(cls, *content: str | ToolCall, model: str = "", usage: TokenUsage | None = None) -> ModelReply:
        """Return a reply of texts and tool calls."""
        parts = tuple(text_part(each) if isinstance(each, str) else call_part(each) for each in content)
        return cls(parts=parts, model=model, usage=usage or TokenUsage())


class Thought(Value, frozen=True, kw_only=True):
    """A piece of the model's reasoning, for observers."""

    text: str


Piece: TypeAlias = str | Thought
"""What a model streams before its reply: text of the reply, or reasoning."""
Model: TypeAlias = Callable[[ModelRequest], Awaitable[ModelReply | str] | AsyncIterator[Piece | ModelReply]]
"""An async function that returns the reply, or an async generator that yields pieces and at the end the reply.

Text instead of a reply is a reply without tool calls. A generator that yields no reply replies with its text.
"""


def text_part(text: str, raw: JSON = None) -> Part:
    """Return a part of the model's text. ``raw`` is the provider's own block, if the text alone does not restore it."""
    return Part(id="", kind=PartKind.PROSE, content=text, tool_replay=_replay(raw))


def call_part(call: ToolCall, raw: JSON = None) -> Part:
    """Return a part that calls a tool."""
    return Part(
        id="",
        kind=PartKind.TOOL_CALL,
        content=call.arguments,
        tool_call_id=call.id,
        tool_name=call.name,
        tool_replay=_replay(raw),
    )


def reasoning_part(text: str, raw: JSON) -> Part:
    """Return a part of reasoning. Its raw block, with its signature, is sent back to the provider as it came."""
    return Part(id="", kind=PartKind.REASONING, content=text, tool_replay=_replay(raw))


def other_part(text: str, raw: JSON) -> Part:
    """Return a part for a block that lash does not know; it is kept, and sent back as it came."""
    return Part(id="", kind=PartKind.OUTPUT, content=text, tool_replay=_replay(raw))


def raw_of(part: Part, form: str) -> JSONObject | None:
    """Return the provider's own block of a part if it has one in this form of messages."""
    opaque = part.tool_replay.opaque if part.tool_replay is not None else None
    block = opaque.get(form) if isinstance(opaque, dict) else None
    return block if isinstance(block, dict) else None


def _replay(raw: JSON) -> ToolReplay | None:
    return None if raw is None else ToolReplay(opaque=raw)
