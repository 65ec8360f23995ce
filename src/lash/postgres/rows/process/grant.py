"""Grants on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from lash.base.limits import check_identifier
from lash.errors import CorruptData, GrantNotFound
from lash.model.process.process import Grant, GrantEntry, Scope, SessionDetached
from lash.plan.process.grant import (
    GrantEntryRow,
    GrantRow,
    check_grant,
    check_process_ids,
    decode_grant,
    decode_grant_entry,
    detached,
    frame_of,
)
from lash.plan.process.process import check_process_scope
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.database import Database
from lash.postgres.rows.process.append import missing_record
from lash.postgres.rows.process.rows import DetachAnswer, GrantsAnswer, HeldGrants
from lash.sqlkit.rows import Flag


class PostgresGrantStore:
    """The grants of one PostgreSQL storage; the contract is `lash.stores.process.grant.GrantStore`."""

    def __init__(self, database: Database, seen: ProcessCache) -> None:
        self._database = database
        self._seen = seen

    async def grant(self, grant: Grant) -> Grant:
        check_grant(grant)
        arguments = (*_columns(grant.scope), grant.process_id, grant.kind, grant.label)
        if await self._database.write_one(Flag, "grant_upsert", *arguments, repeatable=True) is None:
            raise await missing_record(self._database, self._seen, grant.process_id)
        return grant

    async def revoke(self, scope: Scope, process_id: str) -> bool:
        check_process_scope("scope", scope)
        check_identifier("process_id", process_id)
        arguments = (*_columns(scope), process_id)
        return await self._database.write_one(Flag, "grant_revoke", *arguments, repeatable=False) is not None

    async def transfer(self, from_scope: Scope, to_scope: Scope, process_ids: Sequence[str]) -> None:
        check_process_scope("from_scope", from_scope)
        check_process_scope("to_scope", to_scope)
        wanted = check_process_ids(process_ids)
        arguments = (*_columns(from_scope), *_columns(to_scope), list(wanted))
        # A repeat after a success would find the grants gone.
        held = await self._database.write_one(HeldGrants, "grant_transfer", *arguments, repeatable=False)
        found = set() if held is None else set(held.process_ids)
        for process_id in wanted:
            if process_id not in found:
                raise GrantNotFound(from_scope.session_id, process_id)

    async def list(self, scope: Scope, *, live_only: bool = False) -> tuple[GrantEntry, ...]:
        check_process_scope("scope", scope)
        rows = await self._database.read_all(GrantEntryRow, "grant_page", *_columns(scope), live_only)
        return tuple(decode_grant_entry(row) for row in rows)

    async def has(self, scope: Scope, process_id: str) -> bool:
        check_process_scope("scope", scope)
        check_identifier("process_id", process_id)
        return await self._database.read_one(GrantRow, "grant_one", *_columns(scope), process_id) is not None

    async def of_process(self, process_id: str) -> tuple[Grant, ...]:
        check_identifier("process_id", process_id)
        answer = await self._database.read_one(GrantsAnswer, "grant_of_process", process_id)
        if answer is None:
            raise await missing_record(self._database, self._seen, process_id)
        return tuple(decode_grant(row) for row in answer.grants)

    async def detach_session(self, session_id: str) -> SessionDetached:
        check_identifier("session_id", session_id)
        async with self._database.transaction() as transaction:
            answer = await transaction.one(DetachAnswer, "grant_detach", session_id)
            await transaction.run("event_lose_session", session_id)
        if answer is None:
            raise CorruptData(f"detaching session {session_id!r} answered nothing")
        return detached(session_id, answer.processes, revoked=answer.revoked, cleared=answer.cleared)


def _columns(scope: Scope) -> tuple[str, str]:
    return (scope.session_id, frame_of(scope))
