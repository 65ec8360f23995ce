"""Deleting conversations, contending for one, and resuming the work of a killed process."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.kit.contest import fresh, measure
from benchmarks.kit.disk import file_bytes
from benchmarks.kit.peer import Contender, Program
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Report
from benchmarks.kit.workspace import Workspace
from benchmarks.scenarios.chats import checked, question
from benchmarks.scenarios.lives import best_ratio, running, versions_of

_LASH = (Contender(program="lash"), Contender(program="lash", backend="postgres"))
_GC = (
    *_LASH,
    Contender(program="langgraph", variant="graph"),
    Contender(program="openai_agents", variant="SQLiteSession"),
    Contender(program="langgraph", variant="graph", backend="postgres"),
    Contender(program="openai_agents", variant="SQLAlchemySession", backend="postgres"),
)
_CONTEND = (
    *_LASH,
    Contender(program="langgraph", variant="graph"),
    Contender(program="openai_agents", variant="SQLiteSession"),
    Contender(program="adk", variant="SqliteSessionService"),
    Contender(program="langgraph", variant="graph", backend="postgres"),
    Contender(program="openai_agents", variant="SQLAlchemySession", backend="postgres"),
    Contender(program="adk", variant="DatabaseSessionService", backend="postgres"),
)
_RECOVER = (
    *_LASH,
    Contender(program="dbos"),
    Contender(program="dbos", backend="postgres"),
    Contender(program="absurd", backend="postgres"),
)
_CALLERS = 8


def delete(workspace: Workspace) -> Report:
    """Measure the deletion of every second session of some."""
    sessions, turns = workspace.count(40, least=4), workspace.count(10, least=2)
    with contextlib.ExitStack() as stack:
        templates: dict[Contender, str] = {}
        for each in _GC:
            templates[each] = stack.enter_context(fresh(workspace, each.backend))
            with running(each.program) as program:
                numbers = range(sessions)
                checked(each, program.ask(question(each, templates[each], numbers, turns)), numbers, turns)

        def side(contender: Contender, _number: int) -> float:
            with _copy(workspace, contender, templates[contender]) as url, running(contender.program) as program:
                asked = {"do": "delete", "variant": contender.variant, "url": url}
                answer = program.ask(asked | {"sessions": list(range(0, sessions, 2))})
            return float(answer["end"] - answer["begin"]) * 1e3 / len(range(0, sessions, 2))

        rows = measure(
            {each: functools.partial(side, each) for each in _GC},
            workspace.rounds,
            unit="ms/session",
            case=f"sessions of {turns} turns",
        )
    ratios = sorted((best_ratio(rows, backend) for backend in ("sqlite", "postgres")), key=lambda each: -each.value)
    versions = versions_of(*_GC) | {"postgresql": workspace.server.version}
    return Report(ratios=tuple(ratios), rows=tuple(rows), versions=versions)


@contextlib.contextmanager
def _copy(workspace: Workspace, contender: Contender, template: str) -> Iterator[str]:
    if contender.backend == "postgres":
        with workspace.database(template) as url:
            yield url
    else:
        file = Path(template.removeprefix("sqlite:///"))
        # What lies in the log belongs to the file.
        file_bytes(file)
        with workspace.file(file) as path:
            yield f"sqlite:///{path}"


def lost_updates(workspace: Workspace) -> Report:
    """Run eight turns of one session at once, and count the turns that are not stored whole and in order."""
    times = workspace.count(20, least=2)

    def side(contender: Contender, _number: int) -> float:
        asked = {"do": "contend", "variant": contender.variant, "rounds": times, "callers": _CALLERS}
        with fresh(workspace, contender.backend) as url, running(contender.program) as program:
            whole: int = program.ask(asked | {"url": url})["whole"]
        return 100.0 * (1 - whole / (times * _CALLERS))

    rows = measure(
        {each: functools.partial(side, each) for each in _CONTEND},
        min(workspace.rounds, 5),
        unit="% of turns",
        case=f"{_CALLERS} at once: lost, refused or interleaved",
    )
    ratios = [best_ratio(rows, backend) for backend in ("sqlite", "postgres")]
    versions = versions_of(*_CONTEND) | {"postgresql": workspace.server.version}
    return Report(ratios=tuple(ratios), rows=tuple(rows), versions=versions)


def recover(workspace: Workspace) -> Report:
    """Kill a worker in the middle of a job, and measure when another one resumes it."""
    repeated: dict[str, int] = {}

    def side(contender: Contender, _number: int) -> float:
        with fresh(workspace, contender.backend) as url:
            directory = workspace.new_path()
            directory.mkdir()
            taken = _killed(contender, url, directory)
            times = len((directory / "first").read_text().splitlines())
            name = f"{contender.name} on {contender.backend}"
            repeated[name] = max(repeated.get(name, 0), times - 1)
            return taken

    rows = measure(
        {each: functools.partial(side, each) for each in _RECOVER},
        workspace.rounds,
        unit="s",
        case="kill to resumed step",
    )
    ratios = sorted((best_ratio(rows, backend) for backend in ("sqlite", "postgres")), key=lambda each: -each.value)
    notes = [f"{name}: a recorded step was run again at most {times} times" for name, times in repeated.items()]
    notes.append("lash and absurd have another worker standing by; dbos goes on when a process of its name starts")
    versions = versions_of(*_RECOVER) | {"postgresql": workspace.server.version}
    return Report(ratios=tuple(ratios), rows=tuple(rows), versions=versions, notes=tuple(notes))


def _killed(contender: Contender, url: str, directory: Path) -> float:
    """Return the seconds from the end of a worker until the step it died in was entered elsewhere."""
    (directory / "hang").touch()
    asked = {"do": "recover", "url": url, "directory": str(directory)}
    victim = Program(contender.program)
    try:
        victim.tell(asked | {"standby": False})
        with running(contender.program) as heir:
            limit = time.monotonic() + 30
            while not (directory / "second").exists():
                assert time.monotonic() < limit, f"{contender.name} did not begin"
                time.sleep(0.01)
            stands_by = contender.program != "dbos"
            if stands_by:
                heir.tell(asked | {"standby": True})
                time.sleep(1.0)
            (directory / "hang").rename(directory / "hung")
            victim.kill()
            killed = time.monotonic()
            if not stands_by:
                heir.tell(asked | {"standby": True})
            return float(heir.hear()["entered"]) - killed
    finally:
        victim.kill()
        victim.close()


register(
    Scenario(
        name="recover",
        group="peers",
        what="from kill -9 of a worker until another resumes its job, over the fastest peer",
        run=recover,
        better=Better.LESS,
        peers=("dbos", "absurd"),
    )
)
register(
    Scenario(
        name="gc",
        group="peers",
        what="deleting a session, over the fastest store of conversations",
        run=delete,
        better=Better.LESS,
        target="below 1",
        peers=("langgraph", "openai_agents"),
    )
)
register(
    Scenario(
        name="lost-updates",
        group="peers",
        what="eight turns of one session at once: turns lost, refused or interleaved",
        run=lost_updates,
        better=Better.LESS,
        target="none",
        peers=("langgraph", "openai_agents", "adk"),
    )
)
