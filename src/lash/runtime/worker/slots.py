"""How many runs of a kind a worker has at once, and what it leaves alone for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

Run = TypeVar("Run")

_FIRST_PAUSE_S: Final = 0.01
_MOST_DOUBLINGS: Final = 20
_REMEMBERED_S: Final = 60.0


class Slots(Generic[Run]):
    """The running sessions, or the running processes, of one worker.

    Those that have waited for longest come first: the work list names sessions in an order of its own, and some that
    always have work must not keep the others from theirs. What turned out to be nothing to do, although the work list
    named it, is left alone for a moment that doubles each time: otherwise a worker that is refused would ask again at
    once, and for ever.
    """

    def __init__(self, limit: int, *, longest_pause_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._longest_pause_s = longest_pause_s
        self._clock = clock
        self._runs: dict[str, Run | None] = {}
        self._settling: set[str] = set()
        self._avoided: dict[str, float] = {}
        self._in_vain: dict[str, tuple[int, float]] = {}
        self._left: dict[str, float] = {}

    @property
    def is_full(self) -> bool:
        return self._working >= self._limit or len(self._runs) >= 2 * self._limit

    @property
    def _working(self) -> int:
        return len(self._runs) - len(self._settling)

    def wanted(self) -> int:
        """Return how many to look for: what is avoided or had its turn is named too, and must not hide the rest."""
        self._forget()
        known = self._avoided.keys() | self._left.keys()
        return 0 if self.is_full else self._limit - self._working + len(known)

    def ranked(self, names: Sequence[str]) -> list[str]:
        """Return what was found in the order in which to take it."""
        if names:
            # What has had its turn and is not ready any more is in nobody's way.
            self._left = {name: self._left[name] for name in names if name in self._left}
        return sorted(names, key=lambda name: self._left.get(name, 0.0))

    def names(self) -> tuple[str, ...]:
        return tuple(self._runs)

    def take(self, name: str) -> bool:
        """Take a slot, if there is one, it is not running already and nothing speaks against it."""
        if self.is_full or name in self._runs or self._avoided.get(name, 0.0) > self._clock():
            return False
        self._runs[name] = None
        return True

    def fill(self, name: str, run: Run) -> None:
        """Say what runs in a slot that was taken."""
        self._runs[name] = run

    def settle(self, name: str) -> None:
        """Say that a run only writes down how it went: another may begin beside it, as long as those are not many."""
        if name in self._runs:
            self._settling.add(name)

    def empty(self, name: str) -> None:
        """Say that nothing runs in the slot any more, which is kept all the same."""
        self._runs[name] = None

    def get(self, name: str) -> Run | None:
        return self._runs.get(name)

    def filled(self) -> tuple[Run, ...]:
        return tuple(run for run in self._runs.values() if run is not None)

    def leave(self, name: str, *, in_vain: bool, for_good: bool = False) -> None:
        """Free the slot. What is left for good has ended, and does not come again."""
        self._runs.pop(name, None)
        self._settling.discard(name)
        if not for_good:
            self._left[name] = self._clock()
        if not in_vain:
            self._in_vain.pop(name, None)
            return
        times, _ = self._in_vain.get(name, (0, 0.0))
        pause_s = min(_FIRST_PAUSE_S * 2**times, self._longest_pause_s)
        self._in_vain[name] = (min(times + 1, _MOST_DOUBLINGS), self._clock() + 2 * self._longest_pause_s)
        self.avoid(name, pause_s)

    def avoid(self, name: str, seconds: float) -> None:
        """Take no slot for this for a while."""
        self._avoided[name] = self._clock() + seconds

    def next_try_s(self) -> float:
        """Return how soon something may be tried that is avoided now."""
        return min(self._avoided.values(), default=float("inf")) - self._clock()

    def _forget(self) -> None:
        now = self._clock()
        for name in [name for name, until in self._avoided.items() if until <= now]:
            del self._avoided[name]
        # What has not been tried for a while is no longer known to be in vain.
        for name in [name for name, (_, until) in self._in_vain.items() if until <= now]:
            del self._in_vain[name]
        for name in [name for name, at in self._left.items() if at + _REMEMBERED_S <= now]:
            del self._left[name]
