"""What an AG-UI client sends."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from lash.base.limits import check_identifier
from lash.base.shapes import convert, read_json
from lash.errors import InvalidInput
from lash.protocols.front_end.turn import Answer, File, UserInput, answer_of

Text = Annotated[str, msgspec.Meta(min_length=1)]


class ResumeEntry(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to one interrupt."""

    interrupt_id: Text
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class RunInput(msgspec.Struct, frozen=True, rename="camel"):
    """A request to run an agent. Tools, context, state and forwarded properties of the client are not read."""

    thread_id: Text
    run_id: Text
    messages: list[msgspec.Raw]
    """As they came: most of them are only sent back, and a run may be open for long."""
    resume: list[ResumeEntry] | None = None

    @property
    def answers(self) -> list[Answer]:
        return [
            answer_of(each.interrupt_id, is_resolved=each.status == "resolved", value=each.payload)
            for each in self.resume or ()
        ]

    def split(self) -> Conversation:
        """Return the messages up to the user's last one, this one, and the messages after it."""
        later: list[dict[str, Any]] = []
        for place in range(len(self.messages), 0, -1):
            message = _message(self.messages[place - 1])
            if message.get("role") == "user":
                return Conversation(self.messages[:place], message, later)
            later.insert(0, message)
        return Conversation([], None, later)


class Conversation(NamedTuple):
    """The messages of a client: ``earlier`` ends with the user's last one, ``later`` is what follows it."""

    earlier: list[msgspec.Raw]
    asked: dict[str, Any] | None
    later: list[dict[str, Any]]


def _message(raw: msgspec.Raw) -> dict[str, Any]:
    try:
        return read_json(raw, dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"a message does not fit: {error}") from None


class _Source(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    value: str = ""
    mime_type: str = "application/octet-stream"


class _Part(msgspec.Struct, frozen=True):
    type: str
    text: str = ""
    source: _Source | None = None


class _UserMessage(msgspec.Struct, frozen=True):
    id: Text
    content: str | list[_Part] = ""


def user_input(message: dict[str, Any]) -> UserInput:
    """Return the user's message with its files; files that are only named by an address are refused."""
    try:
        given = convert(message, _UserMessage)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the last message of the user does not fit: {error}") from None
    check_identifier("the id of the message", given.id)
    if isinstance(given.content, str):
        return UserInput(given.id, given.content)
    texts = [part.text for part in given.content if part.type == "text"]
    files = tuple(_file(part) for part in given.content if part.type != "text")
    return UserInput(given.id, "\n".join(texts), files)


def _file(part: _Part) -> File:
    source = part.source
    if source is None or source.type != "data":
        raise InvalidInput(f"expected a part of type {part.type!r} with its bytes, as a source of type 'data'")
    try:
        return File(base64.b64decode(source.value, validate=True), source.mime_type)
    except (binascii.Error, ValueError):
        raise InvalidInput(f"the data of a part of type {part.type!r} is not base64") from None
