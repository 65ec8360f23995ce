"""Workers that are killed: what is recorded is not repeated, on the worker that continues the turn."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lash
from lash.agents import decide, pending_approvals
from lash.model.effect import TurnScope
from lash.model.queue import Enqueued, turn_id_of
from tests.adapters.pydantic_ai.marked import Marks, declare

_ROOT = Path(__file__).resolve().parents[3]
_WORKER = """
import asyncio, sys
import lash
from tests.adapters.pydantic_ai.marked import Marks, declare

async def main(url, directory, stream):
    app = lash.App(url, options=lash.WorkerOptions(lease_ttl_s=3.0))
    declare(app, Marks(directory), stream=stream == "stream")
    async with app:
        await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""
_PATIENCE_S = 120


@contextlib.contextmanager
def _worker(url: str, marks: Marks, *, stream: bool = False) -> Iterator[None]:
    """Run a worker in a process of its own, and kill it at the end of the block."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path])}
    command = [sys.executable, "-c", _WORKER, url, str(marks.directory), "stream" if stream else ""]
    with subprocess.Popen(command, env=environment, cwd=_ROOT) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGKILL)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while not condition():  # noqa: ASYNC110 (a file has no event)
            await asyncio.sleep(0.02)


async def _recorded(app: lash.App, sent: Enqueued, steps: int) -> None:
    """Wait until a turn has recorded so many steps."""
    scope = TurnScope(session_id="chat", turn_id=turn_id_of(sent.batch_id))
    async with asyncio.timeout(_PATIENCE_S):
        while len(await app.storage.effects.list(scope)) < steps:  # noqa: ASYNC110 (no event says so)
            await asyncio.sleep(0.02)


def _text(event: object) -> str | None:
    """Return the piece of text that an observer sees."""
    payload = getattr(event, "payload", None)
    return payload.get("text") if isinstance(payload, dict) else None


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    """Where the agent of a test leaves its files."""
    directory = tmp_path / "marks"
    directory.mkdir()
    return Marks(str(directory))


async def test_no_recorded_call_is_repeated_after_a_kill(url: str, marks: Marks) -> None:
    """Of three parallel tools two had ended: only the third runs again, and the model is called once each time."""
    async with lash.App(url, worker=False) as app:
        chat = app.session("chat", declare(app, marks))
        sent = await chat.send("hi", key="1")
        with _worker(url, marks):
            await _until(lambda: marks.count("slow2") == 1)
            # The first model call, and the two tools that do not wait.
            await _recorded(app, sent, 3)
        (marks.directory / "go").touch()
        with _worker(url, marks):
            assert await chat.ask("hi", key="1", timeout_s=_PATIENCE_S) == "fast1 slow2 fast3"
        counts = {name: marks.count(name) for name in ("model0", "fast1", "fast3", "slow2", "model3")}
        assert counts == {"model0": 1, "fast1": 1, "fast3": 1, "slow2": 2, "model3": 1}
        (sums,) = (await app.storage.usage.sum(["model"])).sums
        assert (sums.usage.input_tokens, sums.usage.output_tokens) == (20, 2)


async def test_a_streamed_run_goes_on_after_a_kill(url: str, marks: Marks) -> None:
    """Observers see the pieces of the call that was cut off, and of its repetition, under one cursor."""
    (marks.directory / "go").touch()
    async with lash.App(url, worker=False) as app:
        chat = app.session("chat", declare(app, marks, stream=True))
        await chat.send("hi", key="1")
        seen: list[str] = []
        cursor: str | None = None
        with _worker(url, marks, stream=True):
            async with asyncio.timeout(_PATIENCE_S):
                async for event in chat.observe():
                    cursor = event.cursor
                    if (text := _text(event)) is not None:
                        seen.append(text)
                        break
        (marks.directory / "go on").touch()
        with _worker(url, marks, stream=True):
            async with asyncio.timeout(_PATIENCE_S):
                async for event in chat.observe(cursor):
                    if (text := _text(event)) is not None:
                        seen.append(text)
                    if len(seen) == 4:
                        break
            assert await chat.ask("hi", key="1", timeout_s=_PATIENCE_S) == "fast1 slow2 fast3"
        assert seen == ["fast1", "fast1", " slow2", " fast3"]
        assert (marks.count("model0"), marks.count("model3"), marks.count("fast1")) == (1, 2, 1)


async def test_an_approval_is_answered_on_another_worker(url: str, marks: Marks) -> None:
    """The turn is parked; the worker that parked it is dead when the answer comes, and the tool runs once."""
    async with lash.App(url, worker=False) as app:
        chat = app.session("chat", declare(app, marks))
        await chat.send("use pay", key="1")
        with _worker(url, marks):
            async with asyncio.timeout(_PATIENCE_S):
                while not (waiting := await pending_approvals(app.storage)):  # noqa: ASYNC110 (no event says so)
                    await asyncio.sleep(0.02)
                while await app.storage.leases.holder("chat") is not None:  # noqa: ASYNC110 (no event says so)
                    await asyncio.sleep(0.02)
        assert marks.count("pay1") == 0
        (call,) = waiting
        assert (call.session_id, call.call.name, call.call.arguments) == ("chat", "pay", '{"n":1}')
        assert await decide(app.storage, call, approved=True)
        with _worker(url, marks):
            assert await chat.ask("use pay", key="1", timeout_s=_PATIENCE_S) == "paid 1"
        assert (marks.count("model0"), marks.count("pay1")) == (1, 1)


async def test_a_tool_that_must_not_run_twice_does_not(url: str, marks: Marks) -> None:
    """Its worker was killed in the middle of it: the turn fails, because the outcome is unknown."""
    async with lash.App(url, worker=False) as app:
        chat = app.session("chat", declare(app, marks))
        await chat.send("use once", key="1")
        with _worker(url, marks):
            await _until(lambda: marks.count("once1") == 1)
        with _worker(url, marks), pytest.raises(lash.TurnFailed, match="unknown whether it took effect"):
            await chat.ask("use once", key="1", timeout_s=_PATIENCE_S)
        assert (marks.count("model0"), marks.count("once1")) == (1, 1)
