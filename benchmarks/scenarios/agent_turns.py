"""Turns of agents: what a framework adds to a turn with two tool calls if its model answers at once."""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

from benchmarks.kit.contest import fresh, measure
from benchmarks.kit.disk import stored_bytes
from benchmarks.kit.fleet import Crowd
from benchmarks.kit.measure import Samples
from benchmarks.kit.peer import Contender, Program, programs
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.workspace import Workspace
from benchmarks.peers.turn_script import content_bytes, script_digest

_CONTENDERS: Final = (
    Contender(program="lash"),
    Contender(program="langgraph", variant="AsyncSqliteSaver"),
    Contender(program="openai_agents", variant="SQLiteSession"),
    Contender(program="pydantic_ai", variant="DBOS"),
    Contender(program="lash", backend="postgres"),
    Contender(program="langgraph", variant="AsyncPostgresSaver", backend="postgres"),
    Contender(program="openai_agents", variant="SQLAlchemySession", backend="postgres"),
    Contender(program="pydantic_ai", variant="DBOS", backend="postgres"),
)
_LATE: Final = 300
"""The turn at which a long conversation is measured."""
_ROUNDS: Final = 3
"""At most so many: with long conversations, a round takes most of a minute."""
_NAME: Final = "turns"
_TIME: Final = "ms/turn"


class Case(NamedTuple):
    """So many conversations at once, each with some turns that are not measured and some that are."""

    sessions: int
    before: int
    turns: int

    @property
    def name(self) -> str:
        return f"{self.sessions} at once, from turn {self.before + 1}"


class Found(NamedTuple):
    """What one turn took in a round."""

    ms: float
    stored_bytes: float


def _cases(workspace: Workspace) -> tuple[Case, ...]:
    late = workspace.count(_LATE, least=3) - 1
    return (
        Case(1, 0, workspace.count(10)),
        Case(1, late, workspace.count(4)),
        Case(16, 0, workspace.count(4)),
        Case(16, late, workspace.count(2)),
    )


def one_round(
    workspace: Workspace, program: Program, contender: Contender, case: Case, found: list[Found], _number: int
) -> float:
    """Run the turns on a new database, check what is stored then, and return the milliseconds of a turn."""
    directory, turns = workspace.new_path(), case.sessions * case.turns
    directory.mkdir()
    with fresh(workspace, contender.backend) as url:
        about = {"do": "agent_turns", "variant": contender.variant, "url": url, **case._asdict()}
        program.tell(about | {"directory": str(directory), "name": _NAME})
        Crowd(directory, []).wait_until_ready(_NAME)
        before = stored_bytes(url)
        (directory / "go").touch()
        answer: dict[str, Any] = program.hear()
        after = stored_bytes(url)
    expected = [script_digest(session, case.before + case.turns) for session in range(case.sessions)]
    assert answer["digests"] == expected, f"{contender.name} does not hold what was said"
    found.append(Found(answer["taken_ms"] / turns, (after - before) / turns))
    return found[-1].ms


def _measured(workspace: Workspace, running: dict[str, Program], case: Case) -> list[Row]:
    """Measure the contenders alternately: first the rows of times, then those of bytes."""
    found: dict[Contender, list[Found]] = {each: [] for each in _CONTENDERS}
    sides = {
        each: functools.partial(one_round, workspace, running[each.program], each, case, found[each])
        for each in _CONTENDERS
    }
    rounds = min(workspace.rounds, _ROUNDS)
    rows = measure(sides, rounds, unit=_TIME, case=case.name)
    if case.sessions > 1:
        # With few turns the free room in pages of the file would decide.
        rows += [
            Row(
                contender=each.name,
                case=f"{each.backend}, {case.name}",
                unit="bytes/turn",
                samples=Samples(tuple(figures.stored_bytes for figures in found[each][-rounds:])),
            )
            for each in _CONTENDERS
            if len(found[each]) >= rounds
        ]
    return rows


def _ratios(rows: list[Row]) -> tuple[Ratio, ...]:
    """Return lash over the best of the others, for each case: those of times first, and of them the highest."""
    ratios = []
    for mine in (row for row in rows if row.contender == "lash"):
        others = [row for row in rows if (row.case, row.unit) == (mine.case, mine.unit) and row is not mine]
        if others:
            ratios.append(Ratio.of(mine, min(others, key=lambda row: row.samples.median)))
    return tuple(sorted(ratios, key=lambda ratio: (ratio.unit != _TIME, -ratio.value)))


def agent_turn(workspace: Workspace) -> Report:
    """Measure turns of agents, one and sixteen conversations at once, new ones and long ones, on both databases."""
    cases = _cases(workspace)
    with programs(*(each.program for each in _CONTENDERS)) as running:
        rows = [row for case in cases for row in _measured(workspace, running, case)]
        versions = {name: version for each in running.values() for name, version in each.versions.items()}
    content = content_bytes(1, range(10)) / 10
    return Report(
        ratios=_ratios(rows),
        rows=tuple(rows),
        versions=versions | {"postgresql": workspace.server.version},
        notes=(
            f"a turn is three calls of the model, two calls of a tool and {content:,.0f} bytes of text",
            "a long conversation got its earlier turns in one write; those are not measured",
        ),
    )


register(
    Scenario(
        name="agent-turn",
        group="peers",
        what="a turn of an agent with two tool calls, whose model answers at once, over the best of the others",
        run=agent_turn,
        better=Better.LESS,
        peers=tuple(dict.fromkeys(each.program for each in _CONTENDERS if each.program != "lash")),
    )
)
