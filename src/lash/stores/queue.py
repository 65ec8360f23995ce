"""The contract of queued work, and the rows that a backend keeps for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from lash.model.lease import Busy, LeaseFence, LeaseOwner
from lash.model.queue import (
    Batch,
    BatchDraft,
    Boundary,
    Claim,
    ClaimedTurn,
    ClaimOutcome,
    ClaimTurnOutcome,
    DeadLetter,
    Enqueued,
    NothingClaimed,
    QueuedBatch,
    QueuedState,
)
from lash.model.value import JSON

if TYPE_CHECKING:
    # Only backends use these; without them, import lash stays light.
    from lash.plan.queue.claim import ClaimedRows, DecideClaim, HeadRequest, NewClaim, QueueHead
    from lash.plan.queue.claim_turn import BegunTurn, ClaimedTurnRows, NewLease, TurnClaim, TurnClaimDecision
    from lash.plan.queue.dead_letter import Burial, DeadLetterRow
    from lash.plan.queue.page import PreparedQueuePage, QueuedRow
    from lash.plan.queue.queue import BatchRow, EncodedBatch, KnownKey
    from lash.plan.session.page import IdRange


class QueueStore(Protocol):
    """The queued work of a storage, in order for each session; no batch is lost or consumed twice.

    A batch is *claimed* while a live claim holds it: one that has not expired and was made under the session's current
    lease. No other caller can claim or cancel it then. An expired claim still completes if no other claim took its
    batches. All methods that name a session raise SessionNotFound or SessionDeleted if it does not exist.
    """

    async def enqueue(self, draft: BatchDraft) -> Enqueued:
        """Add work to the end of the queue; durable once this returns.

        Idempotent under a source key: a repeat adds nothing and returns the state of the first batch, also after it
        was consumed, cancelled or buried. Other content under the same key raises SourceKeyConflict; the agent that a
        message names is not part of its content.
        """
        ...

    async def claim(self, fence: LeaseFence, *, boundary: Boundary, ttl_ms: int, max_batches: int = 64) -> ClaimOutcome:
        """Claim the next group of turn work under a live lease, all of it, or return why there is none.

        The group is the first batch that is ready at this boundary and the batches directly behind it that share its
        delivery and merge key. An exclusive batch, or one without a merge key, is a group of its own. At a checkpoint
        only early work counts, and it does not wait behind later work. Nothing overtakes an earlier ready command.
        """
        ...

    async def claim_turn(self, session_id: str, owner: LeaseOwner, *, ttl_ms: int) -> ClaimTurnOutcome:
        """Take the lease of a session and claim the next group of turn work under it, both or neither, in one write.

        The group is that of an idle ``claim``. The lease must be free or lapsed: a live one is Busy, also to its
        holder. A paused session yields NothingClaimed. The answer includes the session's revision and whether an
        earlier attempt left recorded effects, so a worker needs no other read to start.
        """
        ...

    async def enqueue_and_claim(
        self, draft: BatchDraft, owner: LeaseOwner, *, ttl_ms: int
    ) -> tuple[Enqueued, ClaimedTurn | None]:
        """Enqueue a batch and begin the turn of its session with it, in one write, if nothing comes before it.

        The rows are those of ``enqueue`` and ``claim_turn``. The batch is only enqueued, and nothing is claimed, if the
        session has other queued work, claimed or delayed work included, if its lease is not free, if it was paused or
        parked, if the batch is delayed or a command, or if its source key is known.
        """
        ...

    async def claim_command(self, fence: LeaseFence, *, ttl_ms: int) -> ClaimOutcome:
        """Claim the session command at the head of the queue, unless turn work comes first."""
        ...

    async def claim_batches(self, fence: LeaseFence, batch_ids: Sequence[str], *, ttl_ms: int) -> ClaimOutcome:
        """Claim exactly these batches if an idle claim of as many would get them; otherwise change nothing."""
        ...

    async def renew(self, claim: Claim, *, ttl_ms: int) -> Claim:
        """Extend a claim, never shorten it; raise ClaimLost, and change nothing, if a batch of it was taken.

        Returns the claim with the earliest expiry that is stored for its batches.
        """
        ...

    async def abandon(self, claim: Claim, *, count_attempt: bool = True) -> int:
        """Return the batches that the claim still holds to the queue, and return their number.

        The attempt counts as failed. With ``count_attempt=False`` it does not count at all: the work was stopped, it
        did not fail.
        """
        ...

    async def bury(self, claim: Claim, *, reason: str, error: JSON = None) -> int:
        """Move the batches of a claim from the queue to the dead letters, and return their number.

        The claim must hold all its batches; otherwise this raises ClaimLost and changes nothing. An expired claim
        whose batches no other claim took can still be buried. Idempotent: burying a claim again changes nothing and
        returns the same number. Source keys stay reserved, and wakes stay unacknowledged.
        """
        ...

    async def dead(
        self,
        *,
        session_id: str | None = None,
        prefix: str | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> tuple[DeadLetter, ...]:
        """Return at most ``limit`` dead letters in the order in which they died, of one session or of all.

        With ``prefix``, those of the sessions whose id begins with it. ``after`` is the ``position`` of the last letter
        of the previous page. A page with fewer than ``limit`` is the last.
        """
        ...

    async def requeue(self, session_id: str, batch_id: str) -> Batch:
        """Move a dead letter to the end of the queue, under the same id, with its attempts reset.

        Raises DeadLetterNotFound if there is none, so only one of two concurrent callers succeeds.
        """
        ...

    async def discard(self, session_id: str, batch_id: str) -> bool:
        """Delete a dead letter and return whether it existed.

        Its source key and its wake are then treated like those of a cancelled batch.
        """
        ...

    async def cancel(self, session_id: str, batch_id: str) -> Batch | None:
        """Remove a batch that is not claimed, and return it; None if it is claimed or does not exist."""
        ...

    async def list(self, session_id: str, *, limit: int = 1_000, after_seq: int = 0) -> tuple[Batch, ...]:
        """Return at most ``limit`` queued batches, in order, claimed or not.

        ``after_seq`` is the ``seq`` of the last batch of the previous page. A page with fewer than ``limit`` is the
        last.
        """
        ...

    async def list_pending(self, session_id: str, *, limit: int = 1_000, after_seq: int = 0) -> tuple[Batch, ...]:
        """Return at most ``limit`` queued batches that are not claimed, delayed ones included; paged like ``list``."""
        ...

    async def list_all(
        self,
        *,
        prefix: str | None = None,
        state: QueuedState | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> tuple[QueuedBatch, ...]:
        """Return at most ``limit`` queued batches of all sessions, in the order in which they were enqueued.

        With ``prefix``, those of the sessions whose id begins with it; with ``state``, those in that state. ``after``
        is the ``batch.seq`` of the last batch of the previous page. A page with fewer than ``limit`` is the last. A
        batch that is enqueued while the pages are read may be missing from them.

        It is one statement. Without a filter the cost does not depend on how much is queued; with ``prefix`` it grows
        with the input of these sessions, and with DELAYED, PARKED or CLAIMED with the number of such batches.
        """
        ...

    async def ready_sessions(self, *, limit: int = 100, after: str | None = None) -> tuple[str, ...]:
        """Return at most ``limit`` sessions that have ready work and no live lease, for workers to poll.

        The cost does not depend on the length of the queues. ``after`` is the last session of the previous page. A page
        with fewer than ``limit`` is the last.
        """
        ...

    async def ready_agents(self, *, limit: int = 100) -> tuple[str | None, ...]:
        """Return at most ``limit`` agents that have queued input which is not delayed, claimed or not, by name.

        Input is for the agent that it names, or else for that of the session's last turn; None, the last one, is input
        for which neither is known. The cost depends on the number of agents, not on the length of the queues.
        """
        ...


class QueueRows(Protocol):
    """The batches of one database; `lash.backend.queue.Queue` makes a `QueueStore` of them.

    Arguments are checked and encoded. Methods that name a session raise SessionNotFound or SessionDeleted.
    """

    async def enqueue(self, batch: EncodedBatch, batch_id: str) -> BatchRow | KnownKey:
        """Insert the batch and reserve its source key, both or neither; return the known key if it is reserved."""
        ...

    async def cancel(self, session_id: str, batch_id: str) -> BatchRow | None:
        """Delete a batch without a live claim, mark its source key cancelled and acknowledge its wake."""
        ...

    async def page(self, session_id: str, *, limit: int, after_seq: int, pending_only: bool) -> Sequence[BatchRow]:
        """Return batches in order; with ``pending_only`` only batches that no live claim holds."""
        ...

    async def page_all(self, wanted: PreparedQueuePage) -> Sequence[QueuedRow]:
        """Return batches of all sessions in the order of the queue."""
        ...

    async def ready_sessions(self, limit: int, after: str | None) -> Sequence[str]: ...

    async def ready_agents(self, limit: int) -> Sequence[str | None]: ...


class ClaimRows(Protocol):
    """The claims of one database.

    A claim reads the head of the queue, calls ``decide`` with it and writes the decision only if the head is still the
    same; otherwise it reads and decides again.
    """

    async def claim(
        self, request: HeadRequest, decide: DecideClaim, claim: NewClaim, fence: LeaseFence
    ) -> ClaimedRows | NothingClaimed:
        """Claim the batches that ``decide`` chooses, all or none, under the lease that the fence proves."""
        ...

    async def claim_turn(
        self,
        request: HeadRequest,
        decide: Callable[[QueueHead], TurnClaimDecision],
        claim: NewClaim,
        lease: NewLease,
    ) -> tuple[TurnClaim, ClaimedTurnRows] | Busy | NothingClaimed:
        """Take the lease and claim the batches that ``decide`` chooses, both or neither."""
        ...

    async def enqueue_turn(
        self,
        batch: EncodedBatch,
        batch_id: str,
        request: HeadRequest,
        decide: Callable[[QueueHead], int | None],
        claim: NewClaim,
        lease: NewLease,
    ) -> tuple[BatchRow | KnownKey, BegunTurn | None]:
        """Insert the batch as ``QueueRows.enqueue`` does; if ``decide`` returns a fencing number, under a new claim.

        A backend whose statement decides by itself does not call ``decide``.
        """
        ...

    async def extend(self, claim: Claim, ttl_ms: int) -> int | None:
        """Extend a claim and return the earliest expiry of its batches; None if it does not hold all of them."""
        ...

    async def release(self, claim: Claim, uncounted: int) -> int:
        """Free the batches that the claim holds, as failed or (1) uncounted, and return how many were freed."""
        ...


class DeadLetterRows(Protocol):
    """The dead letters of one database."""

    async def bury(self, burial: Burial, decide: Callable[[Sequence[str], Sequence[str]], bool]) -> None:
        """Move the batches of a claim to the dead letters if the claim holds exactly them.

        ``decide`` gets the ids that the claim holds and the ids that died under it, and says whether to move them.
        It raises ClaimLost. A backend whose statement checks the first case itself calls it only in the other cases.
        """
        ...

    async def page(
        self, session_id: str | None, ids: IdRange | None, limit: int, after: int
    ) -> Sequence[DeadLetterRow]:
        """Return letters of one session, of the sessions in a range of ids, or of all."""
        ...

    async def revive(self, session_id: str, batch_id: str) -> BatchRow | None:
        """Move a dead letter to the end of the queue and return its batch; None if there is none."""
        ...

    async def remove(self, session_id: str, batch_id: str) -> bool:
        """Delete a dead letter, mark its source key cancelled and acknowledge its wake."""
        ...
