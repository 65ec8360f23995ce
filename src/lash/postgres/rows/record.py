"""The rows of records on PostgreSQL: one statement for each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from lash.backend.record import PAGES
from lash.backend.seal import seal_record
from lash.base.backoff import MAX_PLANS
from lash.base.limits import MAX_PAGE
from lash.errors import CorruptData, StoreUnavailable
from lash.plan.key_range import KeyRange
from lash.plan.record import EncodedChange, RecordRow
from lash.postgres.arguments import columns
from lash.postgres.commit.record import record_columns
from lash.postgres.engine.database import Database
from lash.postgres.engine.errors import is_taken_key
from lash.postgres.rows.session.lookup import missing, require_session
from lash.sqlkit.rows import Number, Text
from lash.stores.record import CheckVersions

T = TypeVar("T")


class _Found(msgspec.Struct, frozen=True, array_like=True):
    """A record; None says that its scope exists and has none of the keys."""

    row: RecordRow | None


class _Answer(msgspec.Struct, frozen=True, array_like=True):
    """What a change found, and whether all changes were made."""

    is_owned: bool
    version: int
    made: bool


class PostgresRecordRows:
    """The records of one PostgreSQL storage; the contract is `lash.stores.record.RecordRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(
        self, session_id: str | None, collection: str, keys: Sequence[str], decode: Callable[[RecordRow], T]
    ) -> list[T]:
        found = await self._database.read_all(_Found, "record_get", session_id, collection, list(keys))
        if not found and session_id is not None:
            raise await missing(self._database, session_id)
        return [decode(each.row) for each in found if each.row is not None]

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
        fields = (*where, None, None, None)[:4] if where else ()
        rows = await self._database.read_all(RecordRow, query, session_id, collection, *keys, limit, *fields)
        if not rows and session_id is not None:
            await require_session(self._database, session_id)
        return [decode(row) for row in rows]

    async def apply(self, changes: Sequence[EncodedChange], check: CheckVersions) -> list[int]:
        sealed = [seal_record(self._database.seals, each) for each in changes]
        arguments = (*_arguments(sealed), MAX_PAGE)
        for _ in range(MAX_PLANS):
            try:
                answers = await self._database.write_all(_Answer, "record_apply", *arguments, repeatable=False)
            except CorruptData as error:
                # Another statement inserted one of the records meanwhile; the next try sees it.
                if not is_taken_key(error):
                    raise
                continue
            for each, answer in zip(changes, answers, strict=True):
                if not answer.is_owned and each.name.session_id is not None:
                    raise await missing(self._database, each.name.session_id)
            versions = [answer.version for answer in answers]
            check({each.name: found for each, found in zip(changes, versions, strict=True)})
            return versions
        raise StoreUnavailable(f"other callers inserted the same records {MAX_PLANS} times; try again")

    async def collections(self, session_id: str | None) -> list[str]:
        rows = await self._database.read_all(Text, "record_collections", session_id)
        if not rows and session_id is not None:
            await require_session(self._database, session_id)
        return [row.text for row in rows]

    async def prune(self, expired_before_ms: int | None, limit: int) -> int:
        pruned = await self._database.write_one(Number, "record_prune", expired_before_ms, limit, repeatable=True)
        return 0 if pruned is None else pruned.number


def _arguments(changes: Sequence[EncodedChange]) -> list[list[object]]:
    return columns((each.name.session_id, *record_columns(each)) for each in changes)
