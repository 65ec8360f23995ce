"""Several processes commit to one session and are killed: no acknowledged commit is lost, and none is applied twice."""

from __future__ import annotations

import asyncio
import signal

import pytest

import lash
from tests.raw import raw
from tests.warm_programs import Program, start

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_ROUNDS = 3
_PROCESSES = 3
_ACKNOWLEDGED_BEFORE_KILL = 15


def _start(url: str, name: str) -> Program:
    return start("tests.proof.concurrency.committer", url, "s", name)


def _run_round(url: str, number: int) -> set[str]:
    """Let the processes race, kill each after some acknowledgements, and return all acknowledgements."""
    processes = [_start(url, f"{number}-{index}") for index in range(_PROCESSES)]
    acknowledged: set[str] = set()
    for process in processes:
        for _ in range(_ACKNOWLEDGED_BEFORE_KILL):
            acknowledged.add(process.stdout.readline().strip())
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        acknowledged.update(line for line in rest.splitlines() if line)
    return acknowledged


async def test_acknowledged_turns_survive_sigkill_exactly_once(backend_url: str) -> None:
    """After kill -9 at random moments every acknowledged turn is stored, once, and all sums agree."""
    async with await lash.open(backend_url) as storage:
        await storage.sessions.create("s")
    acknowledged: set[str] = set()
    for number in range(_ROUNDS):
        acknowledged |= await asyncio.to_thread(_run_round, backend_url, number)

    turns = {turn for (turn,) in await raw(backend_url, "SELECT turn_id FROM lash_turns")}
    assert acknowledged <= turns
    assert len(turns) - len(acknowledged) <= _ROUNDS * _PROCESSES, "at most one unacknowledged commit for each kill"
    nodes = [node for (node,) in await raw(backend_url, "SELECT node_id FROM lash_nodes ORDER BY seq")]
    assert sorted(nodes) == sorted(turns)
    ((revision, node_count),) = await raw(backend_url, "SELECT revision, node_count FROM lash_sessions")
    assert revision == node_count == len(turns)
    assert await raw(backend_url, "SELECT input_tokens FROM lash_usage_totals") == [(len(turns),)]
    assert await raw(backend_url, "SELECT count(*) FROM lash_blobs") == [(1,)], "one revision is kept, so one blob is"

    async with await lash.open(backend_url) as storage:
        read = await storage.session("s").load()
    assert read is not None
    assert [node.node_id for node in read.graph.nodes] == nodes, "one line of history without a gap or a fork"
