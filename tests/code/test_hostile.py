"""Hostile programs: a clear error, and a worker that keeps its leases and its other work."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import lash
from lash.code import CodeLimits
from lash.model.process.event import ATTEMPT_FAILED
from lash.model.process.process import Cancellation, Success
from lash.runtime.policy import Retry
from tests.code.kit import Functions, failure_of, runs, sandboxes_of, until
from tests.runtime.process_bench import World, outcome_of

LIMITS = CodeLimits(compute_s=0.3, memory_bytes=16_000_000, calls=50)
HOSTILE = {
    "endless loop": ("while True:\n    pass", "program_limit", "TimeoutError"),
    "endless loop that catches": (
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
        "program_limit",
        "TimeoutError",
    ),
    "endless calls": ("while True:\n    search('x')", "program_limit", "suspension"),
    "huge text": ("'a' * 10**10", "program_limit", "MemoryError"),
    "huge list": ("list(range(10**9))", "program_limit", "MemoryError"),
    "huge number": ("10 ** 10 ** 10", "program_limit", "MemoryError"),
    "growing": ("x = []\nwhile True:\n    x.append('a' * 1000)", "program_limit", "MemoryError"),
    "recursion": ("def f(n: int) -> int:\n    return f(n + 1)\nf(0)", "program_limit", "RecursionError"),
    "file": ("open('/etc/passwd').read()", "program_type_error", "open"),
    "path": ("from pathlib import Path\nPath('/etc').iterdir()", "program_error", "PermissionError"),
    "environment": ("import os\nos.environ['HOME']", "program_error", "not supported"),
    "variable": ("import os\nos.getenv('HOME')", "program_error", "not supported"),
    "file by eval": ("eval(\"open('/etc/passwd')\")", "program_error", "PermissionError"),
    "import by name": ("__import__('os').system('id')", "program_type_error", "__import__"),
    "network": ("import socket", "program_error", "socket"),
    "shell": ("import subprocess", "program_error", "subprocess"),
    "dunder": ("().__class__.__base__.__subclasses__()", "program_type_error", "__subclasses__"),
    "pretended limit": ("raise ValueError('memory limit exceeded')", "program_error", "ValueError: memory limit"),
    "wild text": ("x = '\U0001f4a3\u202e' * 3\nraise ValueError(x)", "program_error", "\U0001f4a3"),
    "exit": ("raise SystemExit(0)", "program_error", ""),
    "deep schema": (
        "from typing import Any\nx: Any = {}\nfor _ in range(30):\n    x = {'anyOf': [x, x]}\nask_human('?', x)",
        "program_error",
        "the schema is nested too deep",
    ),
    "shared result": (
        "x: list = []\nfor _ in range(60):\n    x = [x, x]\nx",
        "program_result_invalid",
        "200,000 values",
    ),
    "shared argument": (
        "from typing import Any\nx: Any = ['a' * 1_000_000] * 50\nsearch(x)",
        "program_error",
        "more than 16,777,216 characters",
    ),
    "deep result": ("x: list = []\nfor _ in range(300):\n    x = [x]\nx", "program_result_invalid", "nested"),
}


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_program_ends_with_a_clear_error(world: World, name: str) -> None:
    """It is refused at its start or ends as failed, in one attempt, with a code and a text that names the reason."""
    source, code, shown = HOSTILE[name]
    app = await world.app()
    program = Functions(world).declare(app, limits=LIMITS)
    if code == "program_type_error":
        with pytest.raises(lash.errors.InvalidProgram, match=re.escape(shown)):
            await app.start(program, source)
        return
    handle = await app.start(program, source)
    await app.drain()
    failure = await failure_of(handle)
    assert (failure.code, shown in failure.message) == (code, True), failure.message


async def test_other_work_goes_on_beside_a_hostile_program(world: World) -> None:
    """While a program computes as long as it may, the worker runs other processes and renews its leases."""
    app = await world.app(worker=True, real_time=True, options=lash.WorkerOptions(lease_ttl_s=1.0))
    program = Functions(world).declare(app, limits=CodeLimits(compute_s=1.5))

    @app.process
    async def beside(ctx: lash.Context) -> str:
        return "done"

    endless = await app.start(program, "while True:\n    pass")
    for _ in range(20):
        assert await (await app.start(beside)).result(timeout_s=10) == "done"
    with pytest.raises(lash.ProcessFailed, match="turn time limit exceeded"):
        await endless.result(timeout_s=30)
    assert world.heard.of("lease.lost") == []


async def test_a_program_that_computes_can_be_cancelled(world: World) -> None:
    """A cancel request ends an endless loop before its limit, and its sandbox with it."""
    app = await world.app(worker=True, real_time=True)
    program = Functions(world).declare(app, limits=CodeLimits(compute_s=600))
    endless = await app.start(program, "search('x')\nwhile True:\n    pass")
    await asyncio.to_thread(until, lambda: world.calls["search x"] > 0)
    await endless.cancel("enough")
    with pytest.raises(lash.ProcessFailed, match="enough"):
        await endless.result(timeout_s=30)
    assert isinstance(await outcome_of(endless), Cancellation)
    await app.stop()
    assert sandboxes_of(os.getpid()) == []


async def test_a_sandbox_that_dies_is_a_failed_attempt(world: World) -> None:
    """The crash is noted in the log; the next attempt has a new sandbox and repeats no recorded call."""
    app = await world.app()
    died: list[int] = []

    async def die() -> str:
        if not died:
            died.extend(sandboxes_of(os.getpid()))
            for child in died:
                os.kill(child, signal.SIGKILL)
        return "survived"

    retry = Retry(max_attempts=3, first_pause_s=60)
    program = app.code_process(tools=[die, Functions(world).search], retry=retry)
    handle = await app.start(program, "search('x')\nawait die()")
    await app.drain()
    assert died
    (noted,) = [each for each in await handle.events() if each.event_type == ATTEMPT_FAILED]
    assert isinstance(noted.payload, dict)
    assert noted.payload["code"] == "SandboxCrashed"
    await world.seconds(61)
    await app.drain()
    assert await outcome_of(handle) == Success(value="survived")
    assert world.calls["search x"] == 1


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_sandbox_outlives_its_worker(tmp_path: Path, end: signal.Signals) -> None:
    """Ctrl-C, a stop and a kill of the worker end its sandboxes, also one in the middle of a computation."""
    marker = tmp_path / "pids"
    command = [sys.executable, "-m", "tests.code.endless_worker", f"sqlite:///{tmp_path}/lash.db", str(marker)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as worker:
        until(lambda: marker.exists() and bool(marker.read_text()))
        worker.send_signal(end)
        worker.wait(30)
    pids = [int(each) for each in marker.read_text().split()]
    assert pids
    until(lambda: not any(runs(each) for each in pids))
