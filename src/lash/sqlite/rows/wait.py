"""The rows of durable waits on SQLite."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from lash.base.limits import saturating_add
from lash.errors import CorruptData
from lash.plan.process.process import missing_process
from lash.plan.sealed import QUESTION, RESOLUTION, SECRET
from lash.plan.session.session import missing_session
from lash.plan.wait import SECRET_BYTES, SECRET_NAME, TIMED_OUT, SessionLife, StoredKey, WaitAnswer, WaitRow, WaitState
from lash.sqlite.engine.database import Database, Reader, SQLiteValue, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.session.lookup import is_deleted
from lash.sqlkit.rows import Content, Flag, Number

_LONG_READ: Final = 100
"""A read about more waits than this runs in a thread: it would block the event loop for too long."""


class _Process(msgspec.Struct, frozen=True, array_like=True):
    """The process of a wait that was resolved, if it belongs to one."""

    process_key: int | None


class SQLiteWaitRows:
    """The waits of one SQLite storage; the contract is `lash.stores.wait.WaitRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def secret(self) -> bytes:
        kept = self._database.read(lambda reader: reader.one(Content, "wait_secret"))
        if kept is None:
            made = secrets.token_bytes(SECRET_BYTES)
            kept = await self._database.write(lambda transaction: _keep_secret(transaction, made))
        return self._database.seals.open_content(SECRET, kept.content, SECRET_NAME)

    async def session_life(self, session_id: str) -> SessionLife:
        def body(reader: Reader) -> SessionLife:
            life = reader.one(SessionLife, "wait_session_life", session_id=session_id)
            if life is None:
                raise missing_session(session_id, deleted=is_deleted(reader, session_id))
            return life

        return self._database.read(body)

    async def process_life(self, process_id: str) -> int:
        def body(reader: Reader) -> int:
            life = reader.one(Number, "wait_process_life", process_id=process_id)
            if life is None:
                pruned = reader.one(Flag, "process_is_pruned", process_id=process_id)
                raise missing_process(process_id, pruned=pruned is not None and pruned.value)
            return life.number

        return self._database.read(body)

    async def open(self, key: StoredKey, timeout_ms: int | None, ask: str | None) -> WaitAnswer:
        def body(transaction: Transaction) -> WaitAnswer:
            if not _lives(transaction, key):
                return _unknown(transaction)
            deadline_ms = None if timeout_ms is None else saturating_add(transaction.now_ms, timeout_ms)
            sealed = transaction.seals.text(QUESTION, ask, key.key_id)
            written = transaction.run("wait_open", deadline_ms=deadline_ms, ask=sealed, **_columns(transaction, key))
            return _answer(transaction, key, written=written > 0)

        return await self._database.write_briefly(body)

    async def resolve(self, key: StoredKey, resolution: str, *, checked: bool) -> WaitAnswer:
        def body(transaction: Transaction) -> WaitAnswer:
            if not _lives(transaction, key):
                return _unknown(transaction)
            sealed = transaction.seals.text(RESOLUTION, resolution, key.key_id)
            columns = _columns(transaction, key)
            written = transaction.run("wait_resolve", resolution=sealed, checked=int(checked), **columns)
            if written:
                _note_resolved(transaction, [_Process(key.process_key)])
            return _answer(transaction, key, written=written > 0)

        return await self._database.write_briefly(body)

    async def row(self, key_id: str) -> WaitRow | None:
        return self._database.read(lambda reader: reader.one(WaitRow, "wait_row", key_id=key_id))

    async def states(self, key_ids: Collection[str]) -> list[WaitState]:
        wanted = json_array(key_ids)

        def body(reader: Reader) -> list[WaitState]:
            return reader.all(WaitState, "wait_states", key_ids=wanted, now_ms=reader.now_ms)

        is_long = len(key_ids) > _LONG_READ
        return await self._database.read_in_thread(body) if is_long else self._database.read(body)

    async def expire(self, key_ids: Collection[str] | None, limit: int) -> int:
        wanted = None if key_ids is None else json_array(key_ids)

        def body(transaction: Transaction) -> int:
            expired = transaction.all(
                _Process, "wait_expire", resolution=TIMED_OUT, key_ids=wanted, limit=limit, now_ms=transaction.now_ms
            )
            if expired:
                _note_resolved(transaction, expired)
            return len(expired)

        return await self._database.write(body)

    async def revoke(self, session_id: str) -> int:
        def body(transaction: Transaction) -> int:
            revoked = transaction.one(Number, "wait_revoke", session_id=session_id)
            if revoked is None:
                return 0
            transaction.run("wait_note_change")
            return transaction.run("wait_drop_session", session_key=revoked.number)

        return await self._database.write(body)

    async def pending(self, scope_id: str | None, limit: int, after: str) -> list[WaitRow]:
        def body(reader: Reader) -> list[WaitRow]:
            if scope_id is None:
                return reader.all(WaitRow, "wait_pending", limit=limit, after=after)
            return reader.all(WaitRow, "wait_pending_in_scope", scope_id=scope_id, limit=limit, after=after)

        return self._database.read(body)

    async def prune(self, resolved_before_ms: int, limit: int) -> int:
        return await self._database.write(
            lambda transaction: transaction.run("wait_prune", resolved_before_ms=resolved_before_ms, limit=limit)
        )


def _keep_secret(transaction: Transaction, made: bytes) -> Content:
    """Store the secret unless another storage stored one first; return the stored one."""
    sealed = transaction.seals.content(SECRET, made, SECRET_NAME)
    transaction.run("wait_keep_secret", secret=sealed, now_ms=transaction.now_ms)
    kept = transaction.one(Content, "wait_secret")
    if kept is None:
        raise CorruptData("query wait_secret returned no row after the secret was stored")
    return kept


def _note_resolved(transaction: Transaction, processes: Sequence[_Process]) -> None:
    """Count the change and wake the processes of resolved waits, in the transaction of the resolution."""
    transaction.run("wait_note_change")
    for process_key in {process.process_key for process in processes} - {None}:
        transaction.run("work_wake_own", process_key=process_key, now_ms=transaction.now_ms)


def _lives(transaction: Transaction, key: StoredKey) -> bool:
    flag = transaction.one(
        Flag,
        "wait_owner_lives",
        session_key=key.session_key,
        revocations=key.revocations,
        process_key=key.process_key,
    )
    return flag is not None and flag.value


def _columns(transaction: Transaction, key: StoredKey) -> dict[str, SQLiteValue]:
    return {
        "key_id": key.key_id,
        "scope_id": key.scope_id,
        "scope": key.scope,
        "identity": key.identity,
        "session_key": key.session_key,
        "process_key": key.process_key,
        "now_ms": transaction.now_ms,
    }


def _unknown(transaction: Transaction) -> WaitAnswer:
    return WaitAnswer(now_ms=transaction.now_ms, lives=False, written=False, row=None)


def _answer(transaction: Transaction, key: StoredKey, *, written: bool) -> WaitAnswer:
    row = transaction.one(WaitRow, "wait_row", key_id=key.key_id)
    return WaitAnswer(now_ms=transaction.now_ms, lives=True, written=written, row=row)
