"""One turn of one session: claim its input, run its agent, publish all of it in one commit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from lash.base.tasks import ended
from lash.errors import (
    ClaimLost,
    CorruptData,
    InvalidInput,
    LeaseLost,
    RevisionConflict,
    SchemaMismatch,
    SessionDeleted,
    SessionNotFound,
    UnknownDefinition,
)
from lash.model.effect import TurnScope
from lash.model.queue import Batch, ClaimedTurn, turn_id_of
from lash.model.session.message import Message
from lash.model.session.node import ProtocolEntry, RawNode
from lash.runtime.current import RunHere
from lash.runtime.definition import AgentDefinition
from lash.runtime.errors import STORAGE_TROUBLE, Permanent, Suspended
from lash.runtime.failed import FailedAttempt, crash_error, failed_attempt
from lash.runtime.hooks import TURN
from lash.runtime.steps.failure import is_programming_error
from lash.runtime.steps.journal import Journal
from lash.runtime.steps.run_limit import under_limit
from lash.runtime.time_limit import time_limit
from lash.runtime.turns.branches import BranchPoint, branch_of
from lash.runtime.turns.draft import TurnDraft
from lash.runtime.turns.end import LAST, TurnEnd
from lash.runtime.turns.hook_attributes import committed_attributes, turn_attributes
from lash.runtime.turns.inbox import Inbox, wanted_agent
from lash.runtime.turns.parking import TurnParking
from lash.runtime.turns.past import Past
from lash.runtime.turns.taken import TakenInput
from lash.runtime.turns.trace import trace_of_turn
from lash.runtime.turns.turn import Turn

if TYPE_CHECKING:
    from lash.runtime.core import Core

PLUGIN: Final = "lash"
_MOST_HAND_OFFS: Final = 16
"""How often one turn is handed off. Two agents that hand off to each other without end stop here."""


class TurnRun:
    """One turn under a lease, with the operations that the agent's `Turn` needs."""

    def __init__(self, core: Core, claimed: ClaimedTurn, leaves_nothing: Callable[[], bool] = lambda: False) -> None:
        """``leaves_nothing`` returns whether the caller knows that the session has no further input."""
        self._core = core
        self._leaves_nothing = leaves_nothing
        self._storage = core.storage
        self._fence = claimed.lease.fence
        self.lease = core.hold_session(self._fence)
        self._inbox = Inbox(core.storage, self._fence, self.lease, ttl_ms=core.options.ttl_ms)
        self.parking = TurnParking(core, claimed, self.lease)
        self._input_claims = 0
        self._claimed = claimed
        self.session_id = self._fence.resource.id
        self.turn_id = ""
        self.attempt = 0
        self._failures = 0
        self._past = Past(core.storage, core.histories, self.session_id, self.lease)
        self._draft: TurnDraft
        self._branch: BranchPoint | None = None
        self._agent: AgentDefinition | None = None
        self._answered_by = ""
        self._hand_offs = 0
        self._journal: Journal | None = None
        self._taken: TakenInput | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancel_reason: str | None = None
        self._released = False
        self._lost = False

    @property
    def may_have_run(self) -> bool:
        """Whether an earlier run of the turn may have started something."""
        return self.attempt > 1 or self.parking.may_have_waited

    @property
    def batches(self) -> tuple[Batch, ...]:
        return self._inbox.batches

    async def run(self) -> TurnEnd:
        """Run the turn; errors of the application are recorded, not raised. The lease is free afterwards."""
        began = time.monotonic()
        end = await self._end()
        if end in LAST:
            self._note_end(end, time.monotonic() - began)
        return end

    async def _end(self) -> TurnEnd:
        try:
            return await self._run()
        except (LeaseLost, ClaimLost):
            return await self._leave()
        except (SessionDeleted, SessionNotFound):
            return TurnEnd.LOST
        except (CorruptData, SchemaMismatch) as error:
            if not await self._core.is_outdated(error):
                raise
            return await self._give_back(TurnEnd.RELEASED, count_attempt=False)

    def _note_end(self, end: TurnEnd, took_s: float) -> None:
        outcome = "cancelled" if self._cancel_reason is not None and end is TurnEnd.COMMITTED else end.value[0]
        steps = 0 if self._journal is None else self._journal.steps
        ids = {"agent": self._answered_by, "session_id": self.session_id, "turn_id": self.turn_id}
        self._core.hooks.note("turn.ended", **ids, outcome=outcome, took_s=round(took_s, 3), steps=steps)

    def cancel(self, reason: str) -> None:
        """Raise CancelledError in the agent at its current await; the turn ends as cancelled."""
        self._cancel_reason = reason
        if self._task is not None:
            self._task.cancel()

    def release(self) -> None:
        """Release the turn, unless its agent is done: another run continues from its records."""
        self.lease.give_up()
        if self._task is None or not self._task.done():
            self._released = True
            self._stop()

    def lose(self) -> None:
        """Stop at once and write nothing: another worker holds the lease."""
        self._lost = True
        self.lease.give_up()
        self._stop()

    async def check_cancel(self) -> None:
        """Cancel the turn if a queued command says so; idempotent."""
        if self.turn_id and self._cancel_reason is None:
            reason = await self.lease.bridge("looking for a cancellation", self._inbox.find_cancel, self.turn_id)
            # Another check may have found it meanwhile, and the agent is to get it where it waits.
            if reason is not None and self._cancel_reason is None:
                self.cancel(reason)

    # Operations of the turn.

    def messages(self, last: int | None) -> list[Message]:
        """Return the conversation up to now; if more is asked for than was loaded, the agent starts again with it."""
        try:
            return self._past.messages(last, self._draft.messages())
        except Suspended:
            self._stop()
            raise

    def raw_path(self, last: int | None) -> Awaitable[tuple[RawNode, ...]]:
        """Return the nodes before the turn, not decoded."""
        return self._past.raw_path(last)

    def hand_off(self, name: str | None) -> Callable[[Turn], Awaitable[object]]:
        """Let another agent continue the turn, and return its function."""
        if name is None:
            raise InvalidInput("expected an agent or its name")
        if self._hand_offs == _MOST_HAND_OFFS:
            raise InvalidInput(f"a turn is handed off at most {_MOST_HAND_OFFS} times; let one of the agents reply")
        self._hand_offs += 1
        self._agent = self._core.agent(name)
        self._answered_by = name
        return self._agent.function

    async def checkpoint(self, key: str) -> list[Message]:
        """Claim early input, which joins the turn here, in every attempt the same."""
        return await self._require_taken().take_early(key)

    # The run.

    async def _run(self) -> TurnEnd:
        claim = self._claimed.claim
        self._inbox.claims.append(claim)
        if self._lost or self._released:
            return await self._stopped()
        head = claim.batches[0]
        self._branch = branch_of(head)
        self.turn_id, self.attempt, self._failures = turn_id_of(head.batch_id), head.attempts, head.failures
        await self._past.load(self._claimed.revision, self._claimed.leaf_node_id)
        try:
            agent = self._core.agent(wanted_agent(claim, self._past.history.turn_state))
        except UnknownDefinition as unknown:
            self._core.hooks.note("definition.unknown", session_id=self.session_id, message=str(unknown))
            return await self._give_back(TurnEnd.UNKNOWN, count_attempt=False)
        if self._core.options.agents is not None and agent.name not in self._core.options.agents:
            return await self._give_back(TurnEnd.LEFT, count_attempt=False)
        self._answered_by = agent.name
        crashes = self.attempt - 1 - self._failures
        if crashes > agent.retry.max_crashes:
            failed = failed_attempt(crash_error(crashes), attempt=crashes, max_attempts=agent.retry.max_crashes)
            return await self._bury(agent, failed)
        if not self._core.hooks.spans:
            return await self._drive(agent)
        about = turn_attributes(claim, content=self._core.hooks.content)
        with self._core.hooks.span(TURN, **self._ids(agent), attempt=self.attempt, **about):
            return await self._drive(agent)

    async def _drive(self, agent: AgentDefinition) -> TurnEnd:
        try:
            task = await self._run_agent(agent, await self._prepare(agent))
            while self._past.is_short and not (self._lost or self._released or self._cancel_reason is not None):
                task = await self._run_agent(agent, await self._prepare_again())
        except Suspended:
            return await self._stopped()
        except InvalidInput as error:
            # The message cannot become a turn any more.
            return await self._fail(agent, error)
        return await self._finish(agent, task)

    async def _run_agent(self, agent: AgentDefinition, journal: Journal) -> asyncio.Task[object]:
        """Run the agent to its end, and return its task."""
        self._task = asyncio.create_task(self._body(agent, journal), name=f"lash-turn {self.turn_id}")
        is_cancelled = self._cancel_reason is not None and not self.parking.cancels_later
        if self._lost or self._released or is_cancelled:
            self._task.cancel()
        try:
            await ended(self._task)
        finally:
            # Tasks that the agent left running, and the agent if this run is cancelled, must not write any more.
            journal.stop(Suspended())
            self._task.cancel()
        if not self._task.cancelled():
            # Retrieved here, as asyncio would log it if the agent starts again.
            self._task.exception()
        return self._task

    async def _prepare(self, agent: AgentDefinition) -> Journal:
        """Read the records of earlier attempts, and take the same input as they did."""
        journal = await self._open_journal(recorded=self._claimed.recorded)
        await self._past.begin(journal, self._core.reach(agent), self._branch)
        await self._take_input()
        if self.attempt > 1 or self.parking.may_have_waited:
            await self.check_cancel()
            if self._cancel_reason is not None and self.parking.may_have_waited and self._may_continue:
                self.parking.cancel_later(self._cancel_reason)
        return journal

    @property
    def _may_continue(self) -> bool:
        """Whether the agent has begun, in an earlier run, so that it gets a cancellation where it waited."""
        return self._claimed.recorded or self.attempt == 1

    async def _prepare_again(self) -> Journal:
        """Load as much of the conversation as the agent has asked for, and prepare it as in the first place."""
        self._task = None
        await self._past.widen()
        await self._inbox.give_back_after(self._input_claims)
        journal = await self._open_journal(recorded=True)
        await self._take_input()
        return journal

    async def _open_journal(self, *, recorded: bool) -> Journal:
        core, ttl_ms = self._core, self._core.options.ttl_ms
        limits = core.definitions.limits
        journal = Journal(
            core.storage,
            self._scope(),
            self._fence,
            self.lease,
            core.owner,
            core.hooks,
            limits,
            ttl_ms=ttl_ms,
            attempt=max(1, self.attempt),
        )
        self._journal, self._hand_offs, self._agent = journal, 0, None
        self.parking.attach(journal)
        journal.enter_span()
        if recorded:
            await journal.load()
        self._draft = TurnDraft(self.session_id, self.turn_id, self._past.history)
        self._taken = TakenInput(self.session_id, self._inbox, self.lease, journal, self._draft)
        return journal

    async def _body(self, agent: AgentDefinition, journal: Journal) -> object:
        journal.begin()
        turn = Turn(self, self._core, journal, self._draft)
        here = RunHere(turn)
        try:
            if agent.limit is None and agent.timeout_s is None:
                return await agent.function(turn)
            within = time_limit(agent.timeout_s, f"agent {agent.name!r}")
            async with under_limit(agent.limit, journal, self.parking, turn), within:
                return await agent.function(turn)
        finally:
            here.end()

    async def _finish(self, agent: AgentDefinition, task: asyncio.Task[object]) -> TurnEnd:
        if self._lost or self._released:
            return await self._stopped()
        if self.parking.is_parking:
            return await self._park()
        error = asyncio.CancelledError("the agent cancelled itself") if task.cancelled() else task.exception()
        if error is None:
            return await self._publish(agent, task.result())
        if isinstance(error, LeaseLost) and error.resource == self._fence.resource:
            raise error
        if isinstance(error, ClaimLost) and error.session_id == self.session_id:
            raise error
        if self._cancel_reason is not None:
            return await self._publish_cancelled(agent, self._cancel_reason)
        return await self._fail(agent, error)

    async def _park(self) -> TurnEnd:
        """Give back the lease and the input until there is a reason to continue."""
        if self._claimed.wake_seq is None:
            # It was claimed behind a command, without its number of wakes; the next claim has it.
            return await self._give_back(TurnEnd.RELEASED, count_attempt=False)
        # Observers see what the turn has shown before it waits.
        await self._core.activity.flush(self.session_id)
        waiting_for = self.parking.waiting_for
        await self.parking.park()
        self._core.hooks.note("turn.parked", session_id=self.session_id, turn_id=self.turn_id, waiting_for=waiting_for)
        return TurnEnd.PARKED

    async def _publish(self, agent: AgentDefinition, reply: object) -> TurnEnd:
        try:
            self._draft.reply(reply, agent)
            return await self._commit(agent)
        except (LeaseLost, ClaimLost, SessionDeleted, SessionNotFound):
            raise
        except Exception as error:  # noqa: BLE001 (whatever an agent gives us, the turn fails and says why)
            return await self._fail(agent, error)

    async def _publish_cancelled(self, agent: AgentDefinition, reason: str) -> TurnEnd:
        entry = ProtocolEntry(plugin_id=PLUGIN, payload={"type": "turn_cancelled", "reason": reason})
        self._draft.cancel(self._past.history, entry)
        await self._inbox.claim_cancel(self.turn_id)
        return await self._commit(agent)

    async def _commit(self, agent: AgentDefinition) -> TurnEnd:
        """Publish the turn. After a commit by another writer its nodes follow that commit's."""
        done = tuple([claim.completion for claim in self._inbox.claims])
        # Observers see the activity of a turn before its commit.
        await self._core.activity.flush(self.session_id)
        trace, name = trace_of_turn(self._claimed, self._journal), (self._agent or agent).name
        began = time.monotonic()
        while True:
            past = self._past
            commit = self._draft.commit(past.history, past.parent_node_id, name, self._fence, done, trace)
            publish, work = self._storage.session(self.session_id).commit, not self._leaves_nothing()
            try:
                result = await self.lease.bridge("the commit", publish, commit, work=work)
            except RevisionConflict:
                await self.lease.bridge("reading the session", self._past.load)
                continue
            self._core.histories.advance(self.session_id, commit, result)
            took_s = round(time.monotonic() - began, 6)
            about = committed_attributes(self._draft, content=self._core.hooks.content)
            self._core.hooks.note("turn.committed", **self._ids(agent), took_s=took_s, **about)
            return TurnEnd.COMMITTED

    async def _fail(self, agent: AgentDefinition, error: BaseException) -> TurnEnd:
        """Retry later, or make the input a dead letter if this was the last attempt or a retry cannot help."""
        self._core.hooks.failed(error)
        if await self._core.is_outdated(error):
            return await self._give_back(TurnEnd.RELEASED, count_attempt=False)
        await self.lease.bridge("the end of the history", self._past.remember, self._scope(), self._fence)
        hopeless = (
            isinstance(error, InvalidInput | Permanent)
            or self._require_journal().is_recorded(error)
            or (not agent.retry.programming_errors and is_programming_error(error, agent.function))
        )
        # An unavailable or full database is not the fault of the message: such attempts do not count.
        counts = not isinstance(error, STORAGE_TROUBLE)
        attempt, most = self._failures + 1, agent.retry.max_attempts
        failed = failed_attempt(error, attempt=attempt, max_attempts=most, counts=counts)
        if hopeless or (counts and attempt >= most):
            return await self._bury(agent, failed)
        pause_s = agent.retry.pause_s(attempt if counts else 1)
        failed.note("turn.retried", self._core.hooks, self._ids(agent), next_s=pause_s)
        return await self._give_back(TurnEnd.FAILED, pause_s=pause_s, count_attempt=counts)

    async def _bury(self, agent: AgentDefinition, failed: FailedAttempt) -> TurnEnd:
        await self._inbox.bury(failed.reason, failed.details())
        await self._release_lease()
        failed.note("turn.buried", self._core.hooks, self._ids(agent))
        return TurnEnd.BURIED

    def _ids(self, agent: AgentDefinition) -> dict[str, str]:
        return {"agent": agent.name, "session_id": self.session_id, "turn_id": self.turn_id}

    async def _give_back(self, end: TurnEnd, *, pause_s: float = 0, count_attempt: bool = True) -> TurnEnd:
        await self._inbox.give_back(count_attempt=count_attempt)
        await self._release_lease(pause_s)
        return end

    async def _stopped(self) -> TurnEnd:
        """End a run that lost its lease or was released."""
        return await self._leave() if self._lost else await self._give_back(TurnEnd.RELEASED, count_attempt=False)

    async def _leave(self) -> TurnEnd:
        """Stop without writing to the session; release the lease in case it expired and no worker took it."""
        self._core.hooks.note("lease.lost", session_id=self.session_id, turn_id=self.turn_id)
        await self._release_lease()
        return TurnEnd.LOST

    async def _release_lease(self, pause_s: float = 0) -> None:
        pause_ms = round(pause_s * 1_000)
        await self.lease.bridge("the release", self._storage.leases.release, self._fence, pause_ms=pause_ms)

    # Input.

    async def _take_input(self) -> None:
        await self._require_taken().take_first(self._claimed.claim, self._branch)
        self._input_claims = len(self._inbox.claims)

    def _scope(self) -> TurnScope:
        return TurnScope(session_id=self.session_id, turn_id=self.turn_id)

    def _require_taken(self) -> TakenInput:
        assert self._taken is not None, "input is taken only after the journal was read"
        return self._taken

    def _require_journal(self) -> Journal:
        assert self._journal is not None, "the agent runs only after its journal was read"
        return self._journal

    def _stop(self) -> None:
        if self._journal is not None:
            self._journal.stop(Suspended())
        if self._task is not None:
            self._task.cancel()
