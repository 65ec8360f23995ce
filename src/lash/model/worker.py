"""Workers: what a running worker announces about itself, and what it learns about the others."""

from __future__ import annotations

import enum

from lash.model.lease import LeaseOwner
from lash.model.value import Value


class WorkerStatus(enum.StrEnum):
    """Whether a worker takes new work."""

    ACTIVE = "active"
    DRAINING = "draining"
    """It finishes what it runs and takes nothing new."""


class Served(Value, frozen=True, kw_only=True):
    """The work that a worker takes; None means all."""

    agents: tuple[str, ...] | None = None
    """Names of agents."""
    processes: tuple[str, ...] | None = None
    """Names of processes."""
    labels: dict[str, str] | None = None
    """Labels that a session must have, all of them. A process has those of its session."""

    def takes_labels(self, labels: dict[str, str]) -> bool:
        """Return whether a session has every label that is asked for."""
        return self.labels is None or self.labels.items() <= labels.items()


class Beat(Value, frozen=True, kw_only=True):
    """What a worker announces: the first one registers it, the others show that it lives."""

    owner: LeaseOwner
    """The owner of its leases. The incarnation identifies the worker."""
    host: str
    pid: int
    version: str
    """The version of lash."""
    beat_ms: int
    """How soon it promises the next beat."""
    session_slots: int
    process_slots: int
    free_sessions: int
    free_processes: int
    served: Served = Served()
    channel: str | None = None
    """Where a hint reaches this worker alone; None if it only polls."""


class WorkerRecord(Value, frozen=True, kw_only=True):
    """One registered worker, as its last beat described it."""

    beat: Beat
    status: WorkerStatus
    started_at_ms: int
    seen_at_ms: int
    """When its last beat was written, by the clock of the storage."""
    is_late: bool
    """Whether it missed two beats. It is probably dead, or cut off from the database."""

    @property
    def worker_id(self) -> str:
        return self.beat.owner.incarnation_id

    def takes_turns(self, agent: str | None, labels: dict[str, str] | None = None) -> bool:
        """Return whether the worker is there to run turns of an agent; None is input for no known agent.

        ``labels`` are those of the session; without them, a worker counts whatever labels it chooses by.
        """
        served, is_there = self.beat.served, self.status is WorkerStatus.ACTIVE and not self.is_late
        if labels is not None and not served.takes_labels(labels):
            return False
        return is_there and self.beat.session_slots > 0 and (served.agents is None or agent in served.agents)


class Holding(Value, frozen=True, kw_only=True):
    """What a worker runs: the sessions and processes whose live leases it holds."""

    session_ids: tuple[str, ...]
    process_ids: tuple[str, ...]


class Fleet(Value, frozen=True, kw_only=True):
    """What a beat returns: the place of the worker among all that live."""

    live: int
    """How many workers are registered and not late, this one included."""
    rank: int | None
    """How many live, active workers come before this one; None while it drains. 0 is the duty worker."""
    status: WorkerStatus
    neighbours: tuple[LeaseOwner, ...] = ()
    """Other registered workers on the same boot of the same machine, in the order of their start."""
    alike: tuple[str, ...] = ()
    """Other live, active workers that take the same sessions, in any order."""


class Pace(Value, frozen=True, kw_only=True):
    """How often a worker polls without a hint, and within which time it promises its next beat."""

    poll_s: float
    beat_ms: int
