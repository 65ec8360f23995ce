"""Records of a session as lines, and records of a storage in a copy."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import AsyncIterator, Sequence

from msgspec import UNSET, UnsetType

from lash.errors import InvalidInput
from lash.model.record import Record, RecordPut, RecordValue
from lash.stores.storage import Storage
from lash.transfer.lines import RecordLine
from lash.transfer.pages import PAGE


async def record_lines(storage: Storage, session_id: str) -> tuple[RecordLine, ...]:
    """Return the records of a session, by collection and key."""
    return tuple([_line(record) async for page in _pages(storage, session_id) for record in page])


def put_of(line: RecordLine, session_id: str) -> RecordPut:
    """Return the put of a line's record, or raise InvalidInput."""
    return RecordPut(
        collection=line.collection,
        key=line.key,
        value=_value(line),
        session_id=session_id,
        index=line.index,
        expires_at_ms=line.expires_at_ms,
    )


async def copy_records(source: Storage, target: Storage) -> tuple[Counter[str], list[str]]:
    """Copy the records of the storage's scope: return how many were new and equal, and which differ in the target."""
    counts: Counter[str] = Counter()
    differing: list[str] = []
    async for page in _pages(source, None):
        collection = page[0].collection
        there = await target.records.get_many(collection, [record.key for record in page])
        for record in page:
            found = there.get(record.key)
            if found is None:
                await target.records.put_many((_put(record),))
                counts["copied"] += 1
            elif _put(found) == _put(record):
                counts["skipped"] += 1
            else:
                differing.append(f"{collection}/{record.key}")
    return counts, differing


async def _pages(storage: Storage, session_id: str | None) -> AsyncIterator[Sequence[Record]]:
    """Yield the records of one owner in pages, each of one collection."""
    for collection in await storage.records.collections(session_id=session_id):
        after: str | None = None
        while page := await storage.records.list(collection, session_id=session_id, after=after, limit=PAGE):
            yield page
            after = page[-1].key


def _put(record: Record) -> RecordPut:
    return RecordPut(
        collection=record.collection,
        key=record.key,
        value=record.value,
        index=record.index,
        expires_at_ms=record.expires_at_ms,
        expected_version=0,
    )


def _line(record: Record) -> RecordLine:
    value = record.value
    return RecordLine(
        collection=record.collection,
        key=record.key,
        json=UNSET if isinstance(value, bytes) else value,
        base64=base64.b64encode(value).decode() if isinstance(value, bytes) else UNSET,
        index=record.index,
        expires_at_ms=record.expires_at_ms,
    )


def _value(line: RecordLine) -> RecordValue:
    if isinstance(line.base64, UnsetType):
        if isinstance(line.json, UnsetType):
            raise InvalidInput(f"record {line.key!r:.80} has neither json nor base64")
        return line.json
    if not isinstance(line.json, UnsetType):
        raise InvalidInput(f"record {line.key!r:.80} has both json and base64")
    try:
        return base64.b64decode(line.base64, validate=True)
    except ValueError as error:
        raise InvalidInput(f"record {line.key!r:.80}: its value is not base64: {error}") from None
