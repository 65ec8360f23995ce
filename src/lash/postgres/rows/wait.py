"""The rows of durable waits on PostgreSQL."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from typing import Final

from lash.errors import CorruptData, StoreUnavailable
from lash.plan.process.process import missing_process
from lash.plan.sealed import QUESTION, RESOLUTION, SECRET
from lash.plan.wait import SECRET_BYTES, SECRET_NAME, TIMED_OUT, SessionLife, StoredKey, WaitAnswer, WaitRow, WaitState
from lash.postgres.engine.database import Database
from lash.postgres.rows.session.lookup import missing
from lash.sqlkit.rows import Content, Flag, Number

_MAX_TRIES: Final = 5
"""More concurrent writes of one wait are a fault, not a race: each resolves it, or sets its deadline, once."""


class PostgresWaitRows:
    """The waits of one PostgreSQL storage; the contract is `lash.stores.wait.WaitRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def secret(self) -> bytes:
        kept = await self._database.read_one(Content, "wait_secret")
        if kept is None:
            made = secrets.token_bytes(SECRET_BYTES)
            # Another storage may store one first; every storage uses the stored one.
            sealed = self._database.seals.content(SECRET, made, SECRET_NAME)
            await self._database.write_one(Flag, "wait_keep_secret", sealed, repeatable=True)
            kept = await self._database.read_one(Content, "wait_secret")
        if kept is None:
            raise CorruptData("query wait_secret returned no row after the secret was stored")
        return self._database.seals.open_content(SECRET, kept.content, SECRET_NAME)

    async def session_life(self, session_id: str) -> SessionLife:
        life = await self._database.read_one(SessionLife, "wait_session_life", session_id)
        if life is None:
            raise await missing(self._database, session_id)
        return life

    async def process_life(self, process_id: str) -> int:
        life = await self._database.read_one(Number, "wait_process_life", process_id)
        if life is None:
            pruned = await self._database.read_one(Flag, "process_is_pruned", process_id)
            raise missing_process(process_id, pruned=pruned is not None and pruned.value)
        return life.number

    async def open(self, key: StoredKey, timeout_ms: int | None, ask: str | None) -> WaitAnswer:
        def could_write(row: WaitRow) -> bool:
            brings_deadline = timeout_ms is not None and row.deadline_ms is None
            return row.resolution is None and (brings_deadline or (ask is not None and row.ask is None))

        sealed = self._database.seals.text(QUESTION, ask, key.key_id)
        return await self._write("wait_open", key, (timeout_ms, sealed), could_write)

    async def resolve(self, key: StoredKey, resolution: str, *, checked: bool) -> WaitAnswer:
        def could_write(row: WaitRow) -> bool:
            return row.resolution is None and (checked or row.ask is None)

        sealed = self._database.seals.text(RESOLUTION, resolution, key.key_id)
        return await self._write("wait_resolve", key, (sealed, checked), could_write)

    async def row(self, key_id: str) -> WaitRow | None:
        return await self._database.read_one(WaitRow, "wait_row", key_id)

    async def states(self, key_ids: Collection[str]) -> list[WaitState]:
        return await self._database.read_all(WaitState, "wait_states", list(key_ids))

    async def expire(self, key_ids: Collection[str] | None, limit: int) -> int:
        arguments = (TIMED_OUT, limit, None if key_ids is None else list(key_ids))
        expired = await self._database.write_one(Number, "wait_expire", *arguments, repeatable=True)
        return 0 if expired is None else expired.number

    async def revoke(self, session_id: str) -> int:
        async with self._database.transaction() as transaction:
            # A separate statement, so that the next ones see what others committed while this one waited.
            session = await transaction.one(Number, "wait_lock_session", session_id)
            if session is None:
                return 0
            await transaction.run("wait_revoke", session.number)
            return await transaction.run("wait_drop_session", session.number)

    async def pending(self, scope_id: str | None, limit: int, after: str) -> list[WaitRow]:
        if scope_id is None:
            return await self._database.read_all(WaitRow, "wait_pending", after, limit)
        return await self._database.read_all(WaitRow, "wait_pending_in_scope", after, limit, scope_id)

    async def prune(self, resolved_before_ms: int, limit: int) -> int:
        pruned = await self._database.write_one(Number, "wait_prune", resolved_before_ms, limit, repeatable=True)
        return 0 if pruned is None else pruned.number

    async def _write(
        self, query: str, key: StoredKey, values: tuple[str | int | None, ...], could_write: Callable[[WaitRow], bool]
    ) -> WaitAnswer:
        """Run a guarded statement; retry it if a concurrent one wrote the same wait."""
        for _ in range(_MAX_TRIES):
            answer = await self._database.write_one(
                WaitAnswer,
                query,
                *(key.key_id, key.scope_id, key.scope, key.identity),
                *(key.session_key, key.revocations, key.process_key, *values),
                repeatable=True,
            )
            if answer is not None and not _is_overtaken(answer, could_write):
                return answer
        raise StoreUnavailable(f"wait {key.key_id} changed {_MAX_TRIES} times while it was written")


def _is_overtaken(answer: WaitAnswer, could_write: Callable[[WaitRow], bool]) -> bool:
    """Return whether a concurrent statement wrote the wait, so that the answer shows the state before that write.

    Then the snapshot has no row, or has one that this statement should have written to but did not.
    """
    if not answer.lives or answer.written:
        return False
    return answer.row is None or could_write(answer.row)
