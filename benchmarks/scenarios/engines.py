"""Durable steps and queues: lash's runtime against engines of durable execution and queues on PostgreSQL."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from benchmarks.kit.contest import fresh, measure
from benchmarks.kit.peer import Contender, Program, programs
from benchmarks.kit.registry import Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.text import prose
from benchmarks.kit.workspace import Workspace
from benchmarks.peers.protocol import digest

_STEPS = (
    Contender(program="lash"),
    Contender(program="dbos"),
    Contender(program="lash", backend="postgres"),
    Contender(program="dbos", backend="postgres"),
    Contender(program="absurd", backend="postgres"),
)
_QUEUES = (
    Contender(program="lash", backend="postgres"),
    Contender(program="pgqueuer", variant="connection", backend="postgres"),
    Contender(program="pgqueuer", variant="pool", backend="postgres"),
    Contender(program="procrastinate", backend="postgres"),
    Contender(program="absurd", backend="postgres"),
    Contender(program="dbos", backend="postgres"),
    Contender(program="lash"),
    Contender(program="dbos"),
)


def run_steps(
    workspace: Workspace, program: Program, contender: Contender, callers: int, runs: list[list[str]], _number: int
) -> float:
    """Return the steps in a second of one contender, on an empty database."""
    with fresh(workspace, contender.backend) as url:
        answer = program.ask({"do": "steps", "url": url, "runs": runs, "callers": callers})
    expected = [digest([str(number), *texts]) for number, texts in enumerate(runs)]
    assert answer["results"] == expected, f"{contender.name} returned something else than it should"
    return float(10 * len(runs) / (answer["end"] - answer["begin"]))


def steps(workspace: Workspace) -> Report:
    """Measure runs of ten steps, one after the other and four at once."""
    runs = [[prose((run, step), 1000) for step in range(10)] for run in range(workspace.count(50, least=2))]
    rows: list[Row] = []
    with programs(*(each.program for each in _STEPS)) as running:
        for callers in (1, 4):
            sides = {
                each: functools.partial(run_steps, workspace, running[each.program], each, callers, runs)
                for each in _STEPS
            }
            rows += measure(sides, workspace.rounds, unit="steps/s", case=f"{callers} at once")
        versions = {name: version for each in running.values() for name, version in each.versions.items()}
    ratios = [
        Ratio.of(_row(rows, "lash", case), _row(rows, "dbos", case))
        for case in ("sqlite, 1 at once", "postgres, 1 at once")
    ]
    ratios.sort(key=lambda ratio: ratio.value)
    ratios += [
        Ratio.of(_row(rows, "lash", case), _row(rows, other, case))
        for case, other in (
            ("postgres, 1 at once", "absurd"),
            ("sqlite, 4 at once", "dbos"),
            ("postgres, 4 at once", "dbos"),
            ("postgres, 4 at once", "absurd"),
        )
    ]
    return Report(ratios=tuple(ratios), rows=tuple(rows), versions=versions | {"postgresql": workspace.server.version})


def run_queue(workspace: Workspace, program: Program, contender: Contender, jobs: int, _number: int) -> float:
    """Return the jobs that one worker did in a second."""
    with fresh(workspace, contender.backend) as url:
        answer = program.ask({"do": "queue", "url": url, "jobs": jobs, "variant": contender.variant})
    assert answer["done"] == list(range(jobs)), f"{contender.name} did not do every job once"
    return float(jobs / (answer["end"] - answer["begin"]))


def queue(workspace: Workspace) -> Report:
    """Measure how fast one worker empties a queue of jobs that do nothing."""
    jobs = workspace.count(1000, least=20)
    with programs(*(each.program for each in _QUEUES)) as running:
        sides = {each: functools.partial(run_queue, workspace, running[each.program], each, jobs) for each in _QUEUES}
        rows = measure(sides, workspace.rounds, unit="jobs/s", case=f"{jobs} jobs")
        versions = {name: version for each in running.values() for name, version in each.versions.items()}
    mine = next(row for row in rows if row.contender == "lash" and row.case.startswith("postgres"))
    others = [row for row in rows if row.contender != "lash" and row.case.startswith("postgres")]
    others.sort(key=lambda row: -row.samples.median)
    return Report(
        ratios=tuple(Ratio.of(mine, other) for other in others),
        rows=tuple(rows),
        versions=versions | {"postgresql": workspace.server.version},
        notes=("poll intervals: dbos 10 ms, absurd 10 ms; the others listen for notifications",),
    )


def _row(rows: Sequence[Row], contender: str, case: str) -> Row:
    return next(row for row in rows if row.contender == contender and row.case == case)


register(
    Scenario(
        name="steps",
        group="peers",
        what="runs of ten steps with results of 1,000 characters, against DBOS on the same database",
        run=steps,
        target="at least 4 (goal 6) times DBOS on each database; at least 2 times absurd",
        peers=("dbos", "absurd"),
    )
)
register(
    Scenario(
        name="queue",
        group="peers",
        what="jobs that do nothing, done by one worker, against the best queue on PostgreSQL",
        run=queue,
        target="at least 0.8 (goal 1.1)",
        peers=("pgqueuer", "procrastinate", "absurd", "dbos"),
    )
)
