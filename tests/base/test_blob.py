"""Packing bytes by profile, and verifying them when they are unpacked."""

import contextlib
import random
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lash.base.compression import BlobRef, Codec, Compression, StoredBlob, pack, unpack
from lash.errors import CorruptData, InvalidInput
from tests.rules.kit import sha256

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize(
    ("profile", "size", "codec"),
    [
        (Compression.BALANCED, 4_096, Codec.ZSTD),
        (Compression.BALANCED, 4_095, Codec.PLAIN),
        (Compression.COMPACT, 1_024, Codec.ZSTD),
        (Compression.COMPACT, 1_023, Codec.PLAIN),
        (Compression.LOW_LATENCY, 1_000_000, Codec.PLAIN),
        (Compression.BALANCED, 0, Codec.PLAIN),
    ],
)
def test_compression_begins_exactly_at_the_threshold(profile: Compression, size: int, codec: Codec) -> None:
    """Content one byte below the threshold is stored plain."""
    content = b"a" * size
    packed = pack(content, profile)
    assert (packed.codec, packed.size) == (codec, size)
    assert unpack(packed) == content


@pytest.mark.parametrize("profile", Compression)
def test_compression_that_does_not_help_is_left_out(profile: Compression) -> None:
    """Incompressible bytes stay plain under every profile."""
    content = noise(8_192)
    assert pack(content, profile) == (sha256(content), Codec.PLAIN, 8_192, content)


def test_compressed_bytes_are_smaller_and_readable_by_others() -> None:
    """The stored form is a zstd frame of the content."""
    content = b"some words, " * 1_000
    packed = pack(content, Compression.BALANCED)
    assert len(packed.content) < len(content) / 10
    assert zstd.decompress(packed.content) == content


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=64), st.integers(1, 200))
def test_every_profile_gives_the_same_ref_and_the_same_bytes_back(seed: bytes, times: int) -> None:
    """The ref is the SHA-256 of the plain bytes, whatever the profile."""
    content = seed * times
    for profile in Compression:
        packed = pack(content, profile)
        assert packed.ref == sha256(content)
        assert unpack(packed) == content


CONTENT = b"checkpoint " * 1_000
PACKED = pack(CONTENT, Compression.BALANCED)
OTHER = pack(b"checkpoint." * 1_000, Compression.BALANCED)
PLAIN = pack(CONTENT, Compression.LOW_LATENCY)


@pytest.mark.parametrize(
    "damaged",
    [
        PLAIN._replace(content=CONTENT[:-1] + b"!"),
        PLAIN._replace(content=CONTENT[:-1]),
        PLAIN._replace(size=PLAIN.size - 1),
        PLAIN._replace(size=-1),
        PLAIN._replace(ref=BlobRef("0" * 64)),
        PLAIN._replace(codec=Codec.ZSTD),
        PACKED._replace(codec=Codec.PLAIN),
        PACKED._replace(content=PACKED.content[:-1]),
        PACKED._replace(content=PACKED.content[:4]),
        PACKED._replace(content=b""),
        PACKED._replace(content=b"\0" + PACKED.content),
        PACKED._replace(content=OTHER.content),
        PACKED._replace(size=PACKED.size - 1),
        PACKED._replace(size=PACKED.size + 1),
        PACKED._replace(size=0),
        PACKED._replace(size=-1),
        PACKED._replace(size=-2),
        PACKED._replace(size=2**63 - 1),
        PACKED._replace(ref=OTHER.ref),
    ],
)
def test_damage_is_always_noticed(damaged: StoredBlob) -> None:
    """Content, size, codec and ref must all agree; anything else raises CorruptData."""
    with pytest.raises(CorruptData, match=damaged.ref):
        unpack(damaged)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, len(PACKED.content) * 8 - 1))
def test_a_flipped_bit_never_gives_other_bytes(bit: int) -> None:
    """With any bit damaged, the result is the right content or an error."""
    damaged = bytearray(PACKED.content)
    damaged[bit // 8] ^= 1 << bit % 8
    with contextlib.suppress(CorruptData):
        assert unpack(PACKED._replace(content=bytes(damaged))) == CONTENT


@pytest.mark.parametrize("claimed", [0, 100, -1, -2, -(2**63), 2**29 + 1, 2**40])
def test_a_bomb_is_refused_without_being_expanded(claimed: int) -> None:
    """A small frame that would expand to 64 MiB takes no more memory than its row claims."""
    bomb = zstd.compress(bytes(64 * 1024 * 1024), level=3)
    assert len(bomb) < 16 * 1024
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData):
            unpack(StoredBlob(BlobRef("0" * 64), Codec.ZSTD, claimed, bomb))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024 * 1024


def test_what_could_not_be_read_again_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing and unpacking have the same limit, so nothing is stored that cannot be read."""
    monkeypatch.setattr("lash.base.compression.MAX_CONTENT_BYTES", 5_000)
    assert len(unpack(pack(b"a" * 5_000, Compression.BALANCED))) == 5_000
    with pytest.raises(InvalidInput, match="5,001 bytes; at most 5,000"):
        pack(b"a" * 5_001, Compression.BALANCED)
    with pytest.raises(CorruptData, match="impossible size 5001"):
        unpack(PACKED._replace(size=5_001))


def test_a_failure_of_the_decompressor_is_kept_as_the_cause() -> None:
    """The error is ours and keeps the library's as its cause."""
    with pytest.raises(CorruptData, match="cannot be decompressed") as caught:
        unpack(PLAIN._replace(codec=Codec.ZSTD))
    assert isinstance(caught.value.__cause__, zstd.ZstdError)
