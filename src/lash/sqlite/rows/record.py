"""The rows of records on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from lash.backend.record import PAGES
from lash.backend.seal import seal_record
from lash.plan.key_range import KeyRange
from lash.plan.record import (
    EncodedChange,
    EncodedPut,
    RecordName,
    RecordRow,
    is_brief,
    version_of,
)
from lash.sqlite.engine.database import Database, Reader, SQLiteValue, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.session.lookup import find_session_key
from lash.sqlkit.rows import Text
from lash.stores.record import CheckVersions

T = TypeVar("T")
_SHORT: Final = 20
"""So many records are read on the event loop, which costs less than a thread."""
_STORAGE: Final = 0
"""The key of the storage's scope; sessions are numbered from 1."""


class RecordState(msgspec.Struct, frozen=True, array_like=True):
    """What a change must know of the stored record."""

    version: int
    expires_at_ms: int | None
    created_at_ms: int


class SQLiteRecordRows:
    """The records of one SQLite storage; the contract is `lash.stores.record.RecordRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(
        self, session_id: str | None, collection: str, keys: Sequence[str], decode: Callable[[RecordRow], T]
    ) -> list[T]:
        wanted = json_array(keys)

        def body(reader: Reader) -> list[T]:
            scope_key, now_ms = _scope_key(reader, session_id), reader.now_ms
            rows = reader.all(
                RecordRow, "record_get", scope_key=scope_key, collection=collection, keys=wanted, now_ms=now_ms
            )
            return [decode(row) for row in rows]

        return await self._read(body, len(keys))

    async def page(
        self,
        session_id: str | None,
        collection: str,
        keys: KeyRange,
        where: Sequence[str],
        limit: int,
        decode: Callable[[RecordRow], T],
        *,
        reverse: bool,
    ) -> list[T]:
        query = PAGES[bool(where), reverse]

        def body(reader: Reader) -> list[T]:
            parameters: dict[str, SQLiteValue] = {
                "scope_key": _scope_key(reader, session_id),
                "collection": collection,
                "first": keys.first,
                "end": keys.end,
                "limit": limit,
                "now_ms": reader.now_ms,
            }
            if where:
                names = ("field", "second", "third", "fourth")
                parameters |= dict.fromkeys(names) | dict(zip(names, where, strict=False))
            return [decode(row) for row in reader.all(RecordRow, query, **parameters)]

        return await self._read(body, limit)

    async def apply(self, changes: Sequence[EncodedChange], check: CheckVersions) -> list[int]:
        def body(transaction: Transaction) -> list[int]:
            states = record_states(transaction, changes)
            versions = state_versions(states, transaction.now_ms)
            check(versions)
            write_records(transaction, [seal_record(transaction.seals, each) for each in changes], states)
            return [versions.get(each.name, 0) for each in changes]

        write = self._database.write_briefly if is_brief(changes) else self._database.write
        return await write(body)

    async def collections(self, session_id: str | None) -> list[str]:
        def body(reader: Reader) -> list[Text]:
            return reader.all(Text, "record_collections", scope_key=_scope_key(reader, session_id))

        return [row.text for row in self._database.read(body)]

    async def prune(self, expired_before_ms: int | None, limit: int) -> int:
        def body(transaction: Transaction) -> int:
            before_ms = transaction.now_ms + 1 if expired_before_ms is None else expired_before_ms
            return transaction.run("record_prune", before_ms=before_ms, limit=limit)

        return await self._database.write(body)

    async def _read(self, body: Callable[[Reader], list[T]], count: int) -> list[T]:
        return self._database.read(body) if count <= _SHORT else await self._database.read_in_thread(body)


def record_states(reader: Reader, changes: Sequence[EncodedChange]) -> dict[RecordName, RecordState]:
    """Return the stored states of the records that are changed, of expired ones too."""
    scopes: dict[str | None, int] = {}
    states: dict[RecordName, RecordState] = {}
    for each in changes:
        session_id, collection, key = each.name
        if session_id not in scopes:
            scopes[session_id] = _scope_key(reader, session_id)
        found = reader.one(RecordState, "record_state", scope_key=scopes[session_id], collection=collection, key=key)
        if found is not None:
            states[each.name] = found
    return states


def state_versions(states: Mapping[RecordName, RecordState], now_ms: int) -> dict[RecordName, int]:
    """Return the versions of records, 0 for expired ones."""
    return {name: version_of(state.version, state.expires_at_ms, now_ms) for name, state in states.items()}


def write_records(
    transaction: Transaction, changes: Sequence[EncodedChange], states: Mapping[RecordName, RecordState]
) -> None:
    """Make the changes; their versions were checked on these states."""
    scopes: dict[str | None, int] = {}
    for each in changes:
        session_id = each.name.session_id
        if session_id not in scopes:
            scopes[session_id] = _scope_key(transaction, session_id)
        if each.put is not None:
            _put(transaction, each.name, each.put, scopes[session_id], states.get(each.name))
        elif each.name in states:
            name = {"collection": each.name.collection, "key": each.name.key}
            transaction.run("record_delete", scope_key=scopes[session_id], **name)


def _put(
    transaction: Transaction, name: RecordName, put: EncodedPut, scope_key: int, state: RecordState | None
) -> None:
    now_ms, blob = transaction.now_ms, put.value.blob
    before = 0 if state is None else version_of(state.version, state.expires_at_ms, now_ms)
    index_1, index_2, index_3, index_4 = put.fields
    transaction.run(
        "record_put",
        scope_key=scope_key,
        collection=name.collection,
        key=name.key,
        session_key=None if name.session_id is None else scope_key,
        version=before + 1,
        form=put.value.form,
        hash=blob.ref,
        codec=blob.codec.value,
        size=blob.size,
        content=blob.content,
        index_1=index_1,
        index_2=index_2,
        index_3=index_3,
        index_4=index_4,
        expires_at_ms=put.expiry(now_ms),
        created_at_ms=state.created_at_ms if state is not None and before else now_ms,
        now_ms=now_ms,
    )


def _scope_key(reader: Reader, session_id: str | None) -> int:
    """Return the key of a scope, or raise SessionNotFound or SessionDeleted."""
    return _STORAGE if session_id is None else find_session_key(reader, session_id)
