"""The expected behaviour of effects: run at least once, recorded exactly once."""

from __future__ import annotations

import dataclasses

from lash.model.effect import (
    EffectBusy,
    EffectClaim,
    EffectClaimed,
    EffectDecision,
    EffectError,
    EffectGroup,
    EffectRecord,
    EffectReplayed,
    EffectStatus,
    EffectUnknown,
    Envelope,
    ExecutionScope,
    OperationScope,
    ProcessScope,
    Sleep,
)
from lash.model.lease import LeaseOwner
from lash.model.value import JSON
from tests.proof.model.kit import Refused

WORKER = "worker"
"""The owner of every lease in the rules."""


@dataclasses.dataclass(eq=False)
class Effect:
    """One effect, from its first begin until its scope is forgotten."""

    envelope: Envelope
    created: int
    updated: int
    due: int | None
    once: bool = False
    status: EffectStatus = EffectStatus.IN_PROGRESS
    outcome: JSON = None
    error: EffectError | None = None
    owner: LeaseOwner | None = None
    is_held: bool = False
    """Whether it is claimed, live or expired."""
    fencing: int = 0
    expires: int | None = None
    rank: int | None = None
    began: int | None = None
    tries: int | None = None
    worker: str | None = None
    """The owner of the lease under which it was recorded without a claim."""

    def record(self) -> EffectRecord:
        return EffectRecord(
            scope=self.envelope.scope,
            replay_key=self.envelope.replay_key,
            kind=str(self.envelope.command.__struct_config__.tag),
            envelope=self.envelope,
            envelope_hash="",
            status=self.status,
            outcome=self.outcome,
            error=self.error,
            once=self.once,
            due_at_ms=self.due,
            owner=self.owner,
            fencing=self.fencing,
            expires_at_ms=self.expires,
            settled_rank=self.rank,
            created_at_ms=self.created,
            updated_at_ms=self.updated,
            began_at_ms=self.began,
            tries=self.tries,
            worker=self.worker if self.owner is None else self.owner.owner_id,
        )


@dataclasses.dataclass(eq=False)
class Group:
    size: int
    members: int = 0
    settled: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, eq=False)
class Claimed:
    """One claim, as its holder remembers it."""

    effect: Effect
    fencing: int


@dataclasses.dataclass(eq=False)
class Lease:
    """A lease of a session or a process: its number, and its expiry; None while it is free."""

    fencing: int = 0
    expires: int | None = None


class EffectModel:
    """The effects of all scopes. The machine adds and removes the sessions and processes."""

    def __init__(self) -> None:
        self.leases: dict[str, Lease] = {}
        """By owner: ``session:…`` or ``process:…``."""
        self.deleted: set[str] = set()
        self.gone_fencing: dict[str, int] = {}
        """The last number of each lease whose session or process is gone."""
        self.effects: dict[tuple[ExecutionScope, str], Effect] = {}
        self.groups: dict[tuple[ExecutionScope, str], Group] = {}

    def claim(
        self, envelope: Envelope, owner: LeaseOwner, ttl: int, now: int, *, once: bool, strict: bool
    ) -> EffectDecision:
        self._require_owner(envelope.scope)
        effect = self._known(envelope)
        if effect is not None and effect.status is not EffectStatus.IN_PROGRESS:
            return EffectReplayed(record=effect.record())
        if strict:
            raise Refused("EffectNotRecorded")
        if effect is None:
            effect = self._new(envelope, now)
            self._join(envelope)
            self.effects[envelope.scope, envelope.replay_key] = effect
            effect.once = once
            return EffectClaimed(claim=self._take(effect, owner, now, ttl))
        if not effect.is_held:
            effect.once = once
            return EffectClaimed(claim=self._take(effect, owner, now, ttl))
        assert effect.owner is not None
        assert effect.expires is not None
        if effect.expires > now:
            return EffectBusy(holder=effect.owner, until_ms=effect.expires)
        if effect.once or once:
            return EffectUnknown(record=effect.record())
        return EffectClaimed(claim=self._take(effect, owner, now, ttl), taken_over=True)

    def take_over(self, envelope: Envelope, owner: LeaseOwner, ttl: int, now: int) -> EffectClaim:
        self._require_owner(envelope.scope)
        effect = self._known(envelope)
        if effect is None:
            raise Refused("EffectNotRecorded")
        if effect.status is not EffectStatus.IN_PROGRESS or self._is_live(effect, now):
            raise Refused("Conflict")
        return self._take(effect, owner, now, ttl)

    def record(
        self, envelope: Envelope, holder: str, fencing: int, outcome: JSON | EffectError, now: int
    ) -> EffectRecord:
        """Record under the lease of ``holder`` that had this number."""
        mine = owner_of(envelope.scope)
        if mine is None:
            raise Refused("InvalidInput")
        if holder != mine:
            raise Refused("LeaseLost")
        self._require_owner(envelope.scope)
        lease = self.leases[mine]
        if lease.fencing != fencing or lease.expires is None or lease.expires <= now:
            raise Refused("LeaseLost")
        effect = self._known(envelope)
        if effect is None:
            effect = self._new(envelope, now)
            self._join(envelope)
            self.effects[envelope.scope, envelope.replay_key] = effect
            effect.began, effect.tries, effect.worker = now, 1, WORKER
            self._settle(effect, outcome, now)
        elif effect.status is EffectStatus.IN_PROGRESS:
            raise Refused("Conflict")
        return effect.record()

    def renew(self, claim: Claimed, ttl: int, now: int) -> int:
        """Return until when the claim is live."""
        if not self.holds(claim):
            raise Refused("EffectLeaseLost")
        claim.effect.expires = max(claim.effect.expires or 0, now + ttl)
        claim.effect.updated = now
        return claim.effect.expires

    def finish(self, claim: Claimed, outcome: JSON | EffectError, now: int) -> EffectRecord:
        effect = claim.effect
        if self.holds(claim):
            self._settle(effect, outcome, now)
            return effect.record()
        wanted = (None, outcome) if isinstance(outcome, EffectError) else (outcome, None)
        is_repeat = (
            self._is_stored(effect)
            and effect.status is not EffectStatus.IN_PROGRESS
            and effect.fencing == claim.fencing
            and (effect.outcome, effect.error) == wanted
            and (effect.status is EffectStatus.FAILED) == isinstance(outcome, EffectError)
        )
        if not is_repeat:
            raise Refused("EffectLeaseLost")
        return effect.record()

    def release(self, claim: Claimed, now: int) -> bool:
        effect = claim.effect
        if not self.holds(claim):
            return False
        effect.owner, effect.is_held, effect.expires, effect.updated = None, False, None, now
        return True

    def holds(self, claim: Claimed) -> bool:
        """Return whether a claim is still the one on its effect, live or expired."""
        effect = claim.effect
        is_open = self._is_stored(effect) and effect.status is EffectStatus.IN_PROGRESS
        return is_open and effect.is_held and effect.fencing == claim.fencing

    def get(self, scope: ExecutionScope, key: str) -> EffectRecord | None:
        self._require_owner(scope)
        effect = self.effects.get((scope, key))
        return None if effect is None else effect.record()

    def list(self, scope: ExecutionScope) -> list[EffectRecord]:
        self._require_owner(scope)
        mine = {key: effect for (where, key), effect in self.effects.items() if where == scope}
        return [mine[key].record() for key in sorted(mine)]

    def open_group(self, scope: ExecutionScope, key: str, size: int) -> EffectGroup:
        self._require_owner(scope)
        group = self.groups.setdefault((scope, key), Group(size))
        if group.size != size:
            raise Refused("Conflict")
        return EffectGroup(scope=scope, group_key=key, size=size, settled=tuple(group.settled))

    def group(self, scope: ExecutionScope, key: str) -> EffectGroup | None:
        self._require_owner(scope)
        group = self.groups.get((scope, key))
        if group is None:
            return None
        return EffectGroup(scope=scope, group_key=key, size=group.size, settled=tuple(group.settled))

    def retire(self, scope: ExecutionScope) -> int:
        gone = [place for place in self.effects if place[0] == scope]
        for place in gone:
            del self.effects[place]
        self.groups = {place: group for place, group in self.groups.items() if place[0] != scope}
        return len(gone)

    def add_owner(self, name: str) -> None:
        """Add a session or a process, unless it exists."""
        if name not in self.leases:
            self.leases[name] = Lease(self.gone_fencing.get(name, 0))

    def remove_owner(self, name: str) -> None:
        """Forget a session or a process with all its scopes."""
        self.gone_fencing[name] = self.leases.pop(name).fencing
        self.deleted.add(name)
        for scope in {place[0] for place in (*self.effects, *self.groups) if owner_of(place[0]) == name}:
            self.retire(scope)

    def _require_owner(self, scope: ExecutionScope) -> None:
        name = owner_of(scope)
        if name is None or name in self.leases:
            return
        if isinstance(scope, ProcessScope):
            raise Refused("ProcessPruned" if name in self.deleted else "ProcessNotFound")
        raise Refused("SessionDeleted" if name in self.deleted else "SessionNotFound")

    def _known(self, envelope: Envelope) -> Effect | None:
        effect = self.effects.get((envelope.scope, envelope.replay_key))
        if effect is not None and effect.envelope != envelope:
            raise Refused("EffectMismatch")
        return effect

    def _join(self, envelope: Envelope) -> None:
        if envelope.group_key is None:
            return
        group = self.groups.get((envelope.scope, envelope.group_key))
        if group is None or group.members >= group.size:
            raise Refused("Conflict")
        group.members += 1

    def _new(self, envelope: Envelope, now: int) -> Effect:
        command, due = envelope.command, None
        if isinstance(command, Sleep):
            due = command.until_ms if command.duration_ms is None else now + command.duration_ms
        return Effect(envelope, now, now, due)

    def _take(self, effect: Effect, owner: LeaseOwner, now: int, ttl: int) -> EffectClaim:
        effect.owner, effect.is_held, effect.expires = owner, True, now + ttl
        effect.fencing += 1
        effect.updated = effect.began = now
        return EffectClaim(
            scope=effect.envelope.scope,
            replay_key=effect.envelope.replay_key,
            envelope_hash="",
            owner=owner,
            token="",
            fencing=effect.fencing,
            expires_at_ms=now + ttl,
            due_at_ms=effect.due,
        )

    def _settle(self, effect: Effect, outcome: JSON | EffectError, now: int) -> None:
        is_error = isinstance(outcome, EffectError)
        effect.status = EffectStatus.FAILED if is_error else EffectStatus.COMPLETED
        effect.error = outcome if isinstance(outcome, EffectError) else None
        effect.outcome = None if isinstance(outcome, EffectError) else outcome
        effect.expires, effect.updated = None, now
        key = effect.envelope.group_key
        if key is not None:
            group = self.groups[effect.envelope.scope, key]
            group.settled.append(effect.envelope.replay_key)
            effect.rank = len(group.settled)

    def _is_stored(self, effect: Effect) -> bool:
        return self.effects.get((effect.envelope.scope, effect.envelope.replay_key)) is effect

    def _is_live(self, effect: Effect, now: int) -> bool:
        return effect.is_held and effect.expires is not None and effect.expires > now


def owner_of(scope: ExecutionScope) -> str | None:
    """Return the session or process that a scope belongs to; None for an operation."""
    if isinstance(scope, OperationScope):
        return None
    if isinstance(scope, ProcessScope):
        return f"process:{scope.process_id}"
    return f"session:{scope.session_id}"
