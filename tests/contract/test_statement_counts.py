"""The number of statements of a commit: independent of history, and one round trip on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from lash.errors import RevisionConflict
from lash.stores.session import Session
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from lash.testing.harness import URLHarness
from tests.contract.harnesses import PostgresHarness
from tests.factories.session import acquired, chain, commit, created, draft, node, owner, spent, started


class Recorder:
    """Records the names of the statements that a storage runs."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str) -> None:
        self.names.append(name)

    def take(self) -> list[str]:
        """Return what ran since the last call."""
        taken, self.names = self.names, []
        return taken


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest_asyncio.fixture(loop_scope="session")
async def sqlite(tmp_path: Path) -> AsyncIterator[URLHarness]:
    harness = URLHarness("sqlite", f"sqlite:///{tmp_path / 'lash.db'}", ManualClock())
    yield harness
    await harness.close()


@pytest_asyncio.fixture(loop_scope="session")
async def postgres(postgres_schema_url: str) -> AsyncIterator[PostgresHarness]:
    harness = PostgresHarness(postgres_schema_url)
    yield harness
    await harness.close()


async def _counted(session: Session, recorder: Recorder, revision: int, parent: str, new: str) -> list[str]:
    """Commit one node with a changed component and usage, and return the statements that ran."""
    recorder.take()
    values = commit(
        revision,
        node(new, parent),
        turn_id=new,
        checkpoint=draft(revision, {"tool_state": new.encode()}),
        usage=(spent(1),),
    )
    await session.commit(values)
    return recorder.take()


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_a_sqlite_commit_does_not_grow_with_history(
    sqlite: URLHarness, recorder: Recorder, backend_name: str
) -> None:
    """Appending a node runs the same statements at 10 and at 2,000 stored nodes."""
    storage = await sqlite.open(on_statement=recorder)
    session = await created(storage)
    await session.commit(commit(0, *chain(*(f"n{number}" for number in range(10)))))
    await _counted(session, recorder, 1, "n9", "warm")
    small = await _counted(session, recorder, 2, "warm", "few")
    await session.commit(commit(3, *chain(*(f"m{number}" for number in range(2_000)), after="few")))
    await _counted(session, recorder, 4, "m1999", "again")
    large = await _counted(session, recorder, 5, "again", "many")

    assert small == large
    assert small.count("commit") == 1


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_a_sqlite_commit_on_a_branch_does_not_grow_with_history(
    sqlite: URLHarness, recorder: Recorder, backend_name: str
) -> None:
    """Branching off deep in a long history runs as many statements as in a short one."""
    storage = await sqlite.open(on_statement=recorder)
    session = await created(storage)
    await session.commit(commit(0, *chain(*(f"n{number}" for number in range(10)))))
    await _counted(session, recorder, 1, "n3", "warm")
    small = await _counted(session, recorder, 2, "n4", "few")
    await session.commit(commit(3, *chain(*(f"m{number}" for number in range(2_000)), after="few")))
    await _counted(session, recorder, 4, "m700", "again")
    large = await _counted(session, recorder, 5, "m500", "many")

    assert small == large


@pytest.mark.parametrize("backend_name", ["postgres"])
@pytest.mark.parametrize("nodes", [1, 200])
@pytest.mark.parametrize("seen", ["created", "loaded", "head", "committed"])
async def test_a_postgres_commit_is_one_statement(
    postgres: PostgresHarness, recorder: Recorder, backend_name: str, seen: str, nodes: int
) -> None:
    """On a storage that has seen the head a commit is one round trip, however many nodes it has."""
    if seen != "created":
        await started(await postgres.open())
    storage = await postgres.open(on_statement=recorder)
    head = await _see(storage, seen)
    recorder.take()

    new = chain(*(f"n{number}" for number in range(nodes)), after=head.leaf)
    values = commit(head.revision, *new, checkpoint=draft(1, {"k": b"x"}), usage=(spent(1),))
    await storage.session("s").commit(values)

    assert len(recorder.take()) == 1


@pytest.mark.parametrize("backend_name", ["postgres"])
async def test_a_full_postgres_commit_is_one_statement(
    postgres: PostgresHarness, recorder: Recorder, backend_name: str
) -> None:
    """Turn, fence, release, kept and new components and usage are all in one statement."""
    storage = await postgres.open(on_statement=recorder)
    session = await created(storage)
    first = await session.commit(commit(0, node("a"), checkpoint=draft(1, {"old": b"old"})))
    lease = acquired(await storage.leases.claim("s", owner("w"), ttl_ms=1_000))
    recorder.take()

    values = commit(
        1,
        *chain("b", "c", after="a"),
        turn_id="t",
        fence=lease.fence,
        release=lease.fence,
        checkpoint=draft(2, {"old": first.manifest.components["old"], "new": b"new"}),
        usage=(spent(1), spent(2, model="other")),
    )
    await session.commit(values)

    assert len(recorder.take()) == 1
    assert await storage.leases.holder("s") is None


@pytest.mark.parametrize("backend_name", ["postgres"])
async def test_a_postgres_conflict_is_two_statements(
    postgres: PostgresHarness, recorder: Recorder, backend_name: str
) -> None:
    """A commit with stale facts runs one more statement, to find the reason."""
    storage, rival = await postgres.open(on_statement=recorder), await postgres.open()
    session = await created(storage)
    await session.commit(commit(0, node("a")))
    await rival.session("s").commit(commit(1, node("b", "a")))
    recorder.take()

    with pytest.raises(RevisionConflict):
        await session.commit(commit(1, node("c", "a")))

    assert len(recorder.take()) == 2


class Seen(NamedTuple):
    revision: int
    leaf: str | None


async def _see(storage: Storage, seen: str) -> Seen:
    """Let the storage read the head in this way, and return the head."""
    session = storage.session("s")
    match seen:
        case "created":
            await storage.sessions.create("s")
            return Seen(0, None)
        case "loaded":
            await session.load()
            return Seen(1, "a")
        case "head":
            await session.head()
            return Seen(1, "a")
        case _:
            await session.commit(commit(1, node("b", "a")))
            return Seen(2, "b")


async def _appended(session: Session, recorder: Recorder, *names: str) -> list[str]:
    """Append nodes and return the statements that ran."""
    recorder.take()
    await session.append([node(name) for name in names])
    return recorder.take()


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_a_sqlite_append_does_not_grow_with_history(
    sqlite: URLHarness, recorder: Recorder, backend_name: str
) -> None:
    """An append is one transaction of the same statements at 10 and at 2,000 stored nodes."""
    storage = await sqlite.open(on_statement=recorder)
    session = await created(storage)
    await session.append([node(f"n{number}") for number in range(10)])
    small = await _appended(session, recorder, "few")
    await session.append([node(f"m{number}") for number in range(2_000)])
    assert await _appended(session, recorder, "many") == small
    assert (small.count("commit"), len(small)) == (1, 7)


@pytest.mark.parametrize("backend_name", ["postgres"])
@pytest.mark.parametrize("count", [1, 200])
async def test_a_postgres_append_is_one_statement(
    postgres: PostgresHarness, recorder: Recorder, backend_name: str, count: int
) -> None:
    """On a storage that has never seen the session it is one round trip, however many nodes it has."""
    await started(await postgres.open())
    storage = await postgres.open(on_statement=recorder)
    names = [f"n{number}" for number in range(count)]
    assert await _appended(storage.session("s"), recorder, *names) == ["append_apply"]


@pytest.mark.parametrize("backend_name", ["postgres"])
async def test_postgres_appends_to_one_session_share_statements(
    postgres: PostgresHarness, recorder: Recorder, backend_name: str
) -> None:
    """Four appends of each of 32 callers take at most 16 statements, and none of them a second try."""
    storage = await postgres.open(on_statement=recorder)
    session = await created(storage)
    recorder.take()

    async def caller(name: str) -> None:
        for number in range(4):
            await session.append([node(f"{name}-{number}")])

    await asyncio.gather(*(caller(f"c{number}") for number in range(32)))
    names = recorder.take()
    assert set(names) == {"append_apply"}
    assert len(names) <= 16
    assert await session.revision() == 128


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_sqlite_appends_to_one_session_share_transactions(
    sqlite: URLHarness, recorder: Recorder, backend_name: str
) -> None:
    """Four appends of each of 32 callers take at most a quarter as many transactions."""
    storage = await sqlite.open(on_statement=recorder)
    session = await created(storage)
    recorder.take()

    async def caller(name: str) -> None:
        for number in range(4):
            await session.append([node(f"{name}-{number}")])

    await asyncio.gather(*(caller(f"c{number}") for number in range(32)))
    assert recorder.take().count("commit") <= 32
    assert await session.revision() == 128


@pytest.mark.parametrize("backend_name", ["postgres"])
async def test_a_postgres_session_and_its_first_commit_are_one_statement(
    postgres: PostgresHarness, recorder: Recorder, backend_name: str
) -> None:
    """Creation with a commit is one round trip, and the storage needs no read before the next commit."""
    storage = await postgres.open(on_statement=recorder)
    first = commit(0, *chain("a", "b"), turn_id="t", checkpoint=draft(1, {"k": b"x"}), usage=(spent(1),))
    recorder.take()
    await storage.sessions.create("s", commit=first)
    assert recorder.take() == ["session_create_committed"]
    await storage.session("s").commit(commit(1, node("c", "b"), checkpoint=draft(2, {"k": b"y"})))
    assert recorder.take() == ["commit_alone"]


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_a_sqlite_session_and_its_first_commit_are_one_transaction(
    sqlite: URLHarness, recorder: Recorder, backend_name: str
) -> None:
    """Creation with a commit is one transaction."""
    storage = await sqlite.open(on_statement=recorder)
    recorder.take()
    await storage.sessions.create("s", commit=commit(0, *chain("a", "b"), turn_id="t", usage=(spent(1),)))
    assert recorder.take().count("commit") == 1
