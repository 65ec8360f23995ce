"""Arguments that the statements of several nouns take in the same form."""

from __future__ import annotations

from collections.abc import Iterable

from lash.model.lease import LeaseFence


def columns(rows: Iterable[Iterable[object]], width: int = 0) -> list[list[object]]:
    """Turn rows into the arrays that ``unnest`` takes; without rows, into ``width`` empty arrays."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


def fence_proof(fence: LeaseFence) -> tuple[str, str, str, int]:
    """Return what proves a lease, in the order in which the statements take it."""
    return (fence.owner_id, fence.incarnation_id, fence.token, fence.fencing)
