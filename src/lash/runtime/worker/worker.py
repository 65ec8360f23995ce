"""Starting and stopping a worker: builds its parts, runs them, and ends what still runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from lash.model.lease import LeaseOwner
from lash.model.process.process import Registration
from lash.model.queue import BatchDraft, Enqueued
from lash.model.session.message import Message
from lash.plan.withdrawal import TurnTimes
from lash.runtime.core import Core
from lash.runtime.processes.run import ProcessRun
from lash.runtime.turns.run import TurnRun
from lash.runtime.worker.backlog import Backlog
from lash.runtime.worker.maintenance import maintain_regularly
from lash.runtime.worker.measures import measure_regularly
from lash.runtime.worker.membership import Membership
from lash.runtime.worker.poll import Poller
from lash.runtime.worker.processes import ProcessRunner
from lash.runtime.worker.reclaim import Reclaimer
from lash.runtime.worker.renewal import LeaseRenewal
from lash.runtime.worker.slots import Slots
from lash.runtime.worker.state import WorkerState
from lash.runtime.worker.timers import Timers
from lash.runtime.worker.turns import TurnRunner
from lash.runtime.worker.watchdog import Watchdog
from lash.runtime.worker.withdrawal import Withdrawal

_RELEASE_LIMIT_S: Final = 5.0
"""How long a stopping worker waits for runs to release their leases, and again after cancelling them."""
_NEWS_S: Final = 2.0
"""How soon a worker that is slowed learns which others have withdrawn, so that it leaves no session to them."""
_SILENT_S: Final = 1.0
"""How long a stopping worker waits before it reports what it waits for."""


class Worker:
    """Runs turns, processes and timers of one storage, as many at once as its options say."""

    def __init__(self, core: Core) -> None:
        options = core.options
        self.state = WorkerState(core)
        self._core = core
        self._turn_slots: Slots[TurnRun] = Slots(options.sessions, longest_pause_s=options.poll_s)
        self._process_slots: Slots[ProcessRun] = Slots(options.processes, longest_pause_s=options.poll_s)
        backlog = Backlog(self._process_slots, options.processes)
        self._renewal = LeaseRenewal(self.state, self._runs)
        self._reclaimer = Reclaimer(self.state)
        self._membership = Membership(self.state, self._turn_slots, self._process_slots)
        self._processes = ProcessRunner(self.state, self._process_slots, backlog, self._renewal)
        self._turns = TurnRunner(self.state, self._turn_slots, self._renewal, self._membership, self._note_turn)
        self._withdrawal = Withdrawal(self._turn_slots)
        self._poller = Poller(
            self.state,
            self._turn_slots,
            self._process_slots,
            backlog,
            self._turns,
            self._processes,
            Timers(self.state),
            self._reclaimer,
            self._membership,
            self._withdrawal,
        )

    async def run(self) -> None:
        """Work until `stop` is called; then let runs finish within the grace time, and give back the rest."""
        watchdog = Watchdog(self._core.hooks, self._watch_others, self._measure_slots)
        background = [
            asyncio.create_task(self._renewal.run(), name="lash-worker-renewal"),
            asyncio.create_task(watchdog.run(), name="lash-worker-watchdog"),
            asyncio.create_task(maintain_regularly(self._core, self._is_duty_worker), name="lash-worker-maintenance"),
            asyncio.create_task(measure_regularly(self._core, self._is_duty_worker), name="lash-worker-measures"),
        ]
        try:
            await self._poller.run()
        finally:
            await self._finish()
            for task in background:
                task.cancel()
            await asyncio.wait(background)

    def stop(self) -> None:
        """Start no new work; `run` returns when everything that runs has ended or was given back."""
        self.state.stopping.set()
        self.state.poll_now()

    async def start(self, registration: Registration) -> None:
        """Register a process, and start it at once if there is a free slot."""
        await self._processes.register_and_start(registration)

    async def send(self, draft: BatchDraft) -> Enqueued:
        """Enqueue a message, and begin its turn at once if there is a free slot and nothing comes before it."""
        return await self._turns.send(draft)

    async def send_and_run(self, draft: BatchDraft, on_sent: Callable[[], None]) -> Enqueued | None:
        """Enqueue a message, and return once the turn that begins with it here has ended; None if none can begin."""
        return await self._turns.send_and_run(draft, on_sent)

    def recall(self, session_id: str, node_id: str) -> Message | None:
        """Return the last message of a session if its history is in memory."""
        return self._core.histories.last_message(session_id, node_id)

    async def drain(self) -> int:
        """Run everything that is ready, and what that makes ready, and return how many runs that were.

        Sleeps and delayed messages that are not due stay as they are. For tests and scripts.
        """
        return await self._renewal.during(self._poller.drain())

    def _note_turn(self, times: TurnTimes) -> None:
        """Withdraw if the workers of this machine slow each other down, and let them know soon."""
        if self._withdrawal.note(times, self._membership.local_place):
            self._core.hooks.note("worker.withdrawn", seconds=round(self._withdrawal.left_s, 1))
            self._membership.beat_soon()
            self.state.poll_now()
        elif self._withdrawal.is_slowed(times):
            self._membership.beat_within(_NEWS_S)

    def _is_duty_worker(self) -> bool:
        return self._membership.is_first

    def _measure_slots(self) -> None:
        for kind, slots in (("sessions", self._turn_slots), ("processes", self._process_slots)):
            self._core.hooks.measure("slots.used", slots.used, kind=kind)
            self._core.hooks.measure("slots.free", slots.free, kind=kind)

    def _watch_others(self) -> None:
        """Poll soon if another worker on this machine died."""
        self._reclaimer.poll_if_died()
        dead = self._membership.find_dead()
        if dead is not None:
            self.state.spawn(self._report(dead))

    async def _report(self, dead: LeaseOwner) -> None:
        await self._membership.report(dead)
        self.state.poll_now()

    def _runs(self) -> tuple[TurnRun | ProcessRun, ...]:
        return (*self._turn_slots.filled(), *self._process_slots.filled())

    async def _finish(self) -> None:
        """Let runs end within the grace time, then release the others; abandon runs that ignore it."""
        self.state.stopping.set()
        await self._membership.leave()
        tasks, grace_s = self.state.tasks, self._core.options.grace_s
        if tasks:
            await asyncio.wait(set(tasks), timeout=min(grace_s, _SILENT_S))
        if tasks and grace_s > _SILENT_S:
            sessions, processes = ", ".join(self._turn_slots.names()), ", ".join(self._process_slots.names())
            self._core.hooks.note("worker.stopping", sessions=sessions, processes=processes, grace_s=grace_s)
            await asyncio.wait(set(tasks), timeout=grace_s - _SILENT_S)
        for run in self._runs():
            run.release()
        if tasks:
            await asyncio.wait(set(tasks), timeout=_RELEASE_LIMIT_S)
        stuck = set(tasks)
        for task in stuck:
            task.cancel()
        if stuck:
            self._core.hooks.note("worker.trouble", error=f"{len(stuck)} runs ignored cancellation and were abandoned")
            await asyncio.wait(stuck, timeout=_RELEASE_LIMIT_S)
