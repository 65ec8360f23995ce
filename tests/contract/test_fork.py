"""The contract of forks: shared nodes, separate futures."""

from __future__ import annotations

import asyncio

import pytest

from lash.errors import (
    GraphShared,
    InvalidInput,
    NodeConflict,
    NodeNotFound,
    SessionDeleted,
    SessionExists,
    SessionNotFound,
)
from lash.model.queue import BatchDraft, TextItem, TurnInput
from lash.model.session.commit import ReplaceFull, Unchanged
from lash.model.session.created import CreatedSession
from lash.model.session.session import ActivePath, ForkRelation, SessionConfig
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.state import ids, loaded, observe, refuse
from tests.factories.session import acquired, append, chain, commit, created, draft, frame, node, owner, spent, started


class TestFork:
    """Laws of creating a session from a node of another one."""

    async def test_a_fork_begins_with_the_head_of_its_source(self, harness: Harness) -> None:
        """A fork starts with its source's configuration, frames and checkpoint, and with the path as its graph."""
        storage = await harness.open()
        session = await created(storage)
        await session.commit(
            commit(
                0,
                *chain("a", "b"),
                config=SessionConfig(provider_id="p"),
                frames=(frame("f", state=b"frame state"),),
                current_frame_id="f",
                checkpoint=draft(7, {"k": b"value", "big": b"x" * 5_000}),
            )
        )
        source = await loaded(storage)

        made = await storage.sessions.fork("s", "t", name="branch", model="m", cwd="/work")

        assert (made.created, made.revision) == (True, 1)
        assert (made.meta.name, made.meta.model, made.meta.cwd) == ("branch", "m", "/work")
        assert made.meta.relation == ForkRelation(source_session_id="s", node_id="b")
        fork = await loaded(storage, "t")
        assert (fork.head.config, fork.frames, fork.graph) == (source.head.config, source.frames, source.graph)
        assert (fork.head.current_frame_id, fork.head.leaf_node_id, fork.head.node_count) == ("f", "b", 2)
        assert fork.checkpoint.components == source.checkpoint.components
        assert fork.checkpoint.manifest == source.checkpoint.manifest
        state_ref = source.frames[0].execution_state_ref
        assert state_ref is not None
        assert await storage.session("t").blob(state_ref) == b"frame state"
        assert await loaded(storage) == source
        summary = (await storage.sessions.list()).sessions[0]
        assert (summary.meta, summary.first_user_message, summary.user_message_count) == (made.meta, "a", 2)

    async def test_usage_turns_queue_and_lease_stay_with_the_source(self, harness: Harness) -> None:
        """A fork inherits neither the ledger, turns, queued work nor lease of its source."""
        storage = await harness.open()
        session = await created(storage)
        await session.commit(commit(0, node("a"), turn_id="turn", usage=(spent(5),)))
        await storage.leases.claim("s", owner("w"), ttl_ms=60_000)
        await storage.queue.enqueue(BatchDraft(session_id="s", payloads=(TurnInput(items=(TextItem(text="hi"),)),)))
        await storage.sessions.fork("s", "t")
        assert (await loaded(storage, "t")).usage == ()
        assert await storage.queue.list("t") == ()
        assert len(await storage.queue.list("s")) == 1
        assert await storage.leases.holder("t") is None
        result = await storage.session("t").commit(commit(1, node("b", "a"), session_id="t", turn_id="turn"))
        assert result.revision == 2

    async def test_what_either_side_appends_is_invisible_to_the_other(self, harness: Harness) -> None:
        """After a fork both sides continue from the same node, even under the same ids."""
        storage = await _forked(harness)
        await storage.session("s").commit(commit(1, *chain("d", "e", after="c")))
        await storage.session("t").commit(commit(1, *chain("d", "x", after="c"), session_id="t"))
        assert ids(await loaded(storage)) == ["a", "b", "c", "d", "e"]
        assert ids(await loaded(storage, "t")) == ["a", "b", "c", "d", "x"]
        assert await storage.session("s").node("x") is None
        assert await storage.session("t").node("e") is None
        assert ids(await storage.session("t").load()) == ["a", "b", "c", "d", "x"]
        assert ids(await storage.session("t").load(ActivePath(last=3))) == ["c", "d", "x"]
        assert ids(await storage.session("t").load(ActivePath(last=2))) == ["d", "x"]

    async def test_a_fork_from_an_earlier_node_sees_the_path_to_it_only(self, harness: Harness) -> None:
        """The source's nodes behind or beside the fork node are invisible; those before it are shared."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b", "c")
        await session.commit(commit(1, *chain("x", "y", after="a"), checkpoint=draft(2, {"k": b"newest"})))
        made = await storage.sessions.fork("s", "t", node_id="b")
        assert made.meta.relation == ForkRelation(source_session_id="s", node_id="b")
        fork = storage.session("t")
        read = await loaded(storage, "t")
        assert (ids(read), read.head.leaf_node_id, read.head.node_count) == (["a", "b"], "b", 2)
        assert read.checkpoint.components == {"k": b"newest"}
        assert [await fork.node(node_id) for node_id in ("c", "x", "y")] == [None, None, None]
        assert await fork.node("a") == await session.node("a")
        await storage.sessions.fork("s", "u", node_id="y")
        assert ids(await storage.session("u").load()) == ["a", "x", "y"]

    async def test_every_inherited_node_can_be_a_leaf_or_a_parent(self, harness: Harness) -> None:
        """A fork can move its leaf to an inherited node and branch off it with nodes of its own."""
        storage = await _forked(harness)
        fork = storage.session("t")
        await fork.commit(commit(1, *chain("d", after="c"), session_id="t"))
        await fork.commit(commit(2, graph=append(node("b2", "b"), node("b3", "b2")), session_id="t"))
        assert ids(await fork.load()) == ["a", "b", "b2", "b3"]
        assert ids(await fork.load(ActivePath(leaf_node_id="d"))) == ["a", "b", "c", "d"]
        assert ids(await fork.load(ActivePath(leaf_node_id="b", last=1))) == ["b"]
        await fork.commit(commit(3, graph=Unchanged(leaf_node_id="a"), session_id="t"))
        assert ids(await fork.load()) == ["a"]
        await fork.commit(commit(4, node("a2", "a"), session_id="t"))
        assert ids(await fork.load()) == ["a", "a2"]
        await fork.commit(commit(5, graph=Unchanged(leaf_node_id="c"), session_id="t"))
        await fork.commit(commit(6, node("c2", "c"), session_id="t"))
        assert ids(await fork.load()) == ["a", "b", "c", "c2"]
        read = await loaded(storage, "t")
        assert ids(read) == ["a", "b", "c", "d", "b2", "b3", "a2", "c2"]
        assert read.head.node_count == 8
        assert ids(await loaded(storage)) == ["a", "b", "c"]

    async def test_node_ids_are_unique_in_what_a_fork_sees(self, harness: Harness) -> None:
        """Appending an inherited node again is a no-op; other content under its id is a conflict."""
        storage = await _forked(harness)
        fork = storage.session("t")
        await fork.head()
        await refuse(storage, commit(1, node("a", "c"), session_id="t"), NodeConflict)
        await refuse(storage, commit(1, node("b", "a", text="other"), session_id="t"), NodeConflict)
        await fork.commit(commit(1, *chain("a", "b", "c", "d"), session_id="t"))
        read = await loaded(storage, "t")
        assert (ids(read), read.head.node_count) == (["a", "b", "c", "d"], 4)

    async def test_a_fork_does_not_see_removed_ancestors(self, harness: Harness) -> None:
        """The path that a fork inherits begins behind a removed ancestor, vacuumed or not."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b", "c", "d")
        await session.commit(commit(1, node("x"), graph=append(node("x"))))
        await session.tombstone(["b"])
        await storage.sessions.fork("s", "t", node_id="d")
        await session.vacuum()
        await storage.sessions.fork("s", "u", node_id="d")
        for session_id in ("t", "u"):
            read = await loaded(storage, session_id)
            assert (ids(read), read.head.node_count) == (["c", "d"], 2)
            assert await storage.session(session_id).node("a") is None
        with pytest.raises(NodeNotFound):
            await storage.sessions.fork("s", "v", node_id="b")
        assert await session.tombstone(["a"]) == 1
        assert ids(await loaded(storage, "t")) == ["c", "d"]

    async def test_a_fork_of_a_fork(self, harness: Harness) -> None:
        """Each generation sees its ancestors' nodes up to its own fork point."""
        storage = await _forked(harness)
        await storage.session("t").commit(commit(1, *chain("t1", "t2", after="c"), session_id="t"))
        await storage.sessions.fork("t", "u", node_id="t1")
        await storage.sessions.fork("t", "v", node_id="b")
        await storage.session("s").commit(commit(1, node("s1", "c")))
        await storage.session("t").commit(commit(2, node("t3", "t2"), session_id="t"))
        await storage.session("u").commit(commit(1, node("u1", "t1"), session_id="u"))
        await storage.session("v").commit(commit(1, node("v1", "b"), session_id="v"))
        await storage.sessions.fork("u", "w")
        for session_id, expected in {
            "s": ["a", "b", "c", "s1"],
            "t": ["a", "b", "c", "t1", "t2", "t3"],
            "u": ["a", "b", "c", "t1", "u1"],
            "v": ["a", "b", "v1"],
            "w": ["a", "b", "c", "t1", "u1"],
        }.items():
            read = await loaded(storage, session_id)
            assert ids(read) == expected
            assert ids(await storage.session(session_id).load()) == expected
            assert read.head.node_count == len(expected)

    async def test_repeating_a_fork_returns_the_first(self, harness: Harness) -> None:
        """Of concurrent or repeated forks one creates the session; the others return it unchanged."""
        storages = [await harness.open() for _ in range(3)]
        await started(storages[0], "s", "a", "b")
        made = await asyncio.gather(*(storage.sessions.fork("s", "t") for storage in storages))
        assert sorted(each.created for each in made) == [False, False, True]
        assert {each.revision for each in made} == {1}
        await storages[0].session("s").commit(commit(1, node("c", "b")))
        again = await storages[0].sessions.fork("s", "t", node_id="b", name="other")
        assert again == CreatedSession(meta=made[0].meta, revision=1, created=False)
        assert ids(await loaded(storages[0], "t")) == ["a", "b"]

    async def test_the_order_of_checks(self, harness: Harness) -> None:
        """The new id is checked first, then the source, then the node; a refused fork leaves nothing behind."""
        storage = await harness.open()
        await started(storage)
        await created(storage, "taken")
        await storage.sessions.fork("s", "fork")
        await created(storage, "gone")
        await storage.sessions.delete("gone")
        refused = [
            ("nowhere", "taken", None, SessionExists),
            ("gone", "fork", None, SessionExists),
            ("s", "taken", None, SessionExists),
            ("s", "fork", "other", SessionExists),
            ("nowhere", "t", "a", SessionNotFound),
            ("gone", "t", "a", SessionDeleted),
            ("s", "t", "nothing", NodeNotFound),
            ("taken", "t", "a", NodeNotFound),
            ("s", "s", None, InvalidInput),
            ("s", "", None, InvalidInput),
            ("s", "t", "", InvalidInput),
        ]
        before = await observe(storage)
        for source, new, node_id, error in refused:
            with pytest.raises(error) as raised:
                await storage.sessions.fork(source, new, node_id=node_id)
            assert type(raised.value) is error, (source, new)
        assert await observe(storage) == before
        assert await storage.sessions.open("t") is None
        with pytest.raises(SessionNotFound):
            await storage.session("t").head()

    async def test_forks_of_empty_sessions(self, harness: Harness) -> None:
        """A fork of a session without commits has none; one of a session without a leaf has no nodes."""
        storage = await harness.open()
        session = await created(storage)
        made = await storage.sessions.fork("s", "t")
        assert (made.revision, made.meta.relation) == (0, ForkRelation(source_session_id="s"))
        assert await storage.session("t").load() is None
        await session.commit(commit(0, graph=append(node("a"), leaf=None)))
        await storage.sessions.fork("s", "u")
        read = await loaded(storage, "u")
        assert (ids(read), read.head.leaf_node_id, read.head.node_count) == ([], None, 0)
        await storage.session("u").commit(commit(1, node("a"), session_id="u"))
        assert ids(await storage.session("u").load()) == ["a"]

    async def test_a_deleted_id_can_become_a_fork(self, harness: Harness) -> None:
        """A fork under a deleted id starts above the old numbers."""
        storage = await harness.open()
        await started(storage)
        old = await started(storage, "t")
        lease = acquired(await storage.leases.claim("t", owner("w"), ttl_ms=60_000))
        await storage.sessions.delete("t")
        made = await storage.sessions.fork("s", "t")
        assert made.revision > 1
        with pytest.raises(Exception, match="expected 1"):
            await old.commit(commit(1, session_id="t"))
        assert acquired(await storage.leases.claim("t", owner("w"), ttl_ms=60_000)).fencing > lease.fencing

    async def test_a_fork_replaces_its_graph_without_touching_the_source(self, harness: Harness) -> None:
        """A full replacement drops a fork's inherited nodes and leaves the source unchanged."""
        storage = await _forked(harness)
        before = await loaded(storage)
        replacement = ReplaceFull(nodes=chain("a", "z"), leaf_node_id="z", replaced_node_count=3)
        await storage.session("t").commit(commit(1, graph=replacement, session_id="t"))
        read = await loaded(storage, "t")
        assert (ids(read), read.head.node_count) == (["a", "z"], 2)
        assert await storage.session("t").node("c") is None
        assert await loaded(storage) == before
        await storage.session("s").commit(
            commit(1, graph=ReplaceFull(nodes=chain("q"), leaf_node_id="q", replaced_node_count=3))
        )
        assert ids(await loaded(storage)) == ["q"]

    async def test_what_a_fork_inherits_cannot_be_taken_from_it(self, harness: Harness) -> None:
        """A source cannot replace or remove inherited nodes, and a fork cannot remove nodes of its source."""
        storage = await _forked(harness)
        session, fork = storage.session("s"), storage.session("t")
        await session.commit(commit(1, node("d", "c")))
        replacement = ReplaceFull(nodes=chain("q"), leaf_node_id="q", replaced_node_count=4)
        await refuse(storage, commit(2, graph=replacement), GraphShared)
        await session.commit(commit(2, graph=Unchanged(leaf_node_id=None)))
        for handle, node_id, reason in (
            (session, "b", "inherited by a fork of"),
            (session, "c", "inherited by a fork of"),
            (fork, "b", "belongs to the source of"),
        ):
            with pytest.raises(InvalidInput, match=reason):
                await handle.tombstone(["d", node_id])
        await fork.commit(commit(1, graph=Unchanged(leaf_node_id=None), session_id="t"))
        with pytest.raises(InvalidInput, match="belongs to the source of"):
            await fork.tombstone(["b"])
        assert await fork.tombstone(["d"]) == 0
        assert await session.tombstone(["d"]) == 1
        assert (await session.vacuum()).removed_node_count == 1
        assert ids(await loaded(storage, "t")) == ["a", "b", "c"]

    async def test_a_fork_removes_nodes_of_its_own(self, harness: Harness) -> None:
        """Tombstones and vacuum of a fork count and remove only its own nodes."""
        storage = await _forked(harness)
        fork = storage.session("t")
        await fork.commit(commit(1, *chain("d", "e", after="c"), session_id="t"))
        await fork.commit(commit(2, graph=Unchanged(leaf_node_id="c"), session_id="t"))
        assert await fork.tombstone(["d", "e"]) == 2
        read = await loaded(storage, "t")
        assert (ids(read), read.head.node_count) == (["a", "b", "c"], 3)
        assert (await fork.vacuum()).removed_node_count == 2
        await fork.commit(commit(3, node("d", "c"), session_id="t"))
        assert ids(await fork.load()) == ["a", "b", "c", "d"]
        (summary,) = [each for each in (await storage.sessions.list()).sessions if each.meta.session_id == "t"]
        assert (summary.first_user_message, summary.user_message_count) == ("a", 4)


async def _forked(harness: Harness) -> Storage:
    """Return a storage with session ``s`` of the nodes a, b, c, and its fork ``t``."""
    storage = await harness.open()
    await started(storage, "s", "a", "b", "c")
    await storage.sessions.fork("s", "t")
    return storage
