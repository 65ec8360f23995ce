"""The records of a storage, and the stored form of their values, over the rows of either database."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final, cast

from lash.base.codec import decode, encode_to_bytes
from lash.base.compression import Compression, pack, unpack_stored
from lash.base.limits import MAX_PAGE, check_identifier, check_integer, check_limit
from lash.errors import CorruptData, InvalidInput
from lash.model.record import Record, RecordChange, RecordDelete, RecordPut, RecordValue
from lash.model.session.commit import Commit
from lash.model.value import JSON
from lash.plan.key_range import key_range
from lash.plan.record import (
    EncodedChange,
    RecordName,
    RecordRow,
    StoredValue,
    check_call,
    check_collection,
    check_kinds,
    check_name,
    check_scope,
    decode_fields,
    encode_delete,
    encode_put,
    encode_where,
    require_versions,
)
from lash.stores.record import RecordRows

PAGES: Final = {
    (False, False): "record_page",
    (False, True): "record_page_back",
    (True, False): "record_page_by_index",
    (True, True): "record_page_by_index_back",
}
"""The query of a page, by whether it is read by an index field and whether it is read from the end."""
JSON_FORM: Final = "json"
BYTES_FORM: Final = "bytes"


class RecordValues:
    """Turns values into their stored form and back. All values of records go through it."""

    def __init__(self, compression: Compression) -> None:
        self._compression = compression

    def encode(self, name: RecordName, value: RecordValue) -> StoredValue:
        """Return the stored form of a value, or raise InvalidInput."""
        if isinstance(value, bytes):
            return StoredValue(form=BYTES_FORM, blob=pack(value, self._compression))
        content = encode_to_bytes(value, object, f"the value of record {name.key!r}")
        return StoredValue(form=JSON_FORM, blob=pack(content, self._compression))

    def decode(self, row: RecordRow) -> RecordValue:
        """Return the value of a row, or raise CorruptData."""
        content = unpack_stored(row.hash, row.codec, row.size, row.content)
        if row.form == BYTES_FORM:
            return content
        if row.form != JSON_FORM:
            raise CorruptData(f"record {row.key!r} has the unknown form {row.form!r}")
        # Whatever JSON decodes to is a value of a record.
        return cast("JSON", decode(content, object, f"the value of record {row.key!r}"))

    def encode_changes(self, changes: Sequence[RecordChange]) -> tuple[EncodedChange, ...]:
        """Return checked changes; whether they may be made together is for the caller to check."""
        check_kinds(changes, (RecordPut, RecordDelete))
        return tuple(self._encode_put(each) if isinstance(each, RecordPut) else encode_delete(each) for each in changes)

    def encode_records(self, commit: object) -> tuple[EncodedChange, ...]:
        """Return the changes that a commit makes to records; none for what is not a commit, which is refused later."""
        return self.encode_changes(commit.records) if isinstance(commit, Commit) and commit.records else ()

    def _encode_put(self, put: RecordPut) -> EncodedChange:
        name = check_name(put.collection, put.key, put.session_id)
        return encode_put(put, self.encode(name, put.value))


class Records:
    """The records of one storage; the contract is `lash.stores.record.RecordStore`."""

    def __init__(self, rows: RecordRows, values: RecordValues) -> None:
        self._rows = rows
        self._values = values

    async def get(self, collection: str, key: str, *, session_id: str | None = None) -> Record | None:
        found = await self.get_many(collection, (key,), session_id=session_id)
        return found.get(key)

    async def get_many(
        self, collection: str, keys: Collection[str], *, session_id: str | None = None
    ) -> dict[str, Record]:
        scope, name = check_scope(session_id), check_collection(collection)
        if isinstance(keys, str) or not isinstance(keys, Collection):
            raise InvalidInput(f"keys must be a list of keys, not {type(keys).__name__}")
        wanted = list(dict.fromkeys(check_identifier("keys", key) for key in keys))
        if len(wanted) > MAX_PAGE:
            raise InvalidInput(f"one call reads at most {MAX_PAGE:,} records, got {len(wanted):,} keys")
        found = await self._rows.load(scope, name, wanted, partial(self._record, scope, name))
        return {record.key: record for record in found}

    async def put(
        self,
        collection: str,
        key: str,
        value: RecordValue,
        *,
        session_id: str | None = None,
        index: Mapping[str, str] | None = None,
        ttl_ms: int | None = None,
        expires_at_ms: int | None = None,
        expected_version: int | None = None,
    ) -> int:
        put = RecordPut(
            collection=collection,
            key=key,
            value=value,
            session_id=session_id,
            index={} if index is None else index,
            ttl_ms=ttl_ms,
            expires_at_ms=expires_at_ms,
            expected_version=expected_version,
        )
        return (await self.put_many((put,)))[0]

    async def put_many(self, puts: Sequence[RecordPut]) -> tuple[int, ...]:
        before = await self._apply(check_kinds(puts, (RecordPut,)))
        return tuple(version + 1 for version in before)

    async def delete(
        self, collection: str, key: str, *, session_id: str | None = None, expected_version: int | None = None
    ) -> bool:
        delete = RecordDelete(collection=collection, key=key, session_id=session_id, expected_version=expected_version)
        return await self.delete_many((delete,)) > 0

    async def delete_many(self, deletes: Sequence[RecordDelete]) -> int:
        before = await self._apply(check_kinds(deletes, (RecordDelete,)))
        return sum(version > 0 for version in before)

    async def list(
        self,
        collection: str,
        *,
        session_id: str | None = None,
        prefix: str = "",
        where: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int = 100,
        reverse: bool = False,
    ) -> tuple[Record, ...]:
        scope, name = check_scope(session_id), check_collection(collection)
        keys, fields = key_range(prefix, after, reverse=reverse), encode_where(where)
        decode_row = partial(self._record, scope, name)
        size = check_limit(limit)
        return tuple(await self._rows.page(scope, name, keys, fields, size, decode_row, reverse=reverse))

    async def collections(self, *, session_id: str | None = None) -> tuple[str, ...]:
        return tuple(await self._rows.collections(check_scope(session_id)))

    async def prune(self, *, expired_before_ms: int | None = None, limit: int = 100) -> int:
        before_ms = None if expired_before_ms is None else check_integer("expired_before_ms", expired_before_ms)
        return await self._rows.prune(before_ms, check_limit(limit))

    async def _apply(self, changes: Sequence[RecordChange]) -> Sequence[int]:
        encoded = self._values.encode_changes(changes)
        check_call(encoded)
        return await self._rows.apply(encoded, partial(require_versions, encoded)) if encoded else ()

    def _record(self, session_id: str | None, collection: str, row: RecordRow) -> Record:
        return Record(
            collection=collection,
            key=row.key,
            session_id=session_id,
            value=self._values.decode(row),
            version=row.version,
            index=decode_fields(row.fields),
            expires_at_ms=row.expires_at_ms,
            created_at_ms=row.created_at_ms,
            updated_at_ms=row.updated_at_ms,
        )
