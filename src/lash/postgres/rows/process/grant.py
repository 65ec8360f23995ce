"""The rows of grants on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from lash.errors import CorruptData
from lash.model.process.process import AgentScope, Grant
from lash.plan.process.grant import DetachAnswer, GrantEntryRow, GrantRow, frame_of
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.database import Database
from lash.postgres.rows.process.process import missing_record
from lash.sqlkit.rows import Flag


class _GrantsAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The grants of a process that exists."""

    process_key: int
    grants: list[GrantRow]


class _GrantedAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The processes that a scope has a grant of."""

    process_ids: list[str]


class PostgresGrantRows:
    """The grants of one PostgreSQL storage; the contract is `lash.stores.process.grant.GrantRows`."""

    def __init__(self, database: Database, cache: ProcessCache) -> None:
        self._database = database
        self._cache = cache

    async def upsert(self, grant: Grant) -> None:
        arguments = (*_columns(grant.scope), grant.process_id, grant.kind, grant.label)
        if await self._database.write_one(Flag, "grant_upsert", *arguments, repeatable=True) is None:
            raise await missing_record(self._database, self._cache, grant.process_id)

    async def revoke(self, scope: AgentScope, process_id: str) -> bool:
        arguments = (*_columns(scope), process_id)
        return await self._database.write_one(Flag, "grant_revoke", *arguments, repeatable=False) is not None

    async def transfer(
        self, from_scope: AgentScope, to_scope: AgentScope, process_ids: Sequence[str]
    ) -> Collection[str]:
        arguments = (*_columns(from_scope), *_columns(to_scope), list(process_ids))
        # Not repeated after a lost connection: a repetition after a success would not find the grants.
        held = await self._database.write_one(_GrantedAnswer, "grant_transfer", *arguments, repeatable=False)
        return frozenset() if held is None else frozenset(held.process_ids)

    async def page(self, scope: AgentScope, *, live_only: bool) -> list[GrantEntryRow]:
        return await self._database.read_all(GrantEntryRow, "grant_page", *_columns(scope), live_only)

    async def has(self, scope: AgentScope, process_id: str) -> bool:
        return await self._database.read_one(GrantRow, "grant_one", *_columns(scope), process_id) is not None

    async def of_process(self, process_id: str) -> list[GrantRow]:
        answer = await self._database.read_one(_GrantsAnswer, "grant_of_process", process_id)
        if answer is None:
            raise await missing_record(self._database, self._cache, process_id)
        return answer.grants

    async def detach_session(self, session_id: str) -> DetachAnswer:
        async with self._database.transaction() as transaction:
            answer = await transaction.one(DetachAnswer, "grant_detach", session_id)
            await transaction.run("event_lose_session", session_id)
        if answer is None:
            raise CorruptData("query grant_detach returned no row")
        return answer


def _columns(scope: AgentScope) -> tuple[str, str]:
    return (scope.session_id, frame_of(scope))
