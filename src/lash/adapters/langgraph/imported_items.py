"""Reads the items of LangGraph's own stores."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from lash.adapters.importing import FoundPart, RawRow, Row, Source
from lash.adapters.importing.values import moment
from lash.adapters.langgraph import matching, namespaces
from lash.adapters.langgraph.store import ITEMS, ItemContent
from lash.base.shapes import read_json
from lash.errors import InvalidInput
from lash.model.record import RecordPut

_STORE: Final = "store"
_VECTORS: Final = "store_vectors"


async def item_pieces(source: Source, tables: frozenset[str]) -> AsyncIterator[FoundPart]:
    """Return a record for each item, with the embeddings of its texts."""
    async for row in source.rows(_STORE, order=("prefix", "key")):
        vectors: list[Row] = []
        if _VECTORS in tables:
            where = {"prefix": row["prefix"], "key": row["key"]}
            vectors = [each async for each in source.rows(_VECTORS, where=where, order=("field_name",))]
        yield _piece(row, vectors)


def _piece(row: Row, vectors: list[Row]) -> FoundPart:
    packed = {each["field_name"]: _packed(each["embedding"]) for each in vectors}
    raw = [
        RawRow(table=_VECTORS, row=each, reason="an embedding that is not a list of numbers")
        for each in vectors
        if packed[each["field_name"]] is None
    ]
    try:
        content = ItemContent(
            namespace=tuple(row["prefix"].split(".")),
            key=row["key"],
            value=read_json(row["value"], dict),
            created_at=moment(row["created_at"]),
            updated_at=moment(row["updated_at"]) or datetime.now(UTC),
            ttl_minutes=row.get("ttl_minutes"),
            vectors={name: vector for name, vector in packed.items() if vector is not None},
        )
        expires_at = moment(row.get("expires_at"))
        if expires_at is not None and expires_at <= datetime.now(UTC):
            return FoundPart(raw=[RawRow(table=_STORE, row=row, reason="it has expired"), *raw])
        put = RecordPut(
            collection=ITEMS,
            key=namespaces.item_key(content.namespace, content.key),
            value=msgspec.to_builtins(content),
            expires_at_ms=None if expires_at is None else int(expires_at.timestamp() * 1000),
        )
    except (msgspec.MsgspecError, InvalidInput, ValueError) as error:
        return FoundPart(raw=[RawRow(table=_STORE, row=row, reason=str(error)), *raw])
    return FoundPart(records=[put], raw=raw, counts={"item": 1})


def _packed(embedding: object) -> bytes | None:
    """Return an embedding as `LashStore` keeps it; None if it has another form."""
    if isinstance(embedding, bytes):
        return embedding if len(embedding) % array("f").itemsize == 0 else None
    if isinstance(embedding, str):
        try:
            return matching.pack_vector(read_json(embedding, list[float]))
        except msgspec.MsgspecError:
            return None
    return None
