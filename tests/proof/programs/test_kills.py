"""Workers are killed with ``kill -9`` at boundaries of programs; another worker finishes, on both databases.

The boundaries are before and after each statement and each step of an undisturbed run. By default each program is
killed at two of them, other ones for each commit; ``LASH_PROGRAM_KILLS=n`` tries n, ``all`` tries every one.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

import lash
from tests.backends import with_parameters
from tests.proof.programs.case import PROCESS, Calls, Case, start
from tests.proof.programs.cases import CASES
from tests.proof.programs.kill_runner import PAUSE_S
from tests.proof.programs.recorded import check_outcome, recorded_calls
from tests.runtime.test_crash_matrix import Databases, Runner, connections_gone, runner
from tools.rotation import turn_of

POINTS: Final = os.environ.get("LASH_PROGRAM_KILLS", "2")
_KILLED: Final = -9
pytestmark = [
    pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True),
    pytest.mark.timeout(3_600 if POINTS == "all" else 600),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_a_worker_may_be_killed_anywhere(case: Case, databases: Databases) -> None:
    """The program ends as without the kill, and no recorded call is made again."""
    with runner("tests.proof.programs.kill_runner") as run:
        with databases.fresh() as (url, directory):
            trace = await _undisturbed(case, run, url, directory)
        for point in _chosen(trace):
            with databases.fresh() as (url, directory):
                await _killed_at(case, run, url, directory, point)


def _chosen(trace: list[str]) -> list[str]:
    if POINTS == "all":
        return trace
    step, first = len(trace) / int(POINTS), (turn_of() or 0) % len(trace)
    return [trace[(first + int(index * step)) % len(trace)] for index in range(int(POINTS))]


async def _undisturbed(case: Case, run: Runner, url: str, directory: Path) -> list[str]:
    await _begin(case, url, directory)
    assert run.work(url, directory) == 0
    await _check_end(case, url)
    assert _counted(directory) == Counter(case.calls)
    trace: list[str] = json.loads((directory / "trace.json").read_text())
    return trace


async def _killed_at(case: Case, run: Runner, url: str, directory: Path, point: str) -> None:
    await _begin(case, url, directory)
    doomed = with_parameters(url, application_name="doomed") if url.startswith("postgres") else url
    code = run.work(doomed, directory, point)
    assert code in (0, _KILLED), point
    await connections_gone(url)
    async with await lash.open(url) as storage:
        recorded = await recorded_calls(storage)
    before = _counted(directory)
    if code == _KILLED:
        assert run.work(url, directory) == 0, f"{point}: no worker could finish this"
    await _check_end(case, url)
    again = _counted(directory) - Counter(case.calls)
    assert not set(again) & recorded, f"{point}: a recorded call was repeated"
    assert set(again) <= set(before), f"{point}: a call ran twice that the kill did not interrupt"


async def _begin(case: Case, url: str, directory: Path) -> None:
    """Start the process without a worker."""
    (directory / "case").write_text(case.id)
    async with lash.App(url, worker=False) as app:
        await start(app, case, Calls(directory / "counts", pause_s=PAUSE_S))


def _counted(directory: Path) -> Counter[str]:
    return Calls(directory / "counts", pause_s=PAUSE_S).counted()


async def _check_end(case: Case, url: str) -> None:
    async with await lash.open(url) as storage:
        record = await storage.processes.get(PROCESS)
    assert record is not None
    check_outcome(case, record.projection.outcome)
