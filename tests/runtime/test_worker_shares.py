"""The shares of workers: sessions keep their workers, few claims are lost, and no session depends on one of them."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import lash
from lash.backend.hints import session_tag
from lash.model.work import SessionLanes
from lash.plan.dispatch import count_steps
from lash.plan.lane import take_turns
from lash.runtime.worker.shares import Shares, choice_of
from lash.runtime.worker.slots import Slots
from lash.stores.hints import NO_TAGS

SLOTS = 2
"""Turns at once in each worker."""
TURN_S = 0.1


class Fleet:
    """Workers that run turns of the same sessions as events of a simulated clock; there are more sessions than slots.

    Broken workers are registered and take nothing. The database answers more slowly the more workers there are, as it
    does when its processor is the limit.
    """

    def __init__(self, workers: int, *, broken: int = 0) -> None:
        self.now = 0.0
        self.counts: Counter[str] = Counter()
        self.ran: Counter[str] = Counter()
        self.answer_s = 0.0025 * workers
        self._random = random.Random(workers)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._names = [f"worker {number}" for number in range(workers + broken)]
        self._ready = dict.fromkeys(f"s{number}" for number in range(3 * SLOTS * workers))
        self._last: dict[str, str] = {}
        self._members = [Member(self, name) for name in self._names[:workers]]

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something after about so many seconds."""
        due = self.now + seconds * self._random.uniform(0.5, 1.5)
        heapq.heappush(self._events, (due, next(self._number), act))

    def run(self, turns: int) -> None:
        for member in self._members:
            member.poll(None)
        while self.counts["turn"] < turns:
            self.now, _, act = heapq.heappop(self._events)
            act()

    def others(self, name: str) -> list[str]:
        return [each for each in self._names if each != name]

    def found(self, limit: int) -> SessionLanes:
        ready = tuple(self._ready)
        return SessionLanes(waiting=ready[:limit], newest=ready[::-1][: limit // 4])

    def claim(self, name: str, session_id: str) -> bool:
        """Count a claim, which reads the queue and then writes, if it is not too late; return whether it was not."""
        self.counts["statement"] += 1
        if session_id not in self._ready:
            return False
        del self._ready[session_id]
        is_cold = self._last.get(session_id, name) != name
        self._last[session_id] = name
        # The claim, a step, the commit; and the history, if another worker had it.
        self.counts["statement"] += 4 if is_cold else 3
        return True

    def end(self, session_id: str) -> None:
        self.counts["turn"] += 1
        self.ran[session_id] += 1
        self.at(self.answer_s, lambda: self._ready.__setitem__(session_id, None))


class Member:
    """One worker of the fleet."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self._fleet = fleet
        self._name = name
        self._others = fleet.others(name)
        self._shares = Shares(name, lambda: fleet.now)
        self._slots: Slots[None] = Slots(SLOTS, longest_pause_s=1.0, clock=lambda: fleet.now)
        self._places = 0
        self._polls = 0

    def poll(self, named: str | None) -> None:
        """Poll because a run has ended, or by the clock."""
        self._polls += 1
        self._fleet.counts["statement"] += 1
        found = self._fleet.found(max(self._slots.wanted(), choice_of(self._others)))
        self._fleet.at(self._fleet.answer_s, lambda: self._start(found, named))

    def _start(self, found: SessionLanes, named: str | None) -> None:
        tags = None if named is None else frozenset((session_tag(named),))
        lanes = self._shares.in_own_order(found, place=self._places)
        waiting = tuple(filter(frozenset(lanes.waiting).__contains__, self._slots.ranked(lanes.all)))
        ranked = SessionLanes(waiting=waiting, newest=lanes.newest)
        chosen = self._shares.choose(ranked, tags, self._others, place=self._places)
        taken = [each for each in take_turns(chosen, first=self._places) if self._slots.take(each)]
        self._places += len(taken)
        for session_id in taken:
            self._fleet.at(self._fleet.answer_s, partial(self._claim, session_id))
        if not self._slots.is_full:
            polls = self._polls
            self._fleet.at(min(max(self._shares.rest_s, 0.001), 1.0), lambda: self._poll_unless(polls))

    def _poll_unless(self, polls: int) -> None:
        if self._polls == polls and not self._slots.is_full:
            self.poll(None)

    def _claim(self, session_id: str) -> None:
        if self._fleet.claim(self._name, session_id):
            self._fleet.at(TURN_S + 3 * self._fleet.answer_s, partial(self._end, session_id, ended=True))
        else:
            self._end(session_id, ended=False)

    def _end(self, session_id: str, *, ended: bool) -> None:
        self._slots.leave(session_id, in_vain=not ended)
        if ended:
            self._fleet.end(session_id)
        self.poll(session_id)


def statements_per_turn(workers: int) -> float:
    fleet = Fleet(workers)
    fleet.run(25 * workers)
    return fleet.counts["statement"] / fleet.counts["turn"]


def test_a_turn_of_a_saturated_fleet_costs_the_same_with_more_workers() -> None:
    """With 32 workers whose slots are all taken a turn takes few statements more than with 8."""
    eight, many = statements_per_turn(8), statements_per_turn(32)
    # A poll, the queue, the claim, a step and the commit are five. Without shares it would be 6.25 and 6.55.
    assert eight <= 5.9
    assert many <= 1.1 * eight


def test_no_session_starves() -> None:
    """Sessions whose own workers take nothing get a fair part of their turns from the others."""
    fleet = Fleet(8, broken=4)
    fleet.run(1_000)
    average = 1_000 / len(fleet.ran)
    assert len(fleet.ran) == 3 * SLOTS * 8
    assert min(fleet.ran.values()) >= average / 5


async def test_a_poll_that_finds_nothing_waits_for_no_session(backend_url: str) -> None:
    """A session that was left to another worker, and is not ready any more, does not make the worker poll again."""
    async with lash.App(backend_url, options=lash.WorkerOptions(poll_s=60)) as app:
        assert app._worker is not None
        poller = app._worker._poller
        others = [f"worker {number}" for number in range(50)]
        left = next(each for each in map(str, range(50)) if count_steps(poller._shares._worker_id, each, others))
        poller._shares.choose(SessionLanes(waiting=(left,)), NO_TAGS, others, place=1)
        assert poller._shares.rest_s < 1
        poller._start(await poller._poll())
        assert poller._shares.rest_s == float("inf")
