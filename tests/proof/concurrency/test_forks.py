"""Several processes fork, commit to and delete the same sessions: no fork loses a node, and no orphan is left."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys

import pytest

import lash
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_PROCESSES = 3
_ROUNDS = 250
_SESSION_IDS = [f"s{number}" for number in range(6)]

_GAPS = """
    SELECT i.run_key, i.owner_key, i.segment
    FROM lash_runs AS i
    WHERE i.ceiling - i.floor <> (
        SELECT COUNT(*) FROM lash_nodes AS n
        WHERE n.session_key = i.owner_key AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
            AND n.tombstoned_at_ms IS NULL
    )
"""
_ORPHANS = """
    SELECT n.session_key, n.segment, n.depth
    FROM lash_segments AS g
    LEFT JOIN lash_nodes AS n ON n.session_key = g.session_key AND n.segment = g.segment
    WHERE g.session_key NOT IN (SELECT session_key FROM lash_sessions)
        AND NOT EXISTS (
            SELECT 1 FROM lash_runs AS i
            WHERE i.owner_key = g.session_key AND i.segment = g.segment
                AND (n.depth IS NULL OR (i.floor < n.depth AND i.ceiling >= n.depth))
        )
"""
_UNUSED_BLOBS = "SELECT session_key, hash FROM lash_blobs EXCEPT SELECT session_key, hash FROM lash_components"
_MISSING_BLOBS = "SELECT session_key, hash FROM lash_components EXCEPT SELECT session_key, hash FROM lash_blobs"


def _race(url: str) -> dict[str, int]:
    """Run the processes to their end, and return how often each operation succeeded in all of them."""
    command = [sys.executable, "-m", "tests.proof.concurrency.forker", url]
    processes = [
        subprocess.Popen([*command, str(seed), str(_ROUNDS), *_SESSION_IDS], stdout=subprocess.PIPE, text=True)
        for seed in range(_PROCESSES)
    ]
    done: dict[str, int] = {}
    for process in processes:
        output, _ = process.communicate()
        assert process.returncode == 0
        for name, count in re.findall(r"(\w+)=(\d+)", output):
            done[name] = done.get(name, 0) + int(count)
    return done


async def test_racing_forks_and_deletions_keep_every_path_whole(backend_url: str) -> None:
    """Afterwards every inherited run is complete, and no unreferenced row exists."""
    async with await lash.open(backend_url) as storage:
        await storage.sessions.create(_SESSION_IDS[0])
        first = lash.model.Commit(session_id=_SESSION_IDS[0], expected_revision=0)
        await storage.session(_SESSION_IDS[0]).commit(first)

        done = await asyncio.to_thread(_race, backend_url)

        assert all(done.get(name, 0) > 0 for name in ("_fork", "_delete", "_append", "_replace")), done
        for question in (_GAPS, _ORPHANS, _UNUSED_BLOBS, _MISSING_BLOBS):
            assert await raw(backend_url, question) == []
        assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean
        for summary in (await storage.sessions.list()).sessions:
            await _check_whole(storage.session(summary.meta.session_id))
        for session_id in _SESSION_IDS:
            await storage.sessions.delete(session_id)
        assert await raw(backend_url, "SELECT * FROM lash_segments") == []
        assert await raw(backend_url, "SELECT * FROM lash_nodes") == []


async def _check_whole(session: lash.Session) -> None:
    whole, path = await session.load(lash.model.FullGraph()), await session.load()
    assert whole is not None
    assert path is not None
    assert len(whole.graph.nodes) == whole.head.node_count
    parents = [node.parent_node_id for node in path.graph.nodes]
    assert parents == [None, *(node.node_id for node in path.graph.nodes)][: len(parents)]
    assert {node.node_id for node in path.graph.nodes} <= {node.node_id for node in whole.graph.nodes}
    known = {node.node_id for node in whole.graph.nodes}
    assert all(node.parent_node_id in known | {None} for node in whole.graph.nodes)
