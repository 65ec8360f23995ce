"""Compression of bytes and texts, with verification on read.

Blobs go through zstd and carry a codec tag. Texts of records are raw deflate with a shared dictionary, written and read
by ISA-L: they are a few hundred bytes to a few thousand long and read one at a time, where it is smaller and faster
than zstd (docs/adr/0025, docs/adr/0086).
"""

from __future__ import annotations

import enum
import struct
import sys
from typing import Final, NamedTuple, NewType, cast

from isal import isal_zlib

from lash.base.codec import content_hash
from lash.base.limits import MAX_CONTENT_BYTES, check_content
from lash.base.seal import refuse_sealed
from lash.errors import CorruptData

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BlobRef = NewType("BlobRef", str)
"""The lowercase hex SHA-256 of some bytes, before compression."""


class Compression(enum.StrEnum):
    """The compression profile of a storage. The ref of bytes is the same under every profile."""

    LOW_LATENCY = "low_latency"
    """Never."""
    BALANCED = "balanced"
    """From 4,096 bytes on, quickly."""
    COMPACT = "compact"
    """From 1,024 bytes on, thoroughly."""


class _Rule(NamedTuple):
    threshold: int
    level: int


class Codec(enum.StrEnum):
    PLAIN = "plain"
    ZSTD = "zstd"


_CODECS: Final = {codec.value: codec for codec in Codec}


class StoredBlob(NamedTuple):
    """The stored form of bytes. ``size`` is their length before compression."""

    ref: BlobRef
    codec: Codec
    size: int
    content: bytes


_BLOB_RULES: Final = {Compression.BALANCED: _Rule(4_096, 3), Compression.COMPACT: _Rule(1_024, 9)}


def pack(content: bytes, compression: Compression) -> StoredBlob:
    """Return the stored form of the bytes; they stay uncompressed if compression would not make them smaller."""
    check_content("content", content, limit=MAX_CONTENT_BYTES)
    ref = BlobRef(content_hash(content))
    rule = _BLOB_RULES.get(compression)
    if rule is not None and len(content) >= rule.threshold:
        compressed = zstd.compress(content, level=rule.level)
        if len(compressed) < len(content):
            return StoredBlob(ref, Codec.ZSTD, len(content), compressed)
    return StoredBlob(ref, Codec.PLAIN, len(content), content)


def unpack(blob: StoredBlob) -> bytes:
    """Return the bytes after verifying their hash. Never expands beyond ``size``."""
    content = blob.content
    if blob.codec is Codec.ZSTD:
        content = _expand(content, blob.size, f"the stored content of {blob.ref}")
    if len(content) != blob.size or content_hash(content) != blob.ref:
        refuse_sealed(content)
        raise CorruptData(f"the stored bytes of {blob.ref} are damaged")
    return content


def unpack_stored(ref: str, codec: str, size: int, content: bytes) -> bytes:
    """Return the bytes of a stored row, verified like those of ``unpack``."""
    if codec == Codec.PLAIN and len(content) == size and content_hash(content) == ref:
        # Most bytes are short and plain, and a list of sessions has thousands of them.
        return content
    known = _CODECS.get(codec)
    if known is None:
        raise CorruptData(f"unknown codec {codec!r} of the stored bytes {ref}")
    return unpack(StoredBlob(BlobRef(ref), known, size, content))


def _expand(content: bytes, size: int, what: str) -> bytes:
    """Return the bytes of one whole zstd frame; expands at most one byte beyond ``size``."""
    if not 0 <= size <= MAX_CONTENT_BYTES:
        # To the decompressor a negative limit means none, and a few bytes can expand to terabytes.
        raise CorruptData(f"{what} cannot be decompressed: it has the impossible size {size}")
    decompressor = zstd.ZstdDecompressor()
    try:
        expanded = decompressor.decompress(content, max_length=size + 1)
    except zstd.ZstdError as error:
        refuse_sealed(content)
        raise CorruptData(f"{what} cannot be decompressed: {error}") from error
    if not decompressor.eof or decompressor.unused_data:
        raise CorruptData(f"{what} cannot be decompressed: it does not end where it should")
    return expanded


_DICTIONARY: Final = (
    b'{"timestamp":"2025-01-01T00:00:00.000000Z","entry":{"kind":"plugin","plugin_type":"","body":{"kind":"protocol",'
    b'"plugin_id":"","payload":{"kind":"message","message":{"id":"","role":"system","parts":[{"id":"","kind":'
    b'"tool_result","tool_call_id":"","tool_name":"","content":"{"kind":"tool_call","content":"{"kind":"text",'
    b'"content":""}],"role":"assistant","role":"user"}},"agent_frame_id":"","caused_by":{"type":"process",'
    b'"process_id":"","entry":{"kind":"message","message":{"id":"","role":"assistant","parts":[{"id":":0","kind":'
    b'"text","content":"'
)
"""It must never change: texts packed with it can only be read with it."""
_WINDOW_BITS: Final = -13
"""No header, and a window that takes little memory and time to set up."""
_DeflateError: Final = cast("type[Exception]", isal_zlib.error)
"""Its type stub declares an instance."""
_MEMORY_LEVEL: Final = 5
"""Small hash tables: texts are a few hundred bytes long."""


_TEXT_RULES: Final = {Compression.BALANCED: _Rule(1_024, 1), Compression.COMPACT: _Rule(256, 3)}
_OFTEN_READ_RULES: Final = {**_TEXT_RULES, Compression.BALANCED: _Rule(4_096, 1)}
"""Expanding a text of 2,000 bytes takes longer than reading it and its JSON."""


def pack_text(text: bytes, compression: Compression, *, often_read: bool = False) -> bytes | None:
    """Return the compressed text; None if it is short, or gets no smaller.

    A text that is ``often_read`` counts as short up to more bytes.
    """
    rule = (_OFTEN_READ_RULES if often_read else _TEXT_RULES).get(compression)
    if rule is None or len(text) < rule.threshold:
        return None
    compressor = isal_zlib.compressobj(rule.level, isal_zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL, zdict=_DICTIONARY)
    packed = compressor.compress(text) + compressor.flush()
    return packed if len(packed) < len(text) else None


_FRAME: Final = 7
"""The first byte of a text that is packed with bytes. No compressed text begins with it: its block type is reserved."""
_FRAME_HEAD: Final = struct.Struct(">BBIQ")
"""The mark, whether the bytes are compressed, the length of the text, and the size of the bytes."""


def pack_with_bytes(text: bytes, content: bytes, compression: Compression) -> bytes:
    """Return a text and bytes packed together; the bytes are compressed like those of a blob."""
    stored = pack(content, compression)
    is_compressed = stored.codec is Codec.ZSTD
    return _FRAME_HEAD.pack(_FRAME, is_compressed, len(text), len(content)) + text + stored.content


def has_bytes(packed: bytes) -> bool:
    """Return whether the packed form holds bytes beside its text."""
    return packed[:1] == bytes([_FRAME])


def unpack_with_bytes(packed: bytes, what: str) -> tuple[bytes, bytes]:
    """Return the text and the bytes, or raise CorruptData. Never expands beyond the size that was stored."""
    if len(packed) < _FRAME_HEAD.size:
        raise CorruptData(f"{what} cannot be read: it is cut off")
    _, is_compressed, length, size = _FRAME_HEAD.unpack_from(packed)
    text, rest = packed[_FRAME_HEAD.size :][:length], packed[_FRAME_HEAD.size + length :]
    content = _expand(rest, size, what) if is_compressed else rest
    if len(text) != length or len(content) != size:
        raise CorruptData(f"{what} cannot be read: its bytes are cut off")
    return text, content


def unpack_text(packed: bytes, what: str) -> bytes:
    """Return the packed text, or raise CorruptData. Never expands beyond the limit of a record."""
    decompressor = isal_zlib.decompressobj(_WINDOW_BITS, _DICTIONARY)
    try:
        text = decompressor.decompress(packed, MAX_CONTENT_BYTES)
    except _DeflateError as error:
        refuse_sealed(packed)
        raise CorruptData(f"{what} cannot be decompressed: {error}") from error
    if not decompressor.eof or decompressor.unused_data:
        raise CorruptData(f"{what} cannot be decompressed: it does not end where it should")
    return text
