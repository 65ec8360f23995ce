"""Fleets: what a turn costs when more workers share a database, and how many turns they do."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.kit.fleet import Crowd, crowd
from benchmarks.kit.machine import lash_versions, postgres_versions
from benchmarks.kit.measure import Samples, percentile
from benchmarks.kit.peer import Contender
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.server_log import Count, ServerLog, counted
from benchmarks.kit.workspace import Workspace
from benchmarks.peers.lash.fleet import Fleet, StatementCount, fleet_of
from benchmarks.scenarios.lives import running, versions_of

_SESSIONS = 20
_TURNS = 200
_IDLE_S = 30.0
"""As long as the longest interval at which an idle worker reports itself."""
_SETTLE_S = 0.5
"""After a turn its worker may still poll."""
_SLOTS = 2
"""So few turns at once for each worker that a single one does not use up the processor."""
_WARM_UP = 1.5
"""Rounds of a throughput that are not measured."""
_AHEAD = 3
"""How many sessions wait for each slot of the fleet."""

_JOB_LIMIT_S = 60.0
_REAL = 0.5
"""From this scale on fleets have their full size."""

_Figures = dict[str, list[float]]


def _sizes(workspace: Workspace, *full: int) -> tuple[int, ...]:
    """Return numbers of workers; in a short run one and two."""
    return full if workspace.scale >= _REAL else (1, 2)


async def _ask(fleet: Fleet, agent: Any, turns: int, sessions: int) -> list[float]:  # noqa: ANN401 (a definition)
    """Ask one turn after the other, and return how many milliseconds each took."""
    taken = []
    for number in range(turns):
        began = time.monotonic()
        assert await fleet.app.session(f"s{number % sessions}", agent).ask(f"m{number}") == f"reply to m{number}"
        taken.append((time.monotonic() - began) * 1e3)
    return taken


async def _on_postgres(workspace: Workspace, workers: Crowd, log: ServerLog, url: str) -> _Figures:
    """Ask from this process, and count what the server did for it."""
    figures: _Figures = {"transactions/turn": [], "ms": [], "ms of CPU/turn": [], "transactions/s": []}
    turns = workspace.count(_TURNS, least=4)
    fleet = fleet_of(url, worker=False)
    async with fleet.app:
        await _ask(fleet, fleet.echo, _SESSIONS, _SESSIONS)
        # The caller stops listening when nothing waits; what is left is the fleet's own.
        idle_s = max(1.0, _IDLE_S * workspace.scale)
        await asyncio.sleep(2 * _SETTLE_S)
        log.mark()
        await asyncio.sleep(idle_s)
        idle = log.count().transactions / idle_s
        figures["transactions/s"].append(idle)
        for _ in range(workspace.rounds):
            cpu = workers.cpu_s()
            began = time.monotonic()
            log.mark()
            taken = await _ask(fleet, fleet.echo, turns, _SESSIONS)
            await asyncio.sleep(_SETTLE_S)
            made = log.count().transactions - idle * (time.monotonic() - began)
            figures["transactions/turn"].append(made / turns)
            figures["ms of CPU/turn"].append((workers.cpu_s() - cpu) * 1e3 / turns)
            figures["ms"].append(percentile(taken, 0.5))
    return figures


async def _on_sqlite(workspace: Workspace, workers: Crowd, url: str) -> _Figures:
    """Ask from this process, and count the statements of all processes."""
    figures: _Figures = {"statements/turn": [], "ms": [], "ms of CPU/turn": [], "statements/s": []}
    turns = workspace.count(_TURNS, least=4)
    fleet = fleet_of(url, worker=False, hooks=[StatementCount(workers.directory / "count-caller")])
    async with fleet.app:
        await _ask(fleet, fleet.echo, _SESSIONS, _SESSIONS)
        idle_s = max(1.0, _IDLE_S / 3 * workspace.scale)
        await asyncio.sleep(2 * _SETTLE_S)
        before = workers.statements()
        await asyncio.sleep(idle_s)
        figures["statements/s"].append((workers.statements() - before) / idle_s)
        for _ in range(workspace.rounds):
            before, cpu = workers.statements(), workers.cpu_s()
            taken = await _ask(fleet, fleet.echo, turns, _SESSIONS)
            await asyncio.sleep(_SETTLE_S)
            figures["statements/turn"].append((workers.statements() - before) / turns)
            figures["ms of CPU/turn"].append((workers.cpu_s() - cpu) * 1e3 / turns)
            figures["ms"].append(percentile(taken, 0.5))
    return figures


_CASES = {"ms": "ask, median", "transactions/s": "idle", "statements/s": "idle", "ms of CPU/turn": "all workers"}


def _rows(backend: str, workers: int, figures: _Figures) -> Iterator[Row]:
    plural = "worker" if workers == 1 else "workers"
    for unit, values in figures.items():
        case = f"{backend}, {workers} {plural}" + (f", {_CASES[unit]}" if unit in _CASES else "")
        yield Row(contender="lash", case=case, unit=unit, samples=Samples(tuple(values)))


def _growth(rows: Sequence[Row], unit: str) -> Ratio:
    """Return the figure of the largest fleet over that of one worker."""
    those = [row for row in rows if row.unit == unit]
    return Ratio.of(those[-1], those[0])


def fleet(workspace: Workspace) -> Report:
    """Count transactions and statements of a turn and of idle workers, as the fleet grows."""
    rows: list[Row] = []
    for size in _sizes(workspace, 1, 8, 32):
        with (
            workspace.database() as url,
            counted(workspace.server, url) as log,
            crowd(workspace.new_path(), "lash", size, url) as workers,
        ):
            rows += _rows("postgres", size, asyncio.run(_on_postgres(workspace, workers, log, url)))
    for size in _sizes(workspace, 1, 4):
        with workspace.file() as path, crowd(workspace.new_path(), "lash", size, f"sqlite:///{path}") as workers:
            rows += _rows("sqlite", size, asyncio.run(_on_sqlite(workspace, workers, f"sqlite:///{path}")))
    return Report(
        ratios=(_growth(rows, "transactions/turn"), _growth(rows, "statements/turn")),
        rows=tuple(rows),
        versions=postgres_versions(workspace) | lash_versions("apsw", "sqlite"),
        notes=(
            "what an idle fleet does in the same time is subtracted from the transactions for a turn",
            f"load of the machine before and during the run: {os.getloadavg()[0]:.1f}",
        ),
    )


async def _turns_per_s(url: str, callers: int, rounds: int, seconds: float) -> list[float]:
    """Return how many turns of waiting agents a second a fleet does, with each caller asking again at once.

    Each connection plans each statement at its first use, which takes longer than hundreds of uses; that is not
    measured.
    """
    fleet = fleet_of(url, worker=False)
    done, rates = 0, list[float]()
    ended = asyncio.Event()

    async def converse(number: int) -> None:
        nonlocal done
        session = fleet.app.session(f"s{number}", fleet.slow)
        while not ended.is_set():
            await session.ask("go")
            done += 1

    async with fleet.app:
        conversations = [asyncio.create_task(converse(number)) for number in range(callers)]
        await asyncio.sleep(_WARM_UP * seconds)
        for _ in range(rounds):
            done, began = 0, time.monotonic()
            await asyncio.sleep(seconds)
            rates.append(done / (time.monotonic() - began))
        ended.set()
        await asyncio.gather(*conversations)
    return rates


def throughput(workspace: Workspace) -> Report:
    """Measure turns a second of agents that wait 50 ms in a step, as the fleet grows."""
    rows: list[Row] = []
    seconds = max(0.5, 4 * workspace.scale)
    for size in _sizes(workspace, 1, 2, 4, 8, 16, 32):
        callers = _AHEAD * _SLOTS * size
        with workspace.database() as url, crowd(workspace.new_path(), "lash", size, url, sessions=_SLOTS):
            rates = asyncio.run(_turns_per_s(url, callers, workspace.rounds, seconds))
        rows += _rows("postgres", size, {"turns/s": rates})
    best = max(rows, key=lambda row: row.samples.median)
    return Report(
        ratios=(Ratio.of(rows[-1], best), Ratio.of(best, rows[0])),
        rows=tuple(rows),
        versions=postgres_versions(workspace),
        notes=(
            f"{_SLOTS} turns at once for each worker, and {_AHEAD} sessions that ask for each of these",
            f"callers, workers and the server share the machine; its load during the run: {os.getloadavg()[0]:.1f}",
        ),
    )


_PEERS = ("lash", "dbos", "procrastinate", "pgqueuer")
_JOBS = 100
_EVERY_S = 0.05


def _per_job(workspace: Workspace, program: str, size: int) -> Count:
    """Return what the server did while jobs came at a steady rate, until all of them were done."""
    jobs = workspace.count(_JOBS, least=4)
    with workspace.database() as url, counted(workspace.server, url) as log, running(program) as sender:
        about = {"url": url, "jobs": jobs, "every_s": _EVERY_S, "name": "sender"}
        sender.ask(about | {"do": "fleet_prepare"})
        with crowd(workspace.new_path(), program, size, url) as workers:
            sender.tell(about | {"do": "fleet_send", "directory": str(workers.directory)})
            workers.wait_until_ready("sender")
            workers.wait_until_done(0, _JOB_LIMIT_S)
            log.mark()
            (workers.directory / "go").touch()
            sender.hear()
            workers.wait_until_done(jobs, _JOB_LIMIT_S)
            return Count(*(number / jobs for number in log.count()))


def peers(workspace: Workspace) -> Report:
    """Count the statements and transactions of a job in the fleets of others, with their default options."""
    sizes = _sizes(workspace, 1, 8)
    rows: list[Row] = []
    for program in _PEERS:
        for size in sizes:
            counts = [_per_job(workspace, program, size) for _ in range(min(workspace.rounds, 2))]
            for unit, values in zip(("statements/job", "transactions/job"), zip(*counts, strict=True), strict=True):
                case = f"{size} {'worker' if size == 1 else 'workers'}"
                rows.append(Row(contender=program, case=case, unit=unit, samples=Samples(values)))
    those = [row for row in rows if row.unit == "statements/job"]
    pairs = list(zip(those[1::2], those[::2], strict=True))
    contenders = [Contender(program=name, backend="postgres") for name in _PEERS]
    return Report(
        ratios=tuple(Ratio.of(many, one) for many, one in pairs),
        rows=tuple(rows),
        versions=versions_of(*contenders) | {"postgresql": workspace.server.version},
        notes=(f"one job every {_EVERY_S * 1e3:g} ms; polls of idle workers are part of the count",),
    )


register(
    Scenario(
        name="fleet",
        group="fleet",
        what="transactions that the server does for one turn, with 32 worker processes over one",
        run=fleet,
        better=Better.LESS,
        target="at most 1.25; 32 idle workers: at most 2 transactions a second",
    )
)
register(
    Scenario(
        name="fleet-throughput",
        group="fleet",
        what="turns of agents that wait 50 ms in a step, with the largest fleet over the best one",
        run=throughput,
        target="does not fall once the processor is the limit",
    )
)
register(
    Scenario(
        name="fleet-peers",
        group="fleet",
        what="statements that the server runs for a short job, with 8 worker processes over one",
        run=peers,
        better=Better.LESS,
        peers=_PEERS,
    )
)
