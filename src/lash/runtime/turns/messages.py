"""Helpers for messages."""

from __future__ import annotations

from lash.errors import InvalidInput
from lash.model.session.message import Message, PartKind


def text_of(message: Message) -> str:
    """Return the text of a message."""
    kinds = (PartKind.TEXT, PartKind.PROSE)
    return "\n".join(part.content for part in message.parts if part.kind in kinds)


def last_of(messages: list[Message], last: int | None) -> list[Message]:
    """Return the last so many, or all."""
    if last is None:
        return messages
    if last < 0:
        raise InvalidInput(f"last is a number of messages, not {last}")
    return messages[max(0, len(messages) - last) :]
