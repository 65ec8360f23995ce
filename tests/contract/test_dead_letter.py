"""What dead letters must hold: work that was given up is neither lost nor handled, until somebody decides."""

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
    """Laws about burying, seeing, requeueing and discarding work."""

    @pytest.mark.parametrize("error", ERRORS)
    async def test_a_dead_letter_tells_all(self, harness: Harness, error: str) -> None:
        """The batch as it was claimed, how often, why it was given up, and when."""
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
        """The session goes on with what stood behind; the dead are not listed, claimed or cancelled."""
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
        """A session whose work is all buried is no place to look for work."""
        storage, fence, claim = await held(harness)
        await storage.queue.bury(claim, reason="r")
        assert nothing(await take(storage, fence)) is EmptyReason.EMPTY
        await storage.leases.release(fence)
        assert await storage.queue.ready_sessions() == ()

    async def test_burying_again_changes_nothing(self, harness: Harness) -> None:
        """Whoever did not hear the answer buries again, and gets it; the first reason stands."""
        storage, _, claim = await held(harness)
        assert await storage.queue.bury(claim, reason="first") == 2
        before = await storage.queue.dead()
        await harness.clock.advance(1)
        assert await storage.queue.bury(claim, reason="second") == 2
        assert await storage.queue.dead() == before

    async def test_a_claim_that_ran_out_untaken_is_buried(self, harness: Harness) -> None:
        """Being late does no harm as long as nobody else took the work."""
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
        """What was given back, consumed or requeued is not held any more."""
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
        """Token, id and batches must all be those of the claim."""
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
        """After a takeover and a claim of the successor the work is not the old holder's to give up."""
        storage, _, claim = await held(harness)
        await harness.clock.advance(LONG)
        successor = await leased(storage, "successor")
        newer = claimed(await take(storage, successor))
        await _refused(storage, claim)
        await storage.session("s").commit(consuming(commit(1, node("b", "a"), fence=successor), newer))
        await _refused(storage, claim)

    async def test_a_buried_claim_does_not_complete(self, harness: Harness) -> None:
        """What was given up cannot be consumed, renewed or given back as well."""
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
        """Of a commit and a burial of the same claim at once, one is done and the other finds the claim lost."""
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
        """Whoever buries a claim at the same moment gets the same answer, and there is one letter for each."""
        storage, other = await harness.open(), await harness.open()
        claim = await _fill(storage, joining("a"), joining("b"))
        answers = await asyncio.gather(*(each.queue.bury(claim, reason="r") for each in (storage, other) * 4))
        assert answers == [2] * 8
        assert texts(batches_of(await storage.queue.dead())) == ["a", "b"]

    async def test_a_requeued_letter_comes_last_and_fresh(self, harness: Harness) -> None:
        """The id, content and age stay; the place is the last one, and no attempt is counted."""
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
        """A letter goes back to the lane from which it came."""
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
        """However many try at once, the work comes back once, and the others are told that it is gone."""
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
        """What was discarded does not come back, and what came back is not discarded."""
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
        """A requeue names what it did not find; a discard says that there was nothing; neither takes queued work."""
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
        """What was given up is there when the storage is opened again, and can still be requeued."""
        storage, _, claim = await held(harness)
        await storage.queue.bury(claim, reason="r", error={"k": 1})
        letters = await storage.queue.dead()
        storage = await harness.reopen()
        assert await storage.queue.dead() == letters
        assert (await storage.queue.requeue("s", claim.batches[0].batch_id)).payloads == claim.batches[0].payloads


async def held(harness: Harness) -> tuple[Storage, LeaseFence, Claim]:
    """Return a storage, the lease on its session ``s``, and a claim on all that is queued there: ``a`` and ``b``."""
    storage = await harness.open()
    await started(storage)
    fence = await leased(storage)
    await queued(storage, joining("a"), joining("b"))
    return storage, fence, claimed(await take(storage, fence))


async def _fill(storage: Storage, *drafts: BatchDraft) -> Claim:
    """Enqueue the drafts to a new session ``s``, one input ``a`` if there are none, and claim them."""
    await started(storage)
    await queued(storage, *(drafts or (joining("a"),)))
    return claimed(await take(storage, await leased(storage)))


async def take(storage: Storage, fence: LeaseFence, max_batches: int = 100) -> ClaimOutcome:
    """Claim what comes next."""
    return await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=TTL, max_batches=max_batches)


async def _refused(storage: Storage, claim: Claim) -> None:
    """Check that the claim cannot be buried, and that trying changes nothing."""
    before = await observe_queue(storage), await storage.queue.dead()
    with pytest.raises(ClaimLost) as lost:
        await storage.queue.bury(claim, reason="r")
    assert (lost.value.session_id, lost.value.claim_id) == ("s", claim.claim_id)
    assert (await observe_queue(storage), await storage.queue.dead()) == before


def batches_of(letters: tuple[DeadLetter, ...]) -> list[Batch]:
    """Return the batches of the letters, in their order."""
    return [letter.batch for letter in letters]
