"""Traces of turns: which steps they have, how they are bounded, and their packed form."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lash.errors import CorruptData, InvalidInput
from lash.model.effect import Command, EffectError, EffectRecord, EffectStatus, Envelope, Sleep, Step, TurnScope
from lash.model.session.trace import TraceStep, TurnRecord, TurnTrace
from lash.plan.session.trace import (
    MAX_ERROR,
    MAX_NAME,
    MAX_STEPS,
    TurnTraceRow,
    decode_trace,
    decode_turn,
    encode_trace,
    trace_steps,
)

SCOPE = TurnScope(session_id="s", turn_id="t")


def recorded(key: str, command: Command | None = None, **fields: Any) -> EffectRecord:  # noqa: ANN401 (any field)
    envelope = Envelope(scope=SCOPE, replay_key=key, command=command or Step(name=key))
    given = {"kind": "step", "status": EffectStatus.COMPLETED, "created_at_ms": 50, "updated_at_ms": 50, **fields}
    return EffectRecord(scope=SCOPE, replay_key=key, envelope=envelope, envelope_hash="h", **given)


def test_steps_follow_each_other_as_they_began() -> None:
    """A step has its time, attempt, tries, worker and error; a sleep lasts until it is due."""
    failed = EffectError(code="broken", message="it broke")
    steps = trace_steps(
        (
            recorded("b", began_at_ms=30, attempt=2, tries=3, worker="w", error=failed, status=EffectStatus.FAILED),
            recorded("a", began_at_ms=10, updated_at_ms=25, attempt=1, tries=1, worker="v"),
            recorded("nap", Sleep(duration_ms=500), kind="sleep", began_at_ms=40, due_at_ms=540),
        )
    )
    assert steps == (
        TraceStep(name="a", began_at_ms=10, took_ms=15, worker="v"),
        TraceStep(name="b", began_at_ms=30, took_ms=20, attempt=2, tries=3, error="broken: it broke", worker="w"),
        TraceStep(name="nap", kind="sleep", began_at_ms=40, took_ms=500),
    )


def test_what_is_not_a_step_is_left_out() -> None:
    """Effects that run, and readings of the clock, are not part of a trace; one without times has its record's."""
    clock = recorded("now", Sleep(duration_ms=0), kind="sleep", due_at_ms=50)
    running = recorded("runs", status=EffectStatus.IN_PROGRESS)
    assert trace_steps((clock, running, recorded("old"))) == (TraceStep(name="old", began_at_ms=50, took_ms=0),)
    late = recorded("late", Sleep(until_ms=5), kind="sleep", began_at_ms=50, due_at_ms=5)
    assert [step.took_ms for step in trace_steps((late,))] == [0]


def test_long_texts_are_cut() -> None:
    """Names and errors are cut to their limits, in records and in traces that a caller makes."""
    failed = EffectError(code="c", message="m" * MAX_ERROR)
    (step,) = trace_steps((recorded("k" * 200, error=failed, status=EffectStatus.FAILED),))
    assert (len(step.name), len(step.error or "")) == (MAX_NAME, MAX_ERROR)
    own = TraceStep(name="n" * 500, kind="x" * 500, began_at_ms=1, took_ms=1, error="e" * 500)
    (kept,) = decode_trace(encode_trace(TurnTrace(began_at_ms=1, steps=(own,))), "it").steps
    assert (len(kept.name), len(kept.kind), len(kept.error or "")) == (MAX_NAME, MAX_NAME, MAX_ERROR)


def test_a_trace_is_packed_and_unpacked() -> None:
    """The stored form is short, and returns the same trace."""
    steps = (
        TraceStep(name="a", began_at_ms=1_000, took_ms=5, worker="v"),
        TraceStep(name="b", began_at_ms=1_020, took_ms=0, worker="w", attempt=2),
        TraceStep(name="c", kind="sleep", began_at_ms=1_030, took_ms=1, worker="w", attempt=2, tries=2, error="e"),
    )
    trace = TurnTrace(began_at_ms=1_010, attempts=2, crashes=1, worker="w", steps=steps)
    text = encode_trace(trace)
    assert text == '[1010,2,0,1,["w","v"],0,1000,[["a",0,5,1,1],["b",20,0,2],["c",30,1,2,0,2,"sleep","e"]]]'
    assert decode_trace(text, "it") == trace
    nothing = TurnTrace(began_at_ms=7, worker="w")
    assert decode_trace(encode_trace(nothing), "it") == nothing


def test_a_long_trace_loses_its_middle() -> None:
    """The first and the last half of the most steps are kept, and how many are missing."""
    steps = tuple(TraceStep(name=str(number), began_at_ms=number, took_ms=0) for number in range(MAX_STEPS + 2))
    exact = TurnTrace(began_at_ms=0, steps=steps[:MAX_STEPS])
    assert decode_trace(encode_trace(exact), "it") == exact
    kept = decode_trace(encode_trace(TurnTrace(began_at_ms=0, steps=steps, left_out=3)), "it")
    assert (len(kept.steps), kept.left_out) == (128, 5)
    assert [kept.steps[place].name for place in (0, 63, 64, 127)] == ["0", "63", "66", "129"]


@pytest.mark.parametrize("given", [None, (), TurnTrace(began_at_ms=0, attempts=0)])
def test_another_value_is_refused(given: object) -> None:
    """Only a valid trace is stored."""
    with pytest.raises(InvalidInput):
        encode_trace(given)


@pytest.mark.parametrize("text", ["", "{}", "[1,1,0,0,[],0,1,[]]", '[1,1,0,0,["w"],0,1,[["a",0,5,1,1]]]'])
def test_damage_is_found(text: str) -> None:
    """A text that is not a trace, or that names an unknown worker, is corrupt."""
    with pytest.raises(CorruptData, match="the trace"):
        decode_trace(text, "the trace")


def test_a_turn_is_decoded() -> None:
    """The record of a turn has its revision, its time and its trace, if it has one."""
    result = msgspec.json.encode({"revision": 3, "parent_node_id": None}).decode()
    trace = TurnTrace(began_at_ms=5, worker="w")
    row = TurnTraceRow("t", "h", result, encode_trace(trace), 9)
    assert decode_turn(row) == TurnRecord(turn_id="t", revision=3, committed_at_ms=9, trace=trace)
    assert decode_turn(msgspec.structs.replace(row, trace=None)).trace is None
