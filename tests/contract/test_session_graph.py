"""The contract of a session's graph: how deltas are applied, and what is removed."""

from __future__ import annotations

import msgspec
import pytest

from lash.base.compression import BlobRef
from lash.errors import GraphConflict, InvalidInput, NodeConflict, NodeNotFound
from lash.model.session.commit import GraphDelta, ReplaceFull, Unchanged
from lash.model.session.session import ActivePath, FullGraph, VacuumReport
from lash.testing.harness import Harness
from tests.contract.state import ids, loaded, observe, refuse
from tests.factories.session import append, chain, commit, created, draft, node, started


class TestSessionGraph:
    """Laws of deltas, tombstones and vacuum."""

    async def test_append_keeps_order_and_what_was_there(self, harness: Harness) -> None:
        """Appended nodes follow the existing ones in their order, and the last becomes the leaf."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        await session.commit(commit(1, *chain("c", "d", after="b")))
        read = await loaded(storage)
        assert read.graph.nodes == chain("a", "b", "c", "d")
        assert (read.graph.leaf_node_id, read.head.leaf_node_id) == ("d", "d")

    async def test_long_nodes_come_back_whichever_way_they_are_read(self, harness: Harness) -> None:
        """Long nodes read the same by graph, path, end of the path, single node, fork and repetition."""
        storage = await harness.open()
        long = node("b", "a", "It says a great deal, and says it again. " * 100)
        session = await started(storage, "s", "a")
        await session.commit(commit(1, long, node("c", "b")))
        expected = (node("a"), long, node("c", "b"))
        assert (await loaded(storage)).graph.nodes == expected
        for scope in (FullGraph(), ActivePath(), ActivePath(last=2)):
            read = await session.load(scope)
            assert read is not None
            assert read.graph.nodes == expected[-2 if scope == ActivePath(last=2) else 0 :]
        assert await session.node("b") == long
        await session.commit(commit(2, long, node("d", "c")))
        assert (await loaded(storage)).graph.nodes == (*expected, node("d", "c"))
        await storage.sessions.fork("s", "t", node_id="b")
        fork = await storage.session("t").load()
        assert fork is not None
        assert fork.graph.nodes == expected[:2]

    async def test_append_can_name_its_leaf(self, harness: Harness) -> None:
        """A leaf named by the append wins: a new node, an old one, or none."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        leaves = ["c", "a", None]
        for revision, leaf in enumerate(leaves, start=1):
            new = (node(f"x{revision}", "a"), node("c" if leaf == "c" else f"y{revision}", "a"))
            await session.commit(commit(revision, graph=append(*new, leaf=leaf)))
            assert (await loaded(storage)).head.leaf_node_id == leaf

    async def test_unchanged_keeps_or_moves_the_leaf(self, harness: Harness) -> None:
        """A commit without nodes keeps the leaf unless it names another."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        expected = {1: "b", 2: "a", 3: "a", 4: None, 5: None, 6: "b"}
        deltas = [
            Unchanged(),
            Unchanged(leaf_node_id="a"),
            Unchanged(),
            Unchanged(leaf_node_id=None),
            Unchanged(),
            Unchanged(leaf_node_id="b"),
        ]
        for revision, delta in enumerate(deltas, start=1):
            await session.commit(commit(revision, graph=delta))
            assert (await loaded(storage)).head.leaf_node_id == expected[revision]
        assert ids(await session.load(FullGraph())) == ["a", "b"]

    async def test_branches_grow_side_by_side(self, harness: Harness) -> None:
        """An append may attach to any live node; every branch keeps its own path."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b", "c")
        await session.commit(commit(1, *chain("d", "e", after="a")))
        await session.commit(commit(2, *chain("f", after="c")))
        await session.commit(commit(3, node("g", "e"), node("h", "d"), node("i", "g"), node("j", "h")))
        await session.commit(commit(4, node("k")))
        paths = {"f": "abcf", "i": "adegi", "j": "adhj", "k": "k", "c": "abc", "d": "ad"}
        for leaf, path in paths.items():
            assert ids(await session.load(ActivePath(leaf_node_id=leaf))) == list(path)
        assert ids(await session.load(FullGraph())) == list("abcdefghijk")

    async def test_replace_leaves_exactly_the_given_nodes(self, harness: Harness) -> None:
        """A full replacement leaves exactly its own nodes in its own order, with old ids or new ones."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b", "c")
        new = (node("a", text="another a"), node("x", "a"), node("y", "a"))
        delta = ReplaceFull(nodes=new, leaf_node_id="x", replaced_node_count=3)
        await session.commit(commit(1, graph=delta))
        read = await loaded(storage)
        assert (read.graph.nodes, read.head.leaf_node_id, read.head.node_count) == (new, "x", 3)
        assert await session.node("b") is None

        await session.commit(commit(2, *chain("b", after="x")))

        assert ids(await session.load()) == ["a", "x", "b"]

    async def test_replace_takes_nodes_in_any_order(self, harness: Harness) -> None:
        """A replacement may list children before parents, and nodes whose parent is not part of it."""
        storage = await harness.open()
        session = await started(storage)
        new = (node("z", "y"), node("y", "x"), node("x"), node("orphan", "nowhere"))
        await session.commit(commit(1, graph=ReplaceFull(nodes=new, leaf_node_id="z", replaced_node_count=1)))
        assert (await loaded(storage)).graph.nodes == new
        assert ids(await session.load()) == ["x", "y", "z"]
        assert ids(await session.load(ActivePath(leaf_node_id="orphan"))) == ["orphan"]

    async def test_replace_can_empty_the_graph(self, harness: Harness) -> None:
        """An empty replacement leaves no node and no leaf."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        await session.commit(commit(1, graph=ReplaceFull(nodes=(), leaf_node_id=None, replaced_node_count=2)))
        read = await loaded(storage)
        assert (read.graph.nodes, read.head.leaf_node_id, read.head.node_count) == ((), None, 0)

    async def test_replace_from_a_partial_view_is_refused(self, harness: Harness) -> None:
        """A replacement with a wrong count of live nodes raises GraphConflict and deletes no branch."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        await session.commit(commit(1, node("c", "a")))
        for count in (0, 2, 4):
            delta = ReplaceFull(nodes=chain("a", "c"), leaf_node_id="c", replaced_node_count=count)
            await refuse(storage, commit(2, graph=delta), GraphConflict)
            with pytest.raises(GraphConflict) as raised:
                await session.commit(commit(2, graph=delta))
            assert (raised.value.expected, raised.value.actual) == (count, 3)

    @pytest.mark.parametrize(
        "delta",
        [
            append(node("b", "nowhere")),
            append(*chain("b", after="a"), leaf="nowhere"),
            append(node("b", "c"), node("c", "a")),
            Unchanged(leaf_node_id="nowhere"),
            ReplaceFull(nodes=chain("x"), leaf_node_id="a", replaced_node_count=1),
        ],
    )
    async def test_a_delta_on_a_missing_node_is_refused(self, harness: Harness, delta: GraphDelta) -> None:
        """A parent that is unknown or comes later, and a leaf that is not live, raise NodeNotFound."""
        storage = await harness.open()
        await started(storage)
        await refuse(storage, commit(1, graph=delta), NodeNotFound)
        # The graph is checked before the bytes, as documented.
        await refuse(storage, commit(1, graph=delta, checkpoint=draft(0, {"k": BlobRef("0" * 64)})), NodeNotFound)

    async def test_a_parent_of_another_session_is_missing(self, harness: Harness) -> None:
        """Nodes are looked up in their own session only."""
        storage = await harness.open()
        await started(storage)
        await started(storage, "other", "elsewhere")
        await refuse(storage, commit(1, node("b", "elsewhere")), NodeNotFound)
        await refuse(storage, commit(1, graph=Unchanged(leaf_node_id="elsewhere")), NodeNotFound)

    async def test_appending_the_same_node_again_is_harmless(self, harness: Harness) -> None:
        """An existing id with the same content is a no-op, and new nodes beside it are added."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        await session.commit(commit(1, *chain("a", "b", "c")))
        read = await loaded(storage)
        assert (read.graph.nodes, read.head.node_count) == (chain("a", "b", "c"), 3)

        await session.commit(commit(2, *chain("a", "b")))

        read = await loaded(storage)
        assert (ids(read), read.head.leaf_node_id, read.head.node_count) == (["a", "b", "c"], "b", 3)

    @pytest.mark.parametrize(
        "changed",
        [
            node("b", "a", "other text"),
            node("b"),
            msgspec.structs.replace(node("b", "a"), agent_frame_id="f"),
        ],
    )
    async def test_an_id_with_other_content_is_a_conflict(self, harness: Harness, changed: msgspec.Struct) -> None:
        """An existing id with another text, parent or frame raises NodeConflict; nothing is written."""
        storage = await harness.open()
        await started(storage, "s", "a", "b")
        graph = append(*chain("new", after="b"), msgspec.convert(changed, type(node("b"))))
        await refuse(storage, commit(1, graph=graph), NodeConflict)

    async def test_an_id_twice_in_one_commit_is_refused(self, harness: Harness) -> None:
        """The same id twice in one delta raises InvalidInput, even with the same content."""
        storage = await harness.open()
        await started(storage)
        await refuse(storage, commit(1, node("b", "a"), node("b", "a")), InvalidInput)
        twice = ReplaceFull(nodes=(node("x"), node("x")), leaf_node_id="x", replaced_node_count=1)
        await refuse(storage, commit(1, graph=twice), InvalidInput)

    async def test_a_circle_of_parents_is_refused(self, harness: Harness) -> None:
        """Cyclic parent links cannot be stored."""
        storage = await harness.open()
        await started(storage)
        circle = (node("x", "y"), node("y", "x"))
        delta = ReplaceFull(nodes=circle, leaf_node_id="x", replaced_node_count=1)
        await refuse(storage, commit(1, graph=delta), InvalidInput)
        await refuse(storage, commit(1, node("self", "self")), NodeNotFound)

    async def test_the_head_counts_live_nodes(self, harness: Harness) -> None:
        """The node count of the head is the number of live nodes, after append, removal and replacement."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        await session.commit(commit(1, *chain("c", "d", after="a")))
        assert (await loaded(storage)).head.node_count == 4
        await session.tombstone(["b"])
        await session.commit(commit(2, node("e", "d")))
        read = await loaded(storage)
        assert (read.head.node_count, len(read.graph.nodes)) == (4, 4)
        await session.commit(commit(3, graph=ReplaceFull(nodes=chain("z"), leaf_node_id="z", replaced_node_count=4)))
        assert (await loaded(storage)).head.node_count == 1

    async def test_removed_nodes_are_gone_at_once(self, harness: Harness) -> None:
        """A tombstoned node vanishes from both scopes and from single reads, on every handle."""
        storages = [await harness.open() for _ in range(2)]
        session = await started(storages[0], "s", "a", "b")
        await session.commit(commit(1, *chain("c", "d", after="a")))

        assert await session.tombstone(["b"]) == 1

        for storage in storages:
            other = storage.session("s")
            assert ids(await other.load(FullGraph())) == ["a", "c", "d"]
            assert ids(await other.load(ActivePath(leaf_node_id="b"))) == []
            assert await other.node("b") is None
        head = await session.head()
        assert head is not None
        assert (head.revision, head.node_count) == (2, 3)

    async def test_a_path_ends_at_a_removed_ancestor(self, harness: Harness) -> None:
        """A tombstoned ancestor cuts the path; the nodes below it stay readable."""
        session = await started(await harness.open(), "s", "a", "b", "c", "d")
        await session.commit(commit(1, node("x")))
        assert await session.tombstone(["b"]) == 1
        assert ids(await session.load(ActivePath(leaf_node_id="d"))) == ["c", "d"]
        assert ids(await session.load(FullGraph())) == ["a", "c", "d", "x"]
        assert await session.vacuum() == VacuumReport(removed_node_count=1)
        assert ids(await session.load(ActivePath(leaf_node_id="d"))) == ["c", "d"]

    async def test_removing_is_idempotent(self, harness: Harness) -> None:
        """Unknown ids, repeated ids and no ids remove nothing; each node counts once."""
        session = await started(await harness.open(), "s", "a", "b", "c")
        await session.commit(commit(1, node("x")))
        assert await session.tombstone([]) == 0
        assert await session.tombstone(["nowhere"]) == 0
        assert await session.tombstone(["b", "c", "b", "nowhere"]) == 2
        assert await session.tombstone(["b", "c"]) == 0
        assert ids(await session.load(FullGraph())) == ["a", "x"]

    async def test_the_active_path_cannot_be_removed(self, harness: Harness) -> None:
        """Removing a node on the active path raises InvalidInput, and none of the nodes is removed."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        await session.commit(commit(1, *chain("c", "d", after="a")))
        before = await observe(storage)
        for needed in ("a", "c", "d"):
            with pytest.raises(InvalidInput):
                await session.tombstone(["b", needed])
        assert await observe(storage) == before

    async def test_a_removed_id_is_not_used_again(self, harness: Harness) -> None:
        """Appending the id of a tombstoned node raises NodeConflict, and no node can attach to it."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        await session.commit(commit(1, node("c", "a")))
        await session.tombstone(["b"])
        await refuse(storage, commit(2, *chain("b", after="a")), NodeConflict)
        await refuse(storage, commit(2, node("d", "b")), NodeNotFound)
        await refuse(storage, commit(2, graph=Unchanged(leaf_node_id="b")), NodeNotFound)

    async def test_vacuum_deletes_the_removed_nodes_of_its_session(self, harness: Harness) -> None:
        """Vacuum reports what this call deleted, touches no other session, and can run at any time."""
        storage = await harness.open()
        session = await created(storage)
        assert await session.vacuum() == VacuumReport(removed_node_count=0)
        await session.commit(commit(0, *chain("a", "b", "c")))
        await session.commit(commit(1, node("x")))
        other = await started(storage, "other", "a", "b")
        await other.commit(commit(1, node("x"), session_id="other"))
        await other.tombstone(["b"])
        await session.tombstone(["b", "c"])
        before = await observe(storage)

        for _ in range(2):
            assert await session.vacuum(dry_run=True) == VacuumReport(removed_node_count=2)
        assert await session.vacuum() == VacuumReport(removed_node_count=2)
        assert await session.vacuum(dry_run=True) == VacuumReport(removed_node_count=0)
        assert await session.vacuum() == VacuumReport(removed_node_count=0)

        assert await observe(storage) == before
        assert await other.vacuum() == VacuumReport(removed_node_count=1)

    async def test_another_handle_learns_of_removed_nodes(self, harness: Harness) -> None:
        """A handle that saw the head before a removal commits the right counts after it."""
        storages = [await harness.open() for _ in range(2)]
        session = await started(storages[0], "s", "a", "b", "c")
        await session.commit(commit(1, node("x", "a")))
        assert await storages[1].session("s").tombstone(["b", "c"]) == 2

        await session.commit(commit(2, node("y", "x")))

        read = await loaded(storages[1])
        assert (ids(read), read.head.node_count) == (["a", "x", "y"], 3)
        summary = (await storages[1].sessions.list()).sessions[0]
        assert summary.user_message_count == 3

    async def test_the_place_of_a_vacuumed_node_is_not_used_again(self, harness: Harness) -> None:
        """Nodes that were below a vacuumed node do not move below a new one."""
        session = await started(await harness.open(), "s", "a", "b", "c")
        await session.commit(commit(1, graph=append(node("d", "b"), leaf=None)))
        for revision, gone, new in ((2, ["b"], "b2"), (3, ["c"], "b3")):
            assert await session.tombstone(gone) == 1
            await session.vacuum()
            await session.commit(commit(revision, graph=append(node(new, "a"), leaf=None)))
        await session.commit(commit(4, node("e", "b2")))
        assert ids(await session.load()) == ["a", "b2", "e"]
        assert ids(await session.load(ActivePath(leaf_node_id="b3"))) == ["a", "b3"]
        assert ids(await session.load(ActivePath(leaf_node_id="d"))) == ["d"]
        assert ids(await session.load(ActivePath(leaf_node_id="c"))) == []

    async def test_removing_a_child_lets_the_branch_go_on(self, harness: Harness) -> None:
        """After the end of a branch is removed and vacuumed, its parent accepts new children."""
        session = await started(await harness.open(), "s", "a", "b", "c")
        await session.commit(commit(1, graph=Unchanged(leaf_node_id="b")))
        await session.tombstone(["c"])
        await session.commit(commit(2, node("d", "b")))
        await session.vacuum()
        await session.commit(commit(3, node("e", "d"), node("f", "b")))
        assert ids(await session.load(ActivePath(leaf_node_id="e"))) == ["a", "b", "d", "e"]
        assert ids(await session.load(ActivePath(leaf_node_id="f"))) == ["a", "b", "f"]
