"""Slots: how many runs of a kind a worker has at once, and what it avoids for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from lash.base.backoff import backoff

Run = TypeVar("Run")

_FIRST_PAUSE_S: Final = 0.01
"""A claim that was refused is retried soon: most often the other worker is done by then."""
_REMEMBERED_S: Final = 60.0
"""How long a session that has run yields to others."""

_LATELY_S: Final = 1.0
"""How old a hint about assigned work is at most, on a busy machine."""


class Slots(Generic[Run]):
    """The running sessions, or the running processes, of one worker.

    What has waited longest comes first, so that sessions that always have work do not starve the others; the work list
    has an order of its own. If a poll listed a session or process and its claim found no work, the worker
    avoids it for a pause that doubles each time: without the pause, a worker whose claims are refused would retry in a
    busy loop.
    """

    def __init__(self, limit: int, *, longest_pause_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._is_closed = False
        self._longest_pause_s = longest_pause_s
        self._clock = clock
        self._runs: dict[str, Run | None] = {}
        self._finishing: set[str] = set()
        self._yielded: set[str] = set()
        self._avoided: dict[str, float] = {}
        self._in_vain: dict[str, tuple[int, float]] = {}
        self._left: dict[str, float] = {}
        self._ran_full = False

    @property
    def is_full(self) -> bool:
        if not (self._finishing or self._yielded):
            return len(self._runs) >= self._limit
        return self._working >= self._limit or len(self._runs) - len(self._yielded) >= 2 * self._limit

    @property
    def free(self) -> int:
        """How many more can start now."""
        return 0 if self.is_full else self._limit - self._working

    @property
    def used(self) -> int:
        """How many are taken by runs that work: one that waits for others, or only records its outcome, is not."""
        return self._working

    @property
    def _working(self) -> int:
        # Few runs wait for others, and this is read several times for each run.
        apart = self._finishing | self._yielded if self._yielded else self._finishing
        return len(self._runs) - len(apart)

    @property
    def limit(self) -> int:
        """How many there are, free or not."""
        return self._limit

    def set_limit(self, limit: int) -> None:
        """Give out so many slots from now on, unless none are given out any more; what runs keeps its slot."""
        if not self._is_closed:
            self._limit = limit

    def close(self) -> None:
        """Give out no more slots."""
        self._is_closed = True
        self._limit = 0

    def wanted(self) -> int:
        """Return how many to poll for; a poll also lists names that are avoided or have just run."""
        self._forget()
        known = self._avoided.keys() | self._left.keys() if self._avoided else self._left
        return 0 if self.is_full else self._limit - self._working + len(known)

    def ranked(self, names: Sequence[str]) -> list[str]:
        """Return what a poll found, in the order in which to take it."""
        if not names:
            return []
        # Forget names that are not ready any more.
        self._left = {name: self._left[name] for name in names if name in self._left}
        return sorted(names, key=lambda name: self._left.get(name, 0.0))

    def names(self) -> tuple[str, ...]:
        return tuple(self._runs)

    def is_running(self, name: str) -> bool:
        return name in self._runs

    def has_just_left(self, name: str) -> bool:
        """Return whether it ran a moment ago, so that a hint about it may be older than that run."""
        return self._left.get(name, 0.0) > self._clock() - _LATELY_S

    def take(self, name: str) -> bool:
        """Take a slot; return False if none is free, or if the name is running or avoided."""
        if self.is_full or name in self._runs or self._avoided.get(name, 0.0) > self._clock():
            return False
        self._runs[name] = None
        self._ran_full |= self.is_full
        return True

    def take_ran_full(self) -> bool:
        """Return whether there was a time without a free slot since the last call."""
        # If no slot is free now, there is such a time after this call too.
        ran_full, self._ran_full = self._ran_full or self.is_full, self.is_full
        return ran_full

    def fill(self, name: str, run: Run) -> None:
        """Set what runs in a slot that was taken."""
        self._runs[name] = run

    def mark_finishing(self, name: str) -> None:
        """Note that a run only records its outcome; another may start beside it, up to twice the limit in all."""
        if name in self._runs:
            self._finishing.add(name)

    def yield_slot(self, name: str, *, is_yielded: bool) -> None:
        """Note that a run waits for other runs, and takes no slot meanwhile; or that it no longer does."""
        if is_yielded and name in self._runs:
            self._yielded.add(name)
        else:
            self._yielded.discard(name)

    def empty(self, name: str) -> None:
        """Keep the slot, with no run in it."""
        self._runs[name] = None

    def get(self, name: str) -> Run | None:
        return self._runs.get(name)

    def filled(self) -> tuple[Run, ...]:
        return tuple(run for run in self._runs.values() if run is not None)

    def leave(self, name: str, *, in_vain: bool, for_good: bool = False) -> None:
        """Free the slot. ``for_good`` means that it has ended and does not come again."""
        self._runs.pop(name, None)
        self._finishing.discard(name)
        self._yielded.discard(name)
        if not for_good:
            self._left[name] = self._clock()
        if not in_vain:
            self._in_vain.pop(name, None)
            return
        times, _ = self._in_vain.get(name, (0, 0.0))
        self._in_vain[name] = (times + 1, self._clock() + 2 * self._longest_pause_s)
        self.avoid(name, backoff(times, first_s=_FIRST_PAUSE_S, longest_s=self._longest_pause_s))

    def avoid(self, name: str, seconds: float) -> None:
        """Refuse slots to this name for some seconds."""
        self._avoided[name] = self._clock() + seconds

    def next_try_s(self) -> float:
        """Return the seconds until the first avoided name may be tried."""
        return min(self._avoided.values(), default=float("inf")) - self._clock()

    def _forget(self) -> None:
        if not (self._avoided or self._in_vain or self._left):
            return
        now = self._clock()
        for name in [name for name, until in self._avoided.items() if until <= now]:
            del self._avoided[name]
        # After a while without a try the next pause starts small again.
        for name in [name for name, (_, until) in self._in_vain.items() if until <= now]:
            del self._in_vain[name]
        for name in [name for name, at in self._left.items() if at + _REMEMBERED_S <= now]:
            del self._left[name]
