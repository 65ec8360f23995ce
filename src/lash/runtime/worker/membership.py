"""Membership in the fleet: announces the worker with some of its polls, and knows its place among the others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from typing import Final

from lash.base.version import VERSION
from lash.errors import LashError
from lash.model.worker import Beat, Fleet, Pace, Served, WorkerStatus
from lash.plan.worker import plan_pace
from lash.runtime.processes.run import ProcessRun
from lash.runtime.turns.run import TurnRun
from lash.runtime.worker.slots import Slots
from lash.runtime.worker.state import WorkerState

_LEAVE_LIMIT_S: Final = 2.0
"""How long a stopping worker waits for its removal; other workers remove it later."""


class Membership:
    """The registration of one worker. A beat travels with a poll, so it costs no transaction of its own."""

    def __init__(self, state: WorkerState, turn_slots: Slots[TurnRun], process_slots: Slots[ProcessRun]) -> None:
        self._state = state
        self._core = state.core
        self._turn_slots = turn_slots
        self._process_slots = process_slots
        self._fleet: Fleet | None = None
        self._beat_at = 0.0

    @property
    def pace(self) -> Pace:
        """How often the worker polls and beats, by its place in the fleet."""
        hints, poll_s = self._core.storage.hints, self._core.options.poll_s
        return plan_pace(self._fleet, poll_s, gets_hints=hints.is_receiving)

    def next_beat(self) -> Beat | None:
        """Return the beat to send with the next poll; None while none is due."""
        pace, now = self.pace, time.monotonic()
        if now < self._beat_at:
            return None
        options = self._core.options
        return Beat(
            owner=self._core.owner,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=VERSION,
            beat_ms=pace.beat_ms,
            session_slots=options.sessions,
            process_slots=options.processes,
            free_sessions=self._turn_slots.free,
            free_processes=self._process_slots.free,
            served=Served(processes=options.process_names),
            channel=self._core.storage.hints.channel,
        )

    def note(self, fleet: Fleet) -> None:
        """Remember the answer to a beat. The next one is due a little early, to keep the promise."""
        self._fleet = fleet
        self._beat_at = time.monotonic() + 0.9 * self.pace.beat_ms / 1_000
        if fleet.status is WorkerStatus.DRAINING:
            self._turn_slots.close()
            self._process_slots.close()
            self._state.drain()

    async def leave(self) -> None:
        """Remove the worker from the registry, so that no work is meant for it; a failure delays other workers."""
        if self._fleet is None:
            return
        with contextlib.suppress(LashError, TimeoutError):
            async with asyncio.timeout(_LEAVE_LIMIT_S):
                await self._core.storage.workers.leave(self._core.owner.incarnation_id)
