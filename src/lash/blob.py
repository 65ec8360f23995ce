"""How bytes are kept: compressed by profile, tagged with a codec, read back with proof."""

from __future__ import annotations

import enum
import sys
from typing import Final, NamedTuple

from lash.codec import content_hash
from lash.errors import CorruptData
from lash.limits import MAX_CONTENT_BYTES, check_content
from lash.model.value import BlobRef, Compression

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


class Codec(enum.StrEnum):
    PLAIN = "plain"
    ZSTD = "zstd"


class StoredBlob(NamedTuple):
    """Bytes in the form in which they are stored. ``size`` is their length before compression."""

    ref: BlobRef
    codec: Codec
    size: int
    content: bytes


class _Rule(NamedTuple):
    threshold: int
    level: int


_RULES: Final = {Compression.BALANCED: _Rule(4_096, 3), Compression.COMPACT: _Rule(1_024, 9)}


def pack(content: bytes, compression: Compression) -> StoredBlob:
    """Return the stored form of the bytes; compression that would not make them smaller is left out."""
    check_content("content", content, limit=MAX_CONTENT_BYTES)
    ref = BlobRef(content_hash(content))
    rule = _RULES.get(compression)
    if rule is not None and len(content) >= rule.threshold:
        compressed = zstd.compress(content, level=rule.level)
        if len(compressed) < len(content):
            return StoredBlob(ref, Codec.ZSTD, len(content), compressed)
    return StoredBlob(ref, Codec.PLAIN, len(content), content)


def unpack(blob: StoredBlob) -> bytes:
    """Return the bytes, after proving that they are the ones the ref names. Never expands beyond ``size``."""
    content = _expand(blob) if blob.codec is Codec.ZSTD else blob.content
    if len(content) != blob.size or content_hash(content) != blob.ref:
        raise CorruptData(f"the stored bytes of {blob.ref} are damaged")
    return content


def unpack_stored(ref: str, codec: str, size: int, content: bytes) -> bytes:
    """Return the bytes of a stored row, proven like those of ``unpack``."""
    try:
        known = Codec(codec)
    except ValueError:
        raise CorruptData(f"the bytes {ref} are stored in the unknown form {codec!r}") from None
    return unpack(StoredBlob(BlobRef(ref), known, size, content))


def _expand(blob: StoredBlob) -> bytes:
    if not 0 <= blob.size <= MAX_CONTENT_BYTES:
        # The decompressor takes a negative limit for none at all, and a few bytes can stand for terabytes.
        raise CorruptData(f"the stored bytes of {blob.ref} have the impossible size {blob.size}")
    decompressor = zstd.ZstdDecompressor()
    try:
        content = decompressor.decompress(blob.content, max_length=blob.size + 1)
    except zstd.ZstdError as error:
        raise CorruptData(f"the stored bytes of {blob.ref} cannot be decompressed: {error}") from error
    return content
