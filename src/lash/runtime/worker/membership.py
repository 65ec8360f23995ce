"""Membership in the fleet: announces the worker with some of its polls, and knows its place among the others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from typing import Final

import msgspec

from lash.backend.liveness import is_provably_dead
from lash.base.version import VERSION
from lash.errors import LashError
from lash.model.lease import LeaseOwner
from lash.model.worker import Beat, Fleet, Pace, Served, WorkerStatus
from lash.plan.withdrawal import LocalPlace
from lash.plan.worker import plan_pace
from lash.runtime.processes.run import ProcessRun
from lash.runtime.turns.run import TurnRun
from lash.runtime.worker.slots import Slots
from lash.runtime.worker.state import WorkerState

_LEAVE_LIMIT_S: Final = 2.0
"""How long a stopping worker waits for its removal; other workers remove it later."""

_NEWS_EVERY_S: Final = 1.0
"""How often a worker announces at most that its slots ran out or became free."""
_DUTY_RANKS: Final = (0, 1)
"""The duty worker and its stand-in."""
_WATCH_S: Final = {0: 0.25, 1: 1.0}
"""How long work may stay unclaimed after it was assigned, before the worker of this rank polls for it."""


class Membership:
    """The registration of one worker. A beat travels with a poll, so it costs no transaction of its own."""

    def __init__(self, state: WorkerState, turn_slots: Slots[TurnRun], process_slots: Slots[ProcessRun]) -> None:
        self._state = state
        self._core = state.core
        self._turn_slots = turn_slots
        self._process_slots = process_slots
        self._fleet: Fleet | None = None
        self._beat_at = 0.0
        self._announced: Beat | None = None
        self._announced_at = 0.0
        self._ticks = 0
        self._is_short = False
        self.seemed_full = False
        """Whether the registry showed no free slot until the last poll, so that no session was assigned."""

    @property
    def pace(self) -> Pace:
        """How often the worker polls and beats, by its place in the fleet."""
        return plan_pace(self._fleet, self._core.options.poll_s, gets_hints=not self._polls_for_itself)

    @property
    def _polls_for_itself(self) -> bool:
        """Whether the duty worker may not find work for this one: it gets no hints, or takes only some kinds."""
        options = self._core.options
        takes_names = options.process_names is None and options.agents is None and not options.labels
        takes_all = takes_names and options.sessions > 0 and options.processes > 0
        return not takes_all or not self._core.storage.hints.is_receiving

    @property
    def wakes_for_timers(self) -> bool:
        """Whether the worker polls when something becomes ready by the clock."""
        return self.is_first or self._polls_for_itself

    @property
    def is_first(self) -> bool:
        """Whether this is the duty worker, or does not know of any other."""
        return self._fleet is None or self._fleet.rank == 0

    @property
    def is_on_duty(self) -> bool:
        """Whether the worker does the common duties: the duty worker, the stand-in, and one that gets no hints."""
        return self._fleet is None or self._fleet.rank in _DUTY_RANKS or self._polls_for_itself

    @property
    def has_others(self) -> bool:
        """Whether there are other workers, which can take work over."""
        return self._fleet is not None and self._fleet.live > 1

    @property
    def watch_s(self) -> float | None:
        """How long work may stay unclaimed after it was assigned; None if other workers watch over it."""
        rank = None if self._fleet is None else self._fleet.rank
        return None if rank is None or not self.has_others else _WATCH_S.get(rank)

    @property
    def alike(self) -> tuple[str, ...]:
        """The other active workers that take the same sessions; none while this one drains."""
        return () if self._fleet is None or self._fleet.rank is None else self._fleet.alike

    @property
    def local_place(self) -> LocalPlace:
        """The place of the worker among those of its machine that take the same sessions, by their ids."""
        own, alike = self._core.owner.incarnation_id, frozenset(self.alike)
        near = () if self._fleet is None else self._fleet.neighbours
        others = [each.incarnation_id for each in near if each.incarnation_id in alike]
        return LocalPlace(place=sum(each < own for each in others), workers=1 + len(others))

    @property
    def news_s(self) -> float:
        """The seconds until the worker may announce that its slots ran out or became free; infinite without news."""
        if self._announced is None or _fullness(self._announced) == _fullness(self._beat()):
            return float("inf")
        return self._announced_at + _NEWS_EVERY_S - time.monotonic()

    def note_started(self) -> None:
        """Note whether the sessions that a poll found took all slots.

        Such a worker announces no free slot when a run ends: most often its next poll fills the slot again.
        """
        self._is_short = self._turn_slots.is_full

    def note_full(self) -> None:
        """Remember that the registry has no free slots for sessions of this worker."""
        if self._announced is not None:
            self._announced = msgspec.structs.replace(self._announced, free_sessions=0)
            self._announced_at = time.monotonic()

    def beat_soon(self) -> None:
        """Send a beat with the next poll."""
        self._beat_at = 0.0

    def beat_within(self, seconds: float) -> None:
        """Send a beat with the first poll that comes so long after the last one."""
        self._beat_at = min(self._beat_at, self._announced_at + seconds)

    def next_beat(self) -> Beat | None:
        """Return the beat to send with the next poll; None while none is due."""
        beat, now = self._beat(), time.monotonic()
        self.seemed_full = self._announced is not None and self._announced.free_sessions == 0
        if now < self._beat_at and not self._has_news(beat, now):
            return None
        self._announced, self._announced_at = beat, now
        return beat

    def _has_news(self, beat: Beat, now: float) -> bool:
        """Return whether others should know now: the channel is another, or slots ran out or became free."""
        known = self._announced
        if known is None or known.channel != beat.channel:
            return True
        is_same = _fullness(known) == _fullness(beat)
        return not is_same and now - self._announced_at >= _NEWS_EVERY_S

    def _beat(self) -> Beat:
        options, pace = self._core.options, self.pace
        return Beat(
            owner=self._core.owner,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=VERSION,
            beat_ms=pace.beat_ms,
            session_slots=self._turn_slots.limit,
            process_slots=options.processes,
            free_sessions=0 if self._is_short else self._turn_slots.free,
            free_processes=self._process_slots.free,
            served=Served(agents=options.agents, processes=options.process_names, labels=options.labels or None),
            channel=self._core.storage.hints.channel,
        )

    def note(self, fleet: Fleet) -> None:
        """Remember the answer to a beat. The next one is due a little early, to keep the promise."""
        is_new, self._fleet = self._fleet is None, fleet
        self._beat_at = time.monotonic() + 0.9 * self.pace.beat_ms / 1_000
        hints = self._core.storage.hints
        is_draining = fleet.status is WorkerStatus.DRAINING
        hints.serve(self._core.owner.incarnation_id, duty=fleet.rank in _DUTY_RANKS, draining=is_draining)
        if is_new and self.has_others:
            # The duty worker watches over its neighbours, and promises its beats sooner than a lone one.
            hints.greet()
        if is_draining:
            self._turn_slots.close()
            self._process_slots.close()
            self._state.drain()

    def find_dead(self) -> LeaseOwner | None:
        """Return another worker on this machine that has died, if this one is to report it.

        Each worker watches the next one in the order of their ids; the duty worker watches all, once a second.
        """
        self._ticks += 1
        own = self._core.owner
        near = () if self._fleet is None else self._fleet.neighbours
        if not near:
            return None
        if not self.is_first or self._ticks % 4:
            later = [each for each in near if each.incarnation_id > own.incarnation_id]
            near = (min(later or near, key=lambda each: each.incarnation_id),)
        return next((each for each in near if is_provably_dead(each.process, own.process)), None)

    async def report(self, dead: LeaseOwner) -> None:
        """Remove a dead worker from the registry, so that the next in rank takes over."""
        if self._fleet is not None:
            others = tuple(each for each in self._fleet.neighbours if each != dead)
            self._fleet = msgspec.structs.replace(self._fleet, neighbours=others)
        self.beat_soon()
        with contextlib.suppress(LashError):
            if await self._core.storage.workers.leave(dead.incarnation_id):
                self._core.storage.hints.greet()

    async def leave(self) -> None:
        """Remove the worker from the registry, so that no work is meant for it; a failure delays other workers."""
        if self._fleet is None:
            return
        with contextlib.suppress(LashError, TimeoutError):
            async with asyncio.timeout(_LEAVE_LIMIT_S):
                await self._core.storage.workers.leave(self._core.owner.incarnation_id)
                self._core.storage.hints.greet()


def _fullness(beat: Beat) -> tuple[bool, bool, int]:
    return beat.free_sessions == 0, beat.free_processes == 0, beat.session_slots
