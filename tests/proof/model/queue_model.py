"""Queued work: an ordered list for each session, which batches leave in exactly one of four ways."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import msgspec

from lash.model.lease import Acquired, Busy, LeaseFence, LeaseOwner
from lash.model.queue import (
    PARKED_AT_MS,
    Batch,
    BatchDraft,
    BatchState,
    Boundary,
    Claim,
    ClaimCompletion,
    ClaimedTurn,
    ClaimOutcome,
    ClaimTurnOutcome,
    DeadLetter,
    Delivery,
    EmptyReason,
    Enqueued,
    NothingClaimed,
    SessionCommand,
    Slot,
)
from lash.model.value import JSON
from tests.proof.model import lease_model
from tests.proof.model.base_model import Sessions, SessionState
from tests.proof.model.kit import Refused


@dataclasses.dataclass
class Hold:
    """The claim that a batch is under, live or not."""

    claim_id: str
    token: str
    fencing: int
    expires_at_ms: int


@dataclasses.dataclass
class Item:
    """A batch in the queue."""

    batch: Batch
    hold: Hold | None = None
    wakes: str | None = None
    """The session that is woken when the batch leaves the queue."""

    @property
    def is_command(self) -> bool:
        return isinstance(self.batch.payloads[0], SessionCommand)

    @property
    def is_early(self) -> bool:
        return not self.is_command and self.batch.delivery is Delivery.EARLIEST_SAFE_BOUNDARY

    def joins(self, other: Item) -> bool:
        """Return whether two neighbours may share a claim."""
        mine, its = self.batch, other.batch
        return (
            mine.slot is its.slot is Slot.JOIN
            and mine.merge_key is not None
            and (mine.merge_key, self.is_early) == (its.merge_key, other.is_early)
        )


@dataclasses.dataclass
class Letter:
    letter: DeadLetter
    token: str


@dataclasses.dataclass
class Key:
    """A source key, the content it stands for, and what happened to its batch."""

    batch_id: str
    content: tuple[object, ...]
    state: BatchState
    settled_at_ms: int | None = None


@dataclasses.dataclass
class Queue:
    """The queued, finished and dead work of one session."""

    items: list[Item] = dataclasses.field(default_factory=list)
    letters: list[Letter] = dataclasses.field(default_factory=list)
    keys: dict[str, Key] = dataclasses.field(default_factory=dict)
    settled: dict[str, BatchState] = dataclasses.field(default_factory=dict)
    """Every batch that was consumed, cancelled or discarded."""
    born: set[str] = dataclasses.field(default_factory=set)
    """Every batch that was ever enqueued."""

    def learn_numbers(self, listed: Sequence[Batch]) -> None:
        """Copy the row numbers of batches that came with an event, whose result does not contain them."""
        for item, batch in zip(self.items, listed, strict=False):
            if item.batch.seq == 0 and item.batch.batch_id == batch.batch_id:
                item.batch = msgspec.structs.replace(item.batch, seq=batch.seq)

    def settle(self, batch: Batch, state: BatchState, now_ms: int) -> None:
        self.settled[batch.batch_id] = state
        if batch.source_key is not None:
            key = self.keys[batch.source_key]
            key.state, key.settled_at_ms = state, now_ms


class Queues:
    """The queues of all existing sessions."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._queues: dict[tuple[str, int], Queue] = {}
        sessions.on_remove = self._note_removed

    def of(self, session_id: str) -> Queue:
        """Return the queue of an existing session, or refuse."""
        state = self._sessions.need(session_id)
        return self._queues.setdefault((session_id, state.incarnation), Queue())

    def is_held(self, session_id: str, item: Item) -> bool:
        """Return whether the batch is under a claim that has not expired and whose lease is still the session's."""
        lease = self._sessions.need(session_id).lease.holder
        return (
            item.hold is not None
            and self._sessions.now_ms < item.hold.expires_at_ms
            and lease is not None
            and lease.fencing == item.hold.fencing
        )

    def enqueue(self, draft: BatchDraft, made: Enqueued | None) -> Enqueued:
        queue, now = self.of(draft.session_id), self._sessions.now_ms
        content = (draft.payloads, draft.delivery, draft.slot, draft.merge_key)
        known = None if draft.source_key is None else queue.keys.get(draft.source_key)
        if known is not None:
            return _recognised(queue, known, draft, content)
        assert made is not None, "new work must be accepted"
        assert made.batch is not None
        batch = Batch(
            session_id=draft.session_id,
            batch_id=made.batch_id,
            seq=made.batch.seq,
            payloads=draft.payloads,
            source_key=draft.source_key,
            delivery=draft.delivery,
            slot=draft.slot,
            merge_key=draft.merge_key,
            available_at_ms=draft.available_at_ms if draft.available_at_ms > now else 0,
            enqueued_at_ms=now,
            attempts=0,
        )
        assert batch.batch_id not in queue.born, "the id of a batch is new"
        queue.items.append(Item(batch, wakes=draft.wake_session_id))
        queue.born.add(batch.batch_id)
        if isinstance(draft.payloads[0], SessionCommand):
            self._sessions.note_reason(draft.session_id)
        if draft.source_key is not None:
            queue.keys[draft.source_key] = Key(batch.batch_id, content, BatchState.PENDING)
        return Enqueued(batch_id=batch.batch_id, created=True, batch=batch)

    def enqueue_and_claim(
        self, draft: BatchDraft, owner: LeaseOwner, ttl_ms: int, made: tuple[Enqueued, ClaimedTurn | None] | None
    ) -> tuple[Enqueued, ClaimedTurn | None]:
        """Return the result for a caller that wants the turn too: of ready work in an idle session without other."""
        state = self._sessions.need(draft.session_id)
        queue, lease = self.of(draft.session_id), state.lease
        is_idle = not queue.items and (lease.holder, lease.paused_until_ms, lease.waiting_for) == (None, None, None)
        is_ready = not draft.available_at_ms and not isinstance(draft.payloads[0], SessionCommand)
        enqueued = self.enqueue(draft, None if made is None else made[0])
        if not (is_idle and is_ready and enqueued.created):
            return enqueued, None
        assert made is not None
        assert made[1] is not None, "work that is free must be given"
        taken = lease_model.claim(self._sessions, draft.session_id, owner, ttl_ms, made[1].lease)
        assert isinstance(taken, Acquired)
        claim = self._stamp(taken.lease.fence, queue.items, ttl_ms, made[1].claim)
        turn = ClaimedTurn(
            lease=taken.lease,
            claim=claim,
            revision=state.revision,
            leaf_node_id=state.leaf_node_id,
            recorded=False,
            wake_seq=lease.wake_seq,
        )
        return msgspec.structs.replace(enqueued, batch=claim.batches[0]), turn

    def claim(self, fence: LeaseFence, boundary: Boundary, ttl_ms: int, limit: int, made: Claim | None) -> ClaimOutcome:
        if limit == 0:
            return NothingClaimed(reason=EmptyReason.NOTHING_ASKED_FOR)
        free = self._free(fence)
        work = [item for item in _before_command(free) if boundary is Boundary.IDLE or item.is_early]
        if not work:
            return self._nothing(fence.resource.id, free, boundary)
        return self._stamp(fence, _group(work, limit), ttl_ms, made)

    def claim_turn(self, session_id: str, owner: LeaseOwner, ttl_ms: int, made: ClaimedTurn | None) -> ClaimTurnOutcome:
        """Return the result for a caller that wants the lease and the next work under it, both or neither."""
        state, now = self._sessions.need(session_id), self._sessions.now_ms
        queue, is_parked = self.of(session_id), state.lease.waiting_for is not None
        self._make_ready(session_id)
        held = state.lease.holder
        if held is not None and now < held.expires_at_ms:
            return Busy(holder=held)
        paused_until_ms = state.lease.paused_until_ms
        if paused_until_ms is not None and now < paused_until_ms:
            reason = EmptyReason.PARKED if is_parked else EmptyReason.PAUSED
            moment = None if paused_until_ms == PARKED_AT_MS else paused_until_ms
            return NothingClaimed(reason=reason, next_available_at_ms=moment)
        # All claimed work was claimed under a lease that is over.
        free = [item for item in queue.items if item.batch.available_at_ms == 0]
        work = _before_command(free)
        if not work:
            return self._nothing(session_id, free, Boundary.IDLE)
        assert made is not None, "work that is free must be given"
        taken = lease_model.claim(self._sessions, session_id, owner, ttl_ms, made.lease)
        assert isinstance(taken, Acquired)
        claim = self._stamp(taken.lease.fence, _group(work, 64), ttl_ms, made.claim)
        return ClaimedTurn(
            lease=taken.lease,
            claim=claim,
            revision=state.revision,
            leaf_node_id=state.leaf_node_id,
            recorded=False,
            wake_seq=state.lease.wake_seq,
        )

    def park(self, fence: LeaseFence, wake_seq: int, until_ms: int | None) -> bool:
        """Free a live lease with its claims; park the turn unless there was a further reason to continue."""
        state = self._sessions.need(fence.resource.id)
        lease_model.live(state, fence, self._sessions.now_ms)
        lease, is_parked = state.lease, state.lease.wake_seq == wake_seq
        lease.holder, lease.paused_until_ms, lease.waiting_for = None, None, None
        if is_parked:
            lease.paused_until_ms, lease.waiting_for = PARKED_AT_MS if until_ms is None else until_ms, "x"
        for item in self.of(fence.resource.id).items:
            if item.hold is None or item.hold.fencing != fence.fencing:
                continue
            item.hold, attempts = None, item.batch.attempts
            changed = {"available_at_ms": PARKED_AT_MS} if is_parked else {"attempts": max(attempts - 1, 0)}
            item.batch = msgspec.structs.replace(item.batch, **changed)
        return is_parked

    def claim_command(self, fence: LeaseFence, ttl_ms: int, made: Claim | None) -> ClaimOutcome:
        free = self._free(fence)
        if free and free[0].is_command:
            return self._stamp(fence, free[:1], ttl_ms, made)
        if free:
            return self._nothing(fence.resource.id, free, Boundary.IDLE, EmptyReason.TURN_WORK_AT_HEAD)
        return self._nothing(fence.resource.id, free, Boundary.IDLE)

    def claim_batches(
        self, fence: LeaseFence, batch_ids: Sequence[str], ttl_ms: int, made: Claim | None
    ) -> ClaimOutcome:
        if not batch_ids:
            return NothingClaimed(reason=EmptyReason.NOTHING_ASKED_FOR)
        free = self._free(fence)
        group = _group(_before_command(free), len(batch_ids))
        if not group:
            return self._nothing(fence.resource.id, free, Boundary.IDLE)
        if [item.batch.batch_id for item in group] != list(batch_ids):
            return self._nothing(fence.resource.id, free, Boundary.IDLE, EmptyReason.NOT_AT_HEAD)
        return self._stamp(fence, group, ttl_ms, made)

    def renew(self, claim: Claim, ttl_ms: int) -> Claim:
        held = self._held_whole(claim.session_id, claim.completion)
        expires_at_ms = self._sessions.now_ms + ttl_ms
        for hold in held:
            hold.expires_at_ms = max(hold.expires_at_ms, expires_at_ms)
        return msgspec.structs.replace(claim, expires_at_ms=min(hold.expires_at_ms for hold in held))

    def extend_under(self, session_id: str, fencing: int, expires_at_ms: int) -> None:
        """Extend every claim that was made under this lease."""
        for item in self.of(session_id).items:
            if item.hold is not None and item.hold.fencing == fencing:
                item.hold.expires_at_ms = max(item.hold.expires_at_ms, expires_at_ms)

    def abandon(self, claim: Claim, *, count_attempt: bool) -> int:
        held = _under(self.of(claim.session_id), claim.token)
        for item in held:
            item.hold = None
            if count_attempt:
                item.batch = msgspec.structs.replace(item.batch, failures=item.batch.failures + 1)
            else:
                item.batch = msgspec.structs.replace(item.batch, attempts=max(item.batch.attempts - 1, 0))
        return len(held)

    def bury(self, claim: Claim, reason: str, error: JSON) -> int:
        queue = self.of(claim.session_id)
        held = _under(queue, claim.token)
        buried = {each.letter.batch.batch_id for each in queue.letters if each.token == claim.token}
        wanted = set(claim.completion.batch_ids)
        if not held and buried == wanted:
            return len(wanted)
        if {item.batch.batch_id for item in held} != wanted:
            raise Refused("ClaimLost", session_id=claim.session_id, claim_id=claim.claim_id)
        for item in held:
            queue.items.remove(item)
            self._sessions.note_reason(item.wakes)
            now_ms = self._sessions.now_ms
            letter = DeadLetter(position=0, batch=item.batch, reason=reason, error=error, died_at_ms=now_ms)
            queue.letters.append(Letter(letter, claim.token))
        return len(held)

    def requeue(self, session_id: str, batch_id: str, made: Batch | None) -> Batch:
        queue = self.of(session_id)
        letter = next((each for each in queue.letters if each.letter.batch.batch_id == batch_id), None)
        if letter is None:
            raise Refused("DeadLetterNotFound", session_id=session_id, batch_id=batch_id)
        assert made is not None, "a dead letter must be put back"
        queue.letters.remove(letter)
        batch = msgspec.structs.replace(
            letter.letter.batch,
            seq=made.seq,
            attempts=0,
            failures=0,
            available_at_ms=0,
            enqueued_at_ms=made.enqueued_at_ms,
        )
        queue.items.append(Item(batch))
        return batch

    def discard(self, session_id: str, batch_id: str) -> bool:
        queue = self.of(session_id)
        letter = next((each for each in queue.letters if each.letter.batch.batch_id == batch_id), None)
        if letter is not None:
            queue.letters.remove(letter)
            queue.settle(letter.letter.batch, BatchState.CANCELLED, self._sessions.now_ms)
        return letter is not None

    def cancel(self, session_id: str, batch_id: str) -> Batch | None:
        queue = self.of(session_id)
        item = next((each for each in queue.items if each.batch.batch_id == batch_id), None)
        if item is None or self.is_held(session_id, item):
            return None
        queue.items.remove(item)
        self._sessions.note_reason(item.wakes)
        if item.batch.is_parked:
            self._sessions.note_reason(session_id)
        queue.settle(item.batch, BatchState.CANCELLED, self._sessions.now_ms)
        return item.batch

    def check_completions(self, session_id: str, completions: Sequence[ClaimCompletion]) -> None:
        """Refuse as a commit does whose claims do not hold exactly what they list."""
        for completion in completions:
            self._held_whole(session_id, completion)

    def consume(self, session_id: str, completions: Sequence[ClaimCompletion]) -> None:
        """Remove the batches of checked claims from the queue."""
        queue = self.of(session_id)
        for completion in completions:
            for item in _under(queue, completion.token):
                queue.items.remove(item)
                self._sessions.note_reason(item.wakes)
                queue.settle(item.batch, BatchState.CONSUMED, self._sessions.now_ms)

    def prune_keys(self, older_than_ms: int) -> int:
        """Free the keys whose batches finished longer ago than this, in all sessions."""
        removed = 0
        for session_id in self._sessions.live:
            keys = self.of(session_id).keys
            for name, key in tuple(keys.items()):
                if key.settled_at_ms is not None and key.settled_at_ms < self._sessions.now_ms - older_than_ms:
                    del keys[name]
                    removed += 1
        return removed

    def ready_sessions(self) -> set[str]:
        """Return the sessions with work that could be claimed now, and without a live lease."""
        now = self._sessions.now_ms
        found: set[str] = set()
        for session_id, state in self._sessions.live.items():
            holder = state.lease.holder
            is_leased = holder is not None and now < holder.expires_at_ms
            if not is_leased and any(item.batch.available_at_ms <= now for item in self.of(session_id).items):
                found.add(session_id)
        return found

    def _free(self, fence: LeaseFence) -> list[Item]:
        """Return what could be claimed under this fence now, in order; due work stays ready."""
        queue, now = self.of(fence.resource.id), self._sessions.now_ms
        lease_model.live(self._sessions.need(fence.resource.id), fence, now)
        self._make_ready(fence.resource.id)
        return [
            item
            for item in queue.items
            if item.batch.available_at_ms == 0 and not self.is_held(fence.resource.id, item)
        ]

    def _note_removed(self, gone: SessionState) -> None:
        """Note the reasons that a deleted session leaves behind."""
        queue = self._queues.get((gone.session_id, gone.incarnation), Queue())
        for item in queue.items:
            self._sessions.note_reason(item.wakes)

    def _make_ready(self, session_id: str) -> None:
        """Make due work ready, and put the input of a parked turn that is ready back into the queue."""
        queue, lease = self.of(session_id), self._sessions.need(session_id).lease
        until_ms = lease.paused_until_ms
        if lease.waiting_for is not None and until_ms is not None and until_ms <= self._sessions.now_ms:
            lease.waiting_for, lease.paused_until_ms = None, None
            for item in queue.items:
                if item.batch.is_parked:
                    attempts = max(item.batch.attempts - 1, 0)
                    item.batch = msgspec.structs.replace(item.batch, available_at_ms=0, attempts=attempts)
        for item in queue.items:
            if item.batch.available_at_ms <= self._sessions.now_ms:
                item.batch = msgspec.structs.replace(item.batch, available_at_ms=0)

    def _nothing(
        self, session_id: str, free: Sequence[Item], boundary: Boundary, reason: EmptyReason | None = None
    ) -> NothingClaimed:
        items = self.of(session_id).items
        delayed = [item.batch.available_at_ms for item in items if item.batch.available_at_ms > 0]
        ready = [item for item in items if item.batch.available_at_ms == 0]
        if reason is None:
            reason = _why(free, ready, boundary, any_delayed=bool(delayed))
        return NothingClaimed(reason=reason, next_available_at_ms=min(delayed, default=None))

    def _stamp(self, fence: LeaseFence, group: Sequence[Item], ttl_ms: int, made: Claim | None) -> Claim:
        assert made is not None, "work that is free must be given"
        now = self._sessions.now_ms
        for item in group:
            item.batch = msgspec.structs.replace(item.batch, attempts=item.batch.attempts + 1)
            item.hold = Hold(made.claim_id, made.token, fence.fencing, now + ttl_ms)
        return Claim(
            session_id=fence.resource.id,
            claim_id=made.claim_id,
            token=made.token,
            lease_fencing=fence.fencing,
            claimed_at_ms=now,
            expires_at_ms=now + ttl_ms,
            batches=tuple(item.batch for item in group),
        )

    def _held_whole(self, session_id: str, completion: ClaimCompletion) -> list[Hold]:
        held = _under(self.of(session_id), completion.token)
        if {item.batch.batch_id for item in held} != set(completion.batch_ids):
            raise Refused("ClaimLost", session_id=session_id, claim_id=completion.claim_id)
        return [item.hold for item in held if item.hold is not None]


def _recognised(queue: Queue, known: Key, draft: BatchDraft, content: tuple[object, ...]) -> Enqueued:
    if known.content != content:
        raise Refused("SourceKeyConflict", session_id=draft.session_id, source_key=draft.source_key)
    batch = next((item.batch for item in queue.items if item.batch.batch_id == known.batch_id), None)
    is_dead = any(each.letter.batch.batch_id == known.batch_id for each in queue.letters)
    return Enqueued(
        batch_id=known.batch_id, created=False, state=BatchState.DEAD if is_dead else known.state, batch=batch
    )


def _before_command(free: Sequence[Item]) -> list[Item]:
    """Return the turn work before the first command."""
    return list(itertools.takewhile(lambda item: not item.is_command, free))


def _group(work: Sequence[Item], limit: int) -> list[Item]:
    """Return the first batch and the ones directly behind it that may share a claim with it."""
    return [*work[:1], *(itertools.takewhile(work[0].joins, work[1:limit]) if work else ())]


def _under(queue: Queue, token: str) -> list[Item]:
    return [item for item in queue.items if item.hold is not None and item.hold.token == token]


def _why(free: Sequence[Item], ready: Sequence[Item], boundary: Boundary, *, any_delayed: bool) -> EmptyReason:
    """Return why there is no turn work, or no command where there is no turn work either."""
    if any(item.is_command for item in free):
        return EmptyReason.COMMAND_AT_HEAD
    is_late = [item for item in ready if not item.is_command and not item.is_early]
    if boundary is Boundary.ACTIVE_TURN_CHECKPOINT and is_late:
        return EmptyReason.AFTER_TURN
    if ready:
        return EmptyReason.CLAIMED
    return EmptyReason.NOT_YET_AVAILABLE if any_delayed else EmptyReason.EMPTY
