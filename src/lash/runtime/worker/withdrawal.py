"""Withdrawing: a worker takes no turns for a while if the workers of its machine slow each other down."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lash.plan.withdrawal import (
    FEW_TURNS,
    MORE_PAUSES,
    MORE_TURNS,
    RETURNING,
    TRIAL_S,
    TRIED_TURNS,
    LocalPlace,
    TurnTimes,
    are_full,
    is_slowed,
    may_withdraw,
    plan_pause,
    turns_to_judge,
)
from lash.runtime.turns.run import TurnRun
from lash.runtime.worker.slots import Slots

_PRESSURE: Final = Path("/proc/pressure/cpu")
_MOST_TIMES: Final = 10
"""Beyond this many times in a row the pause is not longer."""


def usable_processors() -> int:
    """Return how many processors this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else os.cpu_count() or 1


def processor_pressure() -> str:
    """Return Linux's report of how long programs wait for processors; empty where there is none."""
    try:
        return _PRESSURE.read_text(encoding="ascii")
    except OSError:
        return ""


class Withdrawal:
    """Sets how many slots for turns one worker gives out: all, none while it has withdrawn, or one while it tries.

    A worker that comes back tries until some turns have shown whether it is still slowed. If they take longer, they
    wait for something else than the storage, and the worker gives out all slots again.
    """

    def __init__(
        self,
        slots: Slots[TurnRun],
        *,
        processors: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        read_pressure: Callable[[], str] | None = None,
    ) -> None:
        self._slots = slots
        self._limit = slots.limit
        self._processors = processors or usable_processors()
        self._clock = clock
        self._read_pressure = read_pressure or processor_pressure
        self._turns: deque[TurnTimes] = deque(maxlen=FEW_TURNS + MORE_TURNS)
        self._until: float | None = None
        """When the worker comes back, or gives out all slots again."""
        self._is_withdrawn = False
        self._times = 0
        self._pause_s = 0.0
        self._added = 0
        """How many pauses were added since the last turn."""

    @property
    def is_withdrawn(self) -> bool:
        return self._is_withdrawn

    @property
    def left_s(self) -> float:
        """The seconds until the worker gives out more slots by itself; infinite if it gives out all."""
        return float("inf") if self._until is None else self._until - self._clock()

    @staticmethod
    def is_slowed(turn: TurnTimes) -> bool:
        """Return whether one turn was slowed."""
        return is_slowed((turn,))

    def come_back(self) -> None:
        """Try again if the pause is over, and give out all slots if the trial is.

        A trial costs its turns more than they cost elsewhere, so pauses are added while the processors are full.
        """
        if self._until is None or self._until > self._clock():
            return
        if self._is_withdrawn and self._added < MORE_PAUSES and are_full(self._read_pressure()):
            self._added += 1
            self._until = self._clock() + self._pause_s
        elif self._is_withdrawn:
            self._is_withdrawn = False
            self._until = self._clock() + TRIAL_S
            self._slots.set_limit(min(1, self._limit))
        else:
            self._stay()

    def note(self, turn: TurnTimes, at: LocalPlace) -> bool:
        """Note where the time of a turn went, and return whether the worker withdraws because of the last ones."""
        if self._is_withdrawn:
            return False
        if not may_withdraw(at, self._processors):
            self._stay()
            return False
        tries = self._until is not None
        self._turns.append(turn)
        if len(self._turns) < (TRIED_TURNS if tries else turns_to_judge(at)):
            return False
        leaves = is_slowed(self._turns, part=RETURNING if tries else 1.0)
        self._turns.clear()
        if not leaves:
            self._times = 0
            self._stay()
            return False
        self._is_withdrawn = True
        self._pause_s, self._added = plan_pause(at, self._processors, times=self._times), 0
        self._until = self._clock() + self._pause_s
        self._times = min(self._times + 1, _MOST_TIMES)
        self._slots.set_limit(0)
        return True

    def _stay(self) -> None:
        self._until = None
        self._slots.set_limit(self._limit)
