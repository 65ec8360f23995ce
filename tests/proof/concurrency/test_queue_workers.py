"""Workers in several processes drain the queues of many sessions and are killed: every input is handled once."""

from __future__ import annotations

import asyncio
import random
from typing import Final

import pytest

import lash
from tests.raw import raw
from tests.warm_programs import Program, start

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

SESSIONS: Final = [f"s{number}" for number in range(25)]
INPUTS: Final = 100
"""How many inputs each session gets."""
PROCESSES: Final = 4
KILLS: Final = 4


def _text(session_id: str, number: int) -> str:
    return f"{session_id}-{number}"


def _draft(session_id: str, number: int) -> lash.model.BatchDraft:
    """Return a keyed input; most join their neighbours, some are claimed alone."""
    return lash.model.BatchDraft(
        session_id=session_id,
        payloads=(lash.model.TurnInput.of_text(_text(session_id, number)),),
        source_key=f"host:{number}",
        slot=lash.model.Slot.JOIN,
        merge_key="g" if number % 17 else None,
    )


async def _enqueue(storage: lash.Storage, numbers: range) -> None:
    """Enqueue the inputs of these numbers to every session, in order in each, and some of them twice."""

    async def fill(session_id: str) -> None:
        for number in numbers:
            await storage.queue.enqueue(_draft(session_id, number))
            if number % 10 == 0:
                assert not (await storage.queue.enqueue(_draft(session_id, number // 2))).created

    await asyncio.gather(*(fill(session_id) for session_id in SESSIONS))


class Crew:
    """The running processes, and the killed ones."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._working: list[Program] = []
        self.killed = 0

    def start(self) -> None:
        """Start one more process."""
        self._working.append(start("tests.proof.concurrency.queue_worker", self._url, *SESSIONS))

    def kill_some(self) -> None:
        """Kill one process after the other, always the oldest, and replace it."""
        for _ in range(KILLS):
            self._kill_one()

    def _kill_one(self) -> None:
        """Wait until a process has claimed work, kill it, and start another one."""
        victim = self._working.pop(0)
        for _ in range(random.randint(1, 6)):
            assert victim.stdout.readline(), "the process ended by itself"
        victim.kill()
        victim.communicate()
        self.killed += 1
        self.start()

    def end(self) -> None:
        """Kill all remaining processes, and fail if one had ended on its own."""
        ended = [process.pid for process in self._working if process.poll() is not None]
        for process in self._working:
            process.kill()
            process.communicate()
        assert ended == []


async def _drained(url: str) -> None:
    async with asyncio.timeout(90):
        while await raw(url, "SELECT count(*) FROM lash_batches") != [(0,)]:  # noqa: ASYNC110 - other processes do the work
            await asyncio.sleep(0.05)


async def _work_off(url: str, storage: lash.Storage) -> int:
    """Run the processes while inputs arrive and some of them are killed; return the number of kills."""
    crew = Crew(url)
    try:
        for _ in range(PROCESSES):
            crew.start()
        await asyncio.gather(asyncio.to_thread(crew.kill_some), _enqueue(storage, range(INPUTS // 4, INPUTS)))
        await _drained(url)
    finally:
        crew.end()
    return crew.killed


async def test_every_input_is_handled_once_in_order(backend_url: str) -> None:
    """8 workers, half of their processes killed with SIGKILL, lose no input and repeat none."""
    async with await lash.open(backend_url) as storage:
        for session_id in SESSIONS:
            await storage.sessions.create(session_id)
        await _enqueue(storage, range(INPUTS // 4))
        assert await _work_off(backend_url, storage) == KILLS

        for session_id in SESSIONS:
            read = await storage.session(session_id).load(lash.model.FullGraph())
            assert read is not None
            entries = [node.entry for node in read.graph.nodes]
            said = [entry.message.parts[0].content for entry in entries if isinstance(entry, lash.model.MessageEntry)]
            assert said == [_text(session_id, number) for number in range(INPUTS)]
            assert [node.parent_node_id for node in read.graph.nodes[1:]] == [
                node.node_id for node in read.graph.nodes[:-1]
            ], "one line of history"
        assert await storage.queue.ready_sessions() == ()
    keys = await raw(backend_url, "SELECT state, count(*) FROM lash_source_keys GROUP BY state")
    assert keys == [("consumed", len(SESSIONS) * INPUTS)]
