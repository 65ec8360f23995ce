"""The rule that derives the state of a process."""

from __future__ import annotations

import json

import msgspec
import pytest

from lash.errors import CorruptData
from lash.model.process.process import ProcessPhase, ProcessState, Projection, SignalWait
from lash.plan.process.process import ListedProcessRow, decode_process_page
from lash.plan.process.state import process_state
from tests.rules.test_process_run import ROW, record

APPROVAL = '{"identity":{"type":"custom","key":"approval"}}'
SIGNAL = '{"identity":{"type":"process_signal","process_id":"p","signal_name":"go","ordinal":2}}'
TOOL = '{"identity":{"type":"tool_completion","tool_call_id":"c1"}}'
RUNNING, READY = ProcessState(phase=ProcessPhase.RUNNING), ProcessState(phase=ProcessPhase.READY)


def waiting(what: str, due_at_ms: int | None = None) -> ProcessState:
    return ProcessState(phase=ProcessPhase.WAITING, due_at_ms=due_at_ms, waits_for=what)


def parked(phase: ProcessPhase, due_at_ms: int) -> ProcessState:
    return ProcessState(phase=phase, due_at_ms=due_at_ms)


@pytest.mark.parametrize(
    ("facts", "signal", "expected"),
    [
        ([100, 1, 1, 50, None, 0], False, RUNNING),
        ([100, 1, 1, None, APPROVAL, 0], True, RUNNING),
        ([100, 0, 0, None, None, 0], False, RUNNING),
        ([100, 0, 1, 100, None, 0], False, READY),
        ([100, 0, 1, 50, APPROVAL, 1], True, READY),
        ([100, 0, 1, 101, None, 0], False, parked(ProcessPhase.SLEEPING, 101)),
        ([100, 0, 1, 101, None, 1], False, parked(ProcessPhase.RETRYING, 101)),
        ([100, 0, 1, None, None, 0], True, waiting("signal approve")),
        ([100, 0, 1, 200, APPROVAL, 1], True, waiting("signal approve", 200)),
        ([100, 0, 1, None, APPROVAL, 0], False, waiting("wait approval")),
        ([100, 0, 1, 200, APPROVAL, 1], False, waiting("wait approval", 200)),
        ([100, 0, 1, None, TOOL, 0], False, waiting("tool call c1")),
        ([100, 0, 1, None, SIGNAL, 0], False, waiting("signal go")),
        ([100, 0, 1, None, None, 0], False, waiting("child process")),
    ],
)
def test_a_state_follows_from_the_facts(facts: list[object], signal: bool, expected: ProcessState) -> None:  # noqa: FBT001
    """A live lease runs, a past time is ready, and what it waits for comes before why it is parked."""
    wait = SignalWait(name="approve", ordinal=1) if signal else None
    assert process_state(json.dumps(facts), record(projection=Projection(wait=wait))) == expected


def test_unreadable_facts_are_corrupt() -> None:
    """The error names the process."""
    with pytest.raises(CorruptData, match="the state of process 'process-1'"):
        process_state("[1]", record())


def test_a_page_has_states_if_they_were_read() -> None:
    """A row without facts has no state."""
    rows = [ListedProcessRow(**msgspec.structs.asdict(ROW), state=state) for state in ("[5,0,1,9,null,0]", None)]
    first, second = decode_process_page(rows, 2).processes
    assert first.state == parked(ProcessPhase.SLEEPING, 9)
    assert second == msgspec.structs.replace(first, state=None)
