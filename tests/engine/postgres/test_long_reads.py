"""A long session is read with two statements on PostgreSQL, and both see the same revision."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

import lash
from lash.errors import SessionDeleted
from lash.model.session.session import FullGraph, ReadScope
from lash.postgres.engine.database import Database, Transaction
from tests.factories.session import chain, commit, node, started

_LENGTH = 600
_NAMES = tuple(f"n{number}" for number in range(_LENGTH))


def _commit_before_long_reads(monkeypatch: pytest.MonkeyPatch, url: str, times: int) -> list[str]:
    """Let another storage commit between the two statements of a long read, so many times; return what it adds."""
    really_read = Database.read_in_thread
    added: list[str] = []

    async def read_late(
        database: Database, shape: type, name: str, *args: object, decode: Callable[[list[object]], object]
    ) -> object:
        if len(added) < times:
            parent = added[-1] if added else _NAMES[-1]
            async with await lash.open(url) as other:
                added.append(f"other {len(added)}")
                await other.session("s").commit(commit(len(added), node(added[-1], parent)))
        return await really_read(database, shape, name, *args, decode=decode)

    async def read_late_of_snapshot(
        transaction: Transaction, shape: type, name: str, *args: object, decode: Callable[[list[object]], object]
    ) -> object:
        async with await lash.open(url) as other:
            await other.session("s").append([node("not seen")])
        return await really_read_of_snapshot(transaction, shape, name, *args, decode=decode)

    really_read_of_snapshot = Transaction.all_in_thread
    monkeypatch.setattr(Database, "read_in_thread", read_late)
    monkeypatch.setattr(Transaction, "all_in_thread", read_late_of_snapshot)
    return added


@pytest.mark.parametrize("scope", [lash.model.ActivePath(), FullGraph()], ids=["path", "graph"])
async def test_a_commit_between_the_statements_is_noticed(
    postgres_schema_url: str, monkeypatch: pytest.MonkeyPatch, scope: ReadScope
) -> None:
    """Nodes of another revision than the head's are not returned: the session is read again."""
    async with await lash.open(postgres_schema_url) as storage:
        session = await started(storage, "s", *_NAMES)
        added = _commit_before_long_reads(monkeypatch, postgres_schema_url, 2)
        read = await session.load(scope)
        assert read is not None
        assert read.head.revision == 3
        assert read.graph.nodes == (*chain(*_NAMES), *chain(*added, after=_NAMES[-1]))


@pytest.mark.parametrize("scope", [lash.model.ActivePath(), FullGraph()], ids=["path", "graph"])
async def test_a_session_that_changes_all_the_time_is_read(
    postgres_schema_url: str, monkeypatch: pytest.MonkeyPatch, scope: ReadScope
) -> None:
    """After three reads in vain both statements see one snapshot, whatever is committed between them."""
    async with await lash.open(postgres_schema_url) as storage:
        session = await started(storage, "s", *_NAMES)
        added = _commit_before_long_reads(monkeypatch, postgres_schema_url, 100)
        read = await session.load(scope)
        assert read is not None
        assert len(added) == 3
        assert read.head.revision == 4
        assert read.graph.nodes == (*chain(*_NAMES), *chain(*added, after=_NAMES[-1]))
        assert await session.revision() == 5


async def test_a_session_that_is_deleted_meanwhile_is_reported(
    postgres_schema_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that begins again after the deletion raises SessionDeleted."""
    async with await lash.open(postgres_schema_url) as storage:
        session = await started(storage, "s", *_NAMES)
        _commit_before_long_reads(monkeypatch, postgres_schema_url, 100)
        really_open = Database.snapshot

        def late(database: Database) -> AbstractAsyncContextManager[Transaction]:
            @asynccontextmanager
            async def opened() -> AsyncIterator[Transaction]:
                await storage.sessions.delete("s")
                async with really_open(database) as snapshot:
                    yield snapshot

            return opened()

        monkeypatch.setattr(Database, "snapshot", late)
        with pytest.raises(SessionDeleted):
            await session.load()


async def test_a_short_read_is_one_statement(postgres_schema_url: str) -> None:
    """A session that fits into one row takes one statement, whole or in part, and a long one two."""
    statements: list[str] = []
    async with await lash.open(postgres_schema_url, on_statement=statements.append) as storage:
        session = await started(storage, "s", *_NAMES[:499])
        taken = []
        for scope in (lash.model.ActivePath(), FullGraph(), lash.model.ActivePath(last=300)):
            statements.clear()
            await session.load(scope)
            taken.append(statements.copy())
        assert taken == [["session_load"]] * 3
        await session.commit(commit(1, *chain(*_NAMES[499:], after=_NAMES[498])))
        statements.clear()
        await session.load()
        await session.load(lash.model.ActivePath(last=500))
        assert statements == ["session_load", "session_nodes", "session_load"]
