"""The share of a worker: which of the ready sessions it takes first, and which it leaves to others for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from lash.backend.hints import session_tag
from lash.model.work import SessionLanes
from lash.plan.dispatch import count_steps, distance
from lash.plan.lane import choose_share, is_open
from lash.stores.hints import Tags

_STEP_S: Final = 0.05
"""How long a session is left to the nearest workers, before about twice as many may take it."""
_CHOICE: Final = (16, 64)
"""How many sessions a worker with a free slot chooses from beside others, at least and at most."""


class Shares:
    """The sessions that one worker found in its polls, and how long it has known them."""

    def __init__(self, worker_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._worker_id = worker_id
        self._clock = clock
        self._seen: dict[str, float] = {}
        """When the sessions of the last poll were first found."""
        self._next_at = float("inf")

    @property
    def rest_s(self) -> float:
        """The seconds until the worker may take a session that it left to another one; infinite if it left none."""
        return self._next_at - self._clock()

    def choose(self, lanes: SessionLanes, named: Tags, alike: Sequence[str], *, place: int) -> SessionLanes:
        """Return which of the found sessions to start now, beginning with place number ``place``.

        ``alike`` are the other workers that choose from the same sessions. The sessions that led to the poll are the
        worker's own, and so are the sessions that it is nearest to. It leaves all others to their workers for a moment,
        unless the poll was for all sessions (``named`` is None).
        """
        self._next_at = float("inf")
        if not alike:
            return lanes
        now = self._clock()
        self._seen = {each: self._seen.get(each, now) for each in lanes.all}
        steps = {each: count_steps(self._worker_id, each, alike) for each in self._seen}
        own = {each for each in steps if steps[each] == 0 or (named is not None and session_tag(each) in named)}
        free_at = {each: at + _STEP_S * steps[each] for each, at in self._seen.items()}
        waited = {each for each, at in free_at.items() if named is None or at <= now}
        chosen = choose_share(lanes, own, waited, first=place)
        taken = frozenset(chosen.all)
        self._next_at = min((at for each, at in free_at.items() if each not in taken), default=float("inf"))
        return chosen

    def in_own_order(self, lanes: SessionLanes, *, place: int) -> SessionLanes:
        """Return found sessions in an order that no other worker has, so that two rarely claim the same.

        The order of priorities stays, and so do all orders at an open place.
        """
        if is_open(place):
            return lanes

        def own(lane: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(sorted(lane, key=lambda each: distance(self._worker_id, each)))

        resumed, waiting, newest = own(lanes.resumed), own(lanes.waiting), own(lanes.newest)
        return SessionLanes(urgent=lanes.urgent, resumed=resumed, waiting=waiting, newest=newest)


def choice_of(alike: Sequence[str]) -> int:
    """Return how many sessions a poll should find: twice as many as there are workers, so that some are its own."""
    least, most = _CHOICE
    return min(max(least, 2 * (1 + len(alike))), most)
