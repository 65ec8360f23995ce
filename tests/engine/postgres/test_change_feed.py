"""The feed of changes and transactions that commit out of order."""

from __future__ import annotations

import asyncpg

import lash
from lash.postgres.engine.options import PostgresOptions
from tests.contract.process_state import feed
from tests.factories.process import event, process, registered

_SLOW_CHANGE = """
INSERT INTO lash_process_changes (process_id, kind, status, occurred_at_ms) VALUES ('slow', 'registered', 'running', 1)
"""


async def test_a_change_that_commits_late_is_not_missed(postgres_storage_url: str) -> None:
    """The reader waits for a transaction that began to write earlier, and then sees everything once."""
    options = PostgresOptions.from_url(postgres_storage_url)
    async with await lash.open(postgres_storage_url) as storage:
        await registered(storage)
        before, cursor = await feed(storage)
        assert [change.process_id for change in before] == ["p"]
        slow = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
        try:
            transaction = slow.transaction()
            await transaction.start()
            await slow.execute(_SLOW_CHANGE)
            await storage.events.append("p", event())
            held_back, cursor = await feed(storage, cursor, limit=1)
            await transaction.commit()
        finally:
            await slow.close()
        rest, _ = await feed(storage, cursor, limit=1)
        assert [(change.process_id, change.sequence) for change in held_back + rest] == [("slow", None), ("p", 1)]


async def test_one_transaction_may_span_pages(postgres_storage_url: str) -> None:
    """Changes of one transaction are read over several pages, each once, in the order in which they were made."""
    async with await lash.open(postgres_storage_url) as storage:
        names = [f"p{number}" for number in range(5)]
        for name in names:
            await storage.processes.register(process(name, wake_session_id="s"))
        _, cursor = await feed(storage)
        await storage.grants.detach_session("s")
        await storage.events.append("p0", event())
        changes, _ = await feed(storage, cursor, limit=2)
        assert sorted(change.process_id for change in changes[:5]) == names
        assert [(change.process_id, change.sequence) for change in changes[5:]] == [("p0", 1)]
