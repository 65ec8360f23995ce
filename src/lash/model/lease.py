"""Leases: expiring, fenced rights to execute a session or a process."""

from __future__ import annotations

import enum
from typing import TypeAlias

from lash.model.value import Count, Value


class LocalProcess(Value, frozen=True, kw_only=True):
    """An operating system process; others on the same boot of the same machine can see that it died."""

    host_id: str
    boot_id: str
    pid: Count
    process_start: str
    namespaces: str = ""
    """The pid namespace, in which the pid counts, and the time namespace, in which the start counts."""
    presence: str | None = None
    """The mark of a lock that the process holds until it ends, for processes in other namespaces."""


class LeaseOwner(Value, frozen=True, kw_only=True):
    """The holder of a lease: a stable worker id and one incarnation of that worker.

    Two owners are the same holder if both ids are equal. ``process`` lets other workers on the machine prove that the
    holder died before its lease expires; without it they have to wait for the expiry.
    """

    owner_id: str
    incarnation_id: str
    process: LocalProcess | None = None

    def same_holder(self, other: LeaseOwner) -> bool:
        return self.owner_id == other.owner_id and self.incarnation_id == other.incarnation_id


class ResourceKind(enum.StrEnum):
    """The kinds of things that can be leased."""

    SESSION = "session"
    PROCESS = "process"


class Resource(Value, frozen=True, kw_only=True):
    """A session or a process that can be leased."""

    kind: ResourceKind
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id!r}"


def session_resource(session_id: str) -> Resource:
    """Return a session as the resource of its lease."""
    return Resource(kind=ResourceKind.SESSION, id=session_id)


def process_resource(process_id: str) -> Resource:
    """Return a process as the resource of its lease."""
    return Resource(kind=ResourceKind.PROCESS, id=process_id)


class LeaseFence(Value, frozen=True, kw_only=True):
    """The proof of one acquisition of a lease. Renewals, releases and fenced writes require it."""

    resource: Resource
    owner_id: str
    incarnation_id: str
    token: str
    fencing: Count


class Lease(Value, frozen=True, kw_only=True):
    """One acquisition of the right to execute a session or a process.

    The lease is live before ``expires_at_ms`` and expired from that moment on.
    """

    resource: Resource
    owner: LeaseOwner
    token: str
    fencing: Count
    claimed_at_ms: int
    expires_at_ms: int

    @property
    def fence(self) -> LeaseFence:
        return LeaseFence(
            resource=self.resource,
            owner_id=self.owner.owner_id,
            incarnation_id=self.owner.incarnation_id,
            token=self.token,
            fencing=self.fencing,
        )


class LeasePage(Value, frozen=True, kw_only=True):
    """Live leases of sessions and processes. ``next_cursor`` continues the list; None at its end."""

    leases: tuple[Lease, ...]
    next_cursor: str | None = None


class Acquired(Value, frozen=True, kw_only=True):
    """The caller holds the lease of the session.

    ``reentered`` is true if the same holder held it before the call. The outer holder releases it; the caller must not.
    ``displaced`` is the expired or reclaimed lease that this one replaces, if there was one.
    """

    lease: Lease
    reentered: bool = False
    displaced: Lease | None = None


class Busy(Value, frozen=True, kw_only=True):
    """Another holder has the lease of the session; nothing was changed."""

    holder: Lease


LeaseOutcome: TypeAlias = Acquired | Busy


class ParkedTurn(Value, frozen=True, kw_only=True):
    """A turn that waits without a lease: for what, and until when at most; None means until it is woken."""

    waiting_for: str
    until_ms: int | None = None
