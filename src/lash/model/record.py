"""Records: small values under a collection and a key, owned by a session or by the storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from lash.model.value import JSON, Count, Positive, Value

RecordValue: TypeAlias = JSON | bytes
"""What a record holds: plain JSON, or bytes."""


class Record(Value, frozen=True, kw_only=True):
    """One stored record. ``session_id`` is None in the storage's scope."""

    collection: str
    key: str
    session_id: str | None = None
    value: RecordValue
    version: Positive
    """1 after the first put, and one more after each further put."""
    index: dict[str, str] = msgspec.field(default_factory=dict)
    expires_at_ms: int | None = None
    created_at_ms: int
    updated_at_ms: int


class RecordPut(Value, frozen=True, kw_only=True, tag=True):
    """Write a value under a collection and a key.

    ``session_id`` names the session that owns the record; None is the storage's scope. ``index`` has at most 4 names
    with short texts, by which the record can be listed. ``ttl_ms`` counts from the put by the storage's clock;
    ``expires_at_ms`` is absolute; give at most one. ``expected_version`` must be the stored version: None for any,
    0 for no record.
    """

    collection: str
    key: str
    value: RecordValue
    session_id: str | None = None
    index: Mapping[str, str] = msgspec.field(default_factory=dict)
    ttl_ms: Positive | None = None
    expires_at_ms: int | None = None
    expected_version: Count | None = None


class RecordDelete(Value, frozen=True, kw_only=True, tag=True):
    """Remove a record; absent ones are fine unless ``expected_version`` says that there is one."""

    collection: str
    key: str
    session_id: str | None = None
    expected_version: Count | None = None


RecordChange: TypeAlias = RecordPut | RecordDelete
