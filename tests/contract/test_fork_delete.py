"""The contract of deletion among forks: no session loses a node, and the last deletion removes everything."""

from __future__ import annotations

import asyncio

import pytest

from lash.errors import LashError, SessionDeleted
from lash.model.attachment import AttachmentEntry
from lash.model.session.commit import ReplaceFull
from lash.model.session.session import FullGraph
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.state import ids, loaded
from tests.factories.session import chain, commit, draft, node, started

_ROUNDS = 25


class TestForkDelete:
    """Laws of deleting sessions that share nodes."""

    @pytest.mark.parametrize("first", ["s", "t"])
    async def test_deleting_one_side_leaves_the_other_whole(self, harness: Harness, first: str) -> None:
        """After deleting one of two sharing sessions, the other loads, appends and moves as before."""
        storage = await _family(harness)
        kept = "t" if first == "s" else "s"
        before = await loaded(storage, kept)
        assert await storage.sessions.delete(first)
        assert await loaded(storage, kept) == before
        leaf = before.head.leaf_node_id
        await storage.session(kept).commit(commit(before.head.revision, node("on", leaf), session_id=kept))
        assert ids(await storage.session(kept).load()) == [*ids(before), "on"]
        with pytest.raises(SessionDeleted):
            await storage.session(first).load()

    async def test_inherited_messages_keep_their_attachments(self, harness: Harness) -> None:
        """After its source is deleted and swept, a fork keeps the attachments that the source had committed."""
        storage = await harness.open()
        await started(storage)
        kept = await storage.attachments.put("s", b"picture", "image/png", label="seen")
        loose = await storage.attachments.put("s", b"draft", "image/png")
        await storage.attachments.commit_refs("s", [kept.id])
        await storage.sessions.fork("s", "t")
        await storage.sessions.delete("s")
        await harness.clock.advance(1_000)
        for _ in range(3):
            await storage.attachments.sweep(0, _everybody_is_gone)
            await harness.clock.advance(1_000)
        found = await storage.attachments.get("t", kept.id)
        assert (found.ref, found.content) == (kept, b"picture")
        assert await storage.attachments.entry("t", loose.id) is None

    async def test_a_source_can_be_deleted_and_created_again(self, harness: Harness) -> None:
        """A new session with the id of a deleted source does not get the nodes that its forks inherit."""
        storage = await _family(harness)
        await storage.sessions.delete("s")
        again = await storage.sessions.create("s")
        await storage.session("s").commit(commit(again.revision, *chain("a", "z"), session_id="s"))
        assert ids(await loaded(storage)) == ["a", "z"]
        assert ids(await loaded(storage, "t")) == ["a", "b", "t1"]
        await storage.sessions.fork("t", "u", node_id="b")
        await storage.sessions.delete("t")
        assert ids(await loaded(storage, "u")) == ["a", "b"]

    async def test_a_generation_in_the_middle_can_go(self, harness: Harness) -> None:
        """A fork of a fork stays whole when the session between, or the first, is deleted."""
        storage = await _family(harness)
        await storage.sessions.fork("t", "u")
        await storage.session("u").commit(commit(1, node("u1", "t1"), session_id="u"))
        for gone in ("t", "s"):
            await storage.sessions.delete(gone)
            assert ids(await loaded(storage, "u")) == ["a", "b", "t1", "u1"]
            assert ids(await storage.session("u").load()) == ["a", "b", "t1", "u1"]

    @pytest.mark.parametrize("order", ["stu", "sut", "tsu", "tus", "ust", "uts"])
    async def test_the_last_to_go_takes_everything_along(self, harness: Harness, order: str) -> None:
        """After deletion in any order, an audit finds nothing and no node is left."""
        storage = await _family(harness)
        await storage.sessions.fork("t", "u")
        await storage.session("u").commit(commit(1, node("u1", "t1"), session_id="u"))
        for session_id in order:
            assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean
            await storage.sessions.delete(session_id)
        assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean
        assert (await storage.report()).nouns["node"].rows == 0 or harness.backend == "postgres"

    async def test_a_replacement_frees_what_only_it_inherited(self, harness: Harness) -> None:
        """A fork that replaces its graph releases the nodes of a deleted source."""
        storage = await _family(harness)
        await storage.sessions.delete("s")
        replacement = ReplaceFull(nodes=chain("q"), leaf_node_id="q", replaced_node_count=3)
        await storage.session("t").commit(commit(2, graph=replacement, session_id="t"))
        assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean
        assert ids(await loaded(storage, "t")) == ["q"]

    async def test_deletions_and_forks_race(self, harness: Harness) -> None:
        """Concurrent forks, commits and deletions each succeed or raise a typed error; no fork lacks a node."""
        storages = [await harness.open() for _ in range(3)]
        storage = storages[0]
        for number in range(_ROUNDS):
            source, forks = f"s{number}", [f"s{number}.{index}" for index in range(3)]
            await started(storage, source, "a", "b", "c")
            await storage.sessions.fork(source, forks[0], node_id="b")
            outcomes = await asyncio.gather(
                storages[0].sessions.fork(source, forks[1]),
                storages[1].sessions.fork(forks[0], forks[2]),
                storages[2].sessions.delete(source),
                storages[1].sessions.delete(forks[0]),
                storages[2].session(source).commit(commit(1, node("d", "c"), session_id=source)),
                return_exceptions=True,
            )
            for outcome in outcomes:
                assert not isinstance(outcome, Exception) or isinstance(outcome, SessionDeleted), outcome
            for fork in forks:
                expected = {forks[1]: (["a", "b", "c"], ["a", "b", "c", "d"]), forks[2]: (["a", "b"],)}
                if await storage.sessions.open(fork) is not None:
                    assert ids(await loaded(storage, fork)) in expected[fork]
            assert await storage.sessions.open(source) is None
            assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean
            await asyncio.gather(*(each.sessions.delete(fork) for each, fork in zip(storages, forks, strict=True)))
            assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean

    async def test_a_late_commit_never_brings_a_session_back(self, harness: Harness) -> None:
        """Every write to a deleted session is refused, even concurrently with the deletion."""
        first, second = await harness.open(), await harness.open()
        for number in range(_ROUNDS):
            session_id = f"s{number}"
            await started(first, session_id)
            await first.sessions.fork(session_id, f"f{number}")
            await second.session(session_id).head()
            late = second.session(session_id).commit(
                commit(1, node("b", "a"), session_id=session_id, checkpoint=draft(1, {"k": b"v"}))
            )
            outcome, deleted = await asyncio.gather(late, first.sessions.delete(session_id), return_exceptions=True)
            assert deleted is True
            assert not isinstance(outcome, LashError) or type(outcome) is SessionDeleted
            with pytest.raises(SessionDeleted):
                await second.session(session_id).commit(commit(1, session_id=session_id))
            with pytest.raises(SessionDeleted):
                await second.session(session_id).load(FullGraph())
            assert ids(await loaded(first, f"f{number}")) == ["a"]
        assert (await first.maintenance.collect_garbage(dry_run=True)).is_clean


async def _everybody_is_gone(_entry: AttachmentEntry) -> bool:
    return True


async def _family(harness: Harness) -> Storage:
    """Return a storage with session ``s`` of a, b, c, d and ``t``, forked at b, with a node t1 of its own."""
    storage = await harness.open()
    session = await started(storage, "s", "a", "b", "c")
    await session.commit(commit(1, node("d", "c"), checkpoint=draft(1, {"k": b"the same in both"})))
    await storage.sessions.fork("s", "t", node_id="b")
    await storage.session("t").commit(commit(1, node("t1", "b"), session_id="t"))
    return storage
