"""Latency across processes: from an acknowledged call in one to the work it starts in another."""

from __future__ import annotations

import functools
import statistics

from benchmarks.kit.contest import fresh, measure
from benchmarks.kit.peer import Contender, Program, programs
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Ratio, Report
from benchmarks.kit.workspace import Workspace

_CONTENDERS = (
    Contender(program="lash", backend="postgres"),
    Contender(program="bare", backend="postgres"),
    Contender(program="lash"),
    Contender(program="bare"),
)
_EVENTS = 40


def median_ms(
    workspace: Workspace, contender: Contender, pair: tuple[Program, Program], kind: str, events: int, _number: int
) -> float:
    """Return how many milliseconds after its acknowledgement the middle one of some events was taken up."""
    worker, sender = pair
    with fresh(workspace, contender.backend) as url:
        question = {"url": url, "kind": kind, "events": events, "ready": str(workspace.new_path(".ready"))}
        worker.tell(question | {"do": "latency_worker"})
        acknowledged: list[float] = sender.ask(question | {"do": "latency_sender"})["acknowledged"]
        entered: list[float] = worker.hear()["entered"]
    # A worker may be faster than the answer on its way back to the sender.
    # An event that arrives before its sender has the answer counts as a microsecond, to avoid a ratio to zero.
    return statistics.median(max(1e-6, done - said) * 1e3 for said, done in zip(acknowledged, entered, strict=True))


def compare(kind: str, workspace: Workspace) -> Report:
    """Measure both databases against the least that the driver alone needs."""
    events = workspace.count(_EVENTS, least=3)
    with programs("lash", "bare") as workers, programs("lash", "bare") as senders:
        sides = {
            each: functools.partial(
                median_ms, workspace, each, (workers[each.program], senders[each.program]), kind, events
            )
            for each in _CONTENDERS
        }
        rows = measure(sides, workspace.rounds, unit="ms", case=f"median of {events}")
        versions = workers["lash"].versions
    ratios = [Ratio.of(rows[first], rows[first + 1]) for first in range(0, len(rows), 2)]
    return Report(
        ratios=tuple(sorted(ratios, key=lambda ratio: -ratio.value)),
        rows=tuple(rows),
        versions=versions | {"postgresql": workspace.server.version},
    )


def _register(name: str, what: str, kind: str, target: str = "") -> None:
    register(
        Scenario(
            name=name,
            group="latency",
            what=f"{what}, in another process, over a notification with the bare driver",
            run=functools.partial(compare, kind),
            better=Better.LESS,
            target=target,
        )
    )


_register(
    "wake-latency",
    "from the event of a process to the turn it wakes",
    "wake",
    "median below 5 ms on PostgreSQL, 10 ms on SQLite",
)
_register("signal-latency", "from a signal to the process that waits for it", "signal")
_register("enqueue-latency", "from a message to its turn", "enqueue")
