"""The contract of nodes with bytes, and of messages with a framework's own item."""

from __future__ import annotations

import pytest

from lash.base.compression import Compression
from lash.errors import InvalidInput, NodeConflict, TurnConflict
from lash.model.session.message import Message, Role
from lash.model.session.node import BytesEntry, MessageEntry, Node
from lash.model.session.session import ActivePath, FullGraph
from lash.model.value import JSON
from lash.testing.harness import Harness
from tests.contract.state import ids, loaded
from tests.factories.session import MOMENT, commit, created, node, started

ALL = bytes(range(256))


def packet(node_id: str, content: bytes, parent: str | None = None) -> Node:
    """Return a node of bytes."""
    entry = BytesEntry(plugin_type="graph", content=content)
    return Node(node_id=node_id, parent_node_id=parent, timestamp=MOMENT, entry=entry)


def shown(node_id: str, native: JSON, parent: str | None = None) -> Node:
    """Return a message with a framework's own item."""
    entry = MessageEntry(message=Message.of_text(node_id, Role.USER, "hello"), native=native)
    return Node(node_id=node_id, parent_node_id=parent, timestamp=MOMENT, entry=entry)


class TestBytes:
    """Laws of nodes whose content is bytes."""

    @pytest.mark.parametrize("compression", list(Compression))
    async def test_bytes_come_back_whichever_way_they_are_read(
        self, harness: Harness, compression: Compression
    ) -> None:
        """Empty, short and long bytes, whether they can be compressed or not, read the same by every call."""
        storage = await harness.open(compression=compression)
        session = await created(storage)
        nodes = (
            packet("a", b""),
            packet("b", ALL, "a"),
            packet("c", ALL * 100, "b"),
            packet("d", b"\0" * 50_000, "c"),
        )
        await session.commit(commit(0, *nodes))
        assert (await loaded(storage)).graph.nodes == nodes
        read = await session.load(ActivePath(last=2))
        assert read is not None
        assert read.graph.nodes == nodes[2:]
        assert await session.node("c") == nodes[2]
        assert await session.list_nodes("bytes:graph") == nodes
        assert [each.content for each in await session.raw_path()] == [b"", ALL, ALL * 100, b"\0" * 50_000]
        assert all(b'"content":""' in each.body for each in await session.raw_path())
        await storage.sessions.fork("s", "t")
        assert (await loaded(storage, "t")).graph.nodes == nodes
        assert await storage.maintenance.find_damage() == ()

    async def test_the_same_bytes_again_are_no_conflict(self, harness: Harness) -> None:
        """An equal node is not written again; other bytes under its id raise NodeConflict."""
        storage = await harness.open()
        session = await started(storage, "s", "a")
        await session.commit(commit(1, packet("b", ALL, "a")))
        await session.commit(commit(2, packet("b", ALL, "a"), node("c", "b")))
        with pytest.raises(NodeConflict):
            await session.commit(commit(3, packet("b", ALL + b"x", "a")))
        assert ids(await session.load(FullGraph())) == ["a", "b", "c"]

    async def test_a_turn_knows_its_bytes(self, harness: Harness) -> None:
        """A repeated turn with other bytes, or with another item, raises TurnConflict."""
        storage = await harness.open()
        session = await created(storage)
        first = commit(0, packet("a", ALL), shown("b", {"x": 1}, "a"), turn_id="t")
        result = await session.commit(first)
        assert await session.commit(first) == result
        others = ((packet("a", b"other"), shown("b", {"x": 1}, "a")), (packet("a", ALL), shown("b", {"x": 2}, "a")))
        for nodes in others:
            with pytest.raises(TurnConflict):
                await session.commit(commit(0, *nodes, turn_id="t"))

    async def test_bytes_can_be_erased(self, harness: Harness) -> None:
        """An erased node of bytes has none."""
        storage = await harness.open()
        session = await created(storage)
        await session.commit(commit(0, packet("a", ALL), packet("b", ALL, "a")))
        assert await session.erase(["a"]) == 1
        assert [each.node_id for each in await session.list_nodes("bytes:graph")] == ["b"]
        assert ids(await session.load()) == ["b"]

    async def test_only_bytes_are_taken(self, harness: Harness) -> None:
        """Content of another type is refused by its place."""
        storage = await harness.open()
        session = await created(storage)
        wrong = packet("a", "text")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match=r"nodes\[0\].entry.content must be bytes"):
            await session.commit(commit(0, wrong))


class TestNative:
    """Laws of a framework's own item beside a message."""

    async def test_a_native_item_is_stored_with_its_message(self, harness: Harness) -> None:
        """It comes back as it was, and the message beside it is shown like others."""
        storage = await harness.open()
        session = await created(storage)
        nodes = (shown("a", {"type": "message", "content": [{"text": "hello"}]}), shown("b", [1.5, None], "a"))
        await session.commit(commit(0, *nodes))
        assert (await loaded(storage)).graph.nodes == nodes
        assert await session.list_nodes("message") == nodes
        (summary,) = (await storage.sessions.list()).sessions
        assert (summary.first_user_message, summary.user_message_count) == ("hello", 2)
