"""Conversations: lash against stores of conversations, each as its users would call it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from benchmarks.kit.contest import fresh, measure
from benchmarks.kit.disk import stored_bytes
from benchmarks.kit.measure import Samples, percentile
from benchmarks.kit.peer import Contender, Program, programs
from benchmarks.kit.registry import Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.workspace import Workspace
from benchmarks.peers.protocol import expected_digest, turn_texts

LASH = (Contender(program="lash"), Contender(program="lash", backend="postgres"))
PEERS = (
    Contender(program="plain"),
    Contender(program="openai_agents", variant="SQLiteSession"),
    Contender(program="openai_agents", variant="AdvancedSQLiteSession"),
    Contender(program="openai_agents", variant="SQLAlchemySession"),
    Contender(program="langgraph", variant="graph"),
    Contender(program="adk", variant="SqliteSessionService"),
    Contender(program="plain", backend="postgres"),
    Contender(program="openai_agents", variant="SQLAlchemySession", backend="postgres"),
    Contender(program="langgraph", variant="graph", backend="postgres"),
    Contender(program="adk", variant="DatabaseSessionService", backend="postgres"),
)
_FLAT_PART = 50


def question(contender: Contender, url: str, sessions: Sequence[int], turns: int) -> dict[str, Any]:
    """Return the question that makes a program converse."""
    return {"do": "chat", "variant": contender.variant, "url": url, "sessions": list(sessions), "turns": turns}


def checked(contender: Contender, answer: dict[str, Any], sessions: Sequence[int], turns: int) -> dict[str, Any]:
    """Return the answer if every text is where it should be."""
    expected = [expected_digest(session, turns) for session in sessions]
    assert answer["digests"] == expected, f"{contender.name} does not hold what was written"
    return answer


def converse(workspace: Workspace, program: Program, contender: Contender, sessions: int, turns: int) -> dict[str, Any]:
    """Let a program converse on an empty database, and check what it holds then."""
    numbers = range(sessions)
    with fresh(workspace, contender.backend) as url:
        answer = checked(contender, program.ask(question(contender, url, numbers, turns)), numbers, turns)
        answer["bytes"] = stored_bytes(url)
        return answer


def rate_of(answer: dict[str, Any]) -> float:
    """Return the turns in a second."""
    return float(len(answer["taken_ms"]) / (answer["end"] - answer["begin"]))


def against_best(rows: Sequence[Row], backends: Sequence[str]) -> tuple[Ratio, ...]:
    """Return lash over the best other of each database, the lowest first."""
    ratios: list[Ratio] = []
    for backend in backends:
        here = [row for row in rows if row.case.startswith(backend)]
        mine = next(row for row in here if row.contender == "lash")
        others = [row for row in here if row.contender != "lash"]
        if others:
            ratios.append(Ratio.of(mine, max(others, key=lambda row: row.samples.median)))
    return tuple(sorted(ratios, key=lambda ratio: ratio.value))


def _against_session(rows: Sequence[Row]) -> Ratio:
    """Return lash over the session of OpenAI's SDK that its users choose first."""
    here = {row.contender: row for row in rows if row.case.startswith("sqlite")}
    return Ratio.of(here["lash"], here["openai_agents SQLiteSession"])


def compare(sessions: int, turns: int, workspace: Workspace) -> Report:
    """Measure the contenders alternately."""
    turns = workspace.count(turns, least=6)
    contenders = (*LASH, *PEERS)
    with programs(*(each.program for each in contenders)) as running:
        sides = {
            each: functools.partial(_side, workspace, running[each.program], each, sessions, turns)
            for each in contenders
        }
        rows = measure(sides, workspace.rounds, unit="turns/s", case=f"{sessions} session{'s' * (sessions > 1)}")
        more = _long_chat(workspace, running["lash"]) if sessions == 1 else ()
        versions = {name: version for each in running.values() for name, version in each.versions.items()}
    return Report(
        ratios=(*against_best(rows, ("sqlite", "postgres")), _against_session(rows)),
        rows=(*rows, *more),
        versions=versions | {"postgresql": workspace.server.version},
    )


def _side(
    workspace: Workspace, program: Program, contender: Contender, sessions: int, turns: int, _number: int
) -> float:
    return rate_of(converse(workspace, program, contender, sessions, turns))


def _long_chat(workspace: Workspace, program: Program) -> tuple[Row, ...]:
    """Measure whether a long conversation grows slower, and what it takes on disk."""
    turns = workspace.count(1000, least=6)
    content = sum(len(text) for number in range(turns) for text in turn_texts(0, number).values())
    flat, disk = [], []
    for _ in range(workspace.rounds):
        answer = converse(workspace, program, LASH[0], 1, turns)
        taken: list[float] = answer["taken_ms"]
        part = min(_FLAT_PART, turns // 2)
        flat.append(percentile(taken[-part:], 0.5) / percentile(taken[:part], 0.5))
        disk.append(answer["bytes"] / content)
    case = f"sqlite, 1 session of {turns} turns"
    return (
        Row(contender="lash", case=f"{case}: last / first turns", unit="x", samples=Samples(tuple(flat))),
        Row(contender="lash", case=f"{case}: bytes on disk / content", unit="x", samples=Samples(tuple(disk))),
    )


_PROGRAMS = tuple(dict.fromkeys(each.program for each in PEERS))
register(
    Scenario(
        name="chat",
        group="peers",
        what="one session of 100 turns of four messages, against the best store of conversations",
        run=functools.partial(compare, 1, 100),
        target=("above 1 of SQLiteSession; flat within 1.15 to 1,000 turns; disk at most 1.3 times the content"),
        peers=_PROGRAMS,
    )
)
register(
    Scenario(
        name="chats-16",
        group="peers",
        what="16 sessions of 20 turns at once, against the best store of conversations",
        run=functools.partial(compare, 16, 20),
        target="above 1",
        peers=_PROGRAMS,
    )
)
