"""The contract of dead letters: buried work is kept until it is requeued or discarded."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import pytest

from lash.errors import (
    ClaimLost,
    DeadLetterNotFound,
)
from lash.model.lease import LeaseFence
from lash.model.queue import (
    Batch,
    BatchDraft,
    Boundary,
    Claim,
    ClaimOutcome,
    DeadLetter,
    EmptyReason,
)
from lash.model.value import JSON
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import (
    LONG,
    TTL,
    claimed,
    command,
    consuming,
    joining,
    late,
    leased,
    nothing,
    observe_queue,
    queued,
    texts,
)
from tests.factories.session import commit, node, started

ERRORS: Final[dict[str, JSON]] = {
    "none": None,
    "text": "boom \0 \N{PILE OF POO} ' -- $1",
    "tree": {"type": "ValueError", "trace": ["a", {"line": 1}], "deep": {"x": [None, True, 1.5]}},
}


class TestDeadLetter:
    """Laws of burying, reading, requeueing and discarding work."""

    @pytest.mark.parametrize("error", ERRORS)
    async def test_a_dead_letter_tells_all(self, harness: Harness, error: str) -> None:
        """A dead letter has the batch as claimed, the attempts, the reason and the time."""
        storage, _, claim = await held(harness)
        await harness.clock.advance(7)
        assert await storage.queue.bury(claim, reason="it fails", error=ERRORS[error]) == 2
        letters = await (await harness.open()).queue.dead(session_id="s")
        places = [letter.position for letter in letters]
        assert places == sorted(set(places))
        now_ms = harness.clock.now_ms()
        assert letters == tuple(
            DeadLetter(position=place, batch=batch, reason="it fails", error=ERRORS[error], died_at_ms=now_ms)
            for place, batch in zip(places, claim.batches, strict=True)
        )
        assert [letter.attempts for letter in letters] == [1, 1]

    async def test_buried_work_leaves_the_queue(self, harness: Harness) -> None:
        """The session continues with later work; buried batches are not listed, claimed or cancelled."""
        storage, fence, claim = await held(harness)
        await queued(storage, late("next"))
        await storage.queue.bury(claim, reason="r")
        assert texts(await storage.queue.list("s")) == ["next"]
        assert texts(await storage.queue.list_pending("s")) == ["next"]
        assert await storage.queue.cancel("s", claim.batches[0].batch_id) is None
        assert texts(claimed(await take(storage, fence)).batches) == ["next"]
        assert nothing(await take(storage, fence)) is EmptyReason.CLAIMED
        assert texts(batches_of(await storage.queue.dead())) == ["a", "b"]

    async def test_a_queue_of_dead_letters_is_empty(self, harness: Harness) -> None:
        """A session whose work is all buried is not found as having work."""
        storage, fence, claim = await held(harness)
        await storage.queue.bury(claim, reason="r")
        assert nothing(await take(storage, fence)) is EmptyReason.EMPTY
        await storage.leases.release(fence)
        assert await storage.queue.ready_sessions() == ()

    async def test_burying_again_changes_nothing(self, harness: Harness) -> None:
        """Burying again returns the first answer; the first reason stays."""
        storage, _, claim = await held(harness)
        assert await storage.queue.bury(claim, reason="first") == 2
        before = await storage.queue.dead()
        await harness.clock.advance(1)
        assert await storage.queue.bury(claim, reason="second") == 2
        assert await storage.queue.dead() == before

    async def test_a_claim_that_ran_out_untaken_is_buried(self, harness: Harness) -> None:
        """A lapsed claim can be buried as long as no other claim took its work."""
        storage, _, claim = await held(harness)
        await harness.clock.advance(LONG * 5)
        assert await storage.queue.bury(claim, reason="r") == 2
        assert await storage.queue.list("s") == ()

    @pytest.mark.parametrize("taken", [1, 2])
    async def test_a_claim_that_was_taken_is_not_buried(self, harness: Harness, taken: int) -> None:
        """A claim is buried whole or not at all; the successor keeps its work."""
        storage, fence, claim = await held(harness)
        await harness.clock.advance(TTL)
        newer = claimed(await take(storage, fence, max_batches=taken))
        await _refused(storage, claim)
        assert await storage.queue.bury(newer, reason="r") == taken
        assert texts(await storage.queue.list("s")) == ["a", "b"][taken:]

    async def test_a_claim_that_ended_is_not_buried(self, harness: Harness) -> None:
        """A claim that was abandoned, consumed or requeued cannot be buried."""
        storage, fence, claim = await held(harness)
        await storage.queue.abandon(claim)
        await _refused(storage, claim)
        second = claimed(await take(storage, fence))
        await storage.session("s").commit(consuming(commit(1, node("b", "a")), second))
        await _refused(storage, second)
        await queued(storage, late("c"))
        third = claimed(await take(storage, fence))
        await storage.queue.bury(third, reason="r")
        await storage.queue.requeue("s", third.batches[0].batch_id)
        await _refused(storage, third)

    async def test_a_forged_claim_is_not_buried(self, harness: Harness) -> None:
        """Token, id and batches must all match the claim."""
        storage, _, claim = await held(harness)
        replace = msgspec.structs.replace
        for forged in (
            replace(claim, token="false"),
            replace(claim, claim_id="false"),
            replace(claim, batches=claim.batches[:1]),
            replace(claim, batches=(claim.batches[0], replace(claim.batches[1], batch_id="false"))),
        ):
            await _refused(storage, forged)
        assert await storage.queue.bury(claim, reason="r") == 2

    async def test_the_old_holder_buries_nothing(self, harness: Harness) -> None:
        """After a takeover and a claim by the successor, the old holder cannot bury the work."""
        storage, _, claim = await held(harness)
        await harness.clock.advance(LONG)
        successor = await leased(storage, "successor")
        newer = claimed(await take(storage, successor))
        await _refused(storage, claim)
        await storage.session("s").commit(consuming(commit(1, node("b", "a"), fence=successor), newer))
        await _refused(storage, claim)

    async def test_a_buried_claim_does_not_complete(self, harness: Harness) -> None:
        """Buried work cannot be consumed, renewed or abandoned."""
        storage, _, claim = await held(harness)
        await storage.queue.bury(claim, reason="r")
        before = await observe_queue(storage)
        with pytest.raises(ClaimLost):
            await storage.session("s").commit(consuming(commit(1, node("b", "a")), claim))
        with pytest.raises(ClaimLost):
            await storage.queue.renew(claim, ttl_ms=TTL)
        assert await storage.queue.abandon(claim) == 0
        assert await observe_queue(storage) == before

    async def test_a_claim_is_committed_or_buried(self, harness: Harness) -> None:
        """Of a concurrent commit and burial of one claim, one succeeds and the other raises ClaimLost."""
        storage, other = await harness.open(), await harness.open()
        session = await started(storage)
        fence = await leased(storage)
        for number in range(10):
            await queued(storage, joining("x"))
            claim = claimed(await take(storage, fence))
            head = await session.head()
            assert head is not None
            values = consuming(commit(head.revision, node(f"n{number}", head.leaf_node_id)), claim)
            outcomes = await asyncio.gather(
                session.commit(values), other.queue.bury(claim, reason="r"), return_exceptions=True
            )
            lost = [isinstance(outcome, ClaimLost) for outcome in outcomes]
            assert sorted(lost) == [False, True]
            dead = [letter.batch.batch_id for letter in await storage.queue.dead()]
            assert (claim.batches[0].batch_id in dead) is lost[0]
            assert await storage.queue.list("s") == ()

    async def test_burials_at_once_are_one(self, harness: Harness) -> None:
        """Concurrent burials of one claim return the same answer and create one letter per batch."""
        storage, other = await harness.open(), await harness.open()
        claim = await _fill(storage, joining("a"), joining("b"))
        answers = await asyncio.gather(*(each.queue.bury(claim, reason="r") for each in (storage, other) * 4))
        assert answers == [2] * 8
        assert texts(batches_of(await storage.queue.dead())) == ["a", "b"]

    async def test_a_requeued_letter_comes_last_and_fresh(self, harness: Harness) -> None:
        """A requeued letter keeps id, content and age, moves to the end, and starts with no attempts."""
        storage, fence, claim = await held(harness)
        await storage.queue.bury(claim, reason="r")
        (behind,) = await queued(storage, joining("behind"))
        await harness.clock.advance(5)
        batch = await storage.queue.requeue("s", claim.batches[0].batch_id)
        assert batch == msgspec.structs.replace(claim.batches[0], seq=batch.seq, attempts=0)
        assert batch.seq > behind.seq
        assert texts(batches_of(await storage.queue.dead())) == ["b"]
        again = claimed(await take(storage, fence))
        assert texts(again.batches) == ["behind", "a"]
        assert [each.attempts for each in again.batches] == [1, 1]

    async def test_a_command_stays_a_command(self, harness: Harness) -> None:
        """A requeued letter returns to its lane."""
        storage = await harness.open()
        await started(storage)
        fence = await leased(storage)
        await queued(storage, command("c"))
        claim = claimed(await storage.queue.claim_command(fence, ttl_ms=TTL))
        await storage.queue.bury(claim, reason="r")
        await storage.queue.requeue("s", claim.batches[0].batch_id)
        assert nothing(await take(storage, fence)) is EmptyReason.COMMAND_AT_HEAD
        assert texts(claimed(await storage.queue.claim_command(fence, ttl_ms=TTL)).batches) == ["c"]

    async def test_a_letter_can_die_again(self, harness: Harness) -> None:
        """Requeued work that fails again is buried again, under its new reason."""
        storage, fence, claim = await held(harness)
        await storage.queue.bury(claim, reason="first")
        await storage.queue.requeue("s", claim.batches[1].batch_id)
        await storage.queue.bury(claimed(await take(storage, fence)), reason="second")
        letters = await storage.queue.dead()
        assert [(letter.reason, letter.attempts) for letter in letters] == [("first", 1), ("second", 1)]
        assert texts(batches_of(letters)) == ["a", "b"]

    async def test_one_of_two_requeues(self, harness: Harness) -> None:
        """Of concurrent requeues one succeeds; the others report the letter as missing."""
        storage, other = await harness.open(), await harness.open()
        claim = await _fill(storage)
        await storage.queue.bury(claim, reason="r")
        batch_id = claim.batches[0].batch_id
        answers = await asyncio.gather(
            *(each.queue.requeue("s", batch_id) for each in (storage, other) * 4), return_exceptions=True
        )
        assert sorted(type(answer).__name__ for answer in answers) == ["Batch", *["DeadLetterNotFound"] * 7]
        assert texts(await storage.queue.list("s")) == ["a"]

    async def test_requeue_and_discard_exclude_each_other(self, harness: Harness) -> None:
        """A discarded letter cannot be requeued, and a requeued one cannot be discarded."""
        storage, other = await harness.open(), await harness.open()
        claim = await _fill(storage, *(joining(str(number)) for number in range(8)))
        await storage.queue.bury(claim, reason="r")
        for batch in claim.batches:
            back, gone = await asyncio.gather(
                storage.queue.requeue("s", batch.batch_id),
                other.queue.discard("s", batch.batch_id),
                return_exceptions=True,
            )
            assert isinstance(back, Batch) is (gone is False)
            assert isinstance(back, DeadLetterNotFound) is (gone is True)
            assert (batch.batch_id in [each.batch_id for each in await storage.queue.list("s")]) is (gone is False)
        assert await storage.queue.dead() == ()

    async def test_what_is_not_there_is_said_so(self, harness: Harness) -> None:
        """A requeue names missing letters, a discard reports that it found none; neither touches queued work."""
        storage, _, claim = await held(harness)
        batch_id = claim.batches[0].batch_id
        with pytest.raises(DeadLetterNotFound) as refused:
            await storage.queue.requeue("s", batch_id)
        assert (refused.value.session_id, refused.value.batch_id) == ("s", batch_id)
        assert not await storage.queue.discard("s", batch_id)
        assert texts(await storage.queue.list("s")) == ["a", "b"]

    async def test_discarded_letters_are_gone(self, harness: Harness) -> None:
        """A discard removes one letter, once, and leaves the others."""
        storage, _, claim = await held(harness)
        await storage.queue.bury(claim, reason="r")
        batch_id = claim.batches[0].batch_id
        assert await storage.queue.discard("s", batch_id)
        assert not await storage.queue.discard("s", batch_id)
        with pytest.raises(DeadLetterNotFound):
            await storage.queue.requeue("s", batch_id)
        assert texts(batches_of(await storage.queue.dead())) == ["b"]

    async def test_letters_survive_reopening(self, harness: Harness) -> None:
        """A letter survives closing and reopening, and can still be requeued."""
        storage, _, claim = await held(harness)
        await storage.queue.bury(claim, reason="r", error={"k": 1})
        letters = await storage.queue.dead()
        storage = await harness.reopen()
        assert await storage.queue.dead() == letters
        assert (await storage.queue.requeue("s", claim.batches[0].batch_id)).payloads == claim.batches[0].payloads


async def held(harness: Harness) -> tuple[Storage, LeaseFence, Claim]:
    """Return a storage, the lease on its session ``s``, and a claim on all its batches, ``a`` and ``b``."""
    storage = await harness.open()
    await started(storage)
    fence = await leased(storage)
    await queued(storage, joining("a"), joining("b"))
    return storage, fence, claimed(await take(storage, fence))


async def _fill(storage: Storage, *drafts: BatchDraft) -> Claim:
    """Enqueue the drafts to a new session ``s``, by default one input ``a``, and claim them."""
    await started(storage)
    await queued(storage, *(drafts or (joining("a"),)))
    return claimed(await take(storage, await leased(storage)))


async def take(storage: Storage, fence: LeaseFence, max_batches: int = 100) -> ClaimOutcome:
    """Claim the next work."""
    return await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=TTL, max_batches=max_batches)


async def _refused(storage: Storage, claim: Claim) -> None:
    """Check that burying the claim is refused and changes nothing."""
    before = await observe_queue(storage), await storage.queue.dead()
    with pytest.raises(ClaimLost) as lost:
        await storage.queue.bury(claim, reason="r")
    assert (lost.value.session_id, lost.value.claim_id) == ("s", claim.claim_id)
    assert (await observe_queue(storage), await storage.queue.dead()) == before


def batches_of(letters: tuple[DeadLetter, ...]) -> list[Batch]:
    """Return the batches of the letters, in their order."""
    return [letter.batch for letter in letters]
