"""The contract of claims: the next work in order, for one worker at a time, in whole groups."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import pytest

from lash.errors import ClaimLost, LeaseLost
from lash.model.lease import LeaseFence, session_resource
from lash.model.queue import BatchDraft, Boundary, Claim, ClaimOutcome, EmptyReason, NothingClaimed, Slot
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import (
    LONG,
    TTL,
    claimed,
    command,
    early,
    joining,
    late,
    leased,
    nothing,
    observe_queue,
    queued,
    texts,
)
from tests.factories.session import created, started

IDLE, CHECKPOINT = Boundary.IDLE, Boundary.ACTIVE_TURN_CHECKPOINT

GROUPS: Final[dict[str, tuple[list[BatchDraft], list[list[str]]]]] = {
    "exclusive batches come alone": ([early("a"), early("b")], [["a"], ["b"]]),
    "neighbours of one key join": ([joining("a"), joining("b"), joining("c")], [["a", "b", "c"]]),
    "without a key none joins": ([joining("a", None), joining("b", None)], [["a"], ["b"]]),
    "another key splits": ([joining("a"), joining("b", "h"), joining("c")], [["a"], ["b"], ["c"]]),
    "another delivery splits": (
        [joining("a"), late("b", slot=Slot.JOIN, merge_key="g"), joining("c")],
        [["a"], ["b"], ["c"]],
    ),
    "late work joins too": ([late(text, slot=Slot.JOIN, merge_key="g") for text in "ab"], [["a", "b"]]),
    "exclusive is claimed alone": ([early("a", merge_key="g"), joining("b"), joining("c")], [["a"], ["b", "c"]]),
    "exclusive joins no group": ([joining("a"), early("b", merge_key="g"), joining("c")], [["a"], ["b"], ["c"]]),
    "the limit caps": ([joining(text) for text in "abcdefg"], [["a", "b", "c"], ["d", "e", "f"], ["g"]]),
    "delayed work does not split": (
        [joining("a"), joining("x", "h", available_at_ms=2**62), joining("b")],
        [["a", "b"]],
    ),
}
"""Enqueued drafts, and the groups that idle claims of at most three get."""


class TestQueueClaim:
    """Laws of claiming."""

    @pytest.mark.parametrize("case", GROUPS)
    async def test_a_claim_is_one_group(self, harness: Harness, case: str) -> None:
        """The first batch comes with the batches directly behind it that may join it, up to the limit."""
        storage, fence = await _leased(harness)
        drafts, groups = GROUPS[case]
        await queued(storage, *drafts)
        for group in groups:
            assert texts((await _claim(storage, fence, max_batches=3)).batches) == group
        rest = await storage.queue.claim(fence, boundary=IDLE, ttl_ms=TTL, max_batches=3)
        assert nothing(rest) is EmptyReason.CLAIMED

    async def test_a_claim_says_what_it_holds_and_until_when(self, harness: Harness) -> None:
        """The claim has the whole batches in order, each with one more attempt."""
        storage, fence = await _leased(harness)
        batches = await queued(storage, joining("a", source_key="k"), joining("b"))
        claim = await _claim(storage, fence)
        now = harness.clock.now_ms()
        assert (claim.session_id, claim.lease_fencing) == ("s", fence.fencing)
        assert (claim.claimed_at_ms, claim.expires_at_ms) == (now, now + TTL)
        assert claim.batches == tuple(msgspec.structs.replace(batch, attempts=1) for batch in batches)
        assert claim.completion.batch_ids == tuple(batch.batch_id for batch in batches)
        assert await storage.queue.list("s") == claim.batches

    async def test_a_checkpoint_gets_early_work_only(self, harness: Harness) -> None:
        """Early work does not wait behind late work, and late work waits for the end of the turn."""
        storage, fence = await _leased(harness)
        await queued(storage, late("a"), joining("b"), late("c"), joining("d"))
        assert texts((await _claim(storage, fence, CHECKPOINT)).batches) == ["b", "d"]
        assert nothing(await _try(storage, fence, CHECKPOINT)) is EmptyReason.AFTER_TURN
        assert texts((await _claim(storage, fence)).batches) == ["a"]
        assert texts((await _claim(storage, fence)).batches) == ["c"]

    async def test_delayed_work_is_skipped_until_it_is_due(self, harness: Harness) -> None:
        """Later work can be claimed meanwhile; once due, the delayed batch has the position it was enqueued at."""
        storage, fence = await _leased(harness)
        due = harness.clock.now_ms() + 10
        await queued(storage, joining("a", available_at_ms=due), joining("b"), joining("c", available_at_ms=due + 1))
        claim = await _claim(storage, fence)
        assert texts(claim.batches) == ["b"]
        await storage.queue.abandon(claim)
        await harness.clock.advance(10)
        claim = await _claim(storage, fence)
        assert texts(claim.batches) == ["a", "b"]
        await storage.queue.abandon(claim)
        await harness.clock.advance(1)
        assert texts((await _claim(storage, fence)).batches) == ["a", "b", "c"]

    async def test_an_empty_claim_says_why(self, harness: Harness) -> None:
        """An empty claim has its reason, and the due time of delayed work."""
        storage, fence = await _leased(harness)
        due = harness.clock.now_ms() + 500
        assert await _try(storage, fence) == NothingClaimed(reason=EmptyReason.EMPTY)
        assert nothing(await storage.queue.claim_command(fence, ttl_ms=TTL)) is EmptyReason.EMPTY
        await queued(storage, late("x", available_at_ms=due + 5), late("y", available_at_ms=due))
        delayed = NothingClaimed(reason=EmptyReason.NOT_YET_AVAILABLE, next_available_at_ms=due)
        assert await _try(storage, fence) == await storage.queue.claim_command(fence, ttl_ms=TTL) == delayed
        (batch,) = await queued(storage, late("a"))
        assert nothing(await _try(storage, fence, CHECKPOINT)) is EmptyReason.AFTER_TURN
        assert nothing(await storage.queue.claim_command(fence, ttl_ms=TTL)) is EmptyReason.TURN_WORK_AT_HEAD
        assert nothing(await storage.queue.claim_batches(fence, ["other"], ttl_ms=TTL)) is EmptyReason.NOT_AT_HEAD
        await storage.queue.cancel("s", batch.batch_id)
        await queued(storage, command("c"))
        assert nothing(await _try(storage, fence)) is EmptyReason.COMMAND_AT_HEAD
        claimed(await storage.queue.claim_command(fence, ttl_ms=TTL))
        assert await _try(storage, fence) == NothingClaimed(reason=EmptyReason.CLAIMED, next_available_at_ms=due)

    async def test_a_command_is_overtaken_by_nothing(self, harness: Harness) -> None:
        """A ready command blocks the work behind it, is claimed alone, and waits for the work before it."""
        storage, fence = await _leased(harness)
        await queued(storage, joining("a"), command("c"), command("d"), joining("b"))
        assert nothing(await storage.queue.claim_command(fence, ttl_ms=TTL)) is EmptyReason.TURN_WORK_AT_HEAD
        assert texts((await _claim(storage, fence)).batches) == ["a"]
        for label in "cd":
            for boundary in Boundary:
                assert nothing(await _try(storage, fence, boundary)) is EmptyReason.COMMAND_AT_HEAD
            held = claimed(await storage.queue.claim_command(fence, ttl_ms=TTL))
            assert texts(held.batches) == [label]
        assert texts((await _claim(storage, fence, CHECKPOINT)).batches) == ["b"]

    async def test_a_delayed_command_blocks_nothing(self, harness: Harness) -> None:
        """A command blocks only from its due time on, at its own position."""
        storage, fence = await _leased(harness)
        await queued(storage, command("c", available_at_ms=harness.clock.now_ms() + 10), early("a"), early("b"))
        assert texts((await _claim(storage, fence)).batches) == ["a"]
        await harness.clock.advance(10)
        assert nothing(await _try(storage, fence)) is EmptyReason.COMMAND_AT_HEAD
        assert texts(claimed(await storage.queue.claim_command(fence, ttl_ms=TTL)).batches) == ["c"]

    async def test_exact_batches_are_claimed_if_they_come_next(self, harness: Harness) -> None:
        """A claim by ids gets exactly the next group: not out of order, not beyond it, not further back."""
        storage, fence = await _leased(harness)
        a, b, c, d = (batch.batch_id for batch in await queued(storage, *(joining(text) for text in "abc"), early("d")))
        before = await observe_queue(storage)
        for wrong in ([b, a], [b], [a, c], [a, b, c, d], ["unknown"], [a, "unknown"]):
            outcome = await storage.queue.claim_batches(fence, wrong, ttl_ms=TTL)
            assert outcome == NothingClaimed(reason=EmptyReason.NOT_AT_HEAD)
        assert await observe_queue(storage) == before
        assert texts(claimed(await storage.queue.claim_batches(fence, [a, b], ttl_ms=TTL)).batches) == ["a", "b"]
        assert texts(claimed(await storage.queue.claim_batches(fence, (c,), ttl_ms=TTL)).batches) == ["c"]

    async def test_a_claim_of_nothing_asks_nothing(self, harness: Harness) -> None:
        """A claim of no batches returns nothing, even under a fence that is not valid."""
        storage, fence = await _leased(harness)
        await queued(storage, early("a"))
        false = msgspec.structs.replace(fence, token="false")
        outcome = await storage.queue.claim(false, boundary=IDLE, ttl_ms=TTL, max_batches=0)
        assert outcome == NothingClaimed(reason=EmptyReason.NOTHING_ASKED_FOR)
        assert await storage.queue.claim_batches(false, [], ttl_ms=TTL) == outcome
        assert texts(await storage.queue.list_pending("s")) == ["a"]

    @pytest.mark.parametrize("fault", ["released", "expired", "taken over", "token", "owner", "number", "session"])
    async def test_a_claim_needs_a_live_lease(self, harness: Harness, fault: str) -> None:
        """A fence that is not the session's live one raises LeaseLost, and nothing is claimed."""
        storage, fence = await _leased(harness)
        await created(storage, "other")
        foreign = await leased(storage, session_id="other")
        (batch,) = await queued(storage, early("a"))
        # Delayed work that has become due: only a holder of the lease may make it ready.
        await queued(storage, command("c"), early("due", available_at_ms=harness.clock.now_ms() + 1))
        await harness.clock.advance(1)
        if fault == "released":
            await storage.leases.release(fence)
        if fault in ("expired", "taken over"):
            await harness.clock.advance(LONG)
        if fault == "taken over":
            await leased(storage, "successor")
        changes: dict[str, dict[str, object]] = {
            "token": {"token": foreign.token},
            "owner": {"owner_id": "stranger"},
            "number": {"fencing": fence.fencing + 1},
            "session": {"resource": session_resource("other")},
        }
        stale = msgspec.structs.replace(fence, **changes.get(fault, {}))
        before = await observe_queue(storage)
        for call in (
            _try(storage, stale),
            _try(storage, stale, CHECKPOINT),
            storage.queue.claim_command(stale, ttl_ms=TTL),
            storage.queue.claim_batches(stale, [batch.batch_id], ttl_ms=TTL),
        ):
            with pytest.raises(LeaseLost):
                await call
        assert await observe_queue(storage) == before

    async def test_claimed_work_is_not_claimed_again(self, harness: Harness) -> None:
        """Claimed work is not claimed again until its expiry, not even by the holder of the lease."""
        storage, fence = await _leased(harness)
        await queued(storage, early("a"))
        first = await _claim(storage, fence)
        await harness.clock.advance(TTL - 1)
        assert nothing(await _try(storage, fence)) is EmptyReason.CLAIMED
        await harness.clock.advance(1)
        second = await _claim(storage, fence)
        assert (texts(second.batches), second.batches[0].attempts) == (["a"], 2)
        assert second.token != first.token

    async def test_many_claims_do_not_hide_free_work(self, harness: Harness) -> None:
        """A claim finds free work behind more claimed batches than it reads at once."""
        storage, fence = await _leased(harness)
        await queued(storage, *(joining(str(number)) for number in range(70)), early("free"))
        assert len((await _claim(storage, fence, max_batches=70)).batches) == 70
        assert texts((await _claim(storage, fence, max_batches=1)).batches) == ["free"]

    async def test_of_concurrent_claims_one_gets_the_work(self, harness: Harness) -> None:
        """No batch is in two claims, and the winner can renew."""
        storages = [await harness.open() for _ in range(3)]
        await created(storages[0])
        fence = await leased(storages[0])
        for number in range(5):
            await queued(storages[0], joining(f"{number}a", str(number)), joining(f"{number}b", str(number)))
            outcomes = await asyncio.gather(*(_try(storage, fence) for storage in storages))
            (winner,) = [outcome for outcome in outcomes if isinstance(outcome, Claim)]
            assert texts(winner.batches) == [f"{number}a", f"{number}b"]
            assert await storages[1].queue.renew(winner, ttl_ms=TTL) == winner

    async def test_work_of_different_sessions_is_apart(self, harness: Harness) -> None:
        """A claim takes work of its own session only, even where merge keys are equal."""
        storage, fence = await _leased(harness)
        await created(storage, "other")
        await queued(storage, joining("a"), joining("x", session_id="other"), joining("b"))
        claim = await _claim(storage, fence)
        assert texts(claim.batches) == ["a", "b"]
        assert texts(await storage.queue.list_pending("other")) == ["x"]
        moved = msgspec.structs.replace(claim, session_id="other")
        assert await storage.queue.abandon(moved) == 0
        with pytest.raises(ClaimLost):
            await storage.queue.renew(moved, ttl_ms=TTL)
        assert await storage.queue.list_pending("s") == ()


async def _leased(harness: Harness) -> tuple[Storage, LeaseFence]:
    storage = await harness.open()
    await started(storage)
    return storage, await leased(storage)


async def _try(storage: Storage, fence: LeaseFence, boundary: Boundary = IDLE, max_batches: int = 100) -> ClaimOutcome:
    return await storage.queue.claim(fence, boundary=boundary, ttl_ms=TTL, max_batches=max_batches)


async def _claim(storage: Storage, fence: LeaseFence, boundary: Boundary = IDLE, max_batches: int = 100) -> Claim:
    return claimed(await _try(storage, fence, boundary, max_batches))
