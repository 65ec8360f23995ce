"""Rules of running effects: which caller may run one, what a replay returns, and whether a claim still holds."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from lash.base.codec import decode, encode
from lash.base.limits import check_identifier, check_integer, saturating_add
from lash.errors import (
    Conflict,
    CorruptData,
    EffectLeaseLost,
    EffectNotRecorded,
    InvalidInput,
    LeaseLost,
)
from lash.model.effect import (
    EffectBusy,
    EffectClaim,
    EffectClaimed,
    EffectError,
    EffectGroup,
    EffectRecord,
    EffectReplayed,
    EffectRun,
    EffectStatus,
    EffectUnknown,
    Envelope,
    ExecutionScope,
    OperationScope,
)
from lash.model.lease import LeaseFence, LeaseOwner, LocalProcess, process_resource, session_resource
from lash.model.scope import scope_id, scope_process_id, scope_session_id
from lash.plan.effect.effect import EncodedEffect, StoredOutcome, check_key, decode_outcome, mismatch
from lash.plan.effect.row import ClaimRow, EffectFacts, EffectRow, GroupRow, RecordedRow
from lash.plan.lease import check_any_fence, require_fence


class InsertEffect(msgspec.Struct, frozen=True):
    """The effect has no row: write it as claimed."""


class TakeEffect(msgspec.Struct, frozen=True, kw_only=True):
    """Its runner released it or died: take it with the next fencing number, if the row is unchanged."""

    row: EffectRow
    once: bool
    taken_over: bool


class Claimant(msgspec.Struct, frozen=True, kw_only=True):
    """A caller that asks for an effect, its token, and how long its claim lasts."""

    owner: LeaseOwner
    token: str
    ttl_ms: int
    attempt: int | None = None
    traceparent: str | None = None

    @property
    def process(self) -> str | None:
        """The stored form of the process that asks, if it can be described."""
        process = self.owner.process
        return None if process is None else encode(process, LocalProcess, "owner.process")


class ClaimGuard(msgspec.Struct, frozen=True, kw_only=True):
    """The values that a row must have for a claim to hold it."""

    scope_id: str
    replay_key: str
    envelope_hash: str
    token: str
    fencing: int


class WrittenClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that was just written, and whether another runner had claimed the effect."""

    row: ClaimRow
    taken_over: bool = False


EffectClaimPlan: TypeAlias = InsertEffect | TakeEffect | EffectClaimed | EffectReplayed | EffectBusy | EffectUnknown


def plan_replay(encoded: EncodedEffect, row: EffectRow | None) -> EffectReplayed:
    """Return the recorded outcome of an effect; raise EffectNotRecorded if it has none."""
    if row is not None:
        require_same(encoded, row)
        if row.status is not EffectStatus.IN_PROGRESS:
            return EffectReplayed(record=decode_record(row, encoded.envelope.scope))
    raise EffectNotRecorded(encoded.scope_id, encoded.replay_key)


def plan_effect_claim(
    encoded: EncodedEffect, row: EffectRow | None, *, token: str, once: bool, now_ms: int
) -> EffectClaimPlan:
    """Decide about an effect that a caller wants to run.

    The rules in order: no row, another envelope under the key, a recorded outcome, released by its runner, our own
    claim (an earlier try of the same call wrote it), a live runner, must not run twice, a dead runner.
    """
    if row is None:
        return InsertEffect()
    require_same(encoded, row)
    if row.status is not EffectStatus.IN_PROGRESS:
        return EffectReplayed(record=decode_record(row, encoded.envelope.scope))
    if row.token is None:
        return TakeEffect(row=row, once=once, taken_over=False)
    if row.token == token:
        return EffectClaimed(claim=claim_of(encoded, row), taken_over=row.fencing > 1)
    if is_live(row, now_ms):
        return EffectBusy(holder=_holder(row, encoded.scope_id), until_ms=row.expires_at_ms or 0)
    if row.once or once:
        return EffectUnknown(record=decode_record(row, encoded.envelope.scope))
    return TakeEffect(row=row, once=False, taken_over=True)


def decide_effect_claim(facts: EffectFacts, *, encoded: EncodedEffect, token: str, once: bool) -> EffectClaimPlan:
    """Decide about an effect that a caller wants to run; raise Conflict if its group has no room for a new one."""
    plan = plan_effect_claim(encoded, facts.row, token=token, once=once, now_ms=facts.now_ms)
    if isinstance(plan, InsertEffect):
        require_room(encoded, facts.group)
    return plan


def decide_take_over(facts: EffectFacts, *, encoded: EncodedEffect, token: str) -> TakeEffect | EffectClaimed:
    """Decide about taking an effect whose runner died, whether or not it may run twice."""
    return plan_take_over(encoded, facts.row, token=token, now_ms=facts.now_ms)


def plan_take_over(
    encoded: EncodedEffect, row: EffectRow | None, *, token: str, now_ms: int
) -> TakeEffect | EffectClaimed:
    """Decide about taking an effect whose runner died, whether or not it may run twice."""
    what = f"effect {encoded.replay_key!r} of {encoded.scope_id}"
    if row is None:
        raise EffectNotRecorded(encoded.scope_id, encoded.replay_key)
    require_same(encoded, row)
    if row.status is not EffectStatus.IN_PROGRESS:
        raise Conflict(f"{what} is {row.status} and cannot be taken over")
    if row.token == token:
        return EffectClaimed(claim=claim_of(encoded, row), taken_over=True)
    if is_live(row, now_ms):
        raise Conflict(f"{what} is running; take it over once the claim of its runner has expired")
    return TakeEffect(row=row, once=row.once, taken_over=row.token is not None)


def explain_record(encoded: EncodedEffect, fence: LeaseFence, facts: EffectFacts) -> EffectRecord | None:
    """Return the record if there is one, None if one can be written; raise the reason if it cannot."""
    if facts.lease is None:
        raise CorruptData(f"{encoded.scope_id} has no lease row")
    require_fence(facts.lease, fence, facts.now_ms)
    if facts.row is None:
        require_room(encoded, facts.group)
        return None
    require_same(encoded, facts.row)
    if facts.row.status is EffectStatus.IN_PROGRESS:
        raise Conflict(f"effect {encoded.replay_key!r} of {encoded.scope_id} has a claim; finish it under that claim")
    return decode_record(facts.row, encoded.envelope.scope)


def explain_outcome(claim: EffectClaim, stored: StoredOutcome, row: EffectRow | None) -> EffectRecord:
    """Return the record if this claim wrote the same outcome before; otherwise raise EffectLeaseLost."""
    if (
        row is None
        or (row.token, row.fencing, row.envelope_hash) != (claim.token, claim.fencing, claim.envelope_hash)
        or (row.status, row.outcome, row.error) != (stored.status, stored.outcome, stored.error)
    ):
        raise claim_lost(claim)
    return decode_record(row, claim.scope)


def require_same(encoded: EncodedEffect, row: EffectRow) -> None:
    """Raise EffectMismatch if another envelope was recorded."""
    if row.envelope_hash != encoded.hash:
        raise mismatch(encoded, row.envelope)


def require_room(encoded: EncodedEffect, group: GroupRow | None) -> None:
    """Raise Conflict if the group of an effect was not opened or is full."""
    if encoded.group_key is None:
        return
    what = f"group {encoded.group_key!r} of {encoded.scope_id}"
    if group is None:
        raise Conflict(f"{what} was not opened; effect {encoded.replay_key!r} cannot join it")
    if group.members >= group.size:
        raise Conflict(f"{what} is full with {group.size} effects; effect {encoded.replay_key!r} cannot join it")


def require_same_size(scope: ExecutionScope, group_key: str, opened: int, size: int) -> None:
    """Raise Conflict if a group was opened with another size."""
    if opened != size:
        raise Conflict(f"group {group_key!r} of {scope_id(scope)} was opened for {opened} effects, not {size}")


def is_live(row: EffectRow, now_ms: int) -> bool:
    """Return whether the effect has a live runner."""
    return row.token is not None and row.expires_at_ms is not None and row.expires_at_ms > now_ms


def due_at(encoded: EncodedEffect, now_ms: int) -> int | None:
    """Return until when an effect sleeps that starts now; None if it is not a sleep.

    PostgreSQL computes the same in its statements, since there the server's clock decides.
    """
    if encoded.duration_ms is not None:
        return saturating_add(now_ms, encoded.duration_ms)
    return encoded.until_ms


def claim_of(encoded: EncodedEffect, row: EffectRow) -> EffectClaim:
    """Return the claim in a row."""
    if row.token is None or row.expires_at_ms is None:
        raise CorruptData(f"effect {row.replay_key!r} of {encoded.scope_id} has a token but no expiry")
    written = ClaimRow(row.fencing, row.expires_at_ms, row.due_at_ms)
    return new_claim(encoded, _holder(row, encoded.scope_id), row.token, written)


def new_claim(encoded: EncodedEffect, owner: LeaseOwner, token: str, written: ClaimRow) -> EffectClaim:
    """Return the claim that was just written."""
    return EffectClaim(
        scope=encoded.envelope.scope,
        replay_key=encoded.replay_key,
        envelope_hash=encoded.hash,
        owner=owner,
        token=token,
        fencing=written.fencing,
        expires_at_ms=written.expires_at_ms,
        due_at_ms=written.due_at_ms,
    )


def renewed(claim: EffectClaim, written: ClaimRow | None) -> EffectClaim:
    """Return the claim as it was extended, or raise EffectLeaseLost if it does not hold."""
    if written is None:
        raise claim_lost(claim)
    return msgspec.structs.replace(claim, expires_at_ms=written.expires_at_ms, due_at_ms=written.due_at_ms)


def claim_lost(claim: EffectClaim) -> EffectLeaseLost:
    return EffectLeaseLost(scope_id(claim.scope), claim.replay_key)


def check_run(ran: object) -> EffectRun:
    """Return how an effect ran; raise InvalidInput if it is not valid."""
    if not isinstance(ran, EffectRun):
        raise InvalidInput(f"expected an EffectRun, got {type(ran).__name__}")
    check_integer("ran.took_ms", ran.took_ms, at_least=0)
    check_integer("ran.tries", ran.tries, at_least=1)
    check_attempt("ran.attempt", ran.attempt)
    check_traceparent("ran.traceparent", ran.traceparent)
    return ran


def check_attempt(what: str, attempt: object) -> int | None:
    """Return the number of an attempt, or None if it is not known; raise InvalidInput if it is not valid."""
    return None if attempt is None else check_integer(what, attempt, at_least=1)


def check_traceparent(what: str, traceparent: object) -> str | None:
    """Return a trace context, or None if there is none; raise InvalidInput if it cannot be stored."""
    return None if traceparent is None else check_identifier(what, traceparent)


def new_record(
    encoded: EncodedEffect, stored: StoredOutcome, written: RecordedRow, ran: EffectRun, worker: str
) -> EffectRecord:
    """Return the effect that was just recorded."""
    row = EffectRow(
        replay_key=encoded.replay_key,
        envelope=encoded.text,
        envelope_hash=encoded.hash,
        status=stored.status,
        outcome=stored.outcome,
        error=stored.error,
        once=False,
        owner_id=None,
        incarnation_id=None,
        process=None,
        token=None,
        fencing=0,
        expires_at_ms=None,
        due_at_ms=written.due_at_ms,
        settled_rank=written.settled_rank,
        created_at_ms=written.now_ms,
        updated_at_ms=written.now_ms,
        began_at_ms=written.now_ms - ran.took_ms,
        attempt=ran.attempt,
        tries=ran.tries,
        worker=worker,
        traceparent=ran.traceparent,
    )
    return _record(row, encoded.envelope.scope, encoded.envelope, encoded.scope_id)


def decode_record(row: EffectRow, scope: ExecutionScope) -> EffectRecord:
    """Return the effect that a row stores, or raise CorruptData."""
    name = scope_id(scope)
    what = f"effect {row.replay_key!r} of {name}"
    envelope = decode(row.envelope, Envelope, f"the envelope of {what}")
    if (envelope.scope, envelope.replay_key) != (scope, row.replay_key):
        raise CorruptData(f"the envelope of {what} is that of another effect")
    return _record(row, scope, envelope, name)


def decode_group(scope: ExecutionScope, group_key: str, group: GroupRow, finished: list[str]) -> EffectGroup:
    """Return the group that a row stores; ``finished`` has the keys of its finished effects, by rank."""
    counted, found = group.settled, len(finished)
    if found != counted:
        raise CorruptData(f"group {group_key!r} of {scope_id(scope)} counts {counted} finished effects and has {found}")
    return EffectGroup(scope=scope, group_key=group_key, size=group.size, settled=tuple(finished))


def guard_of(claim: EffectClaim) -> ClaimGuard:
    """Return the values that a row must have for the claim to hold it; raise InvalidInput if a field is not valid."""
    return ClaimGuard(
        scope_id=check_effect_claim(claim),
        replay_key=claim.replay_key,
        envelope_hash=claim.envelope_hash,
        token=claim.token,
        fencing=claim.fencing,
    )


def check_effect_claim(claim: object) -> str:
    """Return the id of the claim's scope; raise InvalidInput if a field is not valid."""
    if not isinstance(claim, EffectClaim):
        raise InvalidInput(f"claim must be an EffectClaim, not {type(claim).__name__}")
    name = check_key(claim.scope, claim.replay_key)
    check_identifier("claim.envelope_hash", claim.envelope_hash)
    check_identifier("claim.token", claim.token)
    check_integer("claim.fencing", claim.fencing, at_least=1)
    return name


def name_claim(claim: EffectClaim) -> str:
    """Return the name of a claimed effect for error messages; raise InvalidInput if a field is not valid."""
    name = check_effect_claim(claim)
    return f"effect {claim.replay_key!r} of {name}"


def check_scope_fence(scope: ExecutionScope, fence: object) -> LeaseFence:
    """Return the fence, or raise LeaseLost unless it is that of the scope's session or process."""
    if isinstance(scope, OperationScope):
        raise InvalidInput(f"{scope_id(scope)} has no lease under which to record; use claim and finish")
    held = check_any_fence("fence", fence)
    session_id = scope_session_id(scope)
    resource = process_resource(scope_process_id(scope) or "") if session_id is None else session_resource(session_id)
    if held.resource != resource:
        raise LeaseLost(resource, f"the fence is that of {held.resource}")
    return held


def _record(row: EffectRow, scope: ExecutionScope, envelope: Envelope, name: str) -> EffectRecord:
    what = f"effect {row.replay_key!r} of {name}"
    if (row.outcome is not None, row.error is not None) != (
        row.status is EffectStatus.COMPLETED,
        row.status is EffectStatus.FAILED,
    ):
        raise CorruptData(f"{what} is {row.status} and must have exactly the outcome or the error of that status")
    return EffectRecord(
        scope=scope,
        replay_key=row.replay_key,
        kind=str(envelope.command.__struct_config__.tag),
        envelope=envelope,
        envelope_hash=row.envelope_hash,
        status=row.status,
        outcome=None if row.outcome is None else decode_outcome(row.outcome, what),
        error=None if row.error is None else decode(row.error, EffectError, f"the error of {what}"),
        once=row.once,
        due_at_ms=row.due_at_ms,
        owner=None if row.token is None else _holder(row, name),
        fencing=row.fencing,
        expires_at_ms=row.expires_at_ms,
        settled_rank=row.settled_rank,
        created_at_ms=row.created_at_ms,
        updated_at_ms=row.updated_at_ms,
        began_at_ms=row.began_at_ms,
        attempt=row.attempt,
        tries=row.tries,
        worker=row.worker if row.worker is not None else row.owner_id,
        traceparent=row.traceparent,
    )


def _holder(row: EffectRow, scope: str) -> LeaseOwner:
    if row.owner_id is None or row.incarnation_id is None:
        raise CorruptData(f"effect {row.replay_key!r} of {scope} has a token but no holder")
    what = f"the holder of effect {row.replay_key!r} of {scope}"
    process = None if row.process is None else decode(row.process, LocalProcess, what)
    return LeaseOwner(owner_id=row.owner_id, incarnation_id=row.incarnation_id, process=process)
