"""What a client of the AI SDK sends."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Final

import msgspec

from lash.base.limits import check_identifier
from lash.base.shapes import convert
from lash.errors import InvalidInput
from lash.protocols.front_end.turn import Answer, File, UserInput, answer_of

Text = Annotated[str, msgspec.Meta(min_length=1)]
_DATA: Final = "data:"


class QuestionAnswer(msgspec.Struct, frozen=True):
    """The answer to a question that is not the approval of a tool call."""

    id: Text
    value: Any = None


class ChatRequest(msgspec.Struct, frozen=True):
    """A message, or decisions about tool calls; ``answers`` is a field of lash for other questions."""

    id: Text
    messages: list[dict[str, Any]]
    trigger: str = "submit-message"
    answers: list[QuestionAnswer] = []

    def split(self) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
        """Return the last message of the user, and the parts of the assistant's message that follows it."""
        parts: list[dict[str, Any]] = []
        for message in reversed(self.messages):
            if message.get("role") == "user":
                return message, parts
            given = message.get("parts")
            parts = [*(each for each in given if isinstance(each, dict)), *parts] if isinstance(given, list) else parts
        return None, parts


class _Approval(msgspec.Struct, frozen=True):
    id: Text
    approved: bool
    reason: str | None = None


def decisions(parts: list[dict[str, Any]]) -> list[_Approval]:
    """Return the decisions about tool calls in the parts of a message."""
    given = [part.get("approval") for part in parts if part.get("state") == "approval-responded"]
    try:
        return [convert(each, _Approval) for each in given]
    except msgspec.ValidationError as error:
        raise InvalidInput(f"an approval does not fit: {error}") from None


def answers_of(request: ChatRequest, parts: list[dict[str, Any]]) -> list[Answer]:
    """Return the answers in a request: decisions about tool calls, and answers to questions."""
    approvals = [
        answer_of(each.id, is_resolved=True, value={"approved": each.approved, "text": each.reason or ""})
        for each in decisions(parts)
    ]
    return [*approvals, *(answer_of(each.id, is_resolved=True, value=each.value) for each in request.answers)]


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    text: str = ""
    media_type: str = "application/octet-stream"
    url: str = ""
    filename: str | None = None


class _UserMessage(msgspec.Struct, frozen=True):
    id: Text
    parts: list[_Part]


def user_input(message: dict[str, Any]) -> UserInput:
    """Return the user's message with its files; files that are only named by an address are refused."""
    try:
        given = convert(message, _UserMessage)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the last message of the user does not fit: {error}") from None
    check_identifier("the id of the message", given.id)
    texts = [part.text for part in given.parts if part.type == "text"]
    files = tuple(_file(part) for part in given.parts if part.type == "file")
    return UserInput(given.id, "\n".join(texts), files)


def _file(part: _Part) -> File:
    head, comma, data = part.url.partition(",")
    if not head.startswith(_DATA) or not head.endswith(";base64") or not comma:
        raise InvalidInput("expected a file with its bytes, as a data URL with base64")
    try:
        return File(base64.b64decode(data, validate=True), part.media_type, part.filename)
    except (binascii.Error, ValueError):
        raise InvalidInput("the data URL of a file is not base64") from None
