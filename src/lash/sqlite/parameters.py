"""The forms in which sets are handed to a query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec


def json_array(items: Iterable[object]) -> str:
    """Return the items as the JSON array that ``json_each`` reads."""
    return msgspec.json.encode(list(items)).decode()


def json_object(items: Mapping[str, str]) -> str:
    """Return the mapping as the JSON object that ``json_each`` reads."""
    return msgspec.json.encode(items).decode()
