"""The contract of light reads: a path without decoding it, and a checkpoint without its bytes."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from lash.errors import InvalidInput, SessionDeleted, SessionNotFound
from lash.model.session.node import Node, RawNode
from lash.model.session.session import ActivePath, Retention
from lash.stores.session import Session
from lash.testing.harness import Harness
from tests.factories.session import chain, commit, created, draft, frame, node, started


def _decoded(nodes: tuple[RawNode, ...]) -> tuple[Node, ...]:
    """Return the nodes that the raw ones are."""
    return tuple(
        msgspec.convert(
            {**msgspec.json.decode(each.body), "node_id": each.node_id, "parent_node_id": each.parent_node_id}, Node
        )
        for each in nodes
    )


async def _agree(session: Session, leaf: str | None = None, last: int | None = None) -> list[str]:
    """Read a path in both ways, and return the ids of its nodes."""
    raw = await session.raw_path(leaf_node_id=leaf, last=last)
    read = await session.load(ActivePath(leaf_node_id=leaf, last=last))
    assert read is not None
    assert _decoded(raw) == read.graph.nodes
    return [each.node_id for each in raw]


class TestRawPath:
    """Laws of paths that are not decoded."""

    async def test_a_raw_path_is_the_path(self, harness: Harness) -> None:
        """It has the nodes of a load, whole or its end, over branches, forks, long, removed and erased nodes."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b", "c")
        await session.commit(commit(1, *chain("d", "e", after="b")))
        await session.commit(commit(2, node("long", "e", "word " * 1_000), node("side", "c")))
        await session.commit(commit(3, node("f", "long")))
        assert await _agree(session) == ["a", "b", "d", "e", "long", "f"]
        for last in (1, 2, 3, 4, 5, 9):
            await _agree(session, last=last)
        assert await _agree(session, leaf="side", last=2) == ["c", "side"]
        await storage.sessions.fork("s", "t", node_id="e")
        fork = storage.session("t")
        assert await _agree(fork, last=2) == ["d", "e"]
        await fork.commit(commit(1, node("x", "e"), session_id="t"))
        assert await _agree(fork) == ["a", "b", "d", "e", "x"]
        for last in (1, 2, 3):
            await _agree(fork, last=last)
        await session.erase(["long"])
        assert await _agree(session, last=2) == ["e", "f"]
        await session.tombstone(["c"])
        assert await _agree(session, leaf="side") == ["side"]

    async def test_a_long_raw_path(self, harness: Harness) -> None:
        """A path of more nodes than one answer holds is whole."""
        storage = await harness.open()
        names = [f"n{number}" for number in range(1_100)]
        session = await started(storage, "s", *names)
        assert await _agree(session) == names
        assert await _agree(session, last=700) == names[-700:]
        assert await _agree(session, last=20) == names[-20:]

    async def test_a_long_raw_path_over_branches_and_gaps(self, harness: Harness) -> None:
        """Its pieces may lie on several segments, and nodes in the middle may be erased."""
        storage = await harness.open()
        names = [f"n{number}" for number in range(1_300)]
        session = await started(storage, "s", *names)
        await session.commit(commit(1, *chain(*[f"m{number}" for number in range(600)], after="n899")))
        expected = [*names[:900], *[f"m{number}" for number in range(600)]]
        for last in (599, 600, 601, 1_100, 1_500, 1_501):
            assert await _agree(session, last=last) == expected[-last:]
        assert await session.erase(["n500"]) == 1
        expected.remove("n500")
        assert await _agree(session, last=1_400) == expected[-1_400:]
        await storage.sessions.fork("s", "t", node_id="m599")
        await storage.session("t").append([node("x")])
        assert await _agree(storage.session("t"), last=700) == [*expected[-699:], "x"]

    async def test_a_raw_path_that_grows_while_it_is_read(self, harness: Harness) -> None:
        """It is one path, to the leaf at some moment of the read, whatever is added or deleted meanwhile."""
        storage = await harness.open()
        session = await started(storage, "s", *[f"n{number}" for number in range(1_200)])

        async def append(first: int) -> None:
            for number in range(first, first + 10):
                await session.append([node(f"n{number}")])

        async def read() -> None:
            for _ in range(10):
                path = await session.raw_path(last=1_201)
                ends = int(path[-1].node_id.removeprefix("n"))
                expected = [f"n{number}" for number in range(ends + 1)][-1_201:]
                assert [each.node_id for each in path] == expected

        await asyncio.gather(append(1_200), read())
        reading = asyncio.ensure_future(session.raw_path(last=1_300))
        await asyncio.sleep(0)
        await storage.sessions.delete("s")
        with contextlib.suppress(SessionDeleted):
            assert len(await reading) == 1_210

    async def test_an_empty_path(self, harness: Harness) -> None:
        """Before the first commit, and for an unknown leaf, there are no nodes; an unknown session is an error."""
        storage = await harness.open()
        session = await created(storage)
        assert await session.raw_path() == await session.raw_path(last=5) == ()
        await session.commit(commit(0, node("a")))
        assert await session.raw_path(leaf_node_id="nowhere", last=5) == ()
        for call in (storage.session("none").raw_path(), storage.session("none").raw_path(last=3)):
            with pytest.raises(SessionNotFound):
                await call
        for last in (0, -1):
            with pytest.raises(InvalidInput):
                await session.raw_path(last=last)


class TestManifest:
    """Laws of checkpoints without their bytes."""

    async def test_a_manifest_is_that_of_the_checkpoint(self, harness: Harness) -> None:
        """Of the head or of a kept revision; None where no checkpoint is kept."""
        storage = await harness.open(retention=Retention.all())
        session = await created(storage)
        assert await session.checkpoint_manifest() is None
        await session.commit(commit(0, node("a"), checkpoint=draft(1, {"k": b"v", "b": b"w"}), frames=(frame("f"),)))
        await session.commit(commit(1, checkpoint=draft(2, {"k": b"v"})))
        for revision in (None, 1, 2):
            checkpoint = await session.checkpoint(revision)
            assert checkpoint is not None
            assert await session.checkpoint_manifest(revision) == checkpoint.manifest
        assert await session.checkpoint_manifest(3) is None
        with pytest.raises(SessionNotFound):
            await storage.session("none").checkpoint_manifest()
        with pytest.raises(InvalidInput):
            await session.checkpoint_manifest(-1)
