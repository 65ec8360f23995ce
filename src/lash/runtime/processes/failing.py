"""Failed attempts of a process: noted in its log, tried again later, or the end of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lash.base.codec import content_hash
from lash.errors import (
    ConfigError,
    EffectMismatch,
    EventConflict,
    InvalidInput,
    OccurrenceConflict,
    OutcomeUnknown,
    RegistrationConflict,
)
from lash.model.process.event import ATTEMPT_FAILED
from lash.model.process.process import Failure, FailureClass, ProcessAcquired
from lash.runtime.engine import Program
from lash.runtime.errors import STORAGE_TROUBLE, Permanent, ProgramFailed, error_text
from lash.runtime.failed import FailedAttempt, crash_error, failed_attempt
from lash.runtime.processes.under_lease import UnderLease
from lash.runtime.steps.failure import trace_of

if TYPE_CHECKING:
    from lash.runtime.core import Core

STUCK: Final = "stuck:"
"""The beginning of the names of attempts that an operator can help, and that do not count."""
_FIXABLE: Final = (
    EffectMismatch,
    RegistrationConflict,
    EventConflict,
    OccurrenceConflict,
    OutcomeUnknown,
    *STORAGE_TROUBLE,
)
"""Errors that an operator can fix, in the code, the database or by recording an outcome: keep retrying."""
_FINAL: Final = (InvalidInput, ConfigError, Permanent)


class FailedRun:
    """What becomes of a process whose run failed."""

    def __init__(self, core: Core, acquired: ProcessAcquired, writes: UnderLease) -> None:
        self._core = core
        self._writes = writes
        self._fencing = acquired.lease.fence.fencing
        self._crashes = acquired.crashes
        self._began_at = acquired.record.projection.continued_at
        identity = acquired.record.registration.identity
        self._ids = {"process": (identity and identity.label) or "", "process_id": acquired.record.process_id}

    async def end(self, code: str, error: BaseException, failed: FailedAttempt | None = None) -> None:
        """End the process as failed, with the traceback of the application."""
        if failed is None:
            failed = failed_attempt(error, attempt=1, max_attempts=1)
        kind = FailureClass.INVALID_REQUEST if isinstance(error, InvalidInput) else FailureClass.EXECUTION
        message, raw = error_text(error), failed.details()
        if isinstance(error, ProgramFailed):
            code, raw = error.code, error.raw
        await self._writes.complete(Failure(failure_class=kind, code=code, message=message, raw=raw))
        failed.note("process.failed", self._core.hooks, self._ids)

    async def end_crashed(self, definition: Program[Any, Any]) -> None:
        """End a process whose runs killed their workers; without a bound it would kill every worker, one by one."""
        error, most = crash_error(self._crashes), definition.retry.max_crashes
        await self.end("process_crashed", error, failed_attempt(error, attempt=self._crashes, max_attempts=most))

    async def end_or_pause(
        self, definition: Program[Any, Any], error: BaseException, *, is_recorded: bool
    ) -> float | None:
        """Note a failed attempt. Return the seconds until the next one; end the process if it was the last."""
        retry, stuck, trace = definition.retry, isinstance(error, _FIXABLE), trace_of(error)
        # The log has each problem once, however often it is met.
        problem = content_hash(f"{error_text(error)}\0{trace}".encode())[:32]
        await self._writes.note_failure(error, f"{STUCK}{problem}" if stuck else str(self._fencing), trace=trace)
        noted = await self._writes.events(ATTEMPT_FAILED, after=self._began_at)
        attempt = sum(not (event.replay_key or "").startswith(f"attempt:{STUCK}") for event in noted)
        failed = failed_attempt(error, attempt=attempt, max_attempts=retry.max_attempts, counts=not stuck, trace=trace)
        is_final = is_recorded or _is_final(definition, error)
        if not stuck and (attempt >= retry.max_attempts or is_final):
            await self.end(failed.code, error, failed)
            return None
        waits_for_operator = stuck and not isinstance(error, STORAGE_TROUBLE)
        pause_s = retry.longest_pause_s if waits_for_operator else retry.pause_s(max(attempt, 1))
        failed.note("process.retried", self._core.hooks, self._ids, next_s=pause_s)
        return pause_s


def _is_final(definition: Program[Any, Any], error: BaseException) -> bool:
    """Return whether another attempt cannot help."""
    programming = not definition.retry.programming_errors and definition.is_programming_error(error)
    return isinstance(error, _FINAL) or programming
