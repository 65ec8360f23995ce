"""The contract of reading nodes by id, by parent and by kind."""

from __future__ import annotations

import pytest

from lash.errors import InvalidInput, NodeNotFound, SessionNotFound
from lash.model.session.commit import ReplaceFull
from lash.model.session.node import Node, PluginEntry, ProtocolEntry
from lash.model.session.session import FullGraph
from lash.stores.session import Session
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.state import ids
from tests.factories.session import MOMENT, chain, commit, node, plugin_node, started


def note(node_id: str, parent: str | None = None, plugin_type: str = "note") -> Node:
    """Return a node of a plugin."""
    entry = PluginEntry(plugin_type=plugin_type, body=node_id)
    return Node(node_id=node_id, parent_node_id=parent, timestamp=MOMENT, entry=entry)


async def _tree(storage: Storage) -> Session:
    """Return a session with the path a-b-c, the branch a-d-e, the branch a-f and a second root g."""
    session = await started(storage, "s", "a", "b", "c")
    await session.commit(commit(1, *chain("d", "e", after="a")))
    await session.commit(commit(2, node("f", "a"), node("g")))
    return session


async def _children(session: Session, node_id: str, after: str | None = None, limit: int = 100) -> list[str]:
    return [each.node_id for each in await session.children(node_id, after=after, limit=limit)]


async def _listed(
    session: Session, kind: str, after: str | None = None, limit: int = 100, *, newest_first: bool = False
) -> list[str]:
    found = await session.list_nodes(kind, after=after, limit=limit, newest_first=newest_first)
    return [each.node_id for each in found]


class TestNodes:
    """Laws of reads by ids."""

    async def test_many_nodes_come_in_the_order_asked(self, harness: Harness) -> None:
        """Nodes of any branch come in the order of the ids, once each; unknown and removed ones are left out."""
        storage = await harness.open()
        session = await _tree(storage)
        await session.tombstone(["f"])
        found = await session.nodes(["e", "nowhere", "a", "f", "e"])
        assert list(found.items()) == [("e", node("e", "d")), ("a", node("a"))]
        assert await session.nodes([]) == {}

    async def test_more_nodes_than_one_answer_holds(self, harness: Harness) -> None:
        """Any number of ids can be asked for."""
        storage = await harness.open()
        names = [f"n{number}" for number in range(1_201)]
        session = await started(storage, "s", *names)
        assert list(await session.nodes(names[::-1])) == names[::-1]

    async def test_a_fork_finds_inherited_nodes(self, harness: Harness) -> None:
        """A fork reads what it inherits and what it owns, and nothing else of its source."""
        storage = await harness.open()
        await _tree(storage)
        await storage.sessions.fork("s", "t", node_id="b")
        fork = storage.session("t")
        await fork.commit(commit(1, node("x", "b"), session_id="t"))
        assert list(await fork.nodes(["x", "c", "b", "a"])) == ["x", "b", "a"]

    async def test_arguments_are_checked(self, harness: Harness) -> None:
        """Ids that are not a collection of ids, unknown kinds and impossible pages raise InvalidInput."""
        storage = await harness.open()
        session = await started(storage)
        with pytest.raises(InvalidInput):
            await session.nodes("abc")
        for kind in ("", "note", "plugin", "messages", "plugin:\ud800"):
            with pytest.raises(InvalidInput):
                await session.list_nodes(kind)
        for limit in (0, 1_001):
            with pytest.raises(InvalidInput):
                await session.children("a", limit=limit)
        for call in (session.children("a", after="nowhere"), session.list_nodes("message", after="nowhere")):
            with pytest.raises(NodeNotFound):
                await call
        for missing in (
            storage.session("none").nodes(["a"]),
            storage.session("none").children("a"),
            storage.session("none").list_nodes("message"),
        ):
            with pytest.raises(SessionNotFound):
                await missing


class TestChildren:
    """Laws of reads by parent."""

    async def test_children_come_in_the_order_of_insertion(self, harness: Harness) -> None:
        """A node's children are those of all branches, in pages that do not overlap."""
        storage = await harness.open()
        session = await _tree(storage)
        assert await _children(session, "a") == ["b", "d", "f"]
        assert await session.children("d") == (node("e", "d"),)
        assert await _children(session, "c") == []
        assert await _children(session, "nowhere") == []
        assert await _children(session, "a", limit=2) == ["b", "d"]
        assert await _children(session, "a", after="d", limit=2) == ["f"]
        assert await _children(session, "a", after="f") == []

    async def test_a_removed_node_is_no_child_and_has_none(self, harness: Harness) -> None:
        """Removed nodes are left out, before and after a vacuum."""
        storage = await harness.open()
        session = await _tree(storage)
        await session.commit(commit(3, node("h", "e"), node("i", "c")))
        await session.tombstone(["d"])
        for _ in range(2):
            assert await _children(session, "a") == ["b", "f"]
            assert await _children(session, "d") == []
            assert await _children(session, "e") == ["h"]
            await session.vacuum()

    async def test_a_replaced_graph_has_its_own_children(self, harness: Harness) -> None:
        """After a replacement the children are those of the new graph, in its order."""
        storage = await harness.open()
        session = await _tree(storage)
        nodes = (node("c", "a"), node("b", "a"), node("a"), node("d", "b"))
        await session.commit(commit(3, graph=ReplaceFull(nodes=nodes, leaf_node_id="d", replaced_node_count=7)))
        assert await _children(session, "a") == ["c", "b"]
        assert await _children(session, "b") == ["d"]

    async def test_a_fork_sees_inherited_and_own_children(self, harness: Harness) -> None:
        """In a fork the inherited child comes first, then the fork's own; a fork of it sees its part of both."""
        storage = await harness.open()
        await _tree(storage)
        await storage.sessions.fork("s", "t", node_id="c")
        fork = storage.session("t")
        await fork.commit(commit(1, node("x", "c"), node("y", "a"), node("z", "a"), session_id="t"))
        assert await _children(fork, "a") == ["b", "y", "z"]
        assert await _children(fork, "a", after="b", limit=1) == ["y"]
        assert await _children(fork, "a", after="y") == ["z"]
        assert await _children(fork, "c") == ["x"]
        await storage.sessions.fork("t", "u", node_id="x")
        second = storage.session("u")
        await second.commit(commit(1, node("w", "x"), session_id="u"))
        assert [await _children(second, each) for each in "abcx"] == [["b"], ["c"], ["x"], ["w"]]


class TestKinds:
    """Laws of lists by kind."""

    async def test_nodes_are_listed_by_kind_in_both_orders(self, harness: Harness) -> None:
        """A list has the live nodes of its kind of all branches, in pages, oldest or newest first."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        await session.commit(commit(1, note("n1", "b"), note("o", "n1", "other"), note("n2", "a")))
        await session.commit(commit(2, node("c", "n2"), note("n3", "c"), note("n4", "n3")))
        event = ProtocolEntry(plugin_id="mcp", payload=1)
        await session.commit(commit(3, Node(node_id="p", parent_node_id="n4", timestamp=MOMENT, entry=event)))
        await session.tombstone(["n1"])
        assert await _listed(session, "message") == ["a", "b", "c"]
        assert await _listed(session, "plugin:note") == ["n2", "n3", "n4"]
        assert await _listed(session, "plugin:note", limit=2) == ["n2", "n3"]
        assert await _listed(session, "plugin:note", after="n1", limit=1) == ["n2"]
        assert await _listed(session, "plugin:note", after="n3") == ["n4"]
        assert await _listed(session, "plugin:note", limit=2, newest_first=True) == ["n4", "n3"]
        assert await _listed(session, "plugin:note", after="n3", newest_first=True) == ["n2"]
        assert await _listed(session, "plugin:other") == ["o"]
        assert await _listed(session, "protocol:mcp") == ["p"]
        assert await _listed(session, "plugin:mcp") == []

    async def test_any_name_of_a_plugin_can_be_listed(self, harness: Harness) -> None:
        """Very long names and names with NUL are kinds like others."""
        storage = await harness.open()
        names = ("x" * 5_000, "x" * 5_000 + "y", "with\0nul", "päckchen")
        nodes = [note(f"n{number}", None, name) for number, name in enumerate(names)]
        session = await started(storage, "s", "a")
        await session.commit(commit(1, *nodes))
        for each in nodes:
            assert await session.list_nodes(each.kind) == (each,)

    async def test_a_fork_lists_inherited_nodes_first(self, harness: Harness) -> None:
        """A fork lists its inherited nodes along their path, then its own; newest first is exactly the opposite."""
        storage = await harness.open()
        session = await started(storage, "s", "a")
        await session.commit(commit(1, note("n1", "a"), note("side", "a"), note("n2", "n1"), note("late", "n2")))
        await storage.sessions.fork("s", "t", node_id="n2")
        fork = storage.session("t")
        await fork.commit(commit(1, note("n3", "n2"), note("n4", "a"), session_id="t"))
        expected = ["n1", "n2", "n3", "n4"]
        assert await _listed(fork, "plugin:note") == expected
        assert await _listed(fork, "plugin:note", newest_first=True) == expected[::-1]
        for newest_first, order in ((False, expected), (True, expected[::-1])):
            seen: list[str] = []
            while page := await _listed(
                fork, "plugin:note", after=seen[-1] if seen else None, limit=1, newest_first=newest_first
            ):
                seen += page
            assert seen == order
        assert ids(await fork.load(FullGraph())) == ["a", *expected]

    async def test_a_long_node_has_its_kind_too(self, harness: Harness) -> None:
        """A node whose body is stored compressed is listed like others."""
        storage = await harness.open()
        session = await started(storage, "s", "a")
        long = plugin_node("b", "word " * 1_000, "a")
        await session.commit(commit(1, long))
        assert await session.list_nodes("plugin:example") == (long,)
