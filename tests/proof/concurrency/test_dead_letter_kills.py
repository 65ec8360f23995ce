"""Processes are killed while they bury, requeue and discard: no input is lost or duplicated."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from typing import Final

import msgspec
import pytest

import lash
from tests import warm_programs
from tests.contract.queue_state import claimed, joining, late, leased, queued, texts
from tests.factories.session import created
from tests.raw import raw

pytestmark = [
    pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True),
    # Dozens of processes are started and killed.
    pytest.mark.timeout(600),
]

_PROGRAM: Final = "tests.proof.concurrency.dead_letter_worker"
_DELAYS_S: Final = (0.0003, 0.001, 0.003)
"""How long after its first statement a process is killed, besides being killed at each of them."""
_SESSIONS: Final = [f"s{number}" for number in range(4)]
_INPUTS: Final = 40
_KILLS: Final = 6


class Stage:
    """One session with the inputs ``a`` and ``b``, claimed, and buried unless that is what is tried."""

    def __init__(self, url: str, storage: lash.Storage, act: str) -> None:
        self._url = url
        self._storage = storage
        self._act = act

    async def killed_at(self, session_id: str, statement: int, delay_s: float = 0) -> bool:
        """Let a process act and die; check its rows, and that a retry works; return whether it died."""
        claim = await self._claimed(session_id)
        arguments = [self._url, msgspec.json.encode(claim).decode(), self._act, str(statement), str(delay_s)]
        code, _output = await asyncio.to_thread(warm_programs.run, _PROGRAM, "act", *arguments)
        assert code in {0, -signal.SIGKILL}
        left = await self._seen(session_id)
        assert left in (self._before, self._after)
        assert code != 0 or left == self._after
        repeated = await self._repeat(claim)
        # The server may finish a running statement after the first read.
        assert repeated is (left == self._before) or delay_s > 0 or self._act == "bury"
        assert await self._seen(session_id) == self._after
        return code != 0

    @property
    def _before(self) -> tuple[list[str], list[str]]:
        return (["a", "b"], []) if self._act == "bury" else ([], ["a", "b"])

    @property
    def _after(self) -> tuple[list[str], list[str]]:
        return {"bury": ([], ["a", "b"]), "requeue": (["a"], ["b"]), "discard": ([], ["b"])}[self._act]

    async def _claimed(self, session_id: str) -> lash.model.Claim:
        await created(self._storage, session_id)
        await queued(self._storage, *(joining(text, session_id=session_id) for text in ("a", "b")))
        fence = await leased(self._storage, session_id=session_id)
        claim = claimed(await self._storage.queue.claim(fence, boundary=lash.model.Boundary.IDLE, ttl_ms=60_000))
        if self._act != "bury":
            await self._storage.queue.bury(claim, reason="r")
        return claim

    async def _seen(self, session_id: str) -> tuple[list[str], list[str]]:
        letters = await self._storage.queue.dead(session_id=session_id)
        return texts(await self._storage.queue.list(session_id)), texts(letter.batch for letter in letters)

    async def _repeat(self, claim: lash.model.Claim) -> bool:
        """Retry, and return whether there was something left to do."""
        queue, batch_id = self._storage.queue, claim.batches[0].batch_id
        if self._act == "bury":
            assert await queue.bury(claim, reason="again") == 2
            return True
        if self._act == "discard":
            return await queue.discard(claim.session_id, batch_id)
        try:
            await queue.requeue(claim.session_id, batch_id)
        except lash.errors.DeadLetterNotFound:
            return False
        return True


@pytest.mark.proof
@pytest.mark.parametrize("act", ["bury", "requeue", "discard"])
async def test_a_kill_at_any_statement_leaves_the_old_or_the_new(backend_url: str, act: str) -> None:
    """Killed before each statement and during some, an act is applied whole or not at all; then retried."""
    async with await lash.open(backend_url) as storage:
        stage = Stage(backend_url, storage, act)
        statement = 0
        while await stage.killed_at(f"at{statement}", statement):
            statement += 1
        assert statement >= 1
        for number, delay_s in enumerate(_DELAYS_S):
            await stage.killed_at(f"during{number}", 0, delay_s)


async def test_workers_that_give_up_and_come_back_lose_nothing(backend_url: str) -> None:
    """With workers killed at random, each input is queued, dead or committed, and exactly once."""
    async with await lash.open(backend_url) as storage:
        for session_id in _SESSIONS:
            await created(storage, session_id)
            for number in range(_INPUTS):
                key = str(number)
                draft = late(key, session_id=session_id, source_key=key, slot=lash.model.Slot.JOIN, merge_key="g")
                await storage.queue.enqueue(draft)
        await asyncio.to_thread(_rampage, backend_url)
        for session_id in _SESSIONS:
            every = [*await _committed(storage, session_id), *await _open(storage, session_id)]
            assert sorted(every, key=int) == [str(number) for number in range(_INPUTS)]
    states = await raw(
        backend_url,
        "SELECT k.state, count(*) FROM lash_source_keys AS k"
        " LEFT JOIN lash_batches AS b ON b.session_key = k.session_key AND b.batch_id = k.batch_id"
        " LEFT JOIN lash_dead_letters AS d ON d.session_key = k.session_key AND d.batch_id = k.batch_id"
        " WHERE (k.state = 'pending') <> (b.batch_id IS NOT NULL OR d.batch_id IS NOT NULL)"
        " OR (b.batch_id IS NOT NULL AND d.batch_id IS NOT NULL) GROUP BY k.state",
    )
    assert states == []
    assert await raw(backend_url, "SELECT count(*) FROM lash_dead_letters WHERE claim_count < 1") == [(0,)]


def _rampage(url: str) -> None:
    """Run processes, and kill each after it has claimed a few times."""
    working = [_start(url) for _ in range(2)]
    try:
        for _ in range(_KILLS):
            victim = working.pop(0)
            working.append(_start(url))
            assert victim.stdout is not None
            for _ in range(random.randint(2, 8)):
                assert victim.stdout.readline(), "the process ended by itself"
            victim.kill()
            victim.communicate()
    finally:
        for process in working:
            process.kill()
            process.communicate()


def _start(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", _PROGRAM, "work", url, *_SESSIONS], stdout=subprocess.PIPE, text=True
    )


async def _committed(storage: lash.Storage, session_id: str) -> list[str]:
    read = await storage.session(session_id).load(lash.model.FullGraph())
    entries = [] if read is None else [node.entry for node in read.graph.nodes]
    return [entry.message.parts[0].content for entry in entries if isinstance(entry, lash.model.MessageEntry)]


async def _open(storage: lash.Storage, session_id: str) -> list[str]:
    letters = await storage.queue.dead(session_id=session_id, limit=1_000)
    return [*texts(await storage.queue.list(session_id)), *texts(letter.batch for letter in letters)]
