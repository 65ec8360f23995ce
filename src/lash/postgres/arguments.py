"""Arguments that the statements of several nouns take in the same form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from lash.model.lease import LeaseFence

SEPARATOR: Final = "\x1f"
"""Stands between the texts of one argument; stored JSON contains no control characters."""


class NotSeparable(Exception):
    """A text contains the separator, so it needs a statement that takes arrays."""


def joined(texts: Sequence[str]) -> str | None:
    """Return texts as one, which the statement splits by ``string_to_array``; None without texts.

    The driver inspects each element of an array in Python. A single empty text reads as none.
    """
    if not texts:
        return None
    text = SEPARATOR.join(texts)
    if text.count(SEPARATOR) >= len(texts):
        raise NotSeparable
    return text


def columns(rows: Iterable[Iterable[object]], width: int = 0) -> list[list[object]]:
    """Turn rows into the arrays that ``unnest`` takes; without rows, into ``width`` empty arrays."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


def fence_proof(fence: LeaseFence) -> tuple[str, str, str, int]:
    """Return what proves a lease, in the order in which the statements take it."""
    return (fence.owner_id, fence.incarnation_id, fence.token, fence.fencing)
