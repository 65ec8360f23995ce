"""Rules about queued work and dead letters, with old claims among the valid ones."""

from __future__ import annotations

from typing import Final

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import invariant

from lash.model.lease import Busy, Lease, LeaseFence
from lash.model.queue import (
    Batch,
    BatchDraft,
    Boundary,
    Claim,
    ClaimedTurn,
    ClaimOutcome,
    DeadLetter,
    Delivery,
    NothingClaimed,
    SessionCommand,
    Slot,
    TurnInput,
)
from tests.proof.model import lease_model
from tests.proof.model.base_rules import SESSION_IDS, session_ids
from tests.proof.model.kit import action
from tests.proof.model.lease_rules import OWNERS, LeaseRules, owners, recent, ttls
from tests.proof.model.queue_model import Queues
from tests.proof.model.world import Side, World

EARLY, LATE = Delivery.EARLIEST_SAFE_BOUNDARY, Delivery.AFTER_CURRENT_TURN_COMMIT
KINDS: Final = {
    "early": (EARLY, Slot.EXCLUSIVE, None),
    "late": (LATE, Slot.EXCLUSIVE, None),
    "early join": (EARLY, Slot.JOIN, "g"),
    "other join": (EARLY, Slot.JOIN, "h"),
    "late join": (LATE, Slot.JOIN, "g"),
    "join none": (EARLY, Slot.JOIN, None),
    "command": (LATE, Slot.EXCLUSIVE, None),
}
kinds: Final = st.sampled_from(tuple(KINDS))
keys: Final = st.sampled_from((None, None, "k0", "k0", "k0", "k1"))
delays: Final = st.sampled_from((0, 0, 0, 0, -1, 400, 1_000))
places: Final = st.integers(0, 5)


class QueueRules(LeaseRules):
    """All operations on batches, except the commit that consumes them."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.queues = Queues(self.sessions)
        self.claims: list[Claim] = []
        """Every claim that was made, the newest first."""

    def prepare(self) -> None:
        super().prepare()
        self.claim_lease(SESSION_IDS[0], "ann", 5_000)

    @action(
        8,
        session_id=session_ids,
        kind=kinds,
        text=st.sampled_from("ab"),
        key=keys,
        delay_ms=delays,
        wakes=st.sampled_from((None, None, *SESSION_IDS)),
    )
    def enqueue(self, session_id: str, kind: str, text: str, key: str | None, delay_ms: int, wakes: str | None) -> None:
        draft = self._draft(session_id, kind, text, key, delay_ms, wakes)
        answer = self.step(
            "enqueue", lambda side: side.storage.queue.enqueue(draft), lambda got: self.queues.enqueue(draft, got)
        )
        self.touched = session_id
        if answer is not None:
            self.count("enqueue:created" if answer.created else f"enqueue:known {answer.state.value}")

    @action(
        1,
        session_id=session_ids,
        kind=kinds,
        text=st.sampled_from("ab"),
        key=keys,
        delay_ms=delays,
        who=owners,
        ttl_ms=ttls,
    )
    def enqueue_and_claim(
        self, session_id: str, kind: str, text: str, key: str | None, delay_ms: int, who: str, ttl_ms: int
    ) -> None:
        claimant, draft = OWNERS[who], self._draft(session_id, kind, text, key, delay_ms, None)
        answer = self.step(
            "enqueue_and_claim",
            lambda side: side.storage.queue.enqueue_and_claim(draft, claimant, ttl_ms=ttl_ms),
            lambda got: self.queues.enqueue_and_claim(draft, claimant, ttl_ms, got),
        )
        self.touched = session_id
        turn = None if answer is None else answer[1]
        if turn is not None:
            assert self.is_new(turn.lease.token)
            self.leases.insert(0, turn.lease)
            self._remember_claim("enqueue_and_claim", turn.lease.fence, turn.claim)
        elif answer is not None:
            self.count("enqueue_and_claim:queued")

    @action(
        8,
        when=lambda self: self.leases,
        which=recent,
        boundary=st.sampled_from(Boundary),
        ttl_ms=ttls,
        limit=st.sampled_from((64, 64, 64, 64, 2, 2, 1, 0)),
    )
    def claim(self, which: int, boundary: Boundary, ttl_ms: int, limit: int) -> None:
        fence = self.seen_lease(which).fence
        outcome = self.step(
            "claim",
            lambda side: side.storage.queue.claim(side.own(fence), boundary=boundary, ttl_ms=ttl_ms, max_batches=limit),
            lambda got: self.queues.claim(fence, boundary, ttl_ms, limit, _made(got)),
        )
        self._remember_claim("claim", fence, outcome)

    @action(5, session_id=session_ids, who=owners, ttl_ms=ttls)
    def claim_turn(self, session_id: str, who: str, ttl_ms: int) -> None:
        claimant = OWNERS[who]
        outcome = self.step(
            "begin_turn",
            lambda side: side.storage.queue.claim_turn(session_id, claimant, ttl_ms=ttl_ms),
            lambda got: self.queues.claim_turn(
                session_id, claimant, ttl_ms, got if isinstance(got, ClaimedTurn) else None
            ),
        )
        self.touched = session_id
        if isinstance(outcome, ClaimedTurn):
            assert self.is_new(outcome.lease.token)
            self.leases.insert(0, outcome.lease)
            self._remember_claim("begin_turn", outcome.lease.fence, outcome.claim)
        elif outcome is not None:
            self.count("begin_turn:busy" if isinstance(outcome, Busy) else f"begin_turn:{outcome.reason.value}")

    @action(
        3,
        when=lambda self: self.leases,
        which=recent,
        late=st.sampled_from((0, 0, 0, 1)),
        pause_ms=st.sampled_from((None, None, 400)),
    )
    def park(self, which: int, late: int, pause_ms: int | None) -> None:
        fence = self.seen_lease(which).fence
        state = self.sessions.live.get(fence.resource.id)
        seen = max((0 if state is None else state.lease.wake_seq) - late, 0)
        until_ms = None if pause_ms is None else self.now_ms + pause_ms
        parked = self.step(
            "park",
            lambda side: side.storage.leases.park(side.own(fence), wake_seq=seen, until_ms=until_ms, waiting_for="x"),
            lambda _: self.queues.park(fence, seen, until_ms),
        )
        self.touched = fence.resource.id
        if parked is not None:
            self.count(f"park:{parked}")

    @action(3)
    def wake(self) -> None:
        woken = self.step("wake", _woken, lambda _: lease_model.wake(self.sessions))
        self.count("wake:some" if woken else "wake:none")

    @action(4, when=lambda self: self.leases, which=recent, ttl_ms=ttls)
    def claim_command(self, which: int, ttl_ms: int) -> None:
        fence = self.seen_lease(which).fence
        outcome = self.step(
            "claim_command",
            lambda side: side.storage.queue.claim_command(side.own(fence), ttl_ms=ttl_ms),
            lambda got: self.queues.claim_command(fence, ttl_ms, _made(got)),
        )
        self._remember_claim("claim_command", fence, outcome)

    @action(
        4,
        when=lambda self: self.leases,
        which=recent,
        first=st.sampled_from((0, 0, 0, 1)),
        size=st.sampled_from((1, 1, 2, 2, 3, 0)),
        ttl_ms=ttls,
    )
    def claim_batches(self, which: int, first: int, size: int, ttl_ms: int) -> None:
        fence = self.seen_lease(which).fence
        wanted = [batch.batch_id for batch in self._listed(fence.resource.id)[first : first + size]]
        outcome = self.step(
            "claim_batches",
            lambda side: side.storage.queue.claim_batches(side.own(fence), side.own(wanted), ttl_ms=ttl_ms),
            lambda got: self.queues.claim_batches(fence, wanted, ttl_ms, _made(got)),
        )
        self._remember_claim("claim_batches", fence, outcome)

    @action(3, when=lambda self: self.claims, which=recent, ttl_ms=ttls)
    def renew_claim(self, which: int, ttl_ms: int) -> None:
        claim = self.seen_claim(which)
        self.step(
            "renew_claim",
            lambda side: side.storage.queue.renew(side.own(claim), ttl_ms=ttl_ms),
            lambda _: self.queues.renew(claim, ttl_ms),
        )

    @action(3, when=lambda self: self.claims, which=recent, count_attempt=st.booleans())
    def abandon(self, which: int, count_attempt: bool) -> None:  # noqa: FBT001 (drawn by name)
        claim = self.seen_claim(which)
        given_back = self.step(
            "abandon",
            lambda side: side.storage.queue.abandon(side.own(claim), count_attempt=count_attempt),
            lambda _: self.queues.abandon(claim, count_attempt=count_attempt),
        )
        if given_back is not None:
            self.count("abandon:given back" if given_back else "abandon:nothing held")

    @action(4, when=lambda self: self.claims, which=recent, reason=st.sampled_from(("r0", "r1")))
    def bury(self, which: int, reason: str) -> None:
        claim = self.seen_claim(which)
        self.step(
            "bury",
            lambda side: side.storage.queue.bury(side.own(claim), reason=reason, error={"why": [reason, None, 1]}),
            lambda _: self.queues.bury(claim, reason, {"why": [reason, None, 1]}),
        )

    @action(3, session_id=session_ids, place=places)
    def requeue(self, session_id: str, place: int) -> None:
        batch_id = self._dead_id(session_id, place)
        self.step(
            "requeue",
            lambda side: side.storage.queue.requeue(session_id, side.own(batch_id)),
            lambda got: self.queues.requeue(session_id, batch_id, got),
        )

    @action(2, session_id=session_ids, place=places)
    def discard(self, session_id: str, place: int) -> None:
        batch_id = self._dead_id(session_id, place)
        gone = self.step(
            "discard",
            lambda side: side.storage.queue.discard(session_id, side.own(batch_id)),
            lambda _: self.queues.discard(session_id, batch_id),
        )
        if gone is not None:
            self.count("discard:gone" if gone else "discard:not there")

    @action(3, session_id=session_ids, place=places)
    def cancel(self, session_id: str, place: int) -> None:
        listed = self._listed(session_id)
        batch_id = listed[place % len(listed)].batch_id if listed else "none"
        answers: list[Batch | None] = []

        def expected(got: Batch | None) -> Batch | None:
            answers.append(got)
            return self.queues.cancel(session_id, batch_id)

        self.step("cancel", lambda side: side.storage.queue.cancel(session_id, side.own(batch_id)), expected)
        if session_id in self.sessions.live:
            self.count("cancel:cancelled" if answers[0] is not None else "cancel:held or gone")

    @action(1, age_ms=st.sampled_from((0, 1_000)))
    def prune_source_keys(self, age_ms: int) -> None:
        pruned = self.step(
            "prune_source_keys",
            lambda side: _removed(side, age_ms),
            lambda _: self.queues.prune_keys(age_ms),
        )
        self.count("prune_source_keys:some" if pruned else "prune_source_keys:none")

    @action(1)
    def look_for_ready_sessions(self) -> None:
        self.look("ready_sessions", _ready, self.queues.ready_sessions())

    @action(1, session_id=session_ids)
    def look_at_pending(self, session_id: str) -> None:
        self.step(
            "list_pending",
            lambda side: side.storage.queue.list_pending(session_id),
            lambda _: tuple(
                item.batch for item in self.queues.of(session_id).items if not self.queues.is_held(session_id, item)
            ),
        )

    @invariant()
    def every_batch_is_in_one_place(self) -> None:
        """Every enqueued batch is queued (claimed or not), dead, consumed or cancelled, and only one of these."""
        if self.touched not in self.sessions.live:
            return
        queue = self.queues.of(self.touched)
        seen: list[set[str]] = []

        def expected(got: tuple[tuple[Batch, ...], tuple[DeadLetter, ...]] | None) -> object:
            assert got is not None
            listed, dead = got
            queue.learn_numbers(listed)
            seen.extend(({batch.batch_id for batch in listed}, {letter.batch.batch_id for letter in dead}))
            letters = zip(queue.letters, dead, strict=True)
            # The position of a letter is a row number; only the order is compared.
            return (
                tuple(item.batch for item in queue.items),
                tuple(msgspec.structs.replace(mine.letter, position=its.position) for mine, its in letters),
            )

        self.step("list", lambda side: _listed_and_dead(side, self.touched), expected)
        fates = [*seen, set(queue.settled)]
        assert sum(map(len, fates)) == len(queue.born), "a batch is in two places, or in none"
        assert set().union(*fates) == queue.born

    def extended(self, lease: Lease) -> None:
        super().extended(lease)
        self.queues.extend_under(lease.resource.id, lease.fencing, lease.expires_at_ms)

    def seen_claim(self, which: int) -> Claim:
        """Return a current or earlier claim."""
        claim = self.claims[which % len(self.claims)]
        self.touched = claim.session_id
        return claim

    def _listed(self, session_id: str) -> list[Batch]:
        live = session_id in self.sessions.live
        self.touched = session_id
        return [item.batch for item in self.queues.of(session_id).items] if live else []

    def _dead_id(self, session_id: str, place: int) -> str:
        letters = self.queues.of(session_id).letters if session_id in self.sessions.live else []
        self.touched = session_id
        return letters[place % len(letters)].letter.batch.batch_id if letters else "none"

    def _draft(
        self, session_id: str, kind: str, text: str, key: str | None, delay_ms: int, wakes: str | None
    ) -> BatchDraft:
        delivery, slot, merge_key = KINDS[kind if key is None or kind == "command" else "early join"]
        return BatchDraft(
            session_id=session_id,
            payloads=(SessionCommand(command=text) if kind == "command" else TurnInput.of_text(text),),
            source_key=key,
            delivery=delivery,
            slot=slot,
            merge_key=merge_key,
            available_at_ms=self.now_ms + delay_ms if delay_ms else 0,
            wake_session_id=wakes,
        )

    def _remember_claim(self, name: str, fence: LeaseFence, outcome: ClaimOutcome | None) -> None:
        self.touched = fence.resource.id
        if isinstance(outcome, NothingClaimed):
            self.count(f"{name}:{outcome.reason.value}")
        elif outcome is not None:
            assert self.is_new(outcome.token)
            self.count(f"{name}:{'one' if len(outcome.batches) == 1 else 'several'}")
            self.claims.insert(0, outcome)


async def _removed(side: Side, age_ms: int) -> int:
    return (await side.storage.maintenance.prune_source_keys(older_than_ms=age_ms)).removed_count


async def _woken(side: Side) -> set[str]:
    return set(await side.storage.work.wake())


async def _ready(side: Side) -> set[str]:
    return set(await side.storage.queue.ready_sessions())


async def _listed_and_dead(side: Side, session_id: str) -> tuple[tuple[Batch, ...], tuple[DeadLetter, ...]]:
    return await side.storage.queue.list(session_id), await side.storage.queue.dead(session_id=session_id)


def _made(outcome: ClaimOutcome | None) -> Claim | None:
    return outcome if isinstance(outcome, Claim) else None
