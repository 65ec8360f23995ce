"""Conversations that another process reads again, and several that are written by processes at once."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.kit.contest import fresh, measure
from benchmarks.kit.measure import Samples
from benchmarks.kit.peer import Contender, PeerFailed, Program
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.workspace import Workspace
from benchmarks.scenarios.chats import checked, question

_LASH = Contender(program="lash")
_REOPEN = (
    _LASH,
    Contender(program="plain"),
    Contender(program="openai_agents", variant="SQLiteSession"),
    Contender(program="openai_agents", variant="SQLAlchemySession"),
    Contender(program="adk", variant="SqliteSessionService"),
)
_PROCESSES = (
    _LASH,
    Contender(program="plain"),
    Contender(program="openai_agents", variant="SQLiteSession"),
    Contender(program="openai_agents", variant="SQLAlchemySession"),
)
_COUNTS = (2, 4)


@contextlib.contextmanager
def running(name: str) -> Iterator[Program]:
    """Run one program as long as the block."""
    program = Program(name)
    try:
        yield program
    finally:
        program.close()


def versions_of(*contenders: Contender) -> dict[str, str]:
    """Return the versions of all who took part."""
    versions: dict[str, str] = {}
    for name in dict.fromkeys(each.program for each in contenders):
        with running(name) as program:
            versions |= program.versions
    return versions


def best_ratio(rows: list[Row], backend: str) -> Ratio:
    """Return lash over the other that needs least, on one database."""
    here = [row for row in rows if row.case.startswith(backend)]
    mine = next(row for row in here if row.contender == "lash")
    return Ratio.of(mine, min((row for row in here if row.contender != "lash"), key=lambda row: row.samples.median))


def reopen(workspace: Workspace) -> Report:
    """Measure how soon a new process has the end of a long conversation, and all of it."""
    turns = workspace.count(1000, least=10)
    everything: dict[Contender, list[float]] = {each: [] for each in _REOPEN}
    with contextlib.ExitStack() as stack:
        urls: dict[Contender, str] = {}
        for each in _REOPEN:
            urls[each] = stack.enter_context(fresh(workspace, each.backend))
            with running(each.program) as program:
                checked(each, program.ask(question(each, urls[each], [0], turns)), [0], turns)

        def side(contender: Contender, _number: int) -> float:
            with running(contender.program) as program:
                asked = {"do": "reopen", "variant": contender.variant, "url": urls[contender]}
                answer = checked(contender, program.ask(asked), [0], turns)
            everything[contender].append(answer["all_ms"])
            return float(answer["last_ms"])

        sides = {each: functools.partial(side, each) for each in _REOPEN}
        rows = measure(sides, workspace.rounds, unit="ms", case="open and read the last 20")
    ratio = best_ratio(rows, "sqlite")
    rows += [
        Row(contender=each.name, case=f"{each.backend}, then all of it", unit="ms", samples=Samples(tuple(taken)))
        for each, taken in everything.items()
    ]
    return Report(ratios=(ratio,), rows=tuple(rows), versions=versions_of(*_REOPEN))


def processes(workspace: Workspace) -> Report:
    """Measure several processes that write to one SQLite file, each to a session of its own."""
    with contextlib.ExitStack() as stack:
        pools = {each: [stack.enter_context(running(each.program)) for _ in range(max(_COUNTS))] for each in _PROCESSES}
        return _processes(workspace, pools)


def _processes(workspace: Workspace, pools: dict[Contender, list[Program]]) -> Report:
    turns, rows, ratios = workspace.count(100, least=5), list[Row](), list[Ratio]()
    for count in _COUNTS:
        worst: dict[Contender, list[float]] = {each: [] for each in pools}
        sides = {
            each: functools.partial(_together, workspace, each, several[:count], turns, worst[each])
            for each, several in pools.items()
        }
        rates = measure(sides, workspace.rounds, unit="turns/s", case=f"{count} processes")
        best = max((row for row in rates if row.contender != "lash"), key=lambda row: row.samples.median)
        ratios.append(Ratio.of(rates[0], best))
        rows += rates
        rows += [
            Row(contender=each.name, case=f"{count} processes, worst turn", unit="ms", samples=Samples(tuple(taken)))
            for each, taken in worst.items()
            if taken
        ]
    versions = {name: version for each in pools.values() for name, version in each[0].versions.items()}
    return Report(ratios=tuple(ratios), rows=tuple(rows), versions=versions)


def _together(
    workspace: Workspace, contender: Contender, several: list[Program], turns: int, worst: list[float], _number: int
) -> float:
    with fresh(workspace, contender.backend) as url:
        # The tables are made by one of them.
        several[0].ask(question(contender, url, [len(several)], 1))
        at = time.monotonic() + 1.5
        for session, program in enumerate(several):
            program.tell(question(contender, url, [session], turns) | {"at": at})
        # All answers are read before any is checked, so that no program is left in the middle of one.
        answers = [_heard(program) for program in several]
    for session, answer in enumerate(answers):
        if isinstance(answer, PeerFailed):
            raise answer
        checked(contender, answer, [session], turns)
    done = [answer for answer in answers if isinstance(answer, dict)]
    worst.append(max(max(answer["taken_ms"]) for answer in done))
    taken = max(answer["end"] for answer in done) - min(answer["begin"] for answer in done)
    return float(len(several) * turns / taken)


def _heard(program: Program) -> dict[str, Any] | PeerFailed:
    try:
        return program.hear()
    except PeerFailed as failure:
        return failure


register(
    Scenario(
        name="sqlite-processes",
        group="peers",
        what="2 (and 4) processes that write to one file, against the best store of conversations",
        run=processes,
        peers=("plain", "openai_agents"),
    )
)
register(
    Scenario(
        name="reopen",
        group="peers",
        what="the last 20 messages after 1,000 turns, in a new process, against the fastest store",
        run=reopen,
        better=Better.LESS,
        peers=("plain", "openai_agents", "adk"),
    )
)
