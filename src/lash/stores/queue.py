"""The contract of queued work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lash.model.lease import LeaseFence, LeaseOwner
from lash.model.queue import Batch, BatchDraft, Boundary, Claim, ClaimOutcome, ClaimTurnOutcome, DeadLetter, Enqueued
from lash.model.value import JSON


class QueueStore(Protocol):
    """What waits for the sessions of a storage, in order, neither lost nor handled twice.

    A batch is *claimed* while a claim holds it that has not run out and whose lease is still the session's; then
    nobody else can claim or cancel it. A claim that has run out, and that nobody else took, still completes. All
    methods raise SessionNotFound or SessionDeleted where there is no session.
    """

    async def enqueue(self, draft: BatchDraft) -> Enqueued:
        """Add work to the end of the queue; durable once this returns.

        Under a known source key nothing is added: the answer tells of the first batch, also after it was consumed,
        cancelled or buried. Other content under the same key raises SourceKeyConflict.
        """
        ...

    async def claim(self, fence: LeaseFence, *, boundary: Boundary, ttl_ms: int, max_batches: int = 64) -> ClaimOutcome:
        """Claim the next group of turn work under a live lease, whole, or say why there is none.

        The group is the first batch that is ready at this boundary and those directly behind it that share its
        delivery and merge key; an exclusive batch, or one without a merge key, comes alone. At a checkpoint only
        early work counts, and it does not wait behind later work. Nothing overtakes an earlier ready command.
        """
        ...

    async def claim_turn(self, session_id: str, owner: LeaseOwner, *, ttl_ms: int) -> ClaimTurnOutcome:
        """Take the lease of a session and claim the next group of turn work under it, in one write: both or neither.

        The group is that of an idle ``claim``, and the lease that of a claim of `LeaseStore`, but only if it is free
        or lapsed: a live one is Busy, also to its holder. A session that pauses is left alone. The answer tells besides
        what a worker would ask next.
        """
        ...

    async def claim_command(self, fence: LeaseFence, *, ttl_ms: int) -> ClaimOutcome:
        """Claim the session command at the head of the queue, if turn work does not come first."""
        ...

    async def claim_batches(self, fence: LeaseFence, batch_ids: Sequence[str], *, ttl_ms: int) -> ClaimOutcome:
        """Claim exactly these batches, if they are what an idle claim of as many would get; else change nothing."""
        ...

    async def renew(self, claim: Claim, *, ttl_ms: int) -> Claim:
        """Extend a claim, never shorten it; raise ClaimLost, and change nothing, if a batch of it was taken."""
        ...

    async def abandon(self, claim: Claim, *, count_attempt: bool = True) -> int:
        """Give back what the claim still holds, and return how many batches that were.

        With ``count_attempt=False`` the claim does not count as an attempt: the work was stopped, it did not fail.
        """
        ...

    async def bury(self, claim: Claim, *, reason: str, error: JSON = None) -> int:
        """Move what the claim holds out of the queue to the dead letters, and return how many batches that were.

        It holds all that it was made for, or this raises ClaimLost and changes nothing; a claim that has run out and
        that nobody took is still buried. Burying a claim again does nothing and answers the same. Source keys stay
        reserved, and wakes stay unacknowledged.
        """
        ...

    async def dead(
        self, *, session_id: str | None = None, limit: int = 100, after: int | None = None
    ) -> tuple[DeadLetter, ...]:
        """Return dead letters in the order in which they died, of one session or of all.

        ``after`` goes on behind the ``place`` of a letter of an earlier answer.
        """
        ...

    async def requeue(self, session_id: str, batch_id: str) -> Batch:
        """Put a dead letter back to the end of the queue, under the same id, with no attempts counted.

        Raises DeadLetterNotFound if there is none, so that of two who try, one succeeds.
        """
        ...

    async def discard(self, session_id: str, batch_id: str) -> bool:
        """Remove a dead letter for good and return whether it was there.

        Its source key and its wake are then as those of a cancelled batch.
        """
        ...

    async def cancel(self, session_id: str, batch_id: str) -> Batch | None:
        """Remove a batch that nobody has claimed, and return it; None if it is claimed or not there."""
        ...

    async def list(self, session_id: str, *, limit: int = 1_000, after_seq: int = 0) -> tuple[Batch, ...]:
        """Return what is queued, in order, claimed or not."""
        ...

    async def list_pending(self, session_id: str, *, limit: int = 1_000, after_seq: int = 0) -> tuple[Batch, ...]:
        """Return what is queued and not claimed, delayed work included."""
        ...

    async def ready_sessions(self, *, limit: int = 100, after: str | None = None) -> tuple[str, ...]:
        """Return sessions that have ready work and no live lease, so that a worker knows where to look.

        The cost does not depend on how much is queued. ``after`` goes on behind a session of an earlier answer.
        """
        ...
