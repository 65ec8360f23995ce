"""Messages of a session in the form of AG-UI."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from lash.model.session.message import Message, Part, PartKind, Role

JSONMessage = dict[str, Any]
"""A message of AG-UI, as JSON."""
_ROUND: Final = re.compile(r"(?P<message_id>turn:.+:\d+)\.\d+")
"""The id of a part of a model's reply; all parts of one reply have the same begin."""
_TEXTS: Final = (PartKind.PROSE, PartKind.TEXT)
_ROLES: Final = {Role.USER: "user", Role.SYSTEM: "system", Role.EVENT: "system"}


def round_id(turn_id: str, place: str) -> str:
    """Return the id of the message for a numbered reply of the model in a turn."""
    return f"{turn_id}:{place}"


def said(messages: Iterable[Message]) -> list[JSONMessage]:
    """Return messages of the assistant: its text with the calls of tools, and each result as a message."""
    return [each for message in messages for each in _said(message)]


def whole(messages: Iterable[Message]) -> list[JSONMessage]:
    """Return a whole conversation."""
    found: list[JSONMessage] = []
    for message in messages:
        if message.role is Role.ASSISTANT:
            found += _said(message)
        else:
            found.append({"id": message.id, "role": _ROLES[message.role], "content": message.text})
    return found


def _said(message: Message) -> Iterator[JSONMessage]:
    calls = [call_of(part.tool_call_id or part.id, part.tool_name or "", part.content) for part in _calls(message)]
    text = "".join(part.content for part in message.parts if part.kind in _TEXTS)
    if text or calls:
        spoken: JSONMessage = {"id": _message_id(message), "role": "assistant"}
        if text:
            spoken["content"] = text
        if calls:
            spoken["toolCalls"] = calls
        yield spoken
    for part in message.parts:
        if part.kind is PartKind.TOOL_RESULT:
            yield result_of(part.tool_call_id or part.id, part.content)


def call_of(call_id: str, name: str, arguments: str) -> JSONMessage:
    """Return a tool call inside a message."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result_of(call_id: str, text: str) -> JSONMessage:
    """Return the message for the result of a tool call."""
    return {"id": f"{call_id}:result", "role": "tool", "toolCallId": call_id, "content": text}


def normal(message: JSONMessage) -> JSONMessage | None:
    """Return a message of the agent that a client sent back, in the form that lash writes; None for any other."""
    found = {name: message.get(name) for name in ("id", "role")}
    match message:
        case {"id": str(), "role": "tool", "toolCallId": str(call_id), "content": content}:
            return {**found, "toolCallId": call_id, "content": content}
        case {"id": str(), "role": "assistant"}:
            content, calls = message.get("content"), message.get("toolCalls")
            if content:
                found["content"] = str(content)
            if isinstance(calls, list) and calls:
                found["toolCalls"] = [_normal_call(each) for each in calls]
            return found
    return None


def _normal_call(call: object) -> JSONMessage:
    match call:
        case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}}:
            return call_of(call_id, name, arguments)
    return call_of("", "", "")


def in_order(messages: list[JSONMessage]) -> list[JSONMessage]:
    """Return messages with the results of tools in the order of their calls; they come as the tools return."""
    calls = [call["id"] for message in messages for call in message.get("toolCalls", ())]
    places = {call_id: place for place, call_id in enumerate(calls)}
    found: list[JSONMessage] = []
    for message in messages:
        place, end = places.get(message.get("toolCallId", ""), len(calls)), len(found)
        while end and place < places.get(found[end - 1].get("toolCallId", ""), -1):
            end -= 1
        found.insert(end, message)
    return found


def _calls(message: Message) -> Iterator[Part]:
    return (part for part in message.parts if part.kind is PartKind.TOOL_CALL)


def _message_id(message: Message) -> str:
    match = _ROUND.fullmatch(message.parts[0].id) if message.parts else None
    return message.id if match is None else match["message_id"]
