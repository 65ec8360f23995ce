"""One process shows and commits; another observes, is killed, and resumes from its last cursor."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import IO

import msgspec
import pytest

import lash
from lash.model.activity import Committed, Observed, TurnActivity
from lash.runtime.observe.stream import current_cursor
from tests.factories.session import started

ROOT = Path(__file__).parents[3]
COUNT = 600
KILLS = 4

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)


def start(program: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"tests.proof.concurrency.{program}", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)


def read(lines: IO[bytes], count: int) -> list[Observed]:
    """Return the next values, at most this many; fewer once the last commit was observed."""
    told: list[Observed] = []
    while len(told) < count and (line := lines.readline()):
        observed = msgspec.json.decode(line, type=Observed)
        told.append(observed)
        if isinstance(observed, Committed) and observed.revision == COUNT // 10 + 1:
            break
    return told


async def test_a_killed_observer_comes_back_without_a_hole(backend_url: str) -> None:
    """Across processes and kills every piece is observed once, in order, each turn before its commit."""
    async with await lash.open(backend_url) as storage:
        await started(storage)
        cursor = await current_cursor(storage, "s")
    told: list[Observed] = []
    with start("activity_writer", backend_url, str(COUNT)) as writer:
        try:
            for life in range(KILLS + 1):
                with start("activity_observer", backend_url, cursor) as observer:
                    assert observer.stdout is not None
                    told += await asyncio.to_thread(read, observer.stdout, 100 if life < KILLS else 10 * COUNT)
                    observer.kill()
                cursor = told[-1].cursor
            assert await asyncio.to_thread(writer.wait, 30) == 0
        finally:
            writer.kill()
    revision, pieces = 1, 0
    for observed in told:
        if isinstance(observed, TurnActivity):
            pieces += 1
            assert observed.payload == pieces
            assert revision <= (pieces - 1) // 10 + 1
        else:
            assert isinstance(observed, Committed)
            assert observed.revision > revision
            revision = observed.revision
            assert pieces >= 10 * (revision - 1)
    assert (pieces, revision) == (COUNT, COUNT // 10 + 1)
