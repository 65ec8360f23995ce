"""The components of a checkpoint that get new bytes, given those of the checkpoint before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from lash.base.compression import BlobRef, StoredBlob


class Replacement(NamedTuple):
    """New bytes of a component, and the hash of the bytes that they replace."""

    replaced: BlobRef
    blob: StoredBlob


def replacements(
    before: Mapping[str, BlobRef], after: Mapping[str, BlobRef], blobs: Iterable[StoredBlob]
) -> tuple[Replacement, ...] | None:
    """Return the components whose bytes change between two checkpoints of which only the second is kept.

    None if more than bytes changes: a component is added or removed, a component gets bytes that are not among
    ``blobs``, or two components share bytes, old or new.
    """
    if before.keys() != after.keys():
        return None
    brought = {blob.ref: blob for blob in blobs}
    old = {key: ref for key, ref in before.items() if ref != after[key]}
    new = {key: after[key] for key in old}
    if not brought.keys() >= set(new.values()) or not _are_apart(old, after) or not _are_apart(new, before):
        return None
    return tuple(Replacement(ref, brought[new[key]]) for key, ref in old.items())


def _are_apart(changed: Mapping[str, BlobRef], others: Mapping[str, BlobRef]) -> bool:
    """Return whether no two of the changed components share bytes, and none shares bytes with the other checkpoint."""
    refs = set(changed.values())
    return len(refs) == len(changed) and refs.isdisjoint(others.values())
