"""A text and bytes that are packed together."""

from __future__ import annotations

import os
import zlib

import pytest

from lash.base.compression import Compression, has_bytes, pack_text, pack_with_bytes, unpack_with_bytes
from lash.errors import CorruptData

_TEXT = b'{"a":1}'


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("content", [b"", b"x", b"\0" * 100_000, os.urandom(10_000)])
def test_both_come_back(compression: Compression, content: bytes) -> None:
    """Bytes that can be compressed become smaller, and none become much larger."""
    packed = pack_with_bytes(_TEXT, content, compression)
    assert has_bytes(packed)
    assert unpack_with_bytes(packed, "it") == (_TEXT, content)
    assert len(packed) <= len(_TEXT) + len(content) + 14


def test_a_packed_text_is_never_taken_for_bytes() -> None:
    """The mark begins with a block type that no compressed text has."""
    for size in (2_000, 50_000):
        packed = pack_text(os.urandom(size // 4).hex().encode() * 2, Compression.COMPACT)
        assert packed is not None
        assert not has_bytes(packed)
    with pytest.raises(zlib.error):
        zlib.decompressobj(-13).decompress(bytes([7]) + b"\0" * 20)


@pytest.mark.parametrize("content", [b"x" * 100, b"\0" * 100_000])
def test_damage_is_noticed(content: bytes) -> None:
    """Packed forms that are cut off, too long or changed raise CorruptData, and expand to no more than their size."""
    packed = pack_with_bytes(_TEXT, content, Compression.BALANCED)
    grown = packed[:6] + (2**40).to_bytes(8, "big") + packed[14:]
    for damaged in (packed[:5], packed[:14], packed[:-1], packed + b"x", grown):
        with pytest.raises(CorruptData):
            unpack_with_bytes(damaged, "it")
