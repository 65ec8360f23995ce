"""Fleets: what a turn costs when more workers share a database, and how many turns they do."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks.kit.fleet import Crowd, crowd
from benchmarks.kit.machine import lash_versions, postgres_versions
from benchmarks.kit.measure import Samples, percentile
from benchmarks.kit.peer import Contender
from benchmarks.kit.processor import server_pid, server_s
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
_SLOTS = 4
"""So few turns at once for each worker that a single one does not use up the processor."""
_WARM_UP = 3.0
"""Rounds of a throughput that are not measured, at least: workers of a full machine find their number meanwhile."""
_FIRST_TURNS = 5
"""How many turns each session has before a throughput is measured."""
_WARM_UP_LIMIT_S = 60.0
_DEMAND = 64
"""How many sessions ask again at once, whatever the size of the fleet."""
_BACKLOG = 3
"""How many sessions ask for each slot of the fleet, where demand grows with it and no slot is ever free."""

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


def _case(workers: int, more: str = "") -> str:
    return f"{workers} {'worker' if workers == 1 else 'workers'}{', ' * bool(more)}{more}"


def _rows(backend: str, workers: int, figures: _Figures) -> Iterator[Row]:
    for unit, values in figures.items():
        case = f"{backend}, {_case(workers, _CASES.get(unit, ''))}"
        yield Row(contender="lash", case=case, unit=unit, samples=Samples(tuple(values)), at=workers)


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


class _Use(NamedTuple):
    """What a fleet, its caller and the server have used so far."""

    turns: int
    time_s: float
    worker_s: float
    caller_s: float
    server_s: float
    statements: int

    def since(self, before: _Use) -> dict[str, float]:
        """Return the rate, and what one turn used, by case."""
        turns = self.turns - before.turns
        used = {name: getattr(self, f"{name}_s") - getattr(before, f"{name}_s") for name in _USERS}
        return {
            "": turns / (self.time_s - before.time_s),
            **{name: seconds * 1e3 / max(1, turns) for name, seconds in used.items()},
            "statements": (self.statements - before.statements) / max(1, turns),
        }


_USERS = ("worker", "caller", "server")
_UNITS = {"": "turns/s", **dict.fromkeys(_USERS, "ms of CPU/turn"), "statements": "statements/turn"}


async def _load(workers: Crowd, url: str, server: int, callers: int, rounds: int, seconds: float) -> _Figures:
    """Return how many turns of waiting agents a second a fleet does, with each caller asking again at once.

    Each connection plans each statement at its first use, which takes longer than hundreds of uses; that is not
    measured.
    """
    fleet = fleet_of(url, worker=False, hooks=[StatementCount(workers.directory / "count-caller")])
    asked = [0] * callers
    ended = asyncio.Event()

    def used() -> _Use:
        own, all_workers = time.process_time(), workers.cpu_s()
        return _Use(sum(asked), time.monotonic(), all_workers, own, server_s(server), workers.statements())

    async def converse(number: int) -> None:
        session = fleet.app.session(f"s{number}", fleet.slow)
        while not ended.is_set():
            await session.ask("go")
            asked[number] += 1

    async with fleet.app:
        conversations = [asyncio.create_task(converse(number)) for number in range(callers)]
        limit = time.monotonic() + _WARM_UP_LIMIT_S
        await asyncio.sleep(_WARM_UP * seconds)
        while min(asked) < _FIRST_TURNS and time.monotonic() < limit:
            await asyncio.sleep(0.1)
        uses = [used()]
        for _ in range(rounds):
            await asyncio.sleep(seconds)
            uses.append(used())
        ended.set()
        await asyncio.gather(*conversations)
    found = [now.since(before) for before, now in itertools.pairwise(uses)]
    return {case: [each[case] for each in found] for case in _UNITS}


def throughput(workspace: Workspace) -> Report:
    """Measure turns a second of agents that wait 50 ms in a step, as the fleet grows.

    Once for the same demand, and once for a demand that grows with the fleet, so that every slot is always taken.
    """
    rows: list[Row] = []
    seconds = max(1.0, 4 * workspace.scale)
    server = server_pid(workspace.server)
    for size in _sizes(workspace, 1, 2, 4, 8, 16, 32):
        for demand, callers in (("", workspace.count(_DEMAND, least=4)), ("backlog", _BACKLOG * _SLOTS * size)):
            with (
                workspace.database() as url,
                crowd(workspace.new_path(), "lash", size, url, sessions=_SLOTS) as workers,
            ):
                figures = asyncio.run(_load(workers, url, server, callers, workspace.rounds, seconds))
            for case, values in figures.items():
                name = _case(size, ", ".join(filter(None, (demand, case))))
                rows.append(
                    Row(contender="lash", case=name, unit=_UNITS[case], samples=Samples(tuple(values)), at=size)
                )
    rates = [row for row in rows if row.unit == _UNITS[""]]
    steady, crowded = rates[::2], rates[1::2]
    best, best_crowded = (max(those, key=lambda row: row.samples.median) for those in (steady, crowded))
    return Report(
        ratios=(
            Ratio.of(steady[-1], best),
            Ratio.of(best, steady[0]),
            Ratio.of(crowded[-1], best_crowded),
        ),
        rows=tuple(rows),
        versions=postgres_versions(workspace),
        notes=(
            f"{_SLOTS} turns at once for each worker; {_DEMAND} sessions ask; backlog: {_BACKLOG} for each slot",
            f"callers, workers and the server share the machine; its load during the run: {os.getloadavg()[0]:.1f}",
        ),
    )


_PEERS = ("lash", "dbos", "procrastinate", "pgqueuer")
_JOBS = 100
_PEER_ROUNDS = 3
"""Counts differ little between rounds, and the sixteen fleets take minutes to start."""
_EVERY_S = 0.05


def _per_job(workspace: Workspace, program: str, size: int) -> list[Count]:
    """Return what the server did in each round while jobs came at a steady rate, until all of them were done."""
    jobs = workspace.count(_JOBS, least=4)
    found: list[Count] = []
    with workspace.database() as url, counted(workspace.server, url) as log, running(program) as sender:
        about = {"url": url, "jobs": jobs, "every_s": _EVERY_S, "name": "sender"}
        sender.ask(about | {"do": "fleet_prepare"})
        with crowd(workspace.new_path(), program, size, url) as workers:
            for _ in range(min(workspace.rounds, _PEER_ROUNDS)):
                sender.tell(about | {"do": "fleet_send", "directory": str(workers.directory)})
                workers.wait_until_ready("sender")
                workers.wait_until_done(0, _JOB_LIMIT_S)
                log.mark()
                (workers.directory / "go").touch()
                sender.hear()
                workers.wait_until_done(jobs, _JOB_LIMIT_S)
                found.append(Count(*(number / jobs for number in log.count())))
                workers.forget()
    return found


def peers(workspace: Workspace) -> Report:
    """Count the statements and transactions of a job in the fleets of others, with their default options."""
    rows: list[Row] = []
    for program in _PEERS:
        for size in _sizes(workspace, 1, 8, 16, 32):
            counts = _per_job(workspace, program, size)
            for unit, values in zip(("statements/job", "transactions/job"), zip(*counts, strict=True), strict=True):
                rows.append(Row(contender=program, case=_case(size), unit=unit, samples=Samples(values), at=size))
    contenders = [Contender(program=name, backend="postgres") for name in _PEERS]
    return Report(
        ratios=tuple(
            _growth([row for row in rows if row.contender == program], "statements/job") for program in _PEERS
        ),
        rows=tuple(rows),
        versions=versions_of(*contenders) | {"postgresql": workspace.server.version},
        notes=(
            f"one job every {_EVERY_S * 1e3:g} ms, {_JOBS} in each of {_PEER_ROUNDS} rounds",
            "polls of idle workers are part of the count",
        ),
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
        what="statements that the server runs for a short job, with 32 worker processes over one",
        run=peers,
        better=Better.LESS,
        peers=_PEERS,
    )
)
