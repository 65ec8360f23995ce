"""Encodes sets as parameters of queries."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


def json_array(items: Iterable[object]) -> str:
    """Return the items as the JSON array that ``json_each`` reads."""
    return msgspec.json.encode(list(items)).decode()
