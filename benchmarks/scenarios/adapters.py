"""Adapters: lash in the place of a framework's own storage, each as its users would call it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from benchmarks.kit.contest import fresh
from benchmarks.kit.disk import stored_bytes
from benchmarks.kit.measure import Samples, by_turns, percentile
from benchmarks.kit.peer import Contender, Program, programs
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.workspace import Workspace
from benchmarks.peers.protocol import expected_digest

_MEGABYTE = 1e6
_EARLY, _PART = 10, 10
"""The turn that the last ones are compared with, and how many turns around it make one figure."""
Figures = Mapping[str, Callable[[dict[str, Any]], float]]
"""Figures by case: each is computed from an answer."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Contest:
    """Contenders that do the same task."""

    task: str
    contenders: tuple[Contender, ...]
    turns: int
    figures: Figures
    limits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Fewer turns for some databases."""


def _measured(workspace: Workspace, contest: _Contest, running: Mapping[str, Program]) -> list[Row]:
    """Measure the contenders alternately; each figure of a contender is a row."""
    answers: dict[Contender, list[dict[str, Any]]] = {each: [] for each in contest.contenders}
    turns = {
        each: workspace.count(contest.limits.get(each.backend, contest.turns), least=_EARLY + _PART)
        for each in contest.contenders
    }
    sides = [
        functools.partial(_side, workspace, running[each.program], each, contest.task, turns[each], answers[each])
        for each in contest.contenders
    ]
    by_turns(sides, workspace.rounds)
    return [
        Row(
            contender=each.variant,
            case=f"{each.backend}, {case} ({turns[each]} turns)",
            unit="MB" if case == _DISK else "x" if case in _SHARES else "ms",
            samples=Samples(tuple(figure(answer) for answer in answers[each][-workspace.rounds :])),
        )
        for case, figure in contest.figures.items()
        for each in contest.contenders
    ]


def _side(
    workspace: Workspace,
    program: Program,
    contender: Contender,
    task: str,
    turns: int,
    answers: list[dict[str, Any]],
    _number: int,
) -> float:
    with fresh(workspace, contender.backend) as url:
        answer = program.ask({"do": task, "variant": contender.variant, "url": url, "turns": turns})
        assert answer["digests"] == [expected_digest(0, turns)], f"{contender.name} does not hold what was written"
        # A contender that stores files counts their bytes.
        answers.append(answer if "bytes" in answer else answer | {"bytes": stored_bytes(url)})
    return 0.0


_DISK = "on disk"
_GROWTH = "calls of the saver alone: last turns / turn 10"
_GROWTH_IN_GRAPH = "calls of the saver in the graph: last turns / turn 10"
_SHARES = (_GROWTH, _GROWTH_IN_GRAPH)


def _disk(answer: dict[str, Any]) -> float:
    return float(answer["bytes"] / _MEGABYTE)


def _median(name: str, answer: dict[str, Any]) -> float:
    return percentile(answer[name], 0.5)


def _early(answer: dict[str, Any], name: str = "taken_ms") -> float:
    return percentile(answer[name][_EARLY - _PART // 2 : _EARLY + _PART // 2], 0.5)


def _late(answer: dict[str, Any], name: str = "taken_ms") -> float:
    return percentile(answer[name][-_PART:], 0.5)


def _growth(answer: dict[str, Any], name: str = "taken_ms") -> float:
    return _late(answer, name) / _early(answer, name)


def _ratios(rows: Sequence[Row], ours: str, backends: Sequence[str]) -> tuple[Ratio, ...]:
    """Return ours over the best of the others, variant by variant, case by case and database by database."""
    ratios: list[Ratio] = []
    for mine in sorted((row for row in rows if row.contender.startswith(ours)), key=lambda row: row.contender != ours):
        others = [row for row in rows if row.case == mine.case and not row.contender.startswith("Lash")]
        if others and mine.case.startswith(tuple(backends)):
            ratios.append(Ratio.of(mine, min(others, key=lambda row: row.samples.median)))
    return tuple(ratios)


def _langgraph(workspace: Workspace) -> Report:
    """Measure turns of a graph, and the calls of the saver alone."""
    lash, frozen = (
        Contender(program="langgraph_adapter", variant=variant) for variant in ("LashSaver", "LashSaver frozen_items")
    )
    own = Contender(program="langgraph_adapter", variant="AsyncSqliteSaver")
    on_postgres = tuple(
        Contender(program="langgraph_adapter", variant=variant, backend="postgres")
        for variant in ("LashSaver", "AsyncPostgresSaver")
    )
    graph = _Contest(
        task="graph",
        contenders=(lash, frozen, own, *on_postgres),
        turns=300,
        limits={"postgres": 100},
        figures={
            "last turns": _late,
            f"turn {_EARLY}": _early,
            _GROWTH_IN_GRAPH: functools.partial(_growth, name="saving_ms"),
            _DISK: _disk,
        },
    )
    alone = _Contest(
        task="alone",
        contenders=(lash, frozen),
        turns=300,
        figures={_GROWTH: _growth, "calls of the saver alone, last turns": _late},
    )
    with programs("langgraph_adapter") as running:
        rows = _measured(workspace, graph, running) + _measured(workspace, alone, running)
        versions = running["langgraph_adapter"].versions
    return Report(
        ratios=_ratios(rows, "LashSaver", ("sqlite", "postgres")),
        rows=tuple(rows),
        versions=versions | {"postgresql": workspace.server.version},
        notes=(f"medians of {workspace.rounds} rounds",) if workspace.rounds > 1 else ("measured once",),
    )


_SESSION: Final[Figures] = {
    "add": functools.partial(_median, "add_ms"),
    "read the last 20": functools.partial(_median, "last_ms"),
    "read all": functools.partial(_median, "whole_ms"),
}
_STEPS: Final[Figures] = {
    "store a turn, last turns": _late,
    f"store a turn, turn {_EARLY}": _early,
    "read the latest snapshot": functools.partial(_median, "latest_ms"),
    "read all events": functools.partial(_median, "events_ms"),
}


def _sessions(
    program: str,
    ours: str,
    own: Mapping[str, Sequence[str]],
    figures: Figures,
    workspace: Workspace,
    *,
    task: str = "session",
) -> Report:
    """Measure writes and reads of a session of 100 turns."""
    contest = _Contest(
        task=task,
        contenders=tuple(
            Contender(program=program, variant=variant, backend=backend)
            for backend, variants in own.items()
            for variant in (ours, *variants)
        ),
        turns=100,
        figures={**figures, _DISK: _disk},
    )
    with programs(program) as running:
        rows = _measured(workspace, contest, running)
        versions = running[program].versions
    return Report(
        ratios=_ratios(rows, ours, tuple(own)),
        rows=tuple(rows),
        versions=versions | {"postgresql": workspace.server.version},
    )


register(
    Scenario(
        name="adapter-langgraph",
        group="adapters",
        what="a turn of three nodes of LangGraph at the end of a long thread: lash's saver over LangGraph's own",
        run=_langgraph,
        better=Better.LESS,
        target="below 1; at most 8 MB",
        peers=("langgraph_adapter",),
    )
)
register(
    Scenario(
        name="adapter-openai",
        group="adapters",
        what="a session of OpenAI's Agents SDK: lash's over the fastest of the SDK's own",
        run=functools.partial(
            _sessions,
            "openai_agents_adapter",
            "LashSession",
            {
                "sqlite": ("LashSession by URL", "SQLiteSession", "SQLAlchemySession"),
                "postgres": ("LashSession by URL", "SQLAlchemySession"),
            },
            {**_SESSION, "first read of all": functools.partial(_median, "first_ms")},
        ),
        better=Better.LESS,
        target="at most 1",
        peers=("openai_agents_adapter",),
    )
)
register(
    Scenario(
        name="adapter-adk",
        group="adapters",
        what="a session service of Google's Agent Development Kit: lash's over the fastest of ADK's own",
        run=functools.partial(
            _sessions,
            "adk_adapter",
            "LashSessionService",
            {
                "sqlite": ("SqliteSessionService", "DatabaseSessionService"),
                "postgres": ("DatabaseSessionService",),
            },
            _SESSION,
        ),
        better=Better.LESS,
        target="at most 1",
        peers=("adk_adapter",),
    )
)
register(
    Scenario(
        name="adapter-pydantic-ai",
        group="adapters",
        what="the steps of a long run of pydantic-ai's harness: lash's step store over the harness's own",
        run=functools.partial(
            _sessions,
            "pydantic_ai_harness_adapter",
            "LashStepStore",
            {"sqlite": ("SqliteStepStore",)},
            _STEPS,
            task="steps",
        ),
        better=Better.LESS,
        target="at most 1",
        peers=("pydantic_ai_harness_adapter",),
    )
)
register(
    Scenario(
        name="adapter-chatkit",
        group="adapters",
        what="a thread of ChatKit: lash's store over a plain table of SQLite, since ChatKit ships no store",
        run=functools.partial(_sessions, "chatkit_adapter", "LashStore", {"sqlite": ("a table of SQLite",)}, _SESSION),
        better=Better.LESS,
        target="adds below 2",
        peers=("chatkit_adapter",),
    )
)
register(
    Scenario(
        name="adapter-strands",
        group="adapters",
        what="a session of Strands: lash's repository over Strands' files",
        run=functools.partial(
            _sessions, "strands_adapter", "LashSessionRepository", {"sqlite": ("FileSessionManager",)}, _SESSION
        ),
        better=Better.LESS,
        target="reads below 1",
        peers=("strands_adapter",),
    )
)
