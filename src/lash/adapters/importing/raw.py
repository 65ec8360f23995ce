"""Rows that are kept as they are, as records in the collection ``import.raw``."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from lash.adapters.importing.found import RawRow
from lash.model.record import RecordPut

RAW: Final = "import.raw"
RAW_BYTES: Final = "import.raw-bytes"
"""Large values of raw rows, under the hash of their bytes."""
_INLINE: Final = 64 * 1024
_PART: Final = 8 * 1024 * 1024
"""A record has at most 16 MB."""
_MAX_INTEGER: Final = 2**63
_encode: Final = msgspec.json.Encoder(order="sorted").encode


def raw_records(framework: str, raw: RawRow, session_id: str | None) -> Iterator[RecordPut]:
    """Return the records of a row. An equal row has equal records, so that it is kept once."""
    row: dict[str, Any] = {}
    for name, value in raw.row.items():
        content = _large(value)
        if content is None:
            row[name] = _plain(value)
            continue
        parts = [content[start : start + _PART] for start in range(0, len(content), _PART)]
        keys = [hashlib.blake2b(part, digest_size=20).hexdigest() for part in parts]
        row[name] = {"text" if isinstance(value, str) else "bytes": keys}
        for key, part in zip(keys, parts, strict=True):
            yield RecordPut(collection=RAW_BYTES, key=key, value=part, session_id=session_id)
    value = {"framework": framework, "table": raw.table, "reason": raw.reason, "row": row}
    digest = hashlib.blake2b(_encode([framework, raw.table, row]), digest_size=20).hexdigest()
    index = {"framework": framework, "table": raw.table[:255]}
    yield RecordPut(collection=RAW, key=digest, value=value, session_id=session_id, index=index)


def _large(value: object) -> bytes | None:
    """Return the bytes of a value that gets records of its own; None for any other."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value) if len(value) > _INLINE else None
    if isinstance(value, str) and (len(value) > _INLINE or "\0" in value):
        return value.encode("utf-8", "surrogatepass")
    return None


def _plain(value: object) -> object:
    """Return a value of a column as JSON; bytes become ``{"base64": text}``, other types their text."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -_MAX_INTEGER <= value < _MAX_INTEGER else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
