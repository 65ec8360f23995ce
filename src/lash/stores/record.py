"""The contract of records, and the rows that a backend keeps for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from lash.model.record import Record, RecordDelete, RecordPut, RecordValue

if TYPE_CHECKING:
    from lash.plan.key_range import KeyRange
    from lash.plan.record import EncodedChange, RecordName, RecordRow

T = TypeVar("T")
CheckVersions: TypeAlias = "Callable[[Mapping[RecordName, int]], None]"
"""Raises RecordConflict unless the stored versions are the expected ones; absent records have version 0 or none."""


class RecordStore(Protocol):
    """Small values under a collection and a key, with a version for compare-and-set and an optional expiry.

    A record belongs to a session (``session_id``) and is deleted with it, or to the storage (None). Calls about a
    session raise SessionNotFound or SessionDeleted if it does not exist. `Commit.records` changes records with a
    commit. A put, a get and a page cost the same however many records the collection has.

    An expired record reads as absent, by the clock of the storage: its key is free, and the next put writes version 1.
    """

    async def get(self, collection: str, key: str, *, session_id: str | None = None) -> Record | None:
        """Return one record; None if it is absent or has expired."""
        ...

    async def get_many(
        self, collection: str, keys: Collection[str], *, session_id: str | None = None
    ) -> dict[str, Record]:
        """Return the records of at most 1,000 keys that exist, by key, as of one moment."""
        ...

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
        """Write a record and return its version: 1 for a new one, one more than before for an existing one.

        ``expected_version`` makes it a compare-and-set: n for this version, 0 for no record, None for any. Raises
        RecordConflict and writes nothing if another is stored. The put replaces the whole record, its index fields and
        its expiry included. ``index`` has at most 4 names with texts of up to 255 characters. ``ttl_ms`` counts from
        now by the storage's clock; ``expires_at_ms`` is absolute. A call whose connection was lost is not repeated: it
        raises StoreUnavailable with ``outcome_unknown``.
        """
        ...

    async def put_many(self, puts: Sequence[RecordPut]) -> tuple[int, ...]:
        """Write at most 1,000 records of any collections and owners, all or none, and return their versions in order.

        Raises InvalidInput if two of them have the same name.
        """
        ...

    async def delete(
        self, collection: str, key: str, *, session_id: str | None = None, expected_version: int | None = None
    ) -> bool:
        """Remove a record, and return whether there was one. ``expected_version`` is that of `put`."""
        ...

    async def delete_many(self, deletes: Sequence[RecordDelete]) -> int:
        """Remove at most 1,000 records, all or none, and return how many there were."""
        ...

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
        """Return at most ``limit`` records, ordered by key, code point by code point; ``reverse`` starts at the end.

        ``prefix`` is the start of their keys, ``where`` the values of their index fields. ``after`` is the key of the
        last record of the previous page. A page with fewer than ``limit`` is the last. With several fields in
        ``where``, the first is read by its index and the others are compared: put the rarest value first.
        """
        ...

    async def collections(self, *, session_id: str | None = None) -> tuple[str, ...]:
        """Return the collections that have a record, expired or not, sorted."""
        ...

    async def prune(self, *, expired_before_ms: int | None = None, limit: int = 100) -> int:
        """Remove at most ``limit`` records that expired before a moment, by default now, and return how many.

        Workers call it. Call it again until it returns 0.
        """
        ...


class RecordRows(Protocol):
    """The rows of records in one database; `lash.backend.record.Records` makes a `RecordStore` of them."""

    async def load(
        self, session_id: str | None, collection: str, keys: Sequence[str], decode: Callable[[RecordRow], T]
    ) -> list[T]:
        """Return what the function makes of the records of these keys that exist and have not expired."""
        ...

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
        """Return the first records of a range of keys, or the last ones if ``reverse``."""
        ...

    async def apply(self, changes: Sequence[EncodedChange], check: CheckVersions) -> list[int]:
        """Make all changes unless ``check`` raises; return the version that each record had before, 0 for none."""
        ...

    async def collections(self, session_id: str | None) -> list[str]: ...

    async def prune(self, expired_before_ms: int | None, limit: int) -> int: ...
