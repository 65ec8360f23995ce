"""A failed attempt of a turn or a process, as it is stored, logged and shown."""

from __future__ import annotations

from collections.abc import Mapping

from lash.model.value import JSON, Value
from lash.runtime.errors import error_code
from lash.runtime.hooks import Hooks
from lash.runtime.steps.failure import describe_failure, trace_of


class FailedAttempt(Value, frozen=True, kw_only=True):
    """Which attempt failed, of how many that may, and what it raised."""

    attempt: int
    max_attempts: int
    code: str
    reason: str
    traceback: str
    counts: bool = True
    """False if the application is not at fault, or if an operator can fix it: such attempts have no limit."""

    def note(self, kind: str, hooks: Hooks, ids: Mapping[str, str], *, next_s: float | None = None) -> None:
        """Report it to the hooks; ``next_s`` is the pause before the next attempt, None if this was the last."""
        pause = {} if next_s is None else {"next_s": next_s}
        hooks.note(
            kind,
            **ids,
            attempt=self.attempt,
            max_attempts=self.max_attempts,
            counts=self.counts,
            **pause,
            error=self.reason,
            traceback=self.traceback,
        )

    def details(self) -> JSON:
        """Return what is stored beside the reason of a final failure."""
        return {"type": self.code, "attempts": self.attempt, "traceback": self.traceback}


def failed_attempt(
    error: BaseException, *, attempt: int, max_attempts: int, counts: bool = True, trace: str | None = None
) -> FailedAttempt:
    """Return the attempt that ended with this error; ``trace`` is its traceback if the caller has it."""
    return FailedAttempt(
        attempt=attempt,
        max_attempts=max_attempts,
        code=error_code(error),
        reason=describe_failure(error),
        traceback=trace_of(error) if trace is None else trace,
        counts=counts,
    )


def crash_error(crashes: int) -> RuntimeError:
    """Return the error of work that is given up because its workers died so often."""
    return RuntimeError(f"{crashes} attempts crashed without reporting an error")
