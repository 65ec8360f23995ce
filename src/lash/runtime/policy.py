"""How often and how soon failing work is retried, and how much a worker does at once."""

from __future__ import annotations

from lash.errors import ConfigError
from lash.model.value import Value


class Retry(Value, frozen=True, kw_only=True):
    """Attempts in all, and pauses between them that grow by a factor."""

    max_attempts: int = 3
    """How many attempts may fail. One whose worker was killed has not failed."""
    max_crashes: int = 20
    """How many attempts of a turn, or consecutive ones of a process, may end with the death of their worker."""
    first_pause_s: float = 0.25
    factor: float = 4.0
    longest_pause_s: float = 300.0
    programming_errors: bool = False
    """Whether turns and processes are tried again after errors that the same code raises again.

    They are AttributeError, NameError, ImportError, SyntaxError, EffectMismatch and TypeErrors of the handler itself.
    """

    def __post_init__(self) -> None:
        least = min(self.max_crashes, self.first_pause_s, self.longest_pause_s)
        if self.max_attempts < 1 or self.factor < 1 or least < 0:
            raise ConfigError(
                "a Retry needs max_attempts of at least 1, a factor of at least 1, and max_crashes and pauses that are "
                f"not negative; got {self!r}"
            )

    def pause_s(self, attempt: int) -> float:
        """Return how long to wait after this attempt, counted from 1."""
        return min(self.first_pause_s * self.factor ** (attempt - 1), self.longest_pause_s)


NO_RETRY = Retry(max_attempts=1)
STEP_RETRY = Retry(max_attempts=1)
"""A step is tried once; what it raises reaches the handler, and the handler's own retry follows."""
TURN_RETRY = Retry(max_attempts=6)
"""The pauses are 0.25, 1, 4, 16 and 64 seconds: a short disturbance is over at once, a longer one is waited for."""
PROCESS_RETRY = Retry(max_attempts=6)


class WorkerOptions(Value, frozen=True, kw_only=True):
    """What one worker does at once and how it keeps its leases."""

    sessions: int = 16
    """How many turns it runs at once; 0 leaves sessions to other workers."""
    processes: int = 64
    """How many processes it runs at once; 0 leaves them to other workers. Parked ones do not count."""
    process_names: tuple[str, ...] | None = None
    """The names of the processes that it runs; None runs all."""
    agents: tuple[str, ...] | None = None
    """The agents whose turns it runs; None runs all.

    Input is for the agent that the message names, or else for that of the session's last turn. Input for which neither
    is known is left to workers that run all.
    """
    labels: dict[str, str] | None = None
    """The labels that a session must have, all of them, so that this worker runs it; None runs all.

    A process is run by the labels of the session that it works for. What has other labels, or none, is left to other
    workers.
    """
    lease_ttl_s: float = 30.0
    poll_s: float = 1.5
    """How often an idle worker polls without a hint, in case one was lost."""
    grace_s: float = 10.0
    """How long a stopping worker lets runs finish before it gives them back."""
    maintenance_s: float | None = 300.0
    """How often a worker runs maintenance; None leaves it to other workers."""
    keep_ended_processes_s: float | None = None
    """For how long processes are kept after their end, and changes in the feed; None keeps them until they are pruned.

    A reader of the feed of changes must not be further behind than that.
    """
    history_cache_bytes: int = 128 * 1024 * 1024
    """About how much memory the conversations take that a worker keeps between their turns.

    Of a longer conversation only the last messages are kept; an agent that asks for all of it reads it in every turn.
    """

    def __post_init__(self) -> None:
        limits = (
            self.sessions,
            self.processes,
            self.grace_s,
            self.keep_ended_processes_s or 0,
            self.history_cache_bytes,
        )
        times = (self.lease_ttl_s, self.poll_s, 1 if self.maintenance_s is None else self.maintenance_s)
        if min(limits) < 0 or min(times) <= 0:
            raise ConfigError(f"a worker needs limits that are not negative and times above 0; got {self!r}")
        for what, names in (("process_names", self.process_names), ("agents", self.agents)):
            if names is not None and not isinstance(names, tuple):
                raise ConfigError(f"{what} must be a tuple of names or None; got {names!r}")
        if self.labels is not None and not _are_labels(self.labels):
            raise ConfigError(f"labels must be a dict of texts or None; got {self.labels!r}")

    @property
    def ttl_ms(self) -> int:
        return max(1, round(self.lease_ttl_s * 1_000))


def _are_labels(labels: object) -> bool:
    return isinstance(labels, dict) and all(isinstance(text, str) for item in labels.items() for text in item)


DEFAULTS = WorkerOptions()
