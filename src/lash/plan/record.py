"""Rules of records: names, key ranges, index fields, versions and expiry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from lash.base.compression import StoredBlob
from lash.base.limits import (
    MAX_PAGE,
    check_identifier,
    check_integer,
    saturating_add,
)
from lash.errors import CorruptData, InvalidInput, RecordConflict
from lash.model.record import RecordChange, RecordDelete, RecordPut
from lash.plan.sealed import RECORD

MAX_COLLECTION_LENGTH: Final = 64
"""A collection, an index field and a key share one index entry, which PostgreSQL limits to 2,704 bytes."""
MAX_FIELDS: Final = 4
"""Each index field has a column and an index of its own."""
MAX_VALUE_BYTES: Final = 16 * 1024 * 1024
"""The largest value: a page of records is decoded in memory. Larger content belongs in an attachment."""
MAX_CALL_BYTES: Final = 64 * 1024 * 1024
"""The most bytes that one call writes; the default budget of a commit."""
_BRIEF_CHANGES: Final = 16
"""Calls of up to this many changes may be written on the event loop; see the next limit."""
_BRIEF_BYTES: Final = 65_536
"""Calls of up to this many bytes may be written on the event loop."""
_FIELD: Final = re.compile("[A-Za-z_][A-Za-z0-9_]{0,31}")


class RecordName(NamedTuple):
    """What identifies a record. ``session_id`` is None in the storage's scope."""

    session_id: str | None
    collection: str
    key: str


class StoredValue(msgspec.Struct, frozen=True, kw_only=True):
    """The stored form of a value."""

    form: str
    blob: StoredBlob


class EncodedPut(msgspec.Struct, frozen=True, kw_only=True):
    """A checked put: everything but the scope's key and the version."""

    value: StoredValue
    fields: tuple[str | None, ...]
    """As many as a record has columns for; see `encode_fields`."""
    ttl_ms: int | None
    expires_at_ms: int | None

    def expiry(self, now_ms: int) -> int | None:
        """Return when the record expires if it is written now; None for never."""
        return self.expires_at_ms if self.ttl_ms is None else saturating_add(now_ms, self.ttl_ms)


class EncodedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A checked change; ``put`` is None for a deletion."""

    name: RecordName
    expected_version: int | None
    put: EncodedPut | None

    @property
    def size(self) -> int:
        """How many bytes it brings, before compression."""
        return 0 if self.put is None else self.put.value.blob.size


class RecordRow(msgspec.Struct, frozen=True, array_like=True):
    """A record as it is stored, without its scope and collection."""

    key: str
    version: int
    form: str
    hash: str
    codec: str
    size: int
    content: Annotated[bytes, RECORD]
    index_1: str | None
    index_2: str | None
    index_3: str | None
    index_4: str | None
    expires_at_ms: int | None
    created_at_ms: int
    updated_at_ms: int

    @property
    def fields(self) -> tuple[str | None, ...]:
        return self.index_1, self.index_2, self.index_3, self.index_4


def check_name(collection: object, key: object, session_id: object) -> RecordName:
    """Return the name of a record, or raise InvalidInput."""
    return RecordName(check_scope(session_id), check_collection(collection), check_identifier("key", key))


def check_scope(session_id: object) -> str | None:
    """Return the session that owns records; None for the storage's scope."""
    return None if session_id is None else check_identifier("session_id", session_id)


def check_collection(collection: object) -> str:
    """Return the collection, or raise InvalidInput."""
    name = check_identifier("collection", collection)
    if len(name) > MAX_COLLECTION_LENGTH:
        raise InvalidInput(f"collection has {len(name)} characters; at most {MAX_COLLECTION_LENGTH} are allowed")
    return name


def encode_put(put: RecordPut, value: StoredValue) -> EncodedChange:
    """Return a checked put, with the stored form of its value."""
    if put.ttl_ms is not None and put.expires_at_ms is not None:
        raise InvalidInput("expected ttl_ms or expires_at_ms, got both")
    if value.blob.size > MAX_VALUE_BYTES:
        limit = f"at most {MAX_VALUE_BYTES:,} are allowed"
        raise InvalidInput(f"the value of record {put.key!r} has {value.blob.size:,} bytes; {limit}")
    return EncodedChange(
        name=check_name(put.collection, put.key, put.session_id),
        expected_version=_check_version(put.expected_version),
        put=EncodedPut(
            value=value,
            fields=encode_fields(put.index),
            ttl_ms=None if put.ttl_ms is None else check_integer("ttl_ms", put.ttl_ms, at_least=1),
            expires_at_ms=None if put.expires_at_ms is None else check_integer("expires_at_ms", put.expires_at_ms),
        ),
    )


def encode_delete(delete: RecordDelete) -> EncodedChange:
    """Return a checked deletion."""
    return EncodedChange(
        name=check_name(delete.collection, delete.key, delete.session_id),
        expected_version=_check_version(delete.expected_version),
        put=None,
    )


def check_kinds(changes: object, kinds: tuple[type[RecordChange], ...]) -> Sequence[RecordChange]:
    """Return the changes if all are of these kinds, or raise InvalidInput."""
    wanted = " or ".join(kind.__name__ for kind in kinds)
    if not isinstance(changes, list | tuple):
        raise InvalidInput(f"expected a tuple of {wanted}, got {type(changes).__name__}")
    for each in changes:
        if not isinstance(each, kinds):
            raise InvalidInput(f"expected {wanted}, got {type(each).__name__}")
    return changes


def check_changes(changes: Sequence[EncodedChange]) -> None:
    """Raise InvalidInput if a record is changed twice."""
    seen: set[RecordName] = set()
    for each in changes:
        if each.name in seen:
            raise InvalidInput(f"record {each.name.key!r} of collection {each.name.collection!r} is changed twice")
        seen.add(each.name)


def check_call(changes: Sequence[EncodedChange]) -> None:
    """Raise InvalidInput if one call changes too many records, or one of them twice, or brings too many bytes."""
    if len(changes) > MAX_PAGE:
        raise InvalidInput(f"one call changes at most {MAX_PAGE:,} records, got {len(changes):,}")
    check_changes(changes)
    size = sum(each.size for each in changes)
    if size > MAX_CALL_BYTES:
        raise InvalidInput(f"one call writes at most {MAX_CALL_BYTES:,} bytes of records, got {size:,}")


def is_brief(changes: Sequence[EncodedChange]) -> bool:
    """Return whether the changes are small enough to be written on the event loop."""
    return len(changes) <= _BRIEF_CHANGES and sum(each.size for each in changes) <= _BRIEF_BYTES


def require_versions(changes: Iterable[EncodedChange], versions: Mapping[RecordName, int]) -> None:
    """Raise RecordConflict for the first change that expects another version; ``versions`` lacks absent records."""
    for each in changes:
        actual = versions.get(each.name, 0)
        if each.expected_version is not None and each.expected_version != actual:
            raise RecordConflict(*each.name, expected=each.expected_version, actual=actual)


def expected_versions(changes: Iterable[EncodedChange]) -> dict[RecordName, int]:
    """Return the versions under which all changes are allowed."""
    return {each.name: each.expected_version for each in changes if each.expected_version}


def version_of(version: int, expires_at_ms: int | None, now_ms: int) -> int:
    """Return the version of a stored record; 0 if it has expired."""
    return 0 if expires_at_ms is not None and expires_at_ms <= now_ms else version


def encode_fields(index: object) -> tuple[str | None, ...]:
    """Return index fields as texts ``name=value`` in their order, and None for each column that stays empty."""
    pairs = sorted(_pairs("index", index))
    return *pairs, *(None for _ in range(MAX_FIELDS - len(pairs)))


def encode_where(where: object) -> tuple[str, ...]:
    """Return the fields that a page asks for, in the order given, because the first one is read by its index."""
    return () if where is None else _pairs("where", where)


def decode_fields(fields: Sequence[str | None]) -> dict[str, str]:
    """Return stored index fields as a dict, or raise CorruptData."""
    pairs = [field.partition("=") for field in fields if field is not None]
    index = {name: value for name, _, value in pairs}
    try:
        if encode_fields(index) == tuple(fields):
            return index
    except InvalidInput as error:
        raise CorruptData(f"its index fields cannot be read: {error}") from None
    raise CorruptData("its index fields are not in order")


def _pairs(what: str, index: object) -> tuple[str, ...]:
    if not isinstance(index, Mapping):
        raise InvalidInput(f"{what} must be a dict of names and texts, not {type(index).__name__}")
    if len(index) > MAX_FIELDS:
        raise InvalidInput(f"{what} has {len(index)} fields; at most {MAX_FIELDS} are allowed")
    return tuple(f"{_check_field(what, name)}={check_identifier(f'{what}.{name}', index[name])}" for name in index)


def _check_field(what: str, name: object) -> str:
    if not isinstance(name, str) or not _FIELD.fullmatch(name):
        raise InvalidInput(f"{what}: expected a name of at most 32 letters, digits and underscores, got {name!r:.80}")
    return name


def _check_version(version: object) -> int | None:
    return None if version is None else check_integer("expected_version", version, at_least=0)
