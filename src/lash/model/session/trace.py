"""Traces: how the steps of a committed turn ran."""

from __future__ import annotations

from typing import Final

from lash.model.value import Count, Positive, Value, share_default

_STEP: Final = "step"


class TraceStep(Value, frozen=True, kw_only=True):
    """One step of a turn, under its replay key. ``kind`` is that of its effect."""

    name: str
    kind: str = _STEP
    began_at_ms: int
    took_ms: Count
    attempt: Positive = 1
    """The attempt of the turn in which it ran. After a step of a lower attempt, that attempt failed or died."""
    tries: Positive = 1
    """How often its function was called in that attempt."""
    error: str | None = None
    """Why it failed, shortened."""
    worker: str = ""
    """The owner id of the worker that ran it."""

    def __post_init__(self) -> None:
        if self.kind is not _STEP:
            share_default(self, "kind", _STEP)


class TurnTrace(Value, frozen=True, kw_only=True):
    """The steps of one turn in the order in which they began, and the attempts that it took.

    A long trace is kept without its middle: ``left_out`` steps are missing after the first half of ``steps``.
    """

    began_at_ms: int
    """When the attempt that committed the turn began, or continued after it was parked."""
    attempts: Positive = 1
    failures: Count = 0
    """How many of the attempts raised an error."""
    crashes: Count = 0
    """How many of the attempts died with their worker."""
    worker: str = ""
    """The owner id of the worker that committed the turn."""
    steps: tuple[TraceStep, ...] = ()
    left_out: Count = 0


class TurnRecord(Value, frozen=True, kw_only=True):
    """What is kept of a committed turn, until it is pruned."""

    turn_id: str
    revision: Count
    """The revision that the turn published."""
    committed_at_ms: int
    trace: TurnTrace | None = None
    """None for an append, and for a commit without a trace."""
