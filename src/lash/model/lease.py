"""Leases: expiring, fenced rights to execute."""

from __future__ import annotations

from typing import TypeAlias

from lash.model.value import Count, Value


class LocalProcess(Value, frozen=True, kw_only=True):
    """A process that others on the same boot of the same machine can see to be dead."""

    host_id: str
    boot_id: str
    pid: Count
    process_start: str


class LeaseOwner(Value, frozen=True, kw_only=True):
    """Who holds a lease: a stable worker id and one incarnation of it.

    Two owners are the same holder when both ids agree. ``process`` lets others on the machine see that the
    holder is dead before its lease runs out; without it only time tells.
    """

    owner_id: str
    incarnation_id: str
    process: LocalProcess | None = None

    def same_holder(self, other: LeaseOwner) -> bool:
        return self.owner_id == other.owner_id and self.incarnation_id == other.incarnation_id


class LeaseFence(Value, frozen=True, kw_only=True):
    """The proof of one acquisition: shown to renew, to release, and with every fenced write."""

    session_id: str
    owner_id: str
    incarnation_id: str
    token: str
    fencing: Count


class Lease(Value, frozen=True, kw_only=True):
    """One acquisition of a session's lease. It is live until ``expires_at_ms``, that moment excluded."""

    session_id: str
    owner: LeaseOwner
    token: str
    fencing: Count
    claimed_at_ms: int
    expires_at_ms: int

    @property
    def fence(self) -> LeaseFence:
        return LeaseFence(
            session_id=self.session_id,
            owner_id=self.owner.owner_id,
            incarnation_id=self.owner.incarnation_id,
            token=self.token,
            fencing=self.fencing,
        )


class Acquired(Value, frozen=True, kw_only=True):
    """The caller holds the lease.

    ``reentered`` is true when the same holder had it already: then an outer piece of work will release it, and
    this one must not. ``displaced`` is the lease that lapsed or was taken over, if there was one.
    """

    lease: Lease
    reentered: bool = False
    displaced: Lease | None = None


class Busy(Value, frozen=True, kw_only=True):
    """Somebody else holds the lease; nothing was changed."""

    holder: Lease


LeaseOutcome: TypeAlias = Acquired | Busy
