"""The contract of erased nodes: the content goes, the place stays."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lash.errors import InvalidInput, LeaseLost, NodeConflict, RevisionConflict, SessionNotFound
from lash.model.session.commit import ReplaceFull
from lash.model.session.node import ErasedEntry, Node
from lash.model.session.session import ActivePath, FullGraph, Retention
from lash.testing.harness import Harness
from tests.contract.state import ids, loaded, observe
from tests.factories.session import acquired, chain, commit, created, draft, node, owner, spent, started

TTL = 60_000


def erased(harness: Harness, node_id: str, parent: str | None = None) -> Node:
    """Return the node as it reads once it was erased now."""
    moment = datetime.fromtimestamp(harness.clock.now_ms() / 1000, UTC)
    return Node(node_id=node_id, parent_node_id=parent, timestamp=moment, entry=ErasedEntry())


class TestErase:
    """Laws of erasures."""

    async def test_every_path_through_an_erased_node_stays_whole(self, harness: Harness) -> None:
        """Paths leave the node out and go on; other reads show an empty node at the same place."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b", "c")
        await session.commit(commit(1, *chain("d", "e", after="b")))
        assert await session.erase(["b"]) == 1
        assert ids(await session.load()) == ["a", "d", "e"]
        assert ids(await session.load(ActivePath(leaf_node_id="c"))) == ["a", "c"]
        empty = erased(harness, "b", "a")
        assert (await loaded(storage)).graph.nodes == (node("a"), empty, node("c", "b"), *chain("d", "e", after="b"))
        assert await session.node("b") == empty
        assert await session.nodes(["b", "c"]) == {"b": empty, "c": node("c", "b")}
        assert [each.node_id for each in await session.children("b")] == ["c", "d"]
        assert await session.children("a") == (empty,)
        assert [each.node_id for each in await session.list_nodes("message")] == ["a", "c", "d", "e"]
        assert await session.list_nodes("erased") == (empty,)
        assert await storage.maintenance.find_damage() == ()

    async def test_the_last_nodes_are_those_with_content(self, harness: Harness) -> None:
        """The end of a path has as many nodes as were asked for, however many are erased between."""
        storage = await harness.open()
        names = [f"n{number}" for number in range(600)]
        session = await started(storage, "s", *names)
        assert await session.erase(names[10:598]) == 588
        for last, expected in ((1, names[599:]), (2, names[598:]), (4, [*names[8:10], *names[598:]])):
            assert ids(await session.load(ActivePath(last=last))) == expected
        kept = [*names[:10], *names[598:]]
        assert ids(await session.load()) == ids(await session.load(ActivePath(last=100))) == kept
        assert ids(await session.load(ActivePath(leaf_node_id="n300", last=3))) == names[7:10]

    async def test_an_erasure_is_a_revision_that_changes_nothing_else(self, harness: Harness) -> None:
        """Configuration, frames, checkpoint, ledger, leaf and number of nodes stay; the revision is the next one."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        await session.commit(commit(1, node("c", "b"), checkpoint=draft(1, {"k": b"v"}), usage=(spent(5),)))
        before = await loaded(storage)
        await harness.clock.advance(5)
        assert await session.erase(["c", "a"]) == 2
        after = await loaded(storage)
        assert (after.head.revision, after.head.leaf_node_id, after.head.node_count) == (3, "c", 3)
        assert after.checkpoint.manifest == before.checkpoint.manifest
        assert after.checkpoint.components == {"k": b"v"}
        assert (after.head.config, after.frames, after.usage) == (before.head.config, before.frames, before.usage)
        with pytest.raises(RevisionConflict):
            await session.commit(commit(2, node("d", "c")))
        await session.commit(commit(3, node("d", "c"), checkpoint=draft(1, {"k": b"w"})))
        assert ids(await session.load()) == ["b", "d"]

    async def test_repeating_an_erasure_changes_nothing(self, harness: Harness) -> None:
        """Erased, removed and unknown nodes are not counted, and without others no revision is published."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        await session.commit(commit(1, node("side", "a"), node("c", "b")))
        await session.tombstone(["side"])
        assert await session.erase(["a", "a", "nowhere", "side"]) == 1
        before = await observe(storage)
        assert await session.erase(["a", "nowhere", "side"]) == 0
        assert await session.erase([]) == 0
        assert await observe(storage) == before
        assert await (await created(storage, "empty")).erase(["a"]) == 0

    async def test_a_list_of_sessions_forgets_erased_messages(self, harness: Harness) -> None:
        """The first user message in the list is the first that is left, and erased ones are not counted."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b", "c")
        for gone, first, count in ((["b"], "a", 2), (["a"], "c", 1), (["c"], "", 0)):
            await session.erase(gone)
            (summary,) = (await storage.sessions.list()).sessions
            assert (summary.first_user_message, summary.user_message_count) == (first, count)
        await session.commit(commit(4, node("d", "c")))
        (summary,) = (await storage.sessions.list()).sessions
        assert (summary.first_user_message, summary.user_message_count) == ("d", 1)
        assert await storage.maintenance.find_damage() == ()

    async def test_an_erased_node_is_a_place_for_others(self, harness: Harness) -> None:
        """It can be a leaf, a parent and the start of a fork; its id stays taken."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        await session.erase(["b"])
        assert ids(await session.load()) == ["a"]
        await storage.sessions.fork("s", "t")
        fork = storage.session("t")
        await fork.commit(commit(1, node("c", "b"), session_id="t"))
        assert ids(await fork.load()) == ["a", "c"]
        assert ids(await fork.load(FullGraph())) == ["a", "b", "c"]
        with pytest.raises(NodeConflict):
            await session.commit(commit(2, node("b", "a")))
        await session.commit(commit(2, node("x", "b"), node("y", "b")))
        assert ids(await session.load()) == ["a", "y"]

    async def test_shared_nodes_are_not_erased(self, harness: Harness) -> None:
        """A node that a fork inherits is refused on both sides, and then no node is erased, until the fork is gone."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b", "c")
        await storage.sessions.fork("s", "t", node_id="b")
        fork = storage.session("t")
        await fork.commit(commit(1, node("x", "b"), session_id="t"))
        before = await observe(storage), await observe(storage, "t")
        for each, gone in ((session, ["c", "a"]), (fork, ["x", "b"])):
            with pytest.raises(InvalidInput, match="cannot be removed"):
                await each.erase(gone)
        assert (await observe(storage), await observe(storage, "t")) == before
        assert (await session.erase(["c"]), await fork.erase(["x"])) == (1, 1)
        assert (ids(await session.load()), ids(await fork.load())) == (["a", "b"], ["a", "b"])
        await storage.sessions.delete("t")
        assert await session.erase(["a"]) == 1

    async def test_a_fence_must_hold(self, harness: Harness) -> None:
        """With a live fence the nodes are erased; with a lost one, or that of another session, nothing is."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        await created(storage, "other")
        fence = acquired(await storage.leases.claim("s", owner("w"), ttl_ms=TTL)).fence
        other = acquired(await storage.leases.claim("other", owner("w"), ttl_ms=TTL)).fence
        assert await session.erase(["a"], fence=fence) == 1
        with pytest.raises(LeaseLost):
            await session.erase(["b"], fence=other)
        await harness.clock.advance(TTL + 1)
        with pytest.raises(LeaseLost):
            await session.erase(["b"], fence=fence)
        assert ids(await session.load()) == ["b"]
        with pytest.raises(SessionNotFound):
            await storage.session("none").erase(["a"])

    @pytest.mark.parametrize(("keep", "kept"), [(1, [3]), (2, [2, 3]), (None, [1, 2, 3])])
    async def test_checkpoints_are_kept_as_by_a_commit(
        self, harness: Harness, keep: int | None, kept: list[int]
    ) -> None:
        """An erasure drops the checkpoints that a commit would drop, with their bytes."""
        storage = await harness.open(retention=Retention(keep=keep))
        session = await created(storage)
        await session.commit(commit(0, node("a"), checkpoint=draft(1, {"k": b"first", "same": b"same"})))
        await session.commit(commit(1, node("b", "a"), checkpoint=draft(2, {"k": b"second", "same": b"same"})))
        await session.erase(["a"])
        found = {each: await session.checkpoint(each) for each in (1, 2, 3)}
        assert [revision for revision, checkpoint in found.items() if checkpoint is not None] == kept
        last = found[3]
        assert last is not None
        assert last.components == {"k": b"second", "same": b"same"}
        assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean
        assert await storage.maintenance.find_damage() == ()

    async def test_erased_nodes_can_be_committed(self, harness: Harness) -> None:
        """An import writes erased nodes like others, and a replacement counts them."""
        storage = await harness.open()
        session = await started(storage, "s", "a")
        nodes = (node("x"), erased(harness, "y", "x"), node("z", "y"))
        await session.commit(commit(1, graph=ReplaceFull(nodes=nodes, leaf_node_id="z", replaced_node_count=1)))
        assert (await loaded(storage)).graph.nodes == nodes
        assert ids(await session.load()) == ["x", "z"]
        assert await session.erase(["y"]) == 0
