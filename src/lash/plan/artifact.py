"""The stored form of an artifact, and the check that loaded bytes are the requested ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, TypeVar

import msgspec

from lash.base import compression as blobs
from lash.base.codec import canonical, decode, encode
from lash.base.compression import Compression, StoredBlob
from lash.base.limits import check_content, check_digest
from lash.errors import CorruptData
from lash.model.artifact import ArtifactPage, ArtifactRef, ArtifactSummary
from lash.plan.sealed import CONTENT

T = TypeVar("T")

ENVIRONMENTS: Final = "process_environment"
"""The namespace of process environments."""


class ArtifactRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored artifact."""

    ref: str
    codec: str
    size: int
    content: Annotated[bytes, CONTENT]


class ArtifactSummaryRow(msgspec.Struct, frozen=True, array_like=True):
    """An artifact without its bytes."""

    ref: str
    size: int
    created_at_ms: int


def pack_artifact(content: object, compression: Compression) -> StoredBlob:
    """Return the stored form of the bytes."""
    return blobs.pack(check_content("content", content), compression)


def check_artifact_ref(ref: object) -> ArtifactRef:
    """Return the ref, or raise InvalidInput unless it is 64 lowercase hex digits."""
    return ArtifactRef(check_digest("ref", ref))


def unpack_artifact(row: ArtifactRow, ref: ArtifactRef) -> bytes:
    """Return the bytes; raise CorruptData unless requested ref, stored ref and content hash agree."""
    if row.ref != ref:
        raise CorruptData(f"expected artifact {ref}, found {row.ref}")
    return blobs.unpack_stored(ref, row.codec, row.size, row.content)


def encode_value(value: object, shape: type[T]) -> bytes:
    """Return the canonical JSON of a value, the same on every machine, or raise InvalidInput."""
    encode(value, shape, shape.__name__)
    return canonical(value)


def decode_value(content: bytes, shape: type[T], ref: ArtifactRef) -> T:
    """Return the value that an artifact holds, or raise CorruptData if the bytes have another shape."""
    return decode(content, shape, f"artifact {ref}")


def decode_artifact_page(rows: Sequence[ArtifactSummaryRow], limit: int) -> ArtifactPage:
    """Return the page. One row more than the limit means that there is a next page."""
    shown = [
        ArtifactSummary(ref=ArtifactRef(row.ref), size=row.size, created_at_ms=row.created_at_ms)
        for row in rows[:limit]
    ]
    return ArtifactPage(artifacts=tuple(shown), next_cursor=shown[-1].ref if len(rows) > limit else None)


def check_artifact_cursor(cursor: object) -> str:
    """Return the ref after which a page starts; empty for the first page."""
    return "" if cursor is None else check_digest("cursor", cursor)
