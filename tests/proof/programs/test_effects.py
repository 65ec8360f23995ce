"""Programs are crashed before and after each of their writes: same log, same outcome, no recorded call repeated.

The crash is one in memory, so all points of a program take about a second; `test_kills.py` kills workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import lash
from lash.model.effect import ProcessScope, Step
from lash.model.process.event import STARTED
from tests.proof.programs.case import PROCESS, Calls, Case, answer, start
from tests.proof.programs.cases import CASES
from tests.proof.programs.crashing import Crash, Point
from tests.proof.programs.recorded import check_outcome, recorded_calls
from tests.runtime.process_bench import World
from tests.runtime.test_crash_matrix import Databases

_MOST_ROUNDS: Final = 20
_TRIES: Final = 5
_PAUSE_S: Final = 600
pytestmark = [pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True), pytest.mark.timeout(600)]


class End(NamedTuple):
    """What is left of a process: its log, its records and its outcome."""

    log: Sequence[tuple[str, object]]
    records: Mapping[str, tuple[object, ...]]
    outcome: object


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_a_program_may_crash_at_every_effect(case: Case, databases_at_rest: Databases, backend_name: str) -> None:
    """Each point ends as the undisturbed run does, and only the call that was not recorded runs again."""
    with databases_at_rest.fresh() as (url, directory):
        expected, writes = await _undisturbed(case, backend_name, url, directory)
    points = [Point(number, after) for number in range(1, len(writes) + 1) for after in (False, True)]
    assert len(points) >= 4
    for point in points:
        for _ in range(_TRIES):
            with databases_at_rest.fresh() as (url, directory):
                if await _crashed(case, backend_name, url, directory, point, expected):
                    break
        else:
            pytest.fail(f"{point}: the run has ended before it each time")


async def _undisturbed(case: Case, backend: str, url: str, directory: Path) -> tuple[End, list[str]]:
    world, calls = World(backend, url, has_clock=True), Calls(directory / "calls", pause_s=_PAUSE_S)
    app = await world.app()
    await start(app, case, calls)
    crash = Crash(app, None)
    await _finish(world, app, case)
    end = await _end(app.storage)
    await world.close()
    check_outcome(case, end.outcome)
    assert dict(calls.counted()) == dict(case.calls)
    return end, crash.writes


async def _crashed(case: Case, backend: str, url: str, directory: Path, point: Point, expected: End) -> bool:
    """Crash a run at a point, continue it, and check the end; return False if the run has ended before the point.

    A program that waits for children parks once more or less, as they end before or after it looks.
    """
    world, calls = World(backend, url, has_clock=True), Calls(directory / "calls", pause_s=_PAUSE_S)
    doomed = await world.app()
    await start(doomed, case, calls)
    crash = Crash(doomed, point)
    await _finish(world, doomed, case, crash)
    if not crash.happened:
        await world.close()
        return False
    recorded, before = await recorded_calls(doomed.storage), calls.counted()
    app = await world.app()
    case.declare(app, calls)
    await _finish(world, app, case)
    end = await _end(app.storage)
    await world.close()
    again = calls.counted() - Counter(case.calls)
    assert end == expected, point
    assert not set(again) & recorded, f"{point}: a recorded call was repeated"
    assert set(again) <= set(before), f"{point}: a call ran twice that the crash did not interrupt"
    return True


async def _finish(world: World, app: lash.App, case: Case, crash: Crash | None = None) -> None:
    """Run the process to its end, or to the crash; between its runs time passes and questions are answered."""
    for _ in range(_MOST_ROUNDS):
        await app.drain()
        if crash is not None and crash.happened:
            # The lease of the dead worker expires.
            await world.seconds(60)
            return
        if (await app.handle(PROCESS).record()).is_terminal:
            return
        await answer(app.storage, case)
        await world.seconds(_PAUSE_S + 1)
    raise AssertionError(f"the process does not end: {await app.handle(PROCESS).events()}")


async def _end(storage: lash.Storage) -> End:
    record = await storage.processes.get(PROCESS)
    assert record is not None
    events = await storage.events.after(PROCESS, 0)
    # Each worker that takes the process notes its start.
    log = [(each.event_type, each.payload) for each in events if each.event_type != STARTED]
    effects = await storage.effects.list(ProcessScope(process_id=PROCESS))
    records = {each.replay_key: (each.envelope, each.status, _outcome(each), each.error) for each in effects}
    return End(log, records, record.projection.outcome)


def _outcome(effect: lash.EffectRecord) -> object:
    """Return what an effect led to. The number of an event also counts the starts before it, so it is left out."""
    command = effect.envelope.command
    return None if isinstance(command, Step) and command.name.startswith("event:") else effect.outcome
