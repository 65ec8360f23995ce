"""A recorded run survives workers that are killed: what was recorded does not happen again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lash
from lash.agents import PendingApproval, decide, pending_approvals
from tests.adapters.openai_agents.crash_run import build

_ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def _worker(url: str, counts: Path, point: str, once: str = "") -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path])}
    command = [sys.executable, "-m", "tests.adapters.openai_agents.crash_run", url, str(counts), point, once]
    with subprocess.Popen(command, env=environment, cwd=_ROOT) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


async def _killed_itself(process: subprocess.Popen[bytes]) -> None:
    assert await asyncio.to_thread(process.wait, 120) == -signal.SIGKILL


async def _asked(storage: lash.Storage) -> PendingApproval:
    async with asyncio.timeout(120):
        while not (waiting := await pending_approvals(storage)):  # noqa: ASYNC110 (another process asks)
            await asyncio.sleep(0.05)
    return waiting[0]


async def test_no_recorded_call_is_repeated(url: str, tmp_path: Path) -> None:
    """Workers die in a tool, in a model call, and after an approval was asked for; another one ends the turn."""
    counts = tmp_path / "counts"
    async with build(url, counts, "", worker=False) as app:
        asked = asyncio.create_task(app.session("c", "chat").ask("pay for 7", key="first"))
        with _worker(url, counts, "find") as first:
            await _killed_itself(first)
        with _worker(url, counts, "model-3") as second:
            await _killed_itself(second)
        with _worker(url, counts, ""):
            waiting = await _asked(app.storage)
        await decide(app.storage, waiting, approved=True)
        with _worker(url, counts, ""):
            assert await asyncio.wait_for(asked, 120) == "done"
        messages = await app.session("c").messages()
        used = await app.storage.usage.sum(["model"])
    assert Counter(counts.read_text().split()) == {
        "model-1": 1, "look": 1, "model-2": 1, "find": 2, "model-3": 2, "ask": 1, "pay": 1, "model-4": 1
    }  # fmt: skip
    texts = [message.parts[0].content for message in messages]
    assert (texts[0], texts[-1]) == ("pay for 7", "done")
    assert texts[2::2][:3] == ["7 is late", "7 is here", "7 is paid"]
    assert sum(each.usage.total for each in used.sums) == 4 * 13


async def test_a_tool_that_must_not_run_twice_is_not_repeated(url: str, tmp_path: Path) -> None:
    """A worker dies in the middle of it: the turn fails with OutcomeUnknown, and an operator decides."""
    counts = tmp_path / "counts"
    async with build(url, counts, "", "find", worker=False) as app:
        asked = asyncio.create_task(app.session("c", "chat").ask("find 7", key="first"))
        with _worker(url, counts, "find", "find") as first:
            await _killed_itself(first)
        with _worker(url, counts, "", "find"), pytest.raises(lash.TurnFailed) as failed:
            await asyncio.wait_for(asked, 120)
        dead = await app.storage.queue.dead()
        messages = await app.session("c").messages()
    assert Counter(counts.read_text().split()) == {"model-1": 1, "look": 1, "model-2": 1, "find": 1}
    assert "OutcomeUnknown" in failed.value.reason
    assert len(dead) == 1
    assert messages == [], "a run that failed leaves no item"
