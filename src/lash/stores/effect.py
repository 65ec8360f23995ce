"""The contract of effects: run at least once, recorded exactly once; and the rows that a backend keeps for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from lash.model.effect import (
    EffectClaim,
    EffectClaimed,
    EffectDecision,
    EffectError,
    EffectGroup,
    EffectRecord,
    EffectRun,
    Envelope,
    ExecutionScope,
)
from lash.model.lease import LeaseFence, LeaseOwner
from lash.model.value import JSON

if TYPE_CHECKING:
    # Only backends use these; without them, import lash stays light.
    from lash.plan.effect.claim import Claimant, ClaimGuard, EffectClaimPlan, TakeEffect, WrittenClaim
    from lash.plan.effect.effect import EncodedEffect, StoredOutcome
    from lash.plan.effect.row import ClaimRow, EffectFacts, EffectRow, GroupState, NumberedEffect, RecordedRow


class EffectStore(Protocol):
    """The recorded effects of a storage. A recorded outcome is never executed again and never changes.

    Every method that takes an envelope raises EffectMismatch, and writes nothing, if another one was recorded under its
    key; the error names the first path that differs and both values. A scope whose session or process does not exist
    raises SessionNotFound, SessionDeleted, ProcessNotFound or ProcessPruned. A claim on an effect of such a scope is
    lost like any other.
    """

    async def claim(
        self,
        envelope: Envelope,
        owner: LeaseOwner,
        *,
        ttl_ms: int,
        once: bool = False,
        strict: bool = False,
        token: str | None = None,
        attempt: int | None = None,
        traceparent: str | None = None,
    ) -> EffectDecision:
        """Decide whether to run an effect, and claim it if so. The same owner cannot run it twice at the same time.

        ``once`` records the intent of an effect that must not run twice: after a crash it is unknown, not taken over.
        ``strict`` never runs anything: an effect without a recorded outcome raises EffectNotRecorded. An effect of a
        group that was not opened or is full raises Conflict. ``token`` identifies the call: one that repeats a call
        whose answer was lost, with the same token, gets the claim that the first one made. Without it every call is
        another. ``attempt`` is the attempt of the turn or process that runs it, and ``traceparent`` the span of
        that attempt; both are for the record and have no part in the identity.
        """
        ...

    async def record(
        self, fence: LeaseFence, envelope: Envelope, outcome: JSON | EffectError, *, ran: EffectRun = ...
    ) -> EffectRecord:
        """Record the outcome of an effect that ran under an exclusive lease: one write, without a claim before it.

        The fence must be live and belong to the envelope's session or process, else LeaseLost. Idempotent: if an equal
        effect was recorded before, that record is returned and nothing is written. An effect that has a claim
        raises Conflict. The due time of a sleep is counted by the clock of the storage. ``ran`` is kept with the
        record: the effect began so long before the moment at which it is recorded. It has no part in the identity.
        """
        ...

    async def renew(self, claim: EffectClaim, *, ttl_ms: int) -> EffectClaim:
        """Extend a claim, expired or not, never shorten it; raise EffectLeaseLost if it was taken over or finished."""
        ...

    async def finish(self, claim: EffectClaim, outcome: JSON) -> EffectRecord:
        """Record the outcome under a claim; raise EffectLeaseLost, and change nothing, if it does not hold.

        An expired claim holds until another caller takes the effect over. Idempotent: the same claim and an equal
        outcome return the same record, so a lost answer can be retried.
        """
        ...

    async def fail(self, claim: EffectClaim, error: EffectError) -> EffectRecord:
        """Record a permanent failure, as ``finish`` records an outcome. After an outage, ``release`` instead."""
        ...

    async def release(self, claim: EffectClaim) -> bool:
        """Give the claim up without an outcome, so that any caller may run the effect; return whether it was held.

        An expired claim can be released if no other caller took the effect over. An effect that must not run twice then
        counts as never claimed: release it only if it did not happen.
        """
        ...

    async def take_over(self, envelope: Envelope, owner: LeaseOwner, *, ttl_ms: int) -> EffectClaim:
        """Take an effect whose runner died, also one that must not run twice: the caller has looked up what happened.

        Raises EffectNotRecorded if it was never claimed, Conflict if it has finished or its runner is live.
        """
        ...

    async def get(self, scope: ExecutionScope, replay_key: str) -> EffectRecord | None:
        """Return the record of one effect."""
        ...

    async def get_many(self, names: Sequence[tuple[ExecutionScope, str]]) -> tuple[EffectRecord | None, ...]:
        """Return the records of at most 1,000 effects of any scopes, each named by scope and replay key, in one read.

        They come in the order of the names; None stands for an effect that has no record, also if its session or
        process does not exist.
        """
        ...

    async def list(
        self, scope: ExecutionScope, *, limit: int = 1_000, after: str | None = None
    ) -> tuple[EffectRecord, ...]:
        """Return at most ``limit`` effects of a scope, ordered by replay key.

        ``after`` is the last key of the previous page. A page with fewer than ``limit`` is the last.
        """
        ...

    async def recent(self, scope: ExecutionScope, count: int) -> tuple[EffectRecord, ...]:
        """Return the last effects of a scope to be begun or recorded, at most 1,000, the newest first.

        It reads the time of every effect of the scope, and the content of the returned ones.
        """
        ...

    async def retire(self, scope: ExecutionScope) -> int:
        """Delete the effects and groups of a scope that has ended, and return the number of effects.

        Commits do this for their turn, pruning for processes, deletion for all scopes of a session. An effect that is
        still running loses its claim. A scope that does not exist has none: 0.
        """
        ...

    async def open_group(self, scope: ExecutionScope, group_key: str, *, size: int) -> EffectGroup:
        """Open a group, or return the one that exists; another size raises Conflict."""
        ...

    async def group(self, scope: ExecutionScope, group_key: str) -> EffectGroup | None:
        """Return a group with its finished effects, in the order in which they finished."""
        ...


class EffectRows(Protocol):
    """The effects of one database; `lash.backend.effect.Effects` makes an `EffectStore` of them.

    Arguments are checked and encoded. A method with a decision calls it with facts from one moment and writes only if
    they still hold; otherwise it reads and decides again.
    """

    async def claim(
        self, effect: EncodedEffect, claimant: Claimant, *, once: bool, decide: Callable[[EffectFacts], EffectClaimPlan]
    ) -> WrittenClaim | EffectDecision:
        """Insert the effect, or take it over, under a claim, as ``decide`` says; otherwise return its answer.

        A backend may insert an effect that has no row before it calls ``decide``. Raises if the session or process of
        the scope does not exist.
        """
        ...

    async def take_over(
        self, effect: EncodedEffect, claimant: Claimant, decide: Callable[[EffectFacts], TakeEffect | EffectClaimed]
    ) -> WrittenClaim | EffectClaimed:
        """Take the effect as ``decide`` says; return its answer if the claimant has it already."""
        ...

    async def facts(self, effect: EncodedEffect) -> EffectFacts:
        """Return the row of an effect and the time; raise if its session or process does not exist."""
        ...

    async def record(
        self,
        effect: EncodedEffect,
        fence: LeaseFence,
        stored: StoredOutcome,
        ran: EffectRun,
        explain: Callable[[EffectFacts], EffectRecord | None],
    ) -> RecordedRow | EffectRecord:
        """Insert the effect with its outcome if the fence holds its lease and there is no row; else ``explain``."""
        ...

    async def renew(self, guard: ClaimGuard, ttl_ms: int) -> ClaimRow | None:
        """Extend a claim, expired or not; None if it does not hold."""
        ...

    async def finish(self, guard: ClaimGuard, stored: StoredOutcome) -> EffectRow | None:
        """Write the outcome and the rank in the group under a claim, expired or not; None if it does not hold."""
        ...

    async def release(self, guard: ClaimGuard) -> bool:
        """Free the effect if the claim still has it, expired or not."""
        ...

    async def row(self, scope_id: str, replay_key: str) -> EffectRow | None: ...

    async def rows(self, names: Sequence[tuple[str, str]]) -> Sequence[NumberedEffect]:
        """Return the effects that exist, of scope ids and replay keys; each has its place among the names, from 0."""
        ...

    async def page(self, scope: ExecutionScope, after: str, limit: int) -> Sequence[EffectRow]:
        """Return effects by replay key; raise if the session or process of the scope does not exist."""
        ...

    async def recent(self, scope: ExecutionScope, limit: int) -> Sequence[EffectRow]:
        """Return the last effects to change; raise if the session or process of the scope does not exist."""
        ...

    async def retire(self, scope_id: str) -> int: ...

    async def open_group(self, scope: ExecutionScope, group_key: str, size: int) -> bool:
        """Open a group unless there is one of this key, and return whether it was opened."""
        ...

    async def group(self, scope_id: str, group_key: str) -> GroupState | None: ...

    async def require_owner(self, scope: ExecutionScope) -> None:
        """Raise if the session or process of the scope does not exist."""
        ...
