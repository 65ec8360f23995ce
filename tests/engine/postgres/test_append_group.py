"""Appends of many callers on PostgreSQL: contention between storages, lost answers, and the head cache."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

import lash
from lash.errors import StoreUnavailable
from lash.model.session.session import ActivePath
from lash.postgres.engine.options import PostgresOptions
from tests.factories.session import commit, draft, node, started


class Statements:
    """Counts statements, and breaks the connection at the first ``append_apply`` if asked to."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.breaks = False

    def __call__(self, name: str) -> None:
        self.counts[name] += 1
        if name == "append_apply" and self.breaks:
            self.breaks = False
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")


@pytest.fixture
def statements() -> Statements:
    return Statements()


@pytest_asyncio.fixture
async def storage(postgres_storage_url: str, statements: Statements) -> AsyncIterator[lash.Storage]:
    async with await lash.open(postgres_storage_url, on_statement=statements) as opened:
        await started(opened)
        statements.counts.clear()
        yield opened


async def path_of(storage: lash.Storage) -> list[str]:
    read = await storage.session("s").load(ActivePath())
    assert read is not None
    return [each.node_id for each in read.graph.nodes]


async def test_an_append_that_waited_for_a_lock_is_written_under_it(
    storage: lash.Storage, statements: Statements, postgres_storage_url: str
) -> None:
    """Appends whose session changed while they waited are written in a transaction that locks it first."""
    options = PostgresOptions.from_url(postgres_storage_url)
    rival = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    try:
        async with rival.transaction():
            await rival.execute("UPDATE lash_sessions SET revision = revision + 1")
            await rival.execute("UPDATE lash_checkpoints SET revision = revision + 1")
            appends = [asyncio.create_task(storage.session("s").append([node(name)])) for name in "bcd"]
            while not await rival.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        results = await asyncio.gather(*appends)
    finally:
        await rival.close()
    assert [each.revision for each in results] == [3, 4, 5]
    assert await path_of(storage) == ["a", "b", "c", "d"]
    assert statements.counts["append_lock"] == 1


async def test_a_lost_answer_is_repeated_under_a_turn_id_only(storage: lash.Storage, statements: Statements) -> None:
    """With a turn id the statement is sent again; without one the caller gets the unknown outcome."""
    session = storage.session("s")
    statements.breaks = True
    assert (await session.append([node("b")], turn_id="t")).revision == 2
    statements.breaks = True
    with pytest.raises(StoreUnavailable) as lost:
        await session.append([node("c")])
    assert lost.value.outcome_unknown


async def test_a_turn_after_an_append_needs_no_read(storage: lash.Storage, statements: Statements) -> None:
    """The storage knows the head and the checkpoint after its own append, so the next commit is the shortest form."""
    session = storage.session("s")
    await session.commit(commit(1, node("b", "a"), checkpoint=draft(1, {"k": b"v"})))
    await session.append([node("c")])
    statements.counts.clear()
    await session.commit(commit(3, node("d", "c"), checkpoint=draft(2, {"k": b"w"})))
    assert statements.counts == {"commit_alone": 1}
    checkpoint = await session.checkpoint()
    assert checkpoint is not None
    assert checkpoint.components == {"k": b"w"}
