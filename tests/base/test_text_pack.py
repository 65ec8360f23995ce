"""Packing of long texts in records, and detection of damage when they are unpacked."""

import contextlib
import random
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lash.base.compression import Compression, pack_text, unpack_text
from lash.errors import CorruptData

TEXT = b"some words, " * 1_000
_PACKING = {Compression.BALANCED: 1, Compression.COMPACT: 6}
"""The levels of zlib that versions before ISA-L packed with."""
_DICTIONARY = (
    b'{"timestamp":"2025-01-01T00:00:00.000000Z","entry":{"kind":"plugin","plugin_type":"","body":{"kind":"protocol",'
    b'"plugin_id":"","payload":{"kind":"message","message":{"id":"","role":"system","parts":[{"id":"","kind":'
    b'"tool_result","tool_call_id":"","tool_name":"","content":"{"kind":"tool_call","content":"{"kind":"text",'
    b'"content":""}],"role":"assistant","role":"user"}},"agent_frame_id":"","caused_by":{"type":"process",'
    b'"process_id":"","entry":{"kind":"message","message":{"id":"","role":"assistant","parts":[{"id":":0","kind":'
    b'"text","content":"'
)
FIRST = "033a07237998819287a1112479604b173067288c82d110180d81611f0200"


def packed_text() -> bytes:
    packed = pack_text(TEXT, Compression.BALANCED)
    assert packed is not None
    return packed


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize(
    ("profile", "size", "is_packed"),
    [
        (Compression.BALANCED, 1_024, True),
        (Compression.BALANCED, 1_023, False),
        (Compression.COMPACT, 256, True),
        (Compression.COMPACT, 255, False),
        (Compression.LOW_LATENCY, 1_000_000, False),
    ],
)
def test_a_text_is_packed_exactly_from_the_threshold(profile: Compression, size: int, is_packed: bool) -> None:  # noqa: FBT001
    """One byte less stays plain; a packed text is far smaller and comes back unchanged."""
    text = b"a" * size
    packed = pack_text(text, profile)
    assert (packed is not None) == is_packed
    if packed is not None:
        assert len(packed) < size / 4
        assert unpack_text(packed, "x") == text


@given(st.binary(max_size=40), st.integers(0, 200))
def test_every_text_comes_back(seed: bytes, times: int) -> None:
    """Every packed text is unpacked unchanged."""
    packed = pack_text(seed * times, Compression.COMPACT)
    assert packed is None or unpack_text(packed, "x") == seed * times


@pytest.mark.parametrize(
    ("profile", "packed"),
    [
        (Compression.LOW_LATENCY, [False, False, False, False]),
        (Compression.BALANCED, [False, False, False, True]),
        (Compression.COMPACT, [True, True, True, True]),
    ],
)
def test_short_texts_that_are_often_read_are_not_packed(profile: Compression, packed: list[bool]) -> None:
    """With the default profile, those below 4,096 bytes stay plain; the other profiles do the same with any text."""
    found = [pack_text(TEXT[:size], profile, often_read=True) is not None for size in (1_023, 1_024, 4_095, 4_096)]
    assert found == packed
    assert pack_text(TEXT[:1_024], Compression.BALANCED) is not None


def test_a_text_that_does_not_get_smaller_is_not_packed() -> None:
    """Incompressible texts stay plain."""
    assert pack_text(noise(4_096), Compression.BALANCED) is None


def test_what_was_packed_before_can_be_read() -> None:
    """A text packed by the first version can be read by every later one."""
    stored = bytes.fromhex(FIRST)
    assert unpack_text(stored, "x") == b'{"timestamp":"2025-06-01T12:00:00Z","entry":{"kind":"message"' + b" " * 1_000


@given(st.text(alphabet="abcde ü", min_size=300, max_size=3_000), st.sampled_from(list(_PACKING)))
def test_texts_are_raw_deflate_with_the_dictionary(words: str, profile: Compression) -> None:
    """Each packed text can be read by zlib, and a text that zlib packed comes back: any library can read the format."""
    text = words.encode()
    packed = pack_text(text, profile)
    if packed is not None:
        assert zlib.decompressobj(-13, _DICTIONARY).decompress(packed) == text
    compressor = zlib.compressobj(_PACKING[profile], zlib.DEFLATED, -13, 5, zdict=_DICTIONARY)
    assert unpack_text(compressor.compress(text) + compressor.flush(), "x") == text


def test_many_threads_pack_at_once() -> None:
    """Threads that pack at the same time each get their own text back."""
    texts = [bytes([number]) * 2_000 + noise(200 + number) for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        packed = list(pool.map(lambda text: pack_text(text, Compression.BALANCED), texts))
    assert [unpack_text(each or b"", "x") for each in packed] == texts


@pytest.mark.parametrize("damaged", [b"", b"\xff no text", packed_text()[:-3], packed_text() + b"more"])
def test_damage_is_noticed(damaged: bytes) -> None:
    """A text that is not packed, is truncated or has trailing bytes raises CorruptData."""
    with pytest.raises(CorruptData, match="node 'n' cannot be decompressed"):
        unpack_text(damaged, "node 'n'")


@given(st.integers(0, 8 * len(packed_text()) - 1))
def test_a_flipped_bit_raises_nothing_else(bit: int) -> None:
    """Damage gives other bytes, which the record's decoder checks, or CorruptData."""
    damaged = bytearray(packed_text())
    damaged[bit // 8] ^= 1 << bit % 8
    with contextlib.suppress(CorruptData):
        unpack_text(bytes(damaged), "x")


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes that would expand to 64 MiB take no more memory than a record may have."""
    monkeypatch.setattr("lash.base.compression.MAX_CONTENT_BYTES", 100_000)
    compressor = zlib.compressobj(9, zlib.DEFLATED, -13)
    bomb = compressor.compress(bytes(64 * 1024 * 1024)) + compressor.flush()
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData, match="does not end where it should"):
            unpack_text(bomb, "x")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1024 * 1024
