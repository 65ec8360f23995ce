"""SQLite where it is hard: on a slow disk, and beside an event loop that is busy."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import subprocess
import sys
import time

import lash
from benchmarks.kit.machine import lash_versions
from benchmarks.kit.measure import Samples, by_turns
from benchmarks.kit.native import build
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.works import CommitWork, commit_of
from benchmarks.kit.workspace import Workspace

_SLOW_US = 2000
_CALLERS = 4
_SLICE_S = 0.0002


def slow_disk(workspace: Workspace) -> Report:
    """Run ``sqlite-commit-16`` where every fsync takes 2 ms longer, for both sides."""
    shim = build("slow_sync", workspace.directory, "-shared", "-fPIC", "-ldl")
    if shim is None:
        raise RuntimeError("a slow disk is imitated by a shared library, which could not be built")
    output = workspace.new_path(".json")
    command = [sys.executable, "-m", "benchmarks.run", "sqlite-commit-16", f"--output={output}"]
    command += [f"--rounds={workspace.rounds}", f"--scale={workspace.scale / 3}", f"--directory={workspace.directory}"]
    environment = os.environ | {"LD_PRELOAD": str(shim), "SLOW_SYNC_US": str(_SLOW_US)}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    inner = json.loads(output.read_text())
    rows = [
        Row(
            contender=row["contender"],
            case=f"{row['case']}, fsync + {_SLOW_US / 1000:g} ms",
            unit=row["unit"],
            samples=Samples(tuple(row["values"])),
        )
        for row in inner["rows"]
    ]
    ratios = tuple(Ratio.of(rows[0], other) for other in rows[1:])
    return Report(ratios=ratios, rows=tuple(rows), versions=inner["versions"])


async def worst_ms(path: str, seconds: float, *, busy: bool) -> float:
    """Return the longest commit of four callers, beside a loop that is idle or kept busy in short slices."""
    work, taken = CommitWork(), list[float]()
    # What is committed is made before, so that the loop's own work is the busy part's alone.
    turns = round(1000 * seconds)
    async with await lash.open(f"sqlite:///{path}") as storage:
        await work.prepare(storage, _CALLERS, turns)
        end = time.perf_counter() + seconds

        async def caller(lane: int) -> None:
            for number in range(turns):
                if (begin := time.perf_counter()) >= end:
                    return
                commit = commit_of(lane, number, 3)
                await storage.session(commit.session_id).commit(commit)
                taken.append(time.perf_counter() - begin)
                await asyncio.sleep(0.002)

        async def hog() -> None:
            while busy and time.perf_counter() < end:
                until = time.perf_counter() + _SLICE_S
                while time.perf_counter() < until:
                    pass
                await asyncio.sleep(0)

        await asyncio.gather(hog(), *map(caller, range(_CALLERS)))
    assert taken
    return max(taken) * 1e3


def busy_loop(workspace: Workspace) -> Report:
    """Measure the worst commit beside a busy event loop, and beside an idle one."""
    seconds = max(0.2, 1.5 * workspace.scale)

    def side(busy: bool, _number: int) -> float:  # noqa: FBT001 (it is the side)
        with workspace.file() as path:
            return asyncio.run(worst_ms(str(path), seconds, busy=busy))

    samples = by_turns([functools.partial(side, busy) for busy in (True, False)], workspace.rounds)
    rows = [
        Row(contender="lash", case=case, unit="ms", samples=each)
        for case, each in zip(("worst commit, busy loop", "worst commit, idle loop"), samples, strict=True)
    ]
    return Report(ratios=(Ratio.of(*rows),), rows=tuple(rows), versions=lash_versions("apsw", "sqlite"))


register(
    Scenario(
        name="sqlite-commit-16-slow",
        group="bare driver",
        what="turns of 16 sessions at once with 2 ms added to every fsync, against the driver's sequential rate",
        run=slow_disk,
        target="at least 8 (goal 10)",
    )
)
register(
    Scenario(
        name="busy-loop",
        group="latency",
        what="the worst commit beside an event loop that is 95 % busy, over that beside an idle one",
        run=busy_loop,
        better=Better.LESS,
        target="worst commit below 20 ms",
    )
)
