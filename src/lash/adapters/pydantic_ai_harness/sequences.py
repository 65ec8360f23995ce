"""Records in the order in which they were added, each once for an idempotency key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from lash.adapters.names import short
from lash.errors import RecordConflict
from lash.model.record import Record, RecordPut, RecordValue
from lash.stores.record import RecordStore

_PAGE: Final = 500


def part(text: str) -> str:
    """Return an id of the harness as a part of a key: whatever it contains, it is never a prefix of another one."""
    return short(quote(text, safe=""), 100)


async def append(
    records: RecordStore,
    collection: str,
    run: str,
    value: RecordValue,
    once: str | None,
    *,
    index: Mapping[str, str] | None = None,
    beside: Sequence[RecordPut] = (),
) -> bool:
    """Add a record to those of a run, and others with it; return False if its idempotency key was used before."""
    used = f"{run}/{part(once)}" if once is not None else ""
    while True:
        last = await records.list(collection, prefix=f"{run}/", limit=1, reverse=True)
        number = int(last[0].key.rpartition("/")[2]) + 1 if last else 1
        puts = [
            RecordPut(
                collection=collection, key=f"{run}/{number:012}", value=value, index=index or {}, expected_version=0
            ),
            *beside,
        ]
        if once is not None:
            puts.append(RecordPut(collection=f"{collection}_key", key=used, value=number, expected_version=0))
        try:
            await records.put_many(puts)
        except RecordConflict:
            # Another writer was first: with this number, or with this key.
            if once is not None and await records.get(f"{collection}_key", used) is not None:
                return False
        else:
            return True


async def every(
    records: RecordStore, collection: str, prefix: str, where: Mapping[str, str] | None = None
) -> list[Record]:
    """Return all records whose keys have a prefix, in the order of their keys."""
    found: list[Record] = []
    while True:
        page = await records.list(
            collection, prefix=prefix, where=where or None, after=found[-1].key if found else None, limit=_PAGE
        )
        found += page
        if len(page) < _PAGE:
            return found
