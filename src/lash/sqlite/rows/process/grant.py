"""The rows of grants on SQLite."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lash.model.process.process import AgentScope, ChangeKind, Grant
from lash.plan.process.grant import DetachAnswer, DetachedRow, GrantEntryRow, GrantRow, frame_of
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlite.rows.process.process import find_process, note_change
from lash.sqlkit.rows import Text


class SQLiteGrantRows:
    """The grants of one SQLite storage; the contract is `lash.stores.process.grant.GrantRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def upsert(self, grant: Grant) -> None:
        def body(transaction: Transaction) -> None:
            key = find_process(transaction, grant.process_id).process_key
            _grant(transaction, grant.scope, key, grant.kind, grant.label)

        await self._database.write(body)

    async def revoke(self, scope: AgentScope, process_id: str) -> bool:
        return await self._database.write(lambda transaction: _revoke(transaction, scope, process_id))

    async def transfer(
        self, from_scope: AgentScope, to_scope: AgentScope, process_ids: Sequence[str]
    ) -> Collection[str]:
        def body(transaction: Transaction) -> Collection[str]:
            found = {each: row for each in process_ids if (row := _find(transaction, from_scope, each)) is not None}
            if len(found) == len(process_ids):
                for process_id, row in found.items():
                    _revoke(transaction, from_scope, process_id)
                    key = find_process(transaction, process_id).process_key
                    _grant(transaction, to_scope, key, row.kind, row.label)
            return found

        return await self._database.write(body)

    async def page(self, scope: AgentScope, *, live_only: bool) -> list[GrantEntryRow]:
        return await self._database.read_in_thread(
            lambda reader: reader.all(
                GrantEntryRow,
                "grant_page",
                session_id=scope.session_id,
                frame_id=frame_of(scope),
                live_only=int(live_only),
            )
        )

    async def has(self, scope: AgentScope, process_id: str) -> bool:
        return self._database.read(lambda reader: _find(reader, scope, process_id)) is not None

    async def of_process(self, process_id: str) -> list[GrantRow]:
        def body(reader: Reader) -> list[GrantRow]:
            find_process(reader, process_id)
            return reader.all(GrantRow, "grant_of_process", process_id=process_id)

        return self._database.read(body)

    async def detach_session(self, session_id: str) -> DetachAnswer:
        return await self._database.write(lambda transaction: detach_session(transaction, session_id))


def detach_session(transaction: Transaction, session_id: str) -> DetachAnswer:
    """Detach a session from all processes, inside any write transaction."""
    running = transaction.all(DetachedRow, "grant_detached", session_id=session_id)
    revoked = transaction.run("grant_revoke_session", session_id=session_id)
    cleared = transaction.all(Text, "grant_clear_wake_target", session_id=session_id, now_ms=transaction.now_ms)
    for row in cleared:
        note_change(transaction, row.text, ChangeKind.CHANGED)
    transaction.run("event_lose_session", session_id=session_id)
    return DetachAnswer(revoked, len(cleared), running)


def _find(reader: Reader, scope: AgentScope, process_id: str) -> GrantRow | None:
    return reader.one(
        GrantRow, "grant_one", session_id=scope.session_id, frame_id=frame_of(scope), process_id=process_id
    )


def _grant(transaction: Transaction, scope: AgentScope, process_key: int, kind: str | None, label: str | None) -> None:
    transaction.run(
        "grant_upsert",
        session_id=scope.session_id,
        frame_id=frame_of(scope),
        process_key=process_key,
        kind=kind,
        label=label,
    )


def _revoke(transaction: Transaction, scope: AgentScope, process_id: str) -> bool:
    revoked = transaction.run(
        "grant_revoke", session_id=scope.session_id, frame_id=frame_of(scope), process_id=process_id
    )
    return revoked > 0
