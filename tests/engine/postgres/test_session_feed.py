"""The feed of sessions and transactions that commit out of order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

import lash
from lash.postgres.engine.options import PostgresOptions
from lash.stores.storage import Storage
from tests.factories.session import node, started

_RENAME = "UPDATE lash_sessions SET name = 'late', changed_xid = pg_current_xact_id() WHERE session_id = ANY ($1)"


async def test_a_change_that_commits_late_is_not_missed(postgres_schema_url: str) -> None:
    """Later transactions are read at once, and the late one when it has ended, in pages of one."""
    async with await lash.open(postgres_schema_url) as storage:
        for name in ("a", "b", "c"):
            await started(storage, name)
        cursor = await storage.sessions.changes_cursor()
        async with _writing(postgres_schema_url, ["a", "b"]) as slow:
            await storage.session("c").append((node("x"),))
            shown, cursor = await _read(storage, cursor)
            assert shown == ["c"]
            again, cursor = await _read(storage, cursor)
            assert again == []
            async with _writing(postgres_schema_url, ["c"]) as rolled_back:
                await started(storage, "d")
                shown, cursor = await _read(storage, cursor)
                assert shown == ["d"]
                await rolled_back.rollback()
            await slow.commit()
        shown, cursor = await _read(storage, cursor)
        assert shown == ["a", "b"]
        assert await _read(storage, cursor) == ([], cursor)


async def test_a_session_that_changes_all_the_time_is_read(postgres_schema_url: str) -> None:
    """An old open transaction holds nothing back, however often a session changes meanwhile."""
    async with await lash.open(postgres_schema_url) as storage:
        busy = await started(storage, "busy")
        await started(storage, "other")
        cursor = await storage.sessions.changes_cursor()
        async with _writing(postgres_schema_url, ["other"]):
            for number in range(3):
                await busy.append((node(f"x{number}"),))
                page = await storage.sessions.changes(cursor)
                cursor = page.cursor
                assert [(each.session_id, each.revision) for each in page.changes] == [("busy", number + 2)]


@asynccontextmanager
async def _writing(url: str, names: list[str]) -> AsyncIterator[asyncpg.transaction.Transaction]:
    """Change sessions in an open transaction of another connection."""
    options = PostgresOptions.from_url(url)
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(_RENAME, names)
        yield transaction
    finally:
        await connection.close()


async def _read(storage: Storage, cursor: str) -> tuple[list[str], str]:
    """Read to the end, one change at a time."""
    shown: list[str] = []
    while (page := await storage.sessions.changes(cursor, limit=1)).changes:
        shown += [each.session_id for each in page.changes]
        cursor = page.cursor
    return shown, page.cursor
