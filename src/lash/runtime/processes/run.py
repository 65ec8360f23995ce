"""One run of one process: from the claim of its lease to its end, its next pause, or the loss of the lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from lash.base.replay_key import derived_id, replay_key
from lash.errors import EventConflict, InvalidInput, InvalidProgram, LeaseLost, ProcessTerminal, UnknownDefinition
from lash.model.causal import ProcessCause
from lash.model.effect import ProcessScope
from lash.model.process.continuation import Continuation
from lash.model.process.event import CANCEL_REQUESTED, STARTED
from lash.model.process.process import (
    Cancellation,
    EngineInput,
    Outcome,
    ProcessAcquired,
    ProcessRecord,
    Provenance,
    SessionOriginator,
    Success,
)
from lash.model.value import JSON
from lash.runtime.after_run import AfterRun, EndOfRun
from lash.runtime.core import Core
from lash.runtime.current import RunHere
from lash.runtime.engine import Loaded, Program
from lash.runtime.errors import ProgramFailed, Suspended
from lash.runtime.hooks import PROCESS
from lash.runtime.processes.branch import own_branch
from lash.runtime.processes.context import Context
from lash.runtime.processes.failing import STUCK, FailedRun
from lash.runtime.processes.parking import ProcessParking
from lash.runtime.processes.under_lease import UnderLease
from lash.runtime.steps.journal import Journal
from lash.runtime.steps.run_limit import under_limit
from lash.runtime.steps.values import to_json
from lash.runtime.time_limit import time_limit


class RunEnd(EndOfRun):
    """How a run ended, and what the worker does next with the process."""

    ENDED = "ended", AfterRun.FORGET
    CONTINUED = "continued", AfterRun.POLL
    """Its next run is ready."""
    PARKED = "parked", AfterRun.POLL
    """It waits for a time, a signal or a child; its end of waiting makes it ready again."""
    FAILED = "failed", AfterRun.POLL
    """It is parked until its next attempt."""
    LOST = "lost", AfterRun.BACK_OFF
    """Another worker has the process, or has ended it."""
    RELEASED = "released", AfterRun.POLL
    """The worker stops; another one continues from the records."""
    UNKNOWN = "unknown", AfterRun.LEAVE
    """No process of its name and version is declared here."""


class ProcessRun:
    """One run, with the operations that its context needs."""

    def __init__(self, core: Core, acquired: ProcessAcquired, on_finishing: Callable[[], None]) -> None:
        """Prepare the run; it calls ``on_finishing`` when the function has ended and its outcome is to be recorded."""
        self._core = core
        self.storage = core.storage
        self.record = acquired.record
        self.fence = acquired.lease.fence
        self.lease = core.hold_process(self.fence)
        self._writes = UnderLease(core.storage, self.fence, self.lease, wake_seq=acquired.wake_seq)
        self._on_finishing = on_finishing
        self._has_effects = acquired.has_effects
        self._crashes = acquired.crashes
        self.definition: Program[Any, Any]
        self._task: asyncio.Task[Any] | None = None
        self._cancel_reason = acquired.record.projection.cancel_reason or ""
        self._cancel_seen = acquired.record.projection.cancel_requested
        self._number = acquired.record.projection.run
        self._next: JSON = None
        """The input of the next run, if this one continues."""
        self._released = False
        self._lost = False
        self._journal = Journal(
            core.storage,
            ProcessScope(process_id=self.process_id),
            self.fence,
            self.lease,
            core.owner,
            core.hooks,
            core.definitions.limits,
            ttl_ms=core.options.ttl_ms,
            prefix="" if self._number == 1 else f"{self._number}/",
            attempt=acquired.crashes + 1,
        )
        self.parking = ProcessParking(core, acquired, self.lease, self._writes)
        self.parking.attach(self._journal)
        self._failed = FailedRun(core, acquired, self._writes)
        if self._cancel_seen:
            self.parking.cancel_later(self._cancel_reason)

    @property
    def process_id(self) -> str:
        return self.record.process_id

    async def run(self) -> RunEnd:
        """Run until the process ends, waits, fails or loses its lease; never raise an error of the application."""
        end = await self._run()
        if end in (RunEnd.ENDED, RunEnd.CONTINUED):
            self._note_end()
        return end

    async def _run(self) -> RunEnd:
        try:
            try:
                self.definition, arguments = await self._read_input()
            except UnknownDefinition as unknown:
                return await self._leave(unknown)
            except InvalidInput as error:
                # No worker can ever run it: trying again would loop.
                code = error.code if isinstance(error, InvalidProgram) else "process_arguments_invalid"
                return await self._end_failed(code, error)
            if self._crashes > self.definition.retry.max_crashes:
                await self._failed.end_crashed(self.definition)
                return RunEnd.ENDED
            traceparent = self.record.registration.provenance.traceparent
            sender = {} if traceparent is None else {"traceparent": traceparent}
            name = self.definition.name
            with self._core.hooks.span(PROCESS, process_id=self.process_id, process=name, **sender):
                return await self._drive(arguments)
        except (LeaseLost, ProcessTerminal, EventConflict) as lost:
            # EventConflict: another writer ended it with a different outcome.
            self._core.hooks.note("lease.lost", process_id=self.process_id, message=str(lost))
            return RunEnd.LOST

    def _note_end(self) -> None:
        """Note the end of the process, or of one of its runs."""
        identity = self.record.registration.identity
        took_s = (self.parking.now_ms() - self.record.created_at_ms) / 1_000
        self._core.hooks.note(
            "process.ended",
            process=(identity and identity.label) or "",
            process_id=self.process_id,
            run=self._number,
            outcome=self._writes.ended_as or "continued",
            took_s=round(took_s, 3),
            steps=self._journal.steps,
        )

    def cancel(self, reason: str) -> None:
        """Raise CancelledError in the function at its current await."""
        self._cancel_reason, self._cancel_seen = reason, True
        if self._task is None:
            self.parking.cancel_later(reason)
        else:
            self._task.cancel()

    def cancel_once(self, reason: str) -> None:
        """Cancel, unless this run has seen a cancel request."""
        if not self._cancel_seen:
            self.cancel(reason)

    def release(self) -> None:
        """Release the process without an outcome: another run continues from its records."""
        self._released = True
        self._stop()

    def lose(self) -> None:
        """Stop at once and write nothing: another worker holds the lease."""
        self._lost = True
        self._stop()

    async def continue_as_new(self, args: tuple[object, ...], kwargs: dict[str, object]) -> NoReturn:
        """Stop here; the next run begins with these arguments."""
        own_branch()
        self._journal.check_running()
        self.parking.deliver_cancel()
        self._next = await self._core.continuation(self.definition, args, kwargs)
        self._journal.stop(Suspended())
        raise Suspended

    async def start_child(
        self, key: str, process: Program[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str:
        """Register a child under an id that is the same in every run, and return the id."""
        child_id, known = derived_id(self.process_id, key), None
        if self._has_effects and child_id != (former := replay_key(self.process_id, key)):
            # Earlier versions escaped the id of this process; one of them may have registered the child.
            known = await self.storage.processes.get(former)
        if known is not None:
            return known.process_id
        provenance = Provenance(
            originator=self.record.registration.provenance.originator,
            caused_by=ProcessCause(process_id=self.process_id),
        )
        registration = await self._core.registration(
            process,
            child_id,
            args,
            kwargs,
            provenance=provenance,
            wake_session_id=self.record.registration.wake_session_id,
        )
        registered = await self.storage.processes.register(registration)
        return registered.record.process_id

    def show(self, session_id: str, payload: JSON) -> None:
        """Show activity of this process to observers of a session."""
        self._core.activity.show(session_id, self.process_id, payload)

    async def emit(self, key: str, source_type: str, payload: JSON, source_key: str | None) -> object:
        """Emit an occurrence under a key that is the same in every run."""
        self._journal.check_running()
        return await self._core.emit(source_type, payload, key=replay_key(self.process_id, key), source_key=source_key)

    async def _read_input(self) -> Loaded:
        process_input = self.record.registration.input
        given = process_input.payload if isinstance(process_input, EngineInput) else None
        if self._number > 1:
            begun = await self._writes.continuation(self.record.projection.continued_at)
            given, self.parking.before = begun.input, begun.signals
        return await self.lease.bridge("loading the program", self._core.load, process_input, given)

    async def _drive(self, arguments: Mapping[str, Any]) -> RunEnd:
        if self.parking.cancels_later and await self._never_began():
            return await self._end(self._cancellation())
        self._journal.enter_span()
        if self._has_effects:
            await self._journal.load()

        definition = self.definition

        async def body() -> Any:  # noqa: ANN401 (whatever the function returns)
            self._journal.begin()
            context = Context(self, self._journal)
            here = RunHere(context)
            try:
                limit, within = definition.limit, time_limit(definition.timeout_s, f"process {definition.name!r}")
                async with under_limit(limit, self._journal, self.parking, context, **arguments), within:
                    return await definition.run(context, arguments)
            finally:
                here.end()

        if not self._released and not self._lost:
            self._task = asyncio.create_task(body(), name=f"lash-process {self.process_id}")
            await _ended(self._task)
            if not self._task.cancelled():
                # Retrieve the exception so asyncio does not warn about it.
                self._task.exception()
        # Tasks that the function left behind must not write any more.
        self._journal.stop(Suspended())
        self._on_finishing()
        return await self._record_outcome()

    async def _never_began(self) -> bool:
        """Return whether the process was asked to stop before its first run."""
        first = await self._writes.events(STARTED, limit=1)
        asked = await self._writes.events(CANCEL_REQUESTED, limit=1)
        return bool(first and asked) and asked[0].sequence < first[0].sequence

    async def _record_outcome(self) -> RunEnd:
        if self._lost:
            self._core.hooks.note("lease.lost", process_id=self.process_id)
            return RunEnd.LOST
        if self._released or self._task is None:
            await self._writes.release()
            return RunEnd.RELEASED
        if self._next is not None:
            return await self._continue()
        if self.parking.is_parking:
            await self.parking.park()
            self._core.hooks.note("process.parked", process_id=self.process_id)
            return RunEnd.PARKED
        if self._task.cancelled():
            if self._cancel_seen:
                return await self._end(await self._reread_cancellation())
            # Something that the function awaited was cancelled; no caller asked the process to stop.
            return await self._fail(asyncio.CancelledError("what the function awaited was cancelled"))
        error = self._task.exception()
        if isinstance(error, LeaseLost) and error.resource == self.fence.resource:
            raise error
        if isinstance(error, ProgramFailed):
            # The program itself has ended; no attempt failed.
            return await self._end_failed(error.code, error)
        if error is not None:
            return await self._fail(error)
        what = f"the result of process {self.definition.name!r}"
        try:
            value = to_json(self._task.result(), self.definition.result_type, what)
        except InvalidInput as invalid:
            return await self._end_failed("process_result_invalid", invalid)
        return await self._end(Success(value=value))

    async def _continue(self) -> RunEnd:
        """Begin the next run in one write; the lease is released after it, and any worker takes the run."""
        following = Continuation(run=self._number + 1, input=self._next, signals=await self.parking.taken())
        try:
            await self._writes.continue_as_new(following)
        except InvalidInput as error:
            return await self._end_failed("process_arguments_invalid", error)
        self._core.hooks.note("process.continued", process_id=self.process_id, run=following.run)
        await self._writes.release()
        return RunEnd.CONTINUED

    async def _leave(self, unknown: UnknownDefinition) -> RunEnd:
        """Leave the process to a worker that has its code; its log says what is missing."""
        self._core.hooks.note("definition.unknown", process_id=self.process_id, message=str(unknown))
        await self._writes.note_failure(unknown, f"{STUCK}{unknown.kind}:{unknown.name}")
        await self._writes.release()
        return RunEnd.UNKNOWN

    async def _end(self, outcome: Outcome) -> RunEnd:
        try:
            await self._writes.complete(outcome)
        except InvalidInput as error:
            return await self._end_failed("process_result_invalid", error)
        return RunEnd.ENDED

    async def _end_failed(self, code: str, error: BaseException) -> RunEnd:
        await self._failed.end(code, error)
        return RunEnd.ENDED

    async def _fail(self, error: BaseException) -> RunEnd:
        """Note a failed attempt; try again later, or end the process if it was the last."""
        self._core.hooks.failed(error)
        if await self._core.is_outdated(error):
            await self._writes.release()
            return RunEnd.RELEASED
        is_recorded = self._journal.is_recorded(error)
        pause_s = await self._failed.end_or_pause(self.definition, error, is_recorded=is_recorded)
        if pause_s is None:
            return RunEnd.ENDED
        await self._writes.park(self.parking.now_ms() + round(pause_s * 1_000))
        return RunEnd.FAILED

    def _stop(self) -> None:
        self.lease.give_up()
        self._journal.stop(Suspended())
        if self._task is not None:
            self._task.cancel()

    def _cancellation(self) -> Cancellation:
        return Cancellation(message=self._cancel_reason or "the process was cancelled")

    async def _reread_cancellation(self) -> Cancellation:
        """Return the cancellation with the reason of its request, read from the storage."""
        record = await self._writes.record()
        self._cancel_reason = (record and record.projection.cancel_reason) or self._cancel_reason
        return self._cancellation()


async def _ended(task: asyncio.Task[Any]) -> None:
    """Wait for a task without raising its error: `asyncio.wait` for one task, with fewer calls."""
    ended = asyncio.get_running_loop().create_future()

    def tell(_task: object) -> None:
        if not ended.done():
            ended.set_result(None)

    task.add_done_callback(tell)
    try:
        await ended
    finally:
        task.remove_done_callback(tell)


def originator_session(record: ProcessRecord) -> str | None:
    """Return the session that started a process, if one did."""
    originator = record.registration.provenance.originator
    return originator.scope.session_id if isinstance(originator, SessionOriginator) else None
