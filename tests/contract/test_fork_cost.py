"""Costs of forks: only the head is copied, and a commit to a fork costs the same as any commit."""

from __future__ import annotations

import pytest

import lash
from tests.factories.session import chain, commit, draft, node, started
from tests.raw import raw


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_fork_copies_no_history(backend_url: str) -> None:
    """Forking runs the same statements and stores the same rows at 10 and at 2,000 nodes."""
    names: list[str] = []
    async with await lash.open(backend_url, on_statement=names.append) as storage:
        for source, length in (("warm", 1), ("short", 10), ("long", 2_000)):
            session = await started(storage, source, *(f"n{number}" for number in range(length)))
            await session.commit(commit(1, session_id=source, checkpoint=draft(1, {"k": b"v"})))
        await storage.sessions.fork("warm", "warm fork")
        stored = await raw(backend_url, "SELECT count(*) FROM lash_nodes")
        ran = {}
        for source in ("short", "long"):
            names.clear()
            await storage.sessions.fork(source, f"{source} fork")
            ran[source] = names.copy()
        assert ran["short"] == ran["long"]
        assert await raw(backend_url, "SELECT count(*) FROM lash_nodes") == stored
        assert await raw(backend_url, "SELECT count(*) FROM lash_inherited") == [(3,)]


@pytest.mark.parametrize("backend_name", ["postgres"], indirect=True)
async def test_a_postgres_commit_to_a_fork_is_one_statement(backend_url: str) -> None:
    """A storage that has seen the head of a fork commits to it in one round trip."""
    names: list[str] = []
    async with await lash.open(backend_url, on_statement=names.append) as storage:
        await started(storage, "s", "a", "b")
        await storage.sessions.fork("s", "t")
        fork = storage.session("t")
        await fork.load()
        for revision, new in ((1, chain("c", "d", after="b")), (2, chain("e", after="d"))):
            names.clear()
            await fork.commit(commit(revision, *new, session_id="t"))
            assert len(names) == 1


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_a_sqlite_commit_to_a_fork_runs_one_statement_more(backend_url: str) -> None:
    """Inherited nodes are looked for in one statement of their own; the session's own are with the head."""
    names: list[str] = []
    async with await lash.open(backend_url, on_statement=names.append) as storage:
        await started(storage, "s", "a", "b")
        await storage.sessions.fork("s", "t")
        names.clear()
        await storage.session("s").commit(commit(1, node("c", "b")))
        plain = names.copy()
        names.clear()
        await storage.session("t").commit(commit(1, node("c", "b"), session_id="t"))
        assert names.count("node_stored") == 1
        assert [name for name in names if name != "node_stored"] == plain
