"""What an artifact is stored as, and when stored bytes are the ones that were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from lash.base import compression as blobs
from lash.base.codec import canonical, decode, encode
from lash.base.compression import Compression, StoredBlob
from lash.base.limits import check_content, check_digest
from lash.errors import CorruptData
from lash.model.artifact import ArtifactPage, ArtifactRef, ArtifactSummary

T = TypeVar("T")

ENVIRONMENTS: Final = "process_environment"
"""The namespace in which the environments of processes are kept."""


class ArtifactRow(msgspec.Struct, frozen=True, array_like=True):
    """An artifact as it is stored."""

    ref: str
    codec: str
    size: int
    content: bytes


class ArtifactSummaryRow(msgspec.Struct, frozen=True, array_like=True):
    """An artifact without its bytes."""

    ref: str
    size: int
    created_at_ms: int


def pack_artifact(content: object, compression: Compression) -> StoredBlob:
    """Return the stored form of the bytes."""
    return blobs.pack(check_content("content", content), compression)


def check_artifact_ref(ref: object) -> ArtifactRef:
    """Return the ref if it is one."""
    return ArtifactRef(check_digest("ref", ref))


def unpack_artifact(row: ArtifactRow, ref: ArtifactRef) -> bytes:
    """Return the bytes if the ref asked for, the stored ref and the hash of the bytes agree; else raise CorruptData."""
    if row.ref != ref:
        raise CorruptData(f"artifact {row.ref} was found where {ref} should be")
    return blobs.unpack_stored(ref, row.codec, row.size, row.content)


def encode_value(value: object, shape: type[T]) -> bytes:
    """Return the one text of a value that is the same on every machine, or raise InvalidInput."""
    encode(value, shape, shape.__name__)
    return canonical(value)


def decode_value(content: bytes, shape: type[T], ref: ArtifactRef) -> T:
    """Return the value that an artifact holds. Bytes of another shape are CorruptData."""
    return decode(content, shape, f"artifact {ref}")


def decode_artifact_page(rows: Sequence[ArtifactSummaryRow], limit: int) -> ArtifactPage:
    """Return the page; the rows hold one more than the limit when there is a next page."""
    shown = [
        ArtifactSummary(ref=ArtifactRef(row.ref), size=row.size, created_at_ms=row.created_at_ms)
        for row in rows[:limit]
    ]
    return ArtifactPage(artifacts=tuple(shown), next_cursor=shown[-1].ref if len(rows) > limit else None)


def check_artifact_cursor(cursor: object) -> str:
    """Return the place in the list after which a page begins."""
    return "" if cursor is None else check_digest("cursor", cursor)
