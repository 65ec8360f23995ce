"""How paths are read on SQLite: short ones by the event loop, long ones in a thread, and few pages of long nodes."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import apsw
import pytest

import lash
from lash.backend.session import Sessions
from lash.sqlite.rows.session.session import SQLiteSessionRows
from lash.stores.storage import Storage
from tests.factories.session import chain, created, node, started


@pytest.mark.parametrize(("leaf", "nodes", "threads"), [("n5999", 500, 0), ("n5999", 501, 1), (None, 5_001, 1)])
async def test_nodes_that_are_not_decoded(tmp_path: Path, leaf: str | None, nodes: int, threads: int) -> None:
    """The event loop reads up to 500 nodes of a path by its leaf, and up to 5,000 of the current one in pieces."""
    names = [f"n{number}" for number in range(6_000)]
    async with await lash.open(f"sqlite:///{tmp_path}/lash.db") as storage:
        session = await started(storage, "s", *names)
        before = set(threading.enumerate())
        found = await session.raw_path(leaf_node_id=leaf, last=nodes)
        assert [each.node_id for each in found] == names[-nodes:]
        started_threads = [each.name for each in set(threading.enumerate()) - before]
        assert started_threads == ["lash-sqlite-reader"] * threads
        read = await session.load()
        assert read is not None
        assert read.graph.nodes == chain(*names)


async def test_other_tasks_run_between_the_pieces_of_a_path(tmp_path: Path) -> None:
    """The end of the current path is read without a thread, 500 nodes at a time."""
    names = [f"n{number}" for number in range(6_000)]
    async with await lash.open(f"sqlite:///{tmp_path}/lash.db") as storage:
        session = await started(storage, "s", *names)
        before, iterations = set(threading.enumerate()), 0
        reading = asyncio.ensure_future(session.raw_path(last=5_000))
        while not reading.done():
            await asyncio.sleep(0)
            iterations += 1
        assert [each.node_id for each in await reading] == names[-5_000:]
        assert iterations >= 5_000 / 500
        assert set(threading.enumerate()) == before


async def test_the_overflow_pages_of_long_nodes_are_not_cached(tmp_path: Path) -> None:
    """SQLite copies a text out of its overflow pages; it walks along them again only for a column behind the text."""
    url, names = f"sqlite:///{tmp_path}/lash.db", [f"n{number}" for number in range(100)]
    async with await lash.open(url, compression=lash.Compression.LOW_LATENCY) as storage:
        session = await created(storage)
        await session.append([node(name, text="0123456789" * 400) for name in names])
    async with await lash.open(url) as storage:
        session = storage.session("s")
        await session.raw_path(last=1)
        before = _pages_read(storage)
        assert [each.node_id for each in await session.raw_path(last=100)] == names
        # Only pages with the beginnings of several nodes; the rest of each text is on four pages of its own.
        assert _pages_read(storage) - before < len(names) / 2


def _pages_read(storage: Storage) -> int:
    """Return how many pages were read into the caches of the connections."""
    sessions = storage.sessions
    assert isinstance(sessions, Sessions)
    rows = sessions._rows
    assert isinstance(rows, SQLiteSessionRows)
    readers = (rows._database._loop_reads, rows._database._writer_reads)
    return sum(each._connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)[0] for each in readers if each is not None)
