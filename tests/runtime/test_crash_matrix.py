"""A worker is killed at every boundary of one turn and of one process; another worker finishes the work.

Before both, workers were registered that have the first ranks and do nothing: what is assigned to them must be found.
The boundaries are before and after each statement and each span of an undisturbed run. By default a sample is tried;
``LASH_CRASH_POINTS=all`` tries every one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import lash
from lash.model.effect import EffectStatus, ProcessScope, Step, TurnScope
from lash.model.process.process import Success
from tests.backends import ReusedDatabase, with_parameters
from tests.contract.test_worker import beat
from tests.raw import raw
from tests.runtime.crash_app import (
    ADVISE,
    ALL_STEPS,
    ASKED,
    EARLY,
    EXPERT,
    PROCESS_STEPS,
    SESSION,
    TURN_STEPS,
    counted,
    send_input,
)

ROOT: Final = Path(__file__).parents[2]
POINTS: Final = os.environ.get("LASH_CRASH_POINTS", "1")
_KILLED: Final = -9
_SILENT_BEAT_MS: Final = 100
"""The interval at which the silent workers promise their beats; they are late after two."""
_COUNTING: Final = ("before work_take_wakes", "before work_wake_sessions")
"""The first statement of counting reasons to continue, on each backend."""
_ENDS: Final = frozenset({"process.completed", "process.failed", "process.cancelled", "process.abandoned"})

pytestmark = [
    pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True),
    pytest.mark.timeout(3_600 if POINTS == "all" else 600),
    pytest.mark.sampled,
]


class Runner:
    """Starts workers, one after the other, each in a process of its own."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        self._server = server

    def work(self, url: str, directory: Path, point: str | None = None) -> int:
        """Run a worker until everything is finished or it is killed at the point; return its exit code."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(
            json.dumps({"url": url, "directory": str(directory), "point": point}), file=self._server.stdin, flush=True
        )
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        code: int = answer["code"]
        return code


@contextmanager
def runner(module: str = "tests.runtime.crash_runner") -> Iterator[Runner]:
    command = [sys.executable, "-m", module]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        yield Runner(server)


class Databases:
    """Empty storages of one backend, one after the other, each with a directory."""

    def __init__(self, directory: Path, migrated_file: Path, reused: ReusedDatabase | None) -> None:
        self._directory = directory
        self._migrated_file = migrated_file
        self._reused = reused
        self._count = 0

    @contextmanager
    def fresh(self) -> Iterator[tuple[str, Path]]:
        self._count += 1
        directory = self._directory / str(self._count)
        directory.mkdir()
        if self._reused is None:
            yield f"sqlite:///{shutil.copy(self._migrated_file, directory)}", directory
            return
        yield self._reused.url, directory
        self._reused.clean()


@pytest.fixture
def databases(backend_name: str, request: pytest.FixtureRequest, tmp_path: Path, migrated_file: Path) -> Databases:
    reused = request.getfixturevalue("reused_database") if backend_name == "postgres" else None
    return Databases(tmp_path, migrated_file, reused)


async def test_a_worker_may_die_anywhere(databases: Databases) -> None:
    """Recorded steps never run again, others run once more, and the final state is the same for every point."""
    killed = 0
    with runner() as run:
        with databases.fresh() as (url, directory):
            trace = await _undisturbed(run, url, directory)
        points = _chosen(trace)
        for point in points:
            with databases.fresh() as (url, directory):
                killed += await _killed_at(run, url, directory, point)
    print(f"{killed} kills at {len(points)} of {len(trace)} boundaries")  # noqa: T201 (a figure to see)
    # Concurrent branches may overtake each other, so a point is not always reached; of few points one weighs much.
    assert killed >= 0.9 * len(points) - 1


async def _undisturbed(run: Runner, url: str, directory: Path) -> list[str]:
    await send_input(url)
    await _register_silent(url)
    assert run.work(url, directory) == 0
    await _check_end(url, dict.fromkeys(ALL_STEPS, 1), directory)
    trace: list[str] = json.loads((directory / "trace.json").read_text())
    return trace


def _chosen(trace: list[str]) -> list[str]:
    if POINTS == "all":
        return trace
    # Spread over the whole run, always with the points around the commit of the first turn and around a tool.
    step = len(trace) / int(POINTS)
    spread = [trace[int(index * step)] for index in range(int(POINTS))]
    # Around the wait of the parked turn: it is parked, and the reply that it waits for is there and not counted.
    place = next(index for index, each in enumerate(trace) if each.startswith("before lease_park"))
    parked = next(each for each in trace[place:] if each.startswith("after"))
    woken = next(each for each in trace if each.startswith(_COUNTING))
    return [*spread, "after step tool#1 #1", "after step search#1 #1", parked, woken, *_around_next_run(trace)]


def _around_next_run(trace: list[str]) -> list[str]:
    """Return the points before the event of the next run is written, and after its commit."""
    run = trace[trace.index("before process archive #1") : trace.index("after process archive #1")]
    written = [each for each in run if each.startswith(("before event_insert", "before event_append"))]
    return [written[-1], next(each for each in run if each.startswith("before process_lease_release"))]


async def _killed_at(run: Runner, url: str, directory: Path, point: str) -> bool:
    """Kill a worker at the point and let another finish; return whether the point was reached."""
    await send_input(url)
    await _register_silent(url)
    doomed = with_parameters(url, application_name="doomed") if url.startswith("postgres") else url
    code = run.work(doomed, directory, point)
    assert code in (0, _KILLED), point
    await connections_gone(url)
    before, recorded = counted(directory / "counts"), await _recorded(url)
    in_flight = {name for name, number in before.items() if number and name not in recorded}
    assert max(before.values()) <= 1, point
    # The concurrent work of the killed worker: both branches of the gather, or a turn and a process.
    assert len(in_flight) <= 2, (point, in_flight)
    if code == _KILLED:
        assert run.work(url, directory) == 0, f"{point}: no worker could finish this"
    expected = {name: before[name] + (name not in recorded) for name in ALL_STEPS}
    await _check_end(url, expected, directory, point)
    return code == _KILLED


async def _register_silent(url: str) -> None:
    """Register a duty worker and a stand-in of another machine that take nothing and send no second beat."""
    async with await lash.open(url) as storage:
        for name in ("first", "second"):
            silent = beat(name, boot="elsewhere", beat_ms=_SILENT_BEAT_MS, channel="lash_nowhere")
            await storage.work.poll(sessions=0, processes=0, owner=silent.owner, beat=silent)


async def connections_gone(url: str) -> None:
    """Wait until the server has noticed the death of the worker: everything that it sent is done by then."""
    if url.startswith("sqlite"):
        return
    async with asyncio.timeout(30):
        while await raw(url, "SELECT 1 FROM pg_stat_activity WHERE application_name = 'doomed'"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def _recorded(url: str) -> set[str]:
    """Return the steps that no later run may repeat: recorded, or part of a turn that was committed."""
    async with await lash.open(url) as storage:
        scopes: list[TurnScope | ProcessScope] = [
            ProcessScope(process_id=record.process_id) for record in (await storage.processes.list()).processes
        ]
        for session_id in (SESSION, EXPERT):
            queue = await _queue(storage, session_id)
            scopes += [TurnScope(session_id=session_id, turn_id=f"turn:{each.batch_id}") for each in queue]
        effects = [effect for scope in scopes for effect in await storage.effects.list(scope)]
        replies, advice = await _replies(storage), await _replies(storage, EXPERT)
        # The first turn commits two records: both with its reply, or neither.
        assert await _records(storage) == ([1, 1] if replies else [])
    steps = {
        effect.envelope.command.name
        for effect in effects
        if isinstance(effect.envelope.command, Step) and effect.status is EffectStatus.COMPLETED
    }
    return steps.union(*TURN_STEPS[: len(replies)], [ADVISE] if advice else [])


async def _queue(storage: lash.Storage, session_id: str) -> tuple[lash.Batch, ...]:
    with contextlib.suppress(lash.errors.SessionNotFound):
        return await storage.queue.list(session_id)
    return ()


async def _records(storage: lash.Storage) -> list[int]:
    """Return the versions of the records that the first turn put."""
    own = await storage.records.list("found", session_id=SESSION)
    return [record.version for record in (*own, *await storage.records.list("sessions"))]


async def _replies(storage: lash.Storage, session_id: str = SESSION) -> list[str]:
    read = None
    with contextlib.suppress(lash.errors.SessionNotFound):
        read = await storage.session(session_id).load()
    nodes = () if read is None else read.graph.nodes
    return [node.node_id for node in nodes if node.node_id.endswith(":reply")]


async def _check_end(url: str, executed: dict[str, int], directory: Path, point: str = "undisturbed") -> None:
    """Compare calls, graph, queue, ledger, state, processes and their logs with values written by hand."""
    assert counted(directory / "counts") == executed, point
    async with await lash.open(url) as storage:
        await _check_session(storage, point)
        await _check_processes(storage, point)
    assert await raw(url, "SELECT count(*) FROM lash_session_leases WHERE token IS NOT NULL") == [(0,)], point
    assert await raw(url, "SELECT count(*) FROM lash_process_leases WHERE token IS NOT NULL") == [(0,)], point
    assert await raw(url, "SELECT count(*) FROM lash_session_leases WHERE waiting_for IS NOT NULL") == [(0,)], point
    turn_effects = "SELECT count(*) FROM lash_effects WHERE session_key IS NOT NULL"
    assert await raw(url, turn_effects) == [(0,)], point


async def _check_session(storage: lash.Storage, point: str) -> None:
    read = await storage.session(SESSION).load()
    assert read is not None
    messages = [node.entry.message for node in read.graph.nodes if isinstance(node.entry, lash.model.MessageEntry)]
    assert len(messages) == len(read.graph.nodes) == 6, point
    said = [(message.role.value, [part.content for part in message.parts]) for message in messages]
    assert said == [
        ("user", [ASKED]),
        ("user", [EARLY]),
        ("assistant", ["{}", "tool"]),
        ("assistant", ["begun, with 1 more and advise"]),
        ("event", ["lash is ready"]),
        ("assistant", ["received: lash is ready"]),
    ], point
    assert await _records(storage) == [1, 1], point
    assert await storage.queue.list(SESSION) == (), point
    assert await storage.queue.dead() == (), point
    assert [(each.source, each.model, each.usage.input_tokens, each.usage.output_tokens) for each in read.usage] == [
        ("turn", "m", 11, 7)
    ], point
    assert read.checkpoint.manifest.turn_state.turn_index == 2, point
    assert json.loads(read.checkpoint.components["turns"]) == {"value": 2}, point


async def _check_processes(storage: lash.Storage, point: str) -> None:
    records = {_label(record): record for record in (await storage.processes.list()).processes}
    outcomes = {label: record.projection.outcome for label, record in records.items()}
    found = [name for name in PROCESS_STEPS if name in ("search", "left", "right", "write")]
    assert outcomes == {
        "research": Success(value={"found": found, "approval": {"by": "helper"}, "form": [1, 7], "helped": "helped"}),
        "helper": Success(value="helped"),
        "archive": Success(value={"topic": "lash"}),
    }, point
    for label, record in records.items():
        events = [event.event_type for event in await storage.events.after(record.process_id, 0)]
        assert events.count("process.continued") == (label == "archive"), (point, label)
        assert sum(event in _ENDS for event in events) == 1, (point, label)
        assert events[-1] in _ENDS, (point, label)
        assert "process.attempt_failed" not in events, (point, label)
    told = [event.event_type for event in await storage.events.after(records["research"].process_id, 0)]
    assert (told.count("wake"), told.count("signal.approved")) == (1, 1), point


def _label(record: lash.ProcessRecord) -> str | None:
    identity = record.registration.identity
    return None if identity is None else identity.label
