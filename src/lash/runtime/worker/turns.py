"""Running turns: claims a session's next input, runs its turn in a slot, and frees the slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from lash.base.limits import check_identifier
from lash.model.lease import Acquired, Busy, Lease
from lash.model.queue import BatchDraft, ClaimedTurn, EmptyReason, Enqueued
from lash.model.work import SessionLanes
from lash.plan.lane import take_turns
from lash.plan.withdrawal import TurnTimes
from lash.runtime.after_run import AfterRun
from lash.runtime.errors import STORAGE_TROUBLE
from lash.runtime.turns.commands import claim_behind_commands
from lash.runtime.turns.end import TurnEnd
from lash.runtime.turns.run import TurnRun
from lash.runtime.worker.membership import Membership
from lash.runtime.worker.renewal import LeaseRenewal
from lash.runtime.worker.sending import Sending
from lash.runtime.worker.slots import Slots
from lash.runtime.worker.state import WorkerState


class TurnRunner:
    """The turns that one worker runs."""

    def __init__(
        self,
        state: WorkerState,
        slots: Slots[TurnRun],
        renewal: LeaseRenewal,
        membership: Membership,
        note_times: Callable[[TurnTimes], None],
    ) -> None:
        self._state = state
        self._core = state.core
        self._slots = slots
        self._renewal = renewal
        self._membership = membership
        self._note_times = note_times
        self.places = 0
        """How many turns were started out of what polls found."""

    def start(self, lanes: SessionLanes, choose: Callable[[SessionLanes, int], SessionLanes]) -> int:
        """Start turns of chosen sessions while there are slots, and return how many were started.

        The lanes take turns, over all calls; ``choose`` gets the number of the first place. In the waiting lane,
        sessions that have just run come last: a session with a long queue does not starve the others.
        """
        if not (found := lanes.all):
            # What the last poll left to others is not ready any more.
            choose(lanes, self.places)
            return 0
        started, ranked = 0, self._slots.ranked(found)
        waiting = tuple(filter(frozenset(lanes.waiting).__contains__, ranked))
        chosen = choose(msgspec.structs.replace(lanes, waiting=waiting), self.places)
        for session_id in take_turns(chosen, first=self.places):
            if self._slots.take(session_id):
                self._state.spawn(self._run(session_id))
                started += 1
        self.places += started
        return started

    def start_hinted(self, tag: str | None) -> bool:
        """Start a turn of the session that a hint named, and return whether one was started.

        Only if its history is in memory: of all workers that get the hint, few should try. A worker that chooses by
        labels polls, because a program may have read sessions of other labels.
        """
        session_id = None if tag is None or self._core.options.labels else self._core.histories.tagged(tag)
        if session_id is None or self._state.is_stopping or not self._slots.take(session_id):
            return False
        self._state.spawn(self._run(session_id, hinted=True))
        return True

    def start_assigned(self, session_id: str) -> bool:
        """Start a turn that this worker was assigned; return False if the session needs a poll or another worker."""
        if self._slots.is_running(session_id):
            return False
        if self._slots.take(session_id):
            self._state.spawn(self._run(session_id, hinted=True))
            return True
        # If it is avoided for a while, this worker tries it again after that.
        return not self._slots.is_full

    async def send(self, draft: BatchDraft) -> Enqueued:
        """Enqueue a message, and begin its turn at once if a slot is free and nothing comes before the message.

        If the caller is cancelled, the message may or may not be queued; a turn that began goes on.
        """
        sending = self._begin(draft, None)
        # Without an answer, because the worker was stopped, the message may be queued; its key makes a repeat harmless.
        sent = None if sending is None else await sending.wait()
        return sent or await self._core.storage.queue.enqueue(draft)

    async def send_and_run(self, draft: BatchDraft, on_sent: Callable[[], None]) -> Enqueued | None:
        """Enqueue a message as `send` does, and return once the turn that begins with it, if one does, has ended.

        Returns None if no turn can begin here, or if the worker was stopped: then the message may or may not be queued.
        ``on_sent`` is called when it is durable. If the caller is cancelled, a turn that began goes on.
        """
        sending = self._begin(draft, on_sent)
        return None if sending is None else await sending.wait()

    def check_cancel(self, session_ids: Sequence[str]) -> None:
        """Let running turns of these sessions check whether a queued command cancels them."""
        for session_id in session_ids:
            turn = self._slots.get(session_id)
            if turn is not None:
                self._state.spawn(turn.check_cancel())

    def _begin(self, draft: BatchDraft, on_sent: Callable[[], None] | None) -> Sending | None:
        """Send a message in a task that then runs its turn; return None, with nothing done, if none can begin here."""
        session_id, options = check_identifier("session_id", draft.session_id), self._core.options
        # A poll compares the agent and the labels of the session.
        is_chosen = options.agents is not None or bool(options.labels)
        if is_chosen or self._state.is_stopping or not self._slots.take(session_id):
            return None
        sending = Sending(draft, on_sent)

        def free_slot(_task: object) -> None:
            # A task that is cancelled before its first step does not even run its finally blocks.
            if not sending.has_begun:
                self._slots.leave(session_id, in_vain=False)
                sending.finish()

        self._state.spawn(self._send_and_run(sending)).add_done_callback(free_slot)
        return sending

    async def _send_and_run(self, sending: Sending) -> None:
        """Enqueue a message and run the turn that begins with it, if one does."""
        sending.has_begun = True
        began, polls = time.monotonic(), self._state.polls
        try:
            claimed = await self._send(sending)
            if claimed is not None:
                if not sending.is_for_turn:
                    # The sender goes on before the agent runs, which may keep the event loop busy.
                    await asyncio.sleep(0)
                await self._run(sending.draft.session_id, claimed, began=began, polls=polls)
        finally:
            sending.finish()

    async def _send(self, sending: Sending) -> ClaimedTurn | None:
        """Enqueue a message and claim the turn that begins with it; free the slot if none does."""
        claimed, session_id = None, sending.draft.session_id
        owner, ttl_ms = self._core.owner, self._core.options.ttl_ms
        try:
            enqueued, claimed = await self._core.storage.queue.enqueue_and_claim(sending.draft, owner, ttl_ms=ttl_ms)
            sending.note_sent(enqueued)
        except Exception as error:  # noqa: BLE001 (the sender of the message gets it)
            sending.fail(error)
            if isinstance(error, STORAGE_TROUBLE) and error.outcome_unknown:
                await self._renewal.release(partial(self._release_unanswered, session_id))
        finally:
            if claimed is None:
                self._slots.leave(session_id, in_vain=False)
                # Input that came meanwhile found its session running.
                self._state.poll_for(session_id)
        return claimed

    async def _run(
        self,
        session_id: str,
        begun: ClaimedTurn | None = None,
        *,
        began: float | None = None,
        polls: int | None = None,
        hinted: bool = False,
    ) -> None:
        """Run a turn in a slot that was taken; claim it first unless it has begun, after so many polls."""
        end, lease, began = None, None, began or time.monotonic()
        leaves_nothing = partial(self._leaves_nothing, polls)
        try:
            claimed = begun or await self._claim_turn(session_id)
            if isinstance(claimed, Acquired):
                lease = claimed.lease
                claimed = await claim_behind_commands(self._core, lease)
            if claimed is not None:
                lease = claimed.lease
                end = await self._run_claimed(session_id, claimed, began, leaves_nothing)
        except STORAGE_TROUBLE as error:
            if lease is not None:
                await self._release(session_id, lease)
            elif error.outcome_unknown:
                await self._renewal.release(partial(self._release_unanswered, session_id))
            raise
        finally:
            after = AfterRun.BACK_OFF if end is None else end.after
            needs_poll = end is not TurnEnd.COMMITTED or not leaves_nothing()
            # Workers that got the same hint try at the same time; losing to another one means nothing.
            self._slots.leave(session_id, in_vain=after is AfterRun.BACK_OFF and not hinted)
            if after is AfterRun.LEAVE:
                self._slots.avoid(session_id, self._core.options.poll_s)
            if needs_poll:
                # There may be more input for this session.
                self._state.poll_for(session_id)

    def _leaves_nothing(self, polls: int | None) -> bool:
        """Return whether a turn that began with its message leaves nothing that a poll could find.

        Nothing else was queued for its session when it began. Every hint since then was followed by a poll, or comes
        after the turn and is followed by one; a worker without a free slot may have put off the poll. Other workers may
        have got the hint instead of this one.
        """
        return polls == self._state.polls and not self._slots.is_full and not self._membership.has_others

    async def _claim_turn(self, session_id: str) -> ClaimedTurn | Acquired | None:
        """Claim the lease of a session with its next input; only the lease if a command comes before the input."""
        owner, ttl_ms = self._core.owner, self._core.options.ttl_ms
        claimed = await self._core.storage.queue.claim_turn(session_id, owner, ttl_ms=ttl_ms)
        if isinstance(claimed, ClaimedTurn):
            return claimed
        if isinstance(claimed, Busy) or claimed.reason is not EmptyReason.COMMAND_AT_HEAD:
            return None
        leased = await self._core.storage.leases.claim(session_id, owner, ttl_ms=ttl_ms)
        return leased if isinstance(leased, Acquired) else None

    async def _run_claimed(
        self, session_id: str, claimed: ClaimedTurn, began: float, leaves_nothing: Callable[[], bool]
    ) -> TurnEnd:
        claimed_s = time.monotonic() - began
        run = TurnRun(self._core, claimed, leaves_nothing)
        run.parking.on_yield = partial(self._yield_slot, session_id)
        self._slots.fill(session_id, run)
        if self._state.is_stopping:
            run.release()
        end = await run.run()
        self._note_times(TurnTimes(storage_s=claimed_s + run.lease.called_s, total_s=time.monotonic() - began))
        return end

    def _yield_slot(self, session_id: str, is_yielded: bool) -> None:  # noqa: FBT001 (a callback)
        """Let other turns run while this one waits in memory, for instance for one of them."""
        self._slots.yield_slot(session_id, is_yielded=is_yielded)
        if is_yielded:
            self._state.poll_now()

    async def _release_unanswered(self, session_id: str) -> None:
        """Release the lease that a claim without an answer may have taken; the session would wait for its expiry."""
        leases = self._core.storage.leases
        taken = await leases.claim(session_id, self._core.owner, ttl_ms=self._core.options.ttl_ms)
        if isinstance(taken, Acquired):
            await leases.release(taken.lease.fence)

    async def _release(self, session_id: str, lease: Lease) -> None:
        self._slots.empty(session_id)
        await self._renewal.release(partial(self._core.storage.leases.release, lease.fence))
