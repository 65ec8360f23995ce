"""How long texts of records are kept: deflated, with a dictionary of what all of them say.

Texts of a few hundred bytes are many and each is read alone. For such, zlib with a dictionary is smaller than zstd and
is read back in a third of the time, most of which zstd spends on making itself ready (docs/adr/0025).
"""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

from lash.errors import CorruptData
from lash.limits import MAX_CONTENT_BYTES
from lash.model.value import Compression

_DICTIONARY: Final = (
    b'{"timestamp":"2025-01-01T00:00:00.000000Z","entry":{"kind":"plugin","plugin_type":"","body":{"kind":"protocol",'
    b'"plugin_id":"","payload":{"kind":"message","message":{"id":"","role":"system","parts":[{"id":"","kind":'
    b'"tool_result","tool_call_id":"","tool_name":"","content":"{"kind":"tool_call","content":"{"kind":"text",'
    b'"content":""}],"role":"assistant","role":"user"}},"agent_frame_id":"","caused_by":{"type":"process",'
    b'"process_id":"","entry":{"kind":"message","message":{"id":"","role":"assistant","parts":[{"id":":0","kind":'
    b'"text","content":"'
)
"""What was packed with this can be read with this alone: it must never change."""
_WINDOW_BITS: Final = -13
"""Without a header, and with a window that takes little memory and time to make."""
_MEMORY_LEVEL: Final = 5


class _Rule(NamedTuple):
    threshold: int
    level: int


_RULES: Final = {Compression.BALANCED: _Rule(1_024, 1), Compression.COMPACT: _Rule(256, 6)}
_BLANKS: Final = {
    rule.level: zlib.compressobj(rule.level, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL, zdict=_DICTIONARY)
    for rule in _RULES.values()
}
"""Compressors that have read the dictionary; a copy of one is made for each text."""


def pack_text(text: bytes, compression: Compression) -> bytes | None:
    """Return a text compressed; None if it is short, or if that would not make it smaller."""
    rule = _RULES.get(compression)
    if rule is None or len(text) < rule.threshold:
        return None
    compressor = _BLANKS[rule.level].copy()
    packed = compressor.compress(text) + compressor.flush()
    return packed if len(packed) < len(text) else None


def unpack_text(packed: bytes, what: str) -> bytes:
    """Return what `pack_text` was given, or raise CorruptData. Never expands beyond what a record may hold."""
    decompressor = zlib.decompressobj(_WINDOW_BITS, _DICTIONARY)
    try:
        text = decompressor.decompress(packed, MAX_CONTENT_BYTES)
    except zlib.error as error:
        raise CorruptData(f"{what} cannot be decompressed: {error}") from error
    if not decompressor.eof or decompressor.unused_data:
        raise CorruptData(f"{what} cannot be decompressed: it does not end where it should")
    return text
