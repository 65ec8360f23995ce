"""Grants on SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from lash.base.limits import check_identifier
from lash.errors import GrantNotFound
from lash.model.process.process import ChangeKind, Grant, GrantEntry, Scope, SessionDetached
from lash.plan.process.grant import (
    DetachedRow,
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
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlite.rows.process.event import find_process, note_change
from lash.sqlkit.rows import Text


class SQLiteGrantStore:
    """The grants of one SQLite storage; the contract is `lash.stores.process.grant.GrantStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def grant(self, grant: Grant) -> Grant:
        check_grant(grant)

        def body(transaction: Transaction) -> Grant:
            _grant(transaction, find_process(transaction, grant.process_id).process_key, grant)
            return grant

        return await self._database.write(body)

    async def revoke(self, scope: Scope, process_id: str) -> bool:
        check_process_scope("scope", scope)
        check_identifier("process_id", process_id)
        return await self._database.write(lambda transaction: _revoke(transaction, scope, process_id))

    async def transfer(self, from_scope: Scope, to_scope: Scope, process_ids: Sequence[str]) -> None:
        check_process_scope("from_scope", from_scope)
        check_process_scope("to_scope", to_scope)
        wanted = check_process_ids(process_ids)

        def body(transaction: Transaction) -> None:
            for process_id in wanted:
                grant = _find(transaction, from_scope, process_id)
                if grant is None:
                    raise GrantNotFound(from_scope.session_id, process_id)
                _revoke(transaction, from_scope, process_id)
                moved = Grant(scope=to_scope, process_id=process_id, kind=grant.kind, label=grant.label)
                _grant(transaction, find_process(transaction, process_id).process_key, moved)

        await self._database.write(body)

    async def list(self, scope: Scope, *, live_only: bool = False) -> tuple[GrantEntry, ...]:
        check_process_scope("scope", scope)
        rows = await self._database.read_in_thread(
            lambda reader: reader.all(
                GrantEntryRow,
                "grant_page",
                session_id=scope.session_id,
                frame_id=frame_of(scope),
                live_only=int(live_only),
            )
        )
        return tuple(decode_grant_entry(row) for row in rows)

    async def has(self, scope: Scope, process_id: str) -> bool:
        check_process_scope("scope", scope)
        check_identifier("process_id", process_id)
        return self._database.read(lambda reader: _find(reader, scope, process_id)) is not None

    async def of_process(self, process_id: str) -> tuple[Grant, ...]:
        def body(reader: Reader) -> list[GrantRow]:
            find_process(reader, process_id)
            return reader.all(GrantRow, "grant_of_process", process_id=process_id)

        return tuple(decode_grant(row) for row in self._database.read(body))

    async def detach_session(self, session_id: str) -> SessionDetached:
        check_identifier("session_id", session_id)
        return await self._database.write(lambda transaction: detach_session(transaction, session_id))


def detach_session(transaction: Transaction, session_id: str) -> SessionDetached:
    """Cut a session off all processes, inside any write transaction."""
    running = transaction.all(DetachedRow, "grant_detached", session_id=session_id)
    revoked = transaction.run("grant_revoke_session", session_id=session_id)
    cleared = transaction.all(Text, "grant_clear_wake_target", session_id=session_id, now_ms=transaction.now_ms)
    for row in cleared:
        note_change(transaction, row.text, ChangeKind.CHANGED)
    transaction.run("event_lose_session", session_id=session_id)
    return detached(session_id, running, revoked=revoked, cleared=len(cleared))


def _find(reader: Reader, scope: Scope, process_id: str) -> Grant | None:
    row = reader.one(
        GrantRow, "grant_one", session_id=scope.session_id, frame_id=frame_of(scope), process_id=process_id
    )
    return None if row is None else decode_grant(row)


def _grant(transaction: Transaction, process_key: int, grant: Grant) -> None:
    transaction.run(
        "grant_upsert",
        session_id=grant.scope.session_id,
        frame_id=frame_of(grant.scope),
        process_key=process_key,
        kind=grant.kind,
        label=grant.label,
    )


def _revoke(transaction: Transaction, scope: Scope, process_id: str) -> bool:
    revoked = transaction.run(
        "grant_revoke", session_id=scope.session_id, frame_id=frame_of(scope), process_id=process_id
    )
    return revoked > 0
