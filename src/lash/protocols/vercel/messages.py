"""Messages of a session in the form of the AI SDK: one message of the assistant for each turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from lash.agents.loop import FAILED
from lash.model.session.message import Message, Part, PartKind, Role
from lash.model.value import JSON

UIMessage = dict[str, Any]
UIPart = dict[str, Any]
_TEXTS: Final = (PartKind.PROSE, PartKind.TEXT)


class Said(NamedTuple):
    """The text of one reply of the model."""

    text: str


class Call(NamedTuple):
    """A call of a tool."""

    call_id: str
    name: str
    arguments: str


class Result(NamedTuple):
    """What a tool has returned."""

    call_id: str
    text: str
    failed: bool


class Step(NamedTuple):
    """The begin of one reply of the model."""


Spoken: TypeAlias = Said | Call | Result | Step


def spoken(messages: Iterable[Message]) -> Iterator[Spoken]:
    """Yield what the assistant said in a turn, in order."""
    for message in messages:
        text = "".join(part.content for part in message.parts if part.kind in _TEXTS)
        calls = [part for part in message.parts if part.kind is PartKind.TOOL_CALL]
        if text or calls:
            yield Step()
        if text:
            yield Said(text)
        for part in calls:
            yield Call(part.tool_call_id or part.id, part.tool_name or "", part.content)
        for part in message.parts:
            if part.kind is PartKind.TOOL_RESULT:
                yield Result(part.tool_call_id or part.id, part.content, _has_failed(part))


def ui_messages(messages: Iterable[Message]) -> list[UIMessage]:
    """Return a conversation; a message of the assistant has the id of the last one that it is made of."""
    found: list[UIMessage] = []
    turn: list[Message] = []
    for message in messages:
        if message.role is Role.ASSISTANT:
            turn.append(message)
            continue
        found += _assistant(turn)
        turn = []
        role = "user" if message.role is Role.USER else "system"
        found.append({"id": message.id, "role": role, "parts": [{"type": "text", "text": message.text}]})
    return [*found, *_assistant(turn)]


def _assistant(turn: list[Message]) -> list[UIMessage]:
    if not turn:
        return []
    parts: list[UIPart] = []
    for each in spoken(turn):
        match each:
            case Step():
                parts.append({"type": "step-start"})
            case Said(text):
                parts.append({"type": "text", "text": text, "state": "done"})
            case Call(call_id, name, arguments):
                tool = {"type": f"tool-{name}", "toolCallId": call_id, "state": "input-available"}
                parts.append({**tool, "input": value_of(arguments)})
            case Result():
                _add_result(parts, each)
    return [{"id": turn[-1].id, "role": "assistant", "parts": parts}]


def _add_result(parts: list[UIPart], result: Result) -> None:
    for part in parts:
        if part.get("toolCallId") == result.call_id:
            if result.failed:
                part |= {"state": "output-error", "errorText": result.text}
            else:
                part |= {"state": "output-available", "output": value_of(result.text)}


def value_of(text: str) -> JSON:
    """Return an object or a list that a text is the JSON of, else the text."""
    if text[:1] not in ("{", "["):
        return text
    try:
        value: JSON = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    return value


def _has_failed(part: Part) -> bool:
    return part.response_meta is not None and part.response_meta.status == FAILED
