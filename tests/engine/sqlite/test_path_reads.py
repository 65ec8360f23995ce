"""Where paths are read on SQLite: short ones by the event loop, long ones in a thread."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import lash
from tests.factories.session import chain, started


@pytest.mark.parametrize(("nodes", "threads"), [(500, 0), (501, 1)])
async def test_nodes_that_are_not_decoded(tmp_path: Path, nodes: int, threads: int) -> None:
    """The event loop reads up to 500 nodes of a path, by its leaf or the end of the current one."""
    names = [f"n{number}" for number in range(600)]
    async with await lash.open(f"sqlite:///{tmp_path}/lash.db") as storage:
        session = await started(storage, "s", *names)
        before = set(threading.enumerate())
        for leaf in ("n599", None):
            found = await session.raw_path(leaf_node_id=leaf, last=nodes)
            assert [each.node_id for each in found] == names[-nodes:]
        started_threads = [each.name for each in set(threading.enumerate()) - before]
        assert started_threads == ["lash-sqlite-reader"] * threads
        read = await session.load()
        assert read is not None
        assert read.graph.nodes == chain(*names)
