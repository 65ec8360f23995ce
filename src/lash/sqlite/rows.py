"""Small row shapes and parameter forms that several nouns share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec


class Flag(msgspec.Struct, frozen=True, array_like=True):
    """A row of one truth value."""

    value: bool


class Text(msgspec.Struct, frozen=True, array_like=True):
    """A row of one text."""

    text: str


def json_array(items: Iterable[object]) -> str:
    """Return the items as the JSON array that ``json_each`` reads."""
    return msgspec.json.encode(list(items)).decode()


def json_object(items: Mapping[str, str]) -> str:
    """Return the mapping as the JSON object that ``json_each`` reads."""
    return msgspec.json.encode(items).decode()
