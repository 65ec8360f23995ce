"""Rules of traces: which steps of a turn are kept, and their packed form in the row of the turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec

from lash.base.codec import decode, encode
from lash.errors import CorruptData, InvalidInput
from lash.model.effect import EffectRecord, EffectStatus, Sleep
from lash.model.session.trace import TraceStep, TurnRecord, TurnTrace
from lash.plan.sealed import TURN_RESULT, TURN_TRACE
from lash.plan.session.turn import TurnRow, revision_of

MAX_STEPS: Final = 128
"""The most steps of a trace: its first and its last half are kept."""
MAX_NAME: Final = 120
"""The most characters of the name of a step in a trace."""
MAX_ERROR: Final = 200
"""The most characters of an error in a trace."""


class TurnTraceRow(msgspec.Struct, frozen=True, array_like=True):
    """The row of a committed turn."""

    turn_id: str
    commit_hash: str
    result: Annotated[str, TURN_RESULT]
    trace: Annotated[str | None, TURN_TRACE]
    committed_at_ms: int


class _PackedStep(msgspec.Struct, frozen=True, array_like=True):
    """A step in few bytes: times are relative to the first step, and defaults at the end are left out."""

    name: str
    after_ms: int
    took_ms: int
    attempt: int = 1
    worker: int = 0
    """Which of the workers of the trace it was."""
    tries: int = 1
    kind: str = "step"
    error: str | None = None


_DEFAULTS: Final = list(_PackedStep.__struct_defaults__)


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    began_at_ms: int
    attempts: int
    failures: int
    crashes: int
    workers: tuple[str, ...]
    """The first is the one that committed the turn."""
    left_out: int
    first_ms: int
    steps: tuple[_PackedStep, ...]


def trace_steps(records: Iterable[EffectRecord]) -> tuple[TraceStep, ...]:
    """Return the steps that records show, in the order in which they began.

    Left out are effects that have not ended, and sleeps of no time, which stand for a reading of the clock.
    """
    steps = [_step(each) for each in records if each.status is not EffectStatus.IN_PROGRESS and not _is_clock(each)]
    return tuple(sorted(steps, key=lambda step: (step.began_at_ms, step.name)))


def encode_trace(trace: object) -> str:
    """Return the stored form of a trace, without the middle if it is long; raise InvalidInput if it is not valid."""
    if not isinstance(trace, TurnTrace):
        raise InvalidInput(f"expected a TurnTrace, got {type(trace).__name__}")
    encode(trace, TurnTrace, "trace")
    half, count = MAX_STEPS // 2, len(trace.steps)
    kept = trace.steps if count <= MAX_STEPS else (*trace.steps[:half], *trace.steps[-half:])
    workers = tuple(dict.fromkeys((trace.worker, *(step.worker for step in kept))))
    first_ms = kept[0].began_at_ms if kept else trace.began_at_ms
    packed = [
        trace.began_at_ms,
        trace.attempts,
        trace.failures,
        trace.crashes,
        workers,
        trace.left_out + count - len(kept),
        first_ms,
        [_pack(step, first_ms, workers.index(step.worker)) for step in kept],
    ]
    return msgspec.json.encode(packed).decode()


def decode_trace(text: str, what: str) -> TurnTrace:
    """Return the trace that a row stores, or raise CorruptData."""
    packed = decode(text, _Packed, what)
    try:
        steps = tuple(_unpack(step, packed.first_ms, packed.workers) for step in packed.steps)
        committed_by = packed.workers[0]
    except IndexError:
        raise CorruptData(f"{what} names a worker that it does not list") from None
    return TurnTrace(
        began_at_ms=packed.began_at_ms,
        attempts=packed.attempts,
        failures=packed.failures,
        crashes=packed.crashes,
        worker=committed_by,
        steps=steps,
        left_out=packed.left_out,
    )


def decode_turn(row: TurnTraceRow) -> TurnRecord:
    """Return what is kept of a turn, or raise CorruptData."""
    return TurnRecord(
        turn_id=row.turn_id,
        revision=revision_of(row.turn_id, TurnRow(row.commit_hash, row.result)),
        committed_at_ms=row.committed_at_ms,
        trace=None if row.trace is None else decode_trace(row.trace, f"the trace of turn {row.turn_id!r}"),
    )


def _step(record: EffectRecord) -> TraceStep:
    began_at_ms = record.created_at_ms if record.began_at_ms is None else record.began_at_ms
    error = record.error
    return TraceStep(
        name=record.replay_key[:MAX_NAME],
        kind=record.kind,
        began_at_ms=began_at_ms,
        took_ms=_end_of(record, began_at_ms) - began_at_ms,
        attempt=record.attempt or 1,
        tries=record.tries or 1,
        error=None if error is None else f"{error.code}: {error.message}"[:MAX_ERROR],
        worker=record.worker or "",
    )


def _end_of(record: EffectRecord, began_at_ms: int) -> int:
    """Return when a step ended; a sleep is recorded at its start, and ends when it is due."""
    ended_at_ms = record.updated_at_ms if record.due_at_ms is None else record.due_at_ms
    return max(began_at_ms, ended_at_ms)


def _is_clock(record: EffectRecord) -> bool:
    command = record.envelope.command
    return isinstance(command, Sleep) and command.duration_ms == 0


def _pack(step: TraceStep, first_ms: int, worker: int) -> list[object]:
    """Return the fields of a `_PackedStep` in their order, without the last ones that hold their defaults."""
    required: list[object] = [step.name[:MAX_NAME], step.began_at_ms - first_ms, step.took_ms]
    error = None if step.error is None else step.error[:MAX_ERROR]
    optional = [step.attempt, worker, step.tries, step.kind[:MAX_NAME], error]
    count = len(optional)
    if optional == _DEFAULTS:
        return required
    while optional[count - 1] == _DEFAULTS[count - 1]:
        count -= 1
    return required + optional[:count]


def _unpack(step: _PackedStep, first_ms: int, workers: tuple[str, ...]) -> TraceStep:
    return TraceStep(
        name=step.name,
        kind=step.kind,
        began_at_ms=first_ms + step.after_ms,
        took_ms=step.took_ms,
        attempt=step.attempt,
        tries=step.tries,
        error=step.error,
        worker=workers[step.worker],
    )
