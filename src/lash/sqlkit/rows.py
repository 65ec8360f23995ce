"""Row shapes with a single column."""

from __future__ import annotations

import msgspec


class Flag(msgspec.Struct, frozen=True, array_like=True):
    """A row of one truth value."""

    value: bool


class Text(msgspec.Struct, frozen=True, array_like=True):
    """A row of one text."""

    text: str


class OptionalText(msgspec.Struct, frozen=True, array_like=True):
    """A row of one text or NULL."""

    text: str | None


class Number(msgspec.Struct, frozen=True, array_like=True):
    """A row of one integer."""

    number: int


class Content(msgspec.Struct, frozen=True, array_like=True):
    """A row of bytes; its repr shows only their length."""

    content: bytes

    def __repr__(self) -> str:
        return f"Content({len(self.content)} bytes)"
