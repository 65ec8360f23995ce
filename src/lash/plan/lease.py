"""Rules of leases: which owner may hold the lease of a session or process, and whether a fence still holds."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from lash.base.codec import decode, encode
from lash.base.limits import (
    MAX_INTEGER,
    MIN_INTEGER,
    are_plain_identifiers,
    check_identifier,
    check_integer,
    check_limit,
    saturating_add,
)
from lash.errors import CorruptData, InvalidInput, LeaseLost
from lash.model.lease import (
    Acquired,
    Busy,
    Lease,
    LeaseFence,
    LeaseOutcome,
    LeaseOwner,
    LeasePage,
    LocalProcess,
    Resource,
    ResourceKind,
)
from lash.model.value import Value

MAX_TTL_MS: Final = 24 * 60 * 60 * 1000
"""The longest lease: a day. A longer one would keep the work of a dead worker blocked for that long."""


class LeaseRow(msgspec.Struct, frozen=True, array_like=True):
    """The lease row of one session or process. It outlives each holder, so that fencing numbers only grow."""

    fencing: int
    owner_id: str | None
    incarnation_id: str | None
    process: str | None
    token: str | None
    claimed_at_ms: int
    expires_at_ms: int
    paused_until_ms: int | None = None
    """Until when no worker should start a turn of the session unasked; `plan_turn_claim` reads it."""
    wake_seq: int = 0
    """How many reasons to continue a turn of the session there have been."""
    waiting_for: str | None = None
    """What the parked turn of the session waits for; None if no turn is parked."""

    def is_live(self, now_ms: int) -> bool:
        return self.token is not None and self.expires_at_ms > now_ms


NEVER_HELD: Final = LeaseRow(0, None, None, None, None, 0, 0)
"""The lease row of a new session; it also stands for a lease that the caller did not read."""


class LiveLeaseRow(msgspec.Struct, frozen=True, array_like=True):
    """The lease row of a session or process that is held, and the id and the key of what it leases."""

    kind: str
    id: str
    key: int
    fencing: int
    owner_id: str | None
    incarnation_id: str | None
    process: str | None
    token: str | None
    claimed_at_ms: int
    expires_at_ms: int


class LeasePosition(NamedTuple):
    """The last lease of a page: when it was acquired, its kind, and the key of what it leases."""

    claimed_at_ms: int
    kind: str
    key: int


_FIRST: Final = LeasePosition(MIN_INTEGER, "", 0)
"""Before every lease."""


class PreparedLeasePage(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request for one page of leases. ``limit`` is one more than the page has, to see if there is a next."""

    kind: str | None
    after: LeasePosition
    limit: int


class Acquire(Value, frozen=True, kw_only=True):
    """Take the lease with the next fencing number; ``displaced`` is the lease that this ends, if there is one."""

    fencing: int
    displaced: Lease | None


class Reenter(Value, frozen=True, kw_only=True):
    """The same holder claims again: only the expiry changes, and never to an earlier moment."""

    lease: Lease


class Refuse(Value, frozen=True, kw_only=True):
    """Another holder has the lease."""

    holder: Lease


ClaimDecision: TypeAlias = Acquire | Reenter | Refuse


class LeaseClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A checked claim: the owner, the resource and the duration."""

    resource: Resource
    owner: LeaseOwner
    ttl_ms: int
    displacing: LeaseFence | None = None
    """The acquisition of a provably dead holder, which may be displaced although it is live."""

    @property
    def process(self) -> str | None:
        """The operating system process of the owner, as it is stored."""
        return encode_process(self.owner)


DecideClaim: TypeAlias = Callable[[LeaseRow, int], ClaimDecision]
"""Decides about one claim from the lease row and the time."""
DecideRenewal: TypeAlias = Callable[[LeaseRow, int], Lease]
"""Returns the lease that one fence proves, renewed where it is to be; raises LeaseLost if the fence does not hold."""


def plan_claim(row: LeaseRow, now_ms: int, claim: LeaseClaim) -> ClaimDecision:
    """Decide about a claim.

    A live lease is kept even if its holder died, unless the claim displaces exactly this acquisition.
    """
    held = held_lease(row, claim.resource)
    if held is None or not row.is_live(now_ms):
        return Acquire(fencing=_next_fencing(row, claim.resource), displaced=held)
    if held.owner.same_holder(claim.owner):
        return Reenter(lease=_extended(held, now_ms, claim.ttl_ms))
    if claim.displacing == held.fence:
        return Acquire(fencing=_next_fencing(row, claim.resource), displaced=held)
    return Refuse(holder=held)


def plan_renewal(row: LeaseRow, now_ms: int, *, fence: LeaseFence, ttl_ms: int) -> Lease:
    """Return the renewed lease, or raise LeaseLost. A renewal never shortens a lease.

    An expired lease is renewed too: its fence shows that no other owner took it, so nothing was decided without it.
    """
    return _extended(_require_holder(row, fence), now_ms, ttl_ms)


def require_fence(row: LeaseRow, fence: LeaseFence, now_ms: int) -> Lease:
    """Return the lease that the fence proves, or raise LeaseLost with the reason why it does not hold."""
    held = _require_holder(row, fence)
    if not row.is_live(now_ms):
        raise LeaseLost(fence.resource, "it expired")
    return held


def _require_holder(row: LeaseRow, fence: LeaseFence) -> Lease:
    held = held_lease(row, fence.resource)
    if held is None:
        raise LeaseLost(fence.resource, f"it was released; the fence shows fencing number {fence.fencing}")
    if held.fence != fence:
        raise LeaseLost(
            fence.resource, f"it is held under fencing number {held.fencing}; the fence shows {fence.fencing}"
        )
    return held


def held_lease(row: LeaseRow, resource: Resource) -> Lease | None:
    """Return the lease in the row, live or expired; None if it is free."""
    if row.token is None:
        return None
    if row.owner_id is None or row.incarnation_id is None:
        raise CorruptData(f"the lease row of {resource} has a token but no holder")
    process = None if row.process is None else decode(row.process, LocalProcess, f"the holder of {resource}")
    return Lease(
        resource=resource,
        owner=LeaseOwner(owner_id=row.owner_id, incarnation_id=row.incarnation_id, process=process),
        token=row.token,
        fencing=row.fencing,
        claimed_at_ms=row.claimed_at_ms,
        expires_at_ms=row.expires_at_ms,
    )


def prepare_lease_page(kind: object, *, limit: object, cursor: object) -> PreparedLeasePage:
    """Check the arguments of a list of leases, or raise InvalidInput."""
    if kind is not None and not isinstance(kind, ResourceKind):
        raise InvalidInput(f"expected a ResourceKind, got {kind!r:.80}")
    return PreparedLeasePage(
        kind=None if kind is None else kind.value,
        after=_FIRST if cursor is None else _decode_lease_cursor(cursor),
        limit=check_limit(limit) + 1,
    )


def decode_lease_page(wanted: PreparedLeasePage, rows: Sequence[LiveLeaseRow]) -> LeasePage:
    """Return the page of leases."""
    shown = rows[: wanted.limit - 1]
    return LeasePage(
        leases=tuple(map(_live_lease, shown)),
        next_cursor=_encode_lease_cursor(shown[-1]) if len(rows) == wanted.limit else None,
    )


def _live_lease(row: LiveLeaseRow) -> Lease:
    resource = Resource(kind=ResourceKind(row.kind), id=row.id)
    stored = LeaseRow(
        row.fencing,
        row.owner_id,
        row.incarnation_id,
        row.process,
        row.token,
        row.claimed_at_ms,
        row.expires_at_ms,
    )
    lease = held_lease(stored, resource)
    if lease is None:
        raise CorruptData(f"the lease of {resource} was listed as held and has no token")
    return lease


def _encode_lease_cursor(last: LiveLeaseRow) -> str:
    return base64.urlsafe_b64encode(f"l1:{last.claimed_at_ms}:{last.kind}:{last.key}".encode()).decode()


def _decode_lease_cursor(cursor: object) -> LeasePosition:
    try:
        text = base64.urlsafe_b64decode(check_identifier("cursor", cursor)).decode()
        version, claimed_at_ms, kind, key = text.split(":")
        if version == "l1":
            position = (check_integer("cursor", int(claimed_at_ms)), ResourceKind(kind).value)
            return LeasePosition(*position, check_integer("cursor", int(key), at_least=0))
    except (binascii.Error, ValueError):
        pass
    raise InvalidInput(f"expected a cursor of a list of leases, got {cursor!r:.80}")


def encode_process(owner: LeaseOwner) -> str | None:
    """Return the operating system process of an owner as it is stored; None if the owner names none."""
    return None if owner.process is None else encode(owner.process, LocalProcess, "owner.process")


def outcome_of(decision: Reenter | Refuse) -> LeaseOutcome:
    """Return the answer to a claim that acquired nothing new."""
    if isinstance(decision, Reenter):
        return Acquired(lease=decision.lease, reentered=True)
    return Busy(holder=decision.holder)


def check_claim(owner: object, ttl_ms: object) -> None:
    """Raise InvalidInput unless owner and ttl can be stored."""
    if not isinstance(owner, LeaseOwner):
        raise InvalidInput(f"owner must be a LeaseOwner, not {type(owner).__name__}")
    if not are_plain_identifiers(owner.owner_id, owner.incarnation_id):
        check_identifier("owner_id", owner.owner_id)
        check_identifier("incarnation_id", owner.incarnation_id)
    check_ttl(ttl_ms)


def check_observed(observed: object, kind: ResourceKind) -> Lease:
    """Return the lease that a refused claim showed, or raise InvalidInput if it is not one of this kind."""
    if not isinstance(observed, Lease):
        raise InvalidInput(f"observed must be the Lease that a refused claim showed, not {type(observed).__name__}")
    check_fence("observed", observed.fence, kind)
    return observed


def check_ttl(ttl_ms: object) -> int:
    """Return the time to live in milliseconds, or raise InvalidInput unless it lies between zero and a day."""
    milliseconds = check_integer("ttl_ms", ttl_ms, at_least=0)
    if milliseconds > MAX_TTL_MS:
        raise InvalidInput(f"ttl_ms must be at most {MAX_TTL_MS:,} (a day); renew a lease to hold it for longer")
    return milliseconds


def check_fence(what: str, fence: object, kind: ResourceKind) -> LeaseFence:
    """Return the fence, or raise InvalidInput unless its fields are valid and it is one of this kind."""
    check_any_fence(what, fence)
    assert isinstance(fence, LeaseFence)
    if fence.resource.kind is not kind:
        raise InvalidInput(f"{what} must be the fence of a {kind}, not that of {fence.resource}")
    return fence


def check_any_fence(what: str, fence: object) -> LeaseFence:
    """Return the fence of a session or a process, or raise InvalidInput unless its fields are valid."""
    if not isinstance(fence, LeaseFence):
        raise InvalidInput(f"{what} must be a LeaseFence, not {type(fence).__name__}")
    resource: object = fence.resource
    if not isinstance(resource, Resource) or not isinstance(resource.kind, ResourceKind):
        raise InvalidInput(f"{what}.resource must be the Resource of a session or a process, not {resource!r:.80}")
    if not are_plain_identifiers(resource.id, fence.owner_id, fence.incarnation_id, fence.token):
        check_identifier(f"{what}.resource.id", resource.id)
        check_identifier(f"{what}.owner_id", fence.owner_id)
        check_identifier(f"{what}.incarnation_id", fence.incarnation_id)
        check_identifier(f"{what}.token", fence.token)
    check_integer(f"{what}.fencing", fence.fencing, at_least=0)
    return fence


def _next_fencing(row: LeaseRow, resource: Resource) -> int:
    if row.fencing == MAX_INTEGER:
        raise InvalidInput(f"the fencing numbers of {resource} are exhausted")
    return row.fencing + 1


def _extended(lease: Lease, now_ms: int, ttl_ms: int) -> Lease:
    expires_at_ms = max(lease.expires_at_ms, saturating_add(now_ms, ttl_ms))
    return msgspec.structs.replace(lease, expires_at_ms=expires_at_ms)
