"""One run of one process: from the claim of its lease to its end, its next pause, or the loss of the lease."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from lash.codec import content_hash
from lash.errors import (
    EffectMismatch,
    InvalidInput,
    LashError,
    OutcomeUnknown,
    ProcessLeaseLost,
    UnknownDefinition,
)
from lash.model.causal import ProcessCause
from lash.model.effect import ProcessScope
from lash.model.event import ATTEMPT_FAILED, EventDraft
from lash.model.process import (
    Cancellation,
    EngineInput,
    Failure,
    FailureClass,
    Outcome,
    ProcessAcquired,
    ProcessRecord,
    Provenance,
    SessionOriginator,
    SignalWait,
    Success,
)
from lash.model.value import JSON
from lash.model.wait import WaitIdentity, WaitKey
from lash.plan.effect import replay_key
from lash.runtime.branch import Branch
from lash.runtime.definition import ENGINE, ProcessDefinition
from lash.runtime.effect import Journal, root_branch
from lash.runtime.errors import Suspended
from lash.runtime.hooks import PROCESS
from lash.runtime.process import Context
from lash.runtime.values import read_arguments, result_type, to_json

if TYPE_CHECKING:
    from lash.runtime.core import Core

_QUIET_TURNS: Final = 3
"""How many turns of the event loop all lines must have been waiting before the run is parked."""


class RunEnd(enum.Enum):
    """How a run ended."""

    ENDED = "ended"
    PARKED = "parked"
    FAILED = "failed"
    LOST = "lost"
    RELEASED = "released"
    UNKNOWN = "unknown"


class ProcessRun:
    """One run, and what its context may ask of it."""

    def __init__(self, core: Core, acquired: ProcessAcquired) -> None:
        self._core = core
        self.storage = core.storage
        self.record = acquired.record
        self.fence = acquired.lease.fence
        self._wake_seq = acquired.wake_seq
        self._began_ms = acquired.lease.expires_at_ms - core.options.ttl_ms
        self._began = time.monotonic()
        self._branches: list[Branch] = []
        self._untils: list[int | None] = []
        self._signal_wait: SignalWait | None = None
        self._ordinals: dict[str, set[int]] = {}
        self._task: asyncio.Task[Any] | None = None
        self._parking = False
        self._cancel_reason = acquired.record.projection.cancel_reason or ""
        self._cancel_pending = acquired.record.projection.cancel_requested
        self._told_to_stop = acquired.record.projection.cancel_requested
        self._released = False
        self._lost = False
        self._journal = Journal(
            core.storage,
            ProcessScope(process_id=self.process_id),
            self.fence,
            core.owner,
            core.hooks,
            ttl_ms=core.options.ttl_ms,
        )
        self._journal.on_idle = self._look_whether_quiet
        self._journal.before_new = self._deliver_cancel

    @property
    def process_id(self) -> str:
        return self.record.process_id

    async def run(self) -> RunEnd:
        """Run until the process ends, waits, fails or is taken away; never raise for what the application did."""
        try:
            definition, arguments = self._definition()
        except UnknownDefinition as unknown:
            self._core.hooks.note("definition.unknown", process_id=self.process_id, message=str(unknown))
            await self.storage.process_leases.release(self.fence)
            return RunEnd.UNKNOWN
        except InvalidInput as error:
            # The arguments will never fit: trying again would loop.
            return await self._end(_failure("process_arguments_invalid", error, FailureClass.INVALID_REQUEST))
        with self._core.hooks.span(PROCESS, process_id=self.process_id, process=definition.name):
            return await self._drive(definition, arguments)

    def cancel(self, reason: str) -> None:
        """Let the function see a cancellation at what it awaits."""
        self._cancel_reason, self._cancel_pending, self._told_to_stop = reason, False, True
        if self._task is not None:
            self._task.cancel()

    def cancel_once(self, reason: str) -> None:
        """Cancel, unless this run has been told before."""
        if not self._told_to_stop:
            self.cancel(reason)

    async def renew(self) -> None:
        """Keep the lease; raise ProcessLeaseLost if somebody else has it."""
        await self.storage.process_leases.renew(self.fence, ttl_ms=self._core.options.ttl_ms)

    def release(self) -> None:
        """Give the process back without an outcome: another run goes on from its records."""
        self._released = True
        self._stop()

    def lose(self) -> None:
        """Stop at once and write nothing: somebody else has the right to run it now."""
        self._lost = True
        self._stop()

    def now_ms(self) -> int:
        """Return the time of the storage, as of the claim plus what has passed since."""
        return self._began_ms + round((time.monotonic() - self._began) * 1_000)

    async def until(self, due_at_ms: int) -> None:
        """Return if the moment has come, else park until then."""
        while self.now_ms() < due_at_ms:
            await self.block(due_at_ms)

    async def block(self, until_ms: int | None, signal: SignalWait | None = None) -> None:
        """Wait until the run is parked and begun anew; it never goes on from here."""
        self._journal.check_running()
        self._deliver_cancel()
        branch = self._journal.branch()
        branch.blocked += 1
        self._untils.append(until_ms)
        self._signal_wait = self._signal_wait or signal
        self._look_whether_quiet()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            branch.blocked -= 1

    async def line(self, branch: Branch, awaitable: Awaitable[Any]) -> Any:  # noqa: ANN401 (whatever it returns)
        """Run one line of a gathering."""
        self._branches.append(branch)
        try:
            return await awaitable
        finally:
            self._branches.remove(branch)
            self._look_whether_quiet()

    def next_ordinal(self, name: str) -> int:
        """Return the number of the next signal of a name that no recorded or earlier wait has taken."""
        taken = self._ordinals.get(name)
        if taken is None:
            outcomes = self._journal.recorded_outcomes(f"signal:{name}")
            taken = {each["ordinal"] for each in outcomes if isinstance(each, dict) and "ordinal" in each}
            self._ordinals[name] = taken
        ordinal = next(number for number in range(1, len(taken) + 2) if number not in taken)
        taken.add(ordinal)
        return ordinal

    async def resumed(self) -> None:
        """Note in the log that a signal that was waited for has come."""
        wait = self.record.projection.wait
        if wait is not None:
            self.record = await self.storage.processes.clear_wait(self.process_id, wait)

    async def wait_key(self, identity: WaitIdentity) -> WaitKey:
        return await self.storage.waits.key(ProcessScope(process_id=self.process_id), identity)

    async def start_child(
        self, key: str, process: ProcessDefinition[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str:
        """Register a child under an id that every run computes alike."""
        provenance = Provenance(
            originator=self.record.registration.provenance.originator,
            caused_by=ProcessCause(process_id=self.process_id),
        )
        registration = self._core.registration(
            process,
            replay_key(self.process_id, key),
            args,
            kwargs,
            provenance=provenance,
            wake_session_id=self.record.registration.wake_session_id,
        )
        registered = await self.storage.processes.register(registration)
        return registered.record.process_id

    def is_child(self, record: ProcessRecord) -> bool:
        cause = record.registration.provenance.caused_by
        return isinstance(cause, ProcessCause) and cause.process_id == self.process_id

    async def emit(self, key: str, source_type: str, payload: JSON, source_key: str | None) -> object:
        """Emit an occurrence under a key that every run computes alike."""
        self._journal.check_running()
        return await self._core.emit(source_type, payload, key=replay_key(self.process_id, key), source_key=source_key)

    def _definition(self) -> tuple[ProcessDefinition[Any, Any], dict[str, Any]]:
        process_input = self.record.registration.input
        if not isinstance(process_input, EngineInput) or process_input.kind != ENGINE:
            kind = process_input.kind if isinstance(process_input, EngineInput) else type(process_input).__name__
            raise UnknownDefinition("engine", kind, ENGINE)
        payload = process_input.payload if isinstance(process_input.payload, dict) else {}
        definition = self._core.process(str(payload.get("process")), str(payload.get("version")))
        what = f"process {definition.name!r}"
        return definition, read_arguments(definition.function, what, payload.get("args") or {})

    async def _drive(self, definition: ProcessDefinition[Any, Any], arguments: dict[str, Any]) -> RunEnd:
        await self._journal.load()

        async def body() -> Outcome:
            self._branches.append(root_branch())
            async with asyncio.timeout(definition.timeout_s):
                value = await definition.function(Context(self, self._journal), **arguments)
            what = f"the result of process {definition.name!r}"
            return Success(value=to_json(value, result_type(definition.function), what))

        self._task = asyncio.create_task(body(), name=f"lash-process {self.process_id}")
        await asyncio.wait({self._task})
        return await self._settle(definition, self._task)

    async def _settle(self, definition: ProcessDefinition[Any, Any], task: asyncio.Task[Outcome]) -> RunEnd:
        if self._lost:
            self._core.hooks.note("lease.lost", process_id=self.process_id)
            return RunEnd.LOST
        if self._released:
            await self.storage.process_leases.release(self.fence)
            return RunEnd.RELEASED
        if self._parking:
            return await self._park()
        if task.cancelled():
            return await self._end(Cancellation(message=self._cancel_reason or "the process was cancelled"))
        error = task.exception()
        if error is None:
            return await self._end(task.result())
        if isinstance(error, ProcessLeaseLost):
            return RunEnd.LOST
        return await self._fail(definition, error)

    async def _park(self) -> RunEnd:
        if self._signal_wait is not None and self.record.projection.wait != self._signal_wait:
            await self.storage.processes.set_wait(self.process_id, self._signal_wait)
        moments = [moment for moment in self._untils if moment is not None]
        until_ms = min(moments, default=None)
        await self.storage.process_leases.park(self.fence, wake_seq=self._wake_seq, until_ms=until_ms)
        self._core.hooks.note("process.parked", process_id=self.process_id)
        return RunEnd.PARKED

    async def _end(self, outcome: Outcome) -> RunEnd:
        try:
            await self.storage.process_leases.complete(self.fence, outcome)
        except InvalidInput as error:
            await self.storage.process_leases.complete(self.fence, _failure("process_result_invalid", error))
        return RunEnd.ENDED

    async def _fail(self, definition: ProcessDefinition[Any, Any], error: BaseException) -> RunEnd:
        """Note a failed attempt; try again later, or end the process if it was the last."""
        # What somebody has to mend, in the code or by looking something up, is no reason to give a process up.
        stuck = isinstance(error, EffectMismatch | OutcomeUnknown)
        name = content_hash(str(error).encode())[:32] if stuck else str(self.fence.fencing)
        failed = await self.storage.events.append(
            self.process_id,
            EventDraft(
                event_type=ATTEMPT_FAILED,
                payload={"code": type(error).__qualname__, "message": str(error)[:4_000]},
                replay_key=f"attempt:{name}",
            ),
        )
        attempt = await self.storage.events.count_through(self.process_id, ATTEMPT_FAILED, failed.event.sequence)
        last = attempt >= definition.retry.max_attempts or isinstance(error, InvalidInput)
        if last and not stuck:
            return await self._end(_failure(type(error).__qualname__, error))
        pause_s = definition.retry.longest_pause_s if stuck else definition.retry.pause_s(attempt)
        self._core.hooks.note(
            "process.retried", process_id=self.process_id, attempt=attempt, error=f"{type(error).__qualname__}: {error}"
        )
        await self.storage.process_leases.park(
            self.fence, wake_seq=self._wake_seq, until_ms=self.now_ms() + round(pause_s * 1_000)
        )
        return RunEnd.FAILED

    def _look_whether_quiet(self, turns: int = _QUIET_TURNS) -> None:
        """Park when every line waits, and still does a few turns of the loop later."""
        quiet = self._journal.active == 0 and all(branch.waits for branch in self._branches)
        if not quiet or not self._untils or self._parking or self._task is None:
            return
        if turns:
            asyncio.get_running_loop().call_soon(self._look_whether_quiet, turns - 1)
            return
        self._parking = True
        self._stop()

    def _stop(self) -> None:
        self._journal.stop(Suspended())
        if self._task is not None:
            self._task.cancel()

    def _deliver_cancel(self) -> None:
        """Raise the cancellation that was asked for before this run, once, where the function would do new work."""
        if self._cancel_pending:
            self._cancel_pending = False
            raise asyncio.CancelledError(self._cancel_reason)


def originator_session(record: ProcessRecord) -> str | None:
    """Return the session that started a process, if one did."""
    originator = record.registration.provenance.originator
    return originator.scope.session_id if isinstance(originator, SessionOriginator) else None


def _failure(code: str, error: BaseException, kind: FailureClass = FailureClass.EXECUTION) -> Failure:
    if isinstance(error, LashError):
        kind = FailureClass.INVALID_REQUEST if isinstance(error, InvalidInput) else kind
    return Failure(failure_class=kind, code=code, message=str(error) or code)
