"""The contract of effects: run at least once, recorded exactly once."""

from __future__ import annotations

from typing import Protocol

from lash.model.effect import (
    EffectClaim,
    EffectDecision,
    EffectError,
    EffectGroup,
    EffectRecord,
    Envelope,
    ExecutionScope,
)
from lash.model.lease import LeaseFence, LeaseOwner
from lash.model.value import JSON


class EffectStore(Protocol):
    """The recorded effects of a storage. What is recorded is never executed again, and never changes.

    Every method that is given an envelope raises EffectMismatch, and writes nothing, if another one was recorded under
    its key; the error names the first path that differs and both values. A scope whose session or process is not there
    raises SessionNotFound, SessionDeleted, ProcessNotFound or ProcessPruned; a claim on an effect of such a scope is
    lost like any other.
    """

    async def begin(
        self, envelope: Envelope, owner: LeaseOwner, *, ttl_ms: int, once: bool = False, strict: bool = False
    ) -> EffectDecision:
        """Decide whether to run an effect, and take the right to, if so. The same owner may not run it twice at a time.

        ``once`` records the intent of an effect that must not run twice: after a crash it is unknown, not taken over.
        ``strict`` never runs anything: what has no recorded outcome raises EffectNotRecorded. An effect of a group that
        was not opened or is full raises Conflict.
        """
        ...

    async def record(self, fence: LeaseFence, envelope: Envelope, outcome: JSON | EffectError) -> EffectRecord:
        """Record what became of an effect that was run under an exclusive lease: one write, no claim before it.

        The fence must be live and belong to the envelope's scope, else LeaseLost. If an equal
        effect was recorded before, that record is returned and nothing is written; one that was begun under a claim
        raises Conflict. The due time of a sleep is counted from the clock of the storage.
        """
        ...

    async def renew(self, claim: EffectClaim, *, ttl_ms: int) -> EffectClaim:
        """Extend a live claim, never shorten it; raise EffectLeaseLost if it was taken over, lapsed or settled."""
        ...

    async def finish(self, claim: EffectClaim, outcome: JSON) -> EffectRecord:
        """Record the outcome under a live claim; raise EffectLeaseLost, and change nothing, if it does not hold.

        Repeated with the same claim and an equal outcome it returns the record, so that an answer may be lost.
        """
        ...

    async def fail(self, claim: EffectClaim, error: EffectError) -> EffectRecord:
        """Record that the effect failed for good, as ``finish`` does. Trouble of the infrastructure is released."""
        ...

    async def release(self, claim: EffectClaim) -> bool:
        """Give the right back without an outcome, so that anybody may run the effect; return whether it was still held.

        It may have lapsed, if nobody took the effect over. An effect that must not run twice is then as if it had never
        begun: release it only if it did not happen.
        """
        ...

    async def take_over(self, envelope: Envelope, owner: LeaseOwner, *, ttl_ms: int) -> EffectClaim:
        """Take an effect whose runner is gone, also one that must not run twice: the caller has looked it up.

        Raises EffectNotRecorded if nobody began it, Conflict if it is settled or its runner is live.
        """
        ...

    async def get(self, scope: ExecutionScope, replay_key: str) -> EffectRecord | None:
        """Return the record of one effect."""
        ...

    async def list(
        self, scope: ExecutionScope, *, limit: int = 1_000, after: str | None = None
    ) -> tuple[EffectRecord, ...]:
        """Return the effects of a scope by their replay keys. ``after`` goes on behind a key."""
        ...

    async def retire(self, scope: ExecutionScope) -> int:
        """Forget the effects and groups of a scope that has ended, and return how many effects that were.

        Commits do it for their turn, pruning for processes, deletion for all scopes of a session; of a scope that is
        gone nothing is left to forget. What is still running then loses its claim.
        """
        ...

    async def open_group(self, scope: ExecutionScope, group_key: str, *, size: int) -> EffectGroup:
        """Open a group, or return the one that was opened equally; another size raises Conflict."""
        ...

    async def group(self, scope: ExecutionScope, group_key: str) -> EffectGroup | None:
        """Return a group with what has settled, in the order in which it did."""
        ...
