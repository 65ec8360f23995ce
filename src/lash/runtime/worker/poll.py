"""Finding work: polls the work list, hands out what it found, and waits for hints between polls."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from lash.backend.hints import session_tag
from lash.base.backoff import backoff
from lash.base.tasks import ended
from lash.errors import LashError, NewerSchema, StorageClosed
from lash.model.work import MAX_POLL, SessionLanes, WorkList
from lash.model.worker import Beat
from lash.runtime.processes.run import ProcessRun
from lash.runtime.turns.run import TurnRun
from lash.runtime.worker.assignments import Assignments, idle_workers
from lash.runtime.worker.backlog import Backlog
from lash.runtime.worker.membership import Membership
from lash.runtime.worker.processes import ProcessRunner
from lash.runtime.worker.reclaim import Reclaimer
from lash.runtime.worker.shares import Shares, choice_of
from lash.runtime.worker.slots import Slots
from lash.runtime.worker.state import WorkerState, either
from lash.runtime.worker.timers import Timers
from lash.runtime.worker.turns import TurnRunner
from lash.runtime.worker.withdrawal import Withdrawal
from lash.stores.hints import NO_HINT, NO_TAGS, Assigned, Hint, HintListener, Tags, merge_tags

_FIRST_PAUSE_S: Final = 0.1
"""The first pause after a poll that failed."""
_FULL_PAUSE_S: Final = 0.05
"""A full worker polls for commands and cancellations only, which can wait this long."""
_HINTED_PAUSE_S: Final = 0.02
"""How long a poll is put off when a hint has started a turn: a short turn ends within it and needs one poll less."""

_PASSED_ON: Final = 32
"""How many sessions, and how many processes, the duty worker passes on at once."""
_PASS_ON_EVERY_S: Final = 0.25
"""How often it does so at most: if all workers are full, passing work on finds no taker."""


class Poller:
    """Polls on behalf of one worker. Each poll is one query, whatever there is to find."""

    def __init__(
        self,
        state: WorkerState,
        turn_slots: Slots[TurnRun],
        process_slots: Slots[ProcessRun],
        backlog: Backlog[ProcessRun],
        turns: TurnRunner,
        processes: ProcessRunner,
        timers: Timers,
        reclaimer: Reclaimer,
        membership: Membership,
        withdrawal: Withdrawal,
    ) -> None:
        self._state = state
        self._core = state.core
        self._turn_slots = turn_slots
        self._process_slots = process_slots
        self._backlog = backlog
        self._turns = turns
        self._processes = processes
        self._timers = timers
        self._reclaimer = reclaimer
        self._membership = membership
        self._withdrawal = withdrawal
        self._shares = Shares(state.core.owner.incarnation_id)
        self._assignments = Assignments()
        self._pass_on_at = 0.0
        self._named: Tags = None
        """The sessions that led to the next poll; None if it is for all."""

    async def run(self) -> None:
        """Poll until the worker stops; raises only StorageClosed, and NewerSchema once this version is outdated."""
        failures = 0
        with self._core.storage.hints.listen(work=True) as listener:
            self._state.listener = listener
            while not self._state.is_stopping:
                self._state.freed.clear()
                self._withdrawal.come_back()
                try:
                    work = self._without_others(await self._poll(self._membership.next_beat()))
                    # Before turns are started: a wake locks leases, and a claim at the same time would be in vain.
                    await self._timers.try_wake(work)
                    self._start(work)
                    failures = 0
                except StorageClosed:
                    raise
                except NewerSchema as error:
                    self._core.hooks.note("worker.outdated", error=str(error))
                    raise
                except LashError as error:
                    self._state.note_trouble(error)
                    longest_s = 10 * self._core.options.poll_s
                    await self._state.pause(backoff(failures, first_s=_FIRST_PAUSE_S, longest_s=longest_s))
                    failures += 1
                    continue
                if self._membership.is_on_duty:
                    await self._timers.try_fire(work)
                await self._pass_on(work)
                if self._is_full:
                    await either(self._state.freed.wait(), asyncio.sleep(_FULL_PAUSE_S))
                await self._wait(listener, self._pause_s(work))

    def _without_others(self, work: WorkList) -> WorkList:
        """Leave out sessions that a poll found by chance: they have just been assigned to other workers.

        A worker that had no free slot was assigned nothing, and takes all. So does one that polls by the clock.
        """
        named, had_no_slot = self._named, self._turn_slots.take_ran_full() or self._membership.seemed_full
        if named is None or had_no_slot or not self._membership.has_others or self._core.storage.hints.channel is None:
            return work
        return msgspec.structs.replace(work, lanes=work.lanes.only(lambda each: session_tag(each) in named))

    async def drain(self) -> int:
        """Poll and run until nothing is ready, and return how many runs were started."""
        runs, tasks = 0, self._state.tasks
        while True:
            # A run that ends while the poll is answered may have made something ready that the answer does not have.
            ran = bool(tasks)
            work = await self._poll()
            woken = await self._timers.wake(work)
            started = self._start(work) + await self._timers.fire(work)
            runs += started
            if len(tasks) == 1:
                await ended(next(iter(tasks)))
            elif tasks:
                await asyncio.wait(set(tasks), return_when=asyncio.FIRST_COMPLETED)
            elif not (started or woken or ran):
                return runs

    @property
    def _is_full(self) -> bool:
        return self._turn_slots.is_full and self._process_slots.is_full

    async def _poll(self, beat: Beat | None = None) -> WorkList:
        wanted = self._backlog.wanted()
        membership, sessions = self._membership, self._turn_slots.wanted()
        if membership.has_others and sessions:
            sessions = max(sessions, choice_of(membership.alike))
        # The duty worker polls for others too.
        least = _PASSED_ON if membership.is_first and membership.has_others else 0
        self._state.polls += 1
        work = await self._core.storage.work.poll(
            sessions=min(max(sessions, least), MAX_POLL),
            processes=max(wanted, least),
            owner=self._core.owner,
            running_sessions=self._turn_slots.names(),
            running_processes=self._process_slots.names(),
            beat=beat,
            process_names=self._core.options.process_names,
            agents=self._core.options.agents,
            labels=self._core.options.labels,
        )
        if work.fleet is not None:
            self._membership.note(work.fleet)
        self._backlog.put(work.process_ids, wanted=wanted)
        return work

    def _start(self, work: WorkList) -> int:
        """Start what was found, pass on commands and cancellations, and return how many runs were started."""
        membership, shares = self._membership, self._shares
        lanes = shares.in_own_order(work.lanes, place=self._turns.places) if membership.has_others else work.lanes
        started = self._turns.start(lanes, self._choose) + self._processes.start_found()
        membership.note_started()
        self._backlog.may_be_longer |= self._process_slots.is_full
        self._turns.check_cancel(work.commanded_session_ids)
        self._processes.cancel(work.cancelled_process_ids)
        self._reclaimer.check(work.suspect_leases)
        return started

    def _choose(self, lanes: SessionLanes, place: int) -> SessionLanes:
        return self._shares.choose(lanes, self._named, self._membership.alike, place=place)

    async def _pass_on(self, work: WorkList) -> None:
        """Assign what this worker cannot take to others, if it polls for all of them."""
        due = self._assignments.take_due()
        if not self._membership.has_others:
            return
        sessions = [each for each in work.session_ids if not self._turn_slots.is_running(each)]
        processes = [each for each in work.process_ids if not self._process_slots.is_running(each)]
        idle = idle_workers(due, work.session_ids, work.process_ids)
        if idle:
            await self._core.storage.hints.suspect(idle)
        if (sessions or processes) and self._membership.is_first and time.monotonic() >= self._pass_on_at:
            self._pass_on_at = time.monotonic() + _PASS_ON_EVERY_S
            await self._core.storage.hints.pass_on(sessions[:_PASSED_ON], processes[:_PASSED_ON])

    async def _wait(self, listener: HintListener, pause_s: float) -> None:
        """Wait until the next poll is due. Assigned work starts at once, and so does a hinted session.

        The poll after a hinted session follows 20 ms later; the turn then does not compete with it for the database.
        """
        poll_at = time.monotonic() + pause_s
        self._named = NO_TAGS
        while True:
            rest_s = min(poll_at - time.monotonic(), self._assignments.due_s)
            hint = await listener.wait(max(0.001, rest_s))
            self._assignments.note(hint, self._membership.watch_s)
            self._note_named(hint)
            if hint.beat:
                self._membership.beat_soon()
                return
            if hint.assigned is not None:
                if not await self._start_assigned(hint.assigned):
                    return
            elif self._turns.start_hinted(hint.ready):
                poll_at = min(poll_at, time.monotonic() + _HINTED_PAUSE_S)
            elif not self._is_about_others(hint):
                return
            if min(poll_at - time.monotonic(), self._assignments.due_s) <= 0:
                return

    def _is_about_others(self, hint: Hint) -> bool:
        """Return whether the hint is only about sessions that this worker does not run, while it has no slot for one.

        The duty worker polls for them.
        """
        named = merge_tags(hint.queued, hint.changed)
        if hint == NO_HINT or hint.process or not named or self._membership.is_first:
            return False
        return self._turn_slots.is_full and named.isdisjoint(map(session_tag, self._turn_slots.names()))

    def _note_named(self, hint: Hint) -> None:
        """Note which sessions the next poll is for: a hint by name is about these, a timeout about all."""
        named = merge_tags(hint.queued, hint.changed)
        if hint == NO_HINT or (hint.process and hint.processes is None):
            named = None
        elif hint.assigned is not None:
            named = merge_tags(named, frozenset(session_tag(each) for each in hint.assigned.sessions))
        self._named = merge_tags(self._named, named)

    async def _start_assigned(self, assigned: Assigned) -> bool:
        """Start assigned work, and pass it on if no slot is free; return False if a poll is needed."""
        if self._state.is_stopping:
            return True
        turns, processes = self._turns, self._processes
        sessions_left = [each for each in assigned.sessions if not turns.start_assigned(each)]
        processes_left = [each for each in assigned.processes if not processes.start_assigned(each)]
        if not sessions_left and not processes_left:
            return True
        sessions = [each for each in sessions_left if not self._turn_slots.is_running(each)]
        others = processes_left if self._process_slots.is_full else []
        others = [each for each in others if not self._process_slots.is_running(each)]
        is_full = self._turn_slots.is_full
        if sessions or others:
            if is_full:
                self._membership.note_full()
            else:
                self._membership.beat_soon()
            await self._core.storage.hints.pass_on(sessions, others, is_full=is_full)
        # A worker whose slots are taken polls when a run ends.
        return is_full and len(sessions) == len(sessions_left) and not processes_left

    def _pause_s(self, work: WorkList) -> float:
        """Return how long to wait for a hint: until a timer or a retry is due, at most the pause of the pace."""
        slots = (self._turn_slots, self._process_slots)
        membership = self._membership
        pause_s = min(membership.pace.poll_s, membership.news_s, self._withdrawal.left_s)
        pause_s = min(pause_s, *(each.next_try_s() for each in slots))
        if work.next_at_ms is not None and membership.wakes_for_timers and (membership.has_others or not self._is_full):
            pause_s = min(pause_s, self._timers.pause_s((work.next_at_ms - work.now_ms) / 1_000))
        if not self._turn_slots.is_full:
            pause_s = min(pause_s, self._shares.rest_s)
        return max(0.001, pause_s)
