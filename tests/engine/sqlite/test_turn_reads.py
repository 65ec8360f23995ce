"""What a turn on SQLite leaves out: each query that it saves has a case in which it is needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import apsw
import pytest

import lash
from lash.errors import NodeConflict
from lash.model.queue import Boundary, Claim
from lash.stores.storage import Storage
from tests.contract.queue_state import LONG, TTL, claimed, consuming, joining, late, leased, queued
from tests.factories.session import chain, commit, created, node, owner


class Opened(NamedTuple):
    """A storage on a file, the names of its statements, and what runs SQL on the file."""

    storage: Storage
    names: list[str]
    raw: Callable[[str], list[tuple[apsw.SQLiteValue, ...]]]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    names: list[str] = []
    url = f"sqlite:///{tmp_path}/lash.db"
    connection = apsw.Connection(
        urlsplit(url).path.removeprefix("/"), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    )
    async with await lash.open(url, on_statement=names.append) as storage:
        await created(storage, "s")
        names.clear()
        yield Opened(storage, names, lambda sql: connection.execute(sql).fetchall())
    connection.close()


async def _claim(storage: Storage) -> Claim:
    fence = await leased(storage)
    return claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, max_batches=9, ttl_ms=TTL))


async def _commit(storage: Storage, claim: Claim) -> None:
    await storage.session("s").commit(consuming(commit(0, node("n")), claim))


_KEYS = "SELECT source_key, state FROM lash_source_keys ORDER BY source_key"


async def test_a_key_that_is_consumed_removes_its_batch(opened: Opened) -> None:
    """The batch of a claim with a key takes no statement of its own."""
    await queued(opened.storage, late("a", source_key="k"))
    claim = await _claim(opened.storage)
    opened.names.clear()
    await _commit(opened.storage, claim)
    assert "commit_consume_key" in opened.names
    assert "commit_consume" not in opened.names
    assert await opened.storage.queue.list("s") == ()
    assert opened.raw(_KEYS) == [("k", "consumed")]


@pytest.mark.parametrize("keys", [(None, None), ("k", None), (None, "k"), ("j", "k")])
async def test_a_claim_is_consumed_whole_with_and_without_keys(opened: Opened, keys: tuple[str | None, ...]) -> None:
    """No batch of a claim stays, whichever of them have keys."""
    await queued(opened.storage, *(joining(f"t{number}", source_key=key) for number, key in enumerate(keys)))
    await queued(opened.storage, late("next"))
    claim = await _claim(opened.storage)
    assert len(claim.batches) == len(keys)
    await _commit(opened.storage, claim)
    assert [each.source_key for each in await opened.storage.queue.list("s")] == [None]
    assert opened.raw(_KEYS) == [(key, "consumed") for key in keys if key is not None]


async def test_a_batch_whose_key_was_lost_is_consumed(opened: Opened) -> None:
    """A batch does not stay in the queue because the row of its key is missing."""
    await queued(opened.storage, late("a", source_key="k"))
    claim = await _claim(opened.storage)
    opened.raw("DELETE FROM lash_source_keys")
    await _commit(opened.storage, claim)
    assert await opened.storage.queue.list("s") == ()


@pytest.mark.parametrize("keys", [("k",), ("j", "k")])
async def test_a_batch_whose_key_names_another_batch_is_consumed(opened: Opened, keys: tuple[str, ...]) -> None:
    """A damaged key lets neither the consumed batch stay nor another one go."""
    await queued(opened.storage, *(joining(f"t{number}", source_key=key) for number, key in enumerate(keys)))
    (other,) = await queued(opened.storage, late("next", source_key="other"))
    claim = await _claim(opened.storage)
    opened.raw(f"UPDATE lash_source_keys SET batch_id = '{other.batch_id}' WHERE source_key = 'k'")
    await _commit(opened.storage, claim)
    assert [each.source_key for each in await opened.storage.queue.list("s")] == ["other"]


async def test_a_key_of_the_delivery_of_a_wake_leaves_the_batch(opened: Opened) -> None:
    """Code of an older version finds the batch by its claim after it has finished the key, to acknowledge the wake."""
    (batch,) = await queued(opened.storage, late("a", source_key="k"))
    opened.raw("PRAGMA foreign_keys = OFF")
    opened.raw(
        "INSERT INTO lash_wakes (process_key, sequence, target_session_id, batch_id, state) "
        f"VALUES (1, 1, 's', '{batch.batch_id}', 'queued')"
    )
    claim = await _claim(opened.storage)
    opened.raw("UPDATE lash_source_keys SET state = 'consumed', settled_at_ms = 1")
    assert len(await opened.storage.queue.list("s")) == 1
    await _commit(opened.storage, claim)
    assert await opened.storage.queue.list("s") == ()
    assert opened.raw("SELECT state FROM lash_wakes") == [("acknowledged",)]


@pytest.mark.parametrize("position", range(6))
async def test_a_taken_node_id_is_found_at_any_position(opened: Opened, position: int) -> None:
    """A commit that reuses a node id is refused, however many new nodes are before it."""
    await opened.storage.session("s").commit(commit(0, *chain("old", "leaf")))
    ids = [f"n{number}" for number in range(6)]
    ids[position] = "old"
    with pytest.raises(NodeConflict):
        await opened.storage.session("s").commit(commit(1, *chain(*ids, after="leaf")))


class TestPoll:
    """The list of a poll with one ready batch is that of the query that it saves."""

    @staticmethod
    async def lanes(opened: Opened) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        opened.names.clear()
        found = (await opened.storage.work.poll(sessions=9, processes=9, owner=owner("w"))).lanes
        return found.urgent, found.resumed, found.waiting, found.newest

    async def test_one_batch(self, opened: Opened) -> None:
        """The session of the only batch is the waiting one and the newest, and takes no second query."""
        await queued(opened.storage, late("a"))
        assert await self.lanes(opened) == ((), (), ("s",), ("s",))
        assert opened.names == ["work_marks"]

    async def test_a_batch_with_priority(self, opened: Opened) -> None:
        """A batch with a priority is in the urgent lane too."""
        await queued(opened.storage, late("a", priority=1))
        assert await self.lanes(opened) == (("s",), (), ("s",), ("s",))

    async def test_two_sessions(self, opened: Opened) -> None:
        """With a second batch both sessions are found."""
        await created(opened.storage, "t")
        await queued(opened.storage, late("a"), late("b", session_id="t"))
        assert await self.lanes(opened) == ((), (), ("s", "t"), ("t", "s"))

    async def test_a_busy_session(self, opened: Opened) -> None:
        """A session with a live lease is not ready."""
        await queued(opened.storage, late("a"))
        fence = await leased(opened.storage, ttl_ms=LONG)
        assert await self.lanes(opened) == ((), (), (), ())
        await opened.storage.leases.release(fence, pause_ms=LONG)
        assert await self.lanes(opened) == ((), (), (), ())

    async def test_due_work_of_another_session(self, opened: Opened) -> None:
        """Delayed work that is due is found beside the only ready batch."""
        await created(opened.storage, "t")
        await queued(opened.storage, late("a"), late("b", session_id="t"))
        opened.raw("UPDATE lash_batches SET available_at_ms = 1 WHERE seq = (SELECT MAX(seq) FROM lash_batches)")
        assert await self.lanes(opened) == ((), ("t",), ("s",), ("s",))
