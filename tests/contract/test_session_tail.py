"""The contract of long sessions: the end of a path costs the same at any length, and a long one is read whole."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from lash.model.session.node import MessageEntry, Node
from lash.model.session.session import ActivePath, FullGraph
from lash.plan.session import session as session_plan
from lash.plan.session.node import PathRow, path_nodes
from lash.stores.session import Session
from lash.testing.harness import Harness
from tests.factories.session import chain, commit, created, node, started

_LONG = 1_201
"""More nodes than PostgreSQL returns in one row, and not a multiple of any page."""


def _names(count: int, prefix: str = "n") -> tuple[str, ...]:
    return tuple(f"{prefix}{number}" for number in range(count))


async def _path(session: Session, leaf: str | None = None, last: int | None = None) -> tuple[Node, ...]:
    read = await session.load(ActivePath(leaf_node_id=leaf, last=last))
    assert read is not None
    return read.graph.nodes


class TestSessionTail:
    """Laws of reading long sessions."""

    async def test_the_end_of_a_path_costs_the_same_at_any_length(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The last nodes take the same statements and the same rows at 100 and at 5,000 nodes."""
        statements: list[str] = []
        rows: list[int] = []

        def counting(given: list[PathRow]) -> tuple[Node, ...]:
            rows.append(len(given))
            return path_nodes(given)

        monkeypatch.setattr(session_plan, "path_nodes", counting)
        storage = await harness.open(on_statement=statements.append)
        session = await started(storage, "s", *_names(100))
        await _path(session, last=5)
        costs = []
        for expected in (100, 5_000):
            if expected > 100:
                new = _names(expected)[100:]
                await session.commit(commit(1, *chain(*new, after="n99")))
            statements.clear()
            rows.clear()
            end = await _path(session, last=5)
            assert [each.node_id for each in end] == list(_names(expected)[-5:])
            costs.append((statements.copy(), rows.copy()))
        assert costs[0] == costs[1]
        assert costs[0][1] == [5]

    async def test_a_long_path_is_read_whole(self, harness: Harness) -> None:
        """A long path has all its nodes in order, whole or from any of them on, of the session and of its fork."""
        storage = await harness.open()
        nodes = chain(*_names(_LONG))
        session = await started(storage, "s", *_names(_LONG))
        assert await _path(session) == nodes
        assert await _path(session, last=_LONG - 1) == nodes[1:]
        assert await _path(session, last=_LONG + 1) == nodes
        assert await _path(session, leaf="n800") == nodes[:801]
        await storage.sessions.fork("s", "t", node_id="n1000")
        fork = storage.session("t")
        own = chain(*_names(700, "f"), after="n1000")
        await fork.commit(commit(1, *own, session_id="t"))
        assert await _path(fork) == (*nodes[:1001], *own)
        assert await _path(fork, last=800) == (*nodes[901:1001], *own)

    async def test_a_long_path_is_decoded_in_a_thread(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        """The event loop decodes short reads itself, and leaves long ones to a thread."""
        threads: list[bool] = []

        def watched(rows: list[PathRow]) -> tuple[Node, ...]:
            threads.append(threading.current_thread() is not threading.main_thread())
            return path_nodes(rows)

        monkeypatch.setattr(session_plan, "path_nodes", watched)
        session = await started(await harness.open(), "s", *_names(_LONG))
        await _path(session, last=100)
        await _path(session, last=_LONG - 1)
        await _path(session)
        await session.load(FullGraph())
        assert threads == [False, True, True, True]

    async def test_nodes_do_not_burden_the_garbage_collector(self, harness: Harness) -> None:
        """Nodes and messages are not tracked by the garbage collector, whose pauses grow with what it tracks."""
        (read,) = await _path(await started(await harness.open(), "s", "a"))
        assert isinstance(read.entry, MessageEntry)
        values = (read, read.entry, read.entry.message, read.entry.message.parts[0])
        assert [gc.is_tracked(value) for value in values] == [False] * 4

    async def test_a_long_graph_is_read_whole(self, harness: Harness) -> None:
        """A long graph has every branch in the order of insertion, after the nodes that a fork inherits."""
        storage = await harness.open()
        session = await started(storage, "s", *_names(_LONG))
        branch = chain(*_names(600, "b"), after="n5")
        await session.commit(commit(1, *branch))
        read = await session.load(FullGraph())
        assert read is not None
        assert read.graph.nodes == (*chain(*_names(_LONG)), *branch)
        await storage.sessions.fork("s", "t", node_id="n900")
        fork = storage.session("t")
        own = chain("own", after="n900")
        await fork.commit(commit(1, *own, session_id="t"))
        read = await fork.load(FullGraph())
        assert read is not None
        assert read.graph.nodes == (*chain(*_names(901)), *own)

    async def test_a_long_path_ends_where_an_ancestor_was_removed(self, harness: Harness) -> None:
        """A removed node cuts a long path, as it cuts a short one."""
        session = await started(await harness.open(), "s", *_names(_LONG))
        await session.commit(commit(1, node("other", "n2")))
        assert await session.tombstone(["n300"]) == 1
        path = await _path(session, leaf=f"n{_LONG - 1}")
        assert [each.node_id for each in path] == list(_names(_LONG)[301:])

    async def test_a_long_read_is_of_one_revision(self, harness: Harness) -> None:
        """Whatever is committed while a long path is read, the nodes are those of the head that is returned."""
        storage = await harness.open()
        session = await created(storage)
        await session.commit(commit(0, *chain(*_names(_LONG))))

        async def write() -> None:
            leaf = f"n{_LONG - 1}"
            for revision in range(1, 31):
                await session.commit(commit(revision, node(f"w{revision}", leaf)))
                leaf = f"w{revision}"
                await asyncio.sleep(0)

        writing = asyncio.create_task(write())
        revisions = set()
        while not writing.done():
            read = await session.load()
            assert read is not None
            assert len(read.graph.nodes) == read.head.node_count == _LONG + read.head.revision - 1
            assert read.graph.nodes[-1].node_id == read.head.leaf_node_id
            revisions.add(read.head.revision)
            await asyncio.sleep(0)
        await writing
        assert revisions
