"""The contract of effect claims: one runner at a time, fenced outcomes, and effects that run once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from lash.base.limits import MAX_INTEGER
from lash.errors import Conflict, EffectLeaseLost, EffectNotRecorded, InvalidInput
from lash.model.effect import EffectClaim, EffectClaimed, EffectError, EffectStatus, Sleep
from lash.model.lease import LocalProcess
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.effect_state import ANN, BOB, TTL, refuse, seen, stored
from tests.factories.effect import BROKEN, TURN, busy, claimed, effect, replayed, unknown
from tests.factories.session import created, owner


class TestEffectClaim:
    """Laws of claiming, renewing, finishing and releasing."""

    async def test_a_claim_says_who_runs_it(self, harness: Harness) -> None:
        """The first caller gets the claim; the record in progress names the runner and its expiry."""
        storage = await _storage(harness)
        runner = owner("ann", process=LocalProcess(host_id="h", boot_id="b", pid=1, process_start="1"))
        claim = claimed(await storage.effects.claim(effect(), runner, ttl_ms=TTL))
        now = harness.clock.now_ms()
        assert (claim.scope, claim.replay_key, claim.owner) == (TURN, "k", runner)
        assert (claim.fencing, claim.expires_at_ms, claim.due_at_ms) == (1, now + TTL, None)
        record = await stored(storage)
        assert (record.status, record.owner, record.fencing) == (EffectStatus.IN_PROGRESS, runner, 1)
        assert (record.expires_at_ms, record.once, record.created_at_ms) == (now + TTL, False, now)
        assert (record.outcome, record.error, record.settled_rank) == (None, None, None)

    async def test_others_are_told_to_wait(self, harness: Harness) -> None:
        """Until a claim expires every other caller is busy and gets its holder's name; so does the same worker."""
        storage, other = await _storage(harness), await harness.open()
        claim = claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL))
        await harness.clock.advance(TTL - 1)
        before = await seen(storage)
        for rival in (ANN, BOB):
            answer = busy(await other.effects.claim(effect(), rival, ttl_ms=TTL))
            assert (answer.holder, answer.until_ms) == (ANN, claim.expires_at_ms)
        assert await seen(storage) == before

    async def test_one_of_many_runs_it(self, harness: Harness) -> None:
        """Of sixteen concurrent callers one gets the claim; once it finishes, all others replay its outcome."""
        storages = [await _storage(harness), *[await harness.open() for _ in range(3)]]
        asking = [
            storages[number % 4].effects.claim(effect(), owner(f"w{number}"), ttl_ms=60_000) for number in range(16)
        ]
        answers = await asyncio.gather(*asking)
        (winner,) = (answer for answer in answers if isinstance(answer, EffectClaimed))
        assert {busy(answer).holder for answer in answers if answer is not winner} == {winner.claim.owner}
        record = await storages[0].effects.finish(winner.claim, "won")
        for storage in storages:
            assert replayed(await storage.effects.claim(effect(), BOB, ttl_ms=TTL)) == record

    async def test_a_renewed_claim_is_not_taken(self, harness: Harness) -> None:
        """A claim renewed in time is not taken by another worker; renewing never shortens it."""
        storage = await _storage(harness)
        claim = claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL))
        for _ in range(3):
            await harness.clock.advance(TTL - 1)
            claim = await storage.effects.renew(claim, ttl_ms=TTL)
            assert claim.expires_at_ms == harness.clock.now_ms() + TTL
            assert busy(await storage.effects.claim(effect(), BOB, ttl_ms=TTL)).until_ms == claim.expires_at_ms
        assert await storage.effects.renew(claim, ttl_ms=1) == claim
        assert (await storage.effects.finish(claim, 1)).outcome == 1

    async def test_a_lapsed_claim_is_taken_over(self, harness: Harness) -> None:
        """From its expiry on any worker may take a claim, with a larger number; the old runner is then refused."""
        storage = await _storage(harness)
        former = claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL))
        await harness.clock.advance(TTL)
        heir = claimed(await storage.effects.claim(effect(), BOB, ttl_ms=TTL), taken_over=True)
        assert (heir.fencing, heir.owner, heir.envelope_hash) == (2, BOB, former.envelope_hash)
        await _refuse_claim(storage, former)
        before = await seen(storage)
        assert not await storage.effects.release(former)
        assert await seen(storage) == before
        assert (await storage.effects.finish(heir, "heir")).outcome == "heir"
        await _refuse_claim(storage, former)

    @pytest.mark.parametrize("once", [False, True])
    async def test_a_lapsed_claim_that_was_not_taken_holds(self, harness: Harness, *, once: bool) -> None:
        """Until another worker takes an expired claim, its runner can renew it and record the outcome."""
        storage = await _storage(harness)
        claim = claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL, once=once))
        await harness.clock.advance(TTL * 3)
        assert (await storage.effects.renew(claim, ttl_ms=TTL)).expires_at_ms == harness.clock.now_ms() + TTL
        await harness.clock.advance(TTL * 3)
        record = await storage.effects.finish(claim, "late")
        assert (record.status, record.outcome) == (EffectStatus.COMPLETED, "late")
        assert replayed(await storage.effects.claim(effect(), BOB, ttl_ms=TTL)) == record

    async def test_a_call_that_is_repeated_with_its_token_gets_its_claim(self, harness: Harness) -> None:
        """A repeat with the same token gets the same claim, also after its expiry; another token is another caller."""
        storage, other = await _storage(harness), await harness.open()
        first = await storage.effects.claim(effect(), ANN, ttl_ms=TTL, once=True, token="try")
        assert await other.effects.claim(effect(), ANN, ttl_ms=TTL, once=True, token="try") == first
        busy(await storage.effects.claim(effect(), ANN, ttl_ms=TTL, once=True, token="2"))
        await harness.clock.advance(TTL)
        assert await other.effects.claim(effect(), ANN, ttl_ms=TTL, once=True, token="try") == first
        unknown(await storage.effects.claim(effect(), ANN, ttl_ms=TTL, once=True, token="2"))
        with pytest.raises(InvalidInput, match="token"):
            await storage.effects.claim(effect(), ANN, ttl_ms=TTL, token="")

    async def test_fencing_numbers_only_grow(self, harness: Harness) -> None:
        """Every claim has a larger number and a new token, across release, expiry and takeover."""
        storage = await _storage(harness)
        claims: list[EffectClaim] = []
        for number in range(6):
            decision = await storage.effects.claim(effect(), (ANN, BOB)[number % 2], ttl_ms=TTL)
            assert isinstance(decision, EffectClaimed)
            claims.append(decision.claim)
            if number % 2:
                assert await storage.effects.release(decision.claim)
            else:
                await harness.clock.advance(TTL)
        assert [claim.fencing for claim in claims] == [1, 2, 3, 4, 5, 6]
        assert len({claim.token for claim in claims}) == 6

    async def test_a_forged_claim_does_nothing(self, harness: Harness) -> None:
        """A claim with another token, number, hash or key holds nothing."""
        storage = await _storage(harness)
        claim = claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL))
        for forged in (
            msgspec.structs.replace(claim, token="forged"),
            msgspec.structs.replace(claim, fencing=2),
            msgspec.structs.replace(claim, envelope_hash="0" * 64),
            msgspec.structs.replace(claim, replay_key="other"),
        ):
            await _refuse_claim(storage, forged)
            assert not await storage.effects.release(forged)
        assert (await storage.effects.finish(claim, 1)).outcome == 1

    async def test_a_settled_effect_is_closed(self, harness: Harness) -> None:
        """After its outcome, the claim can neither renew, release nor record another; the runner stays recorded."""
        storage = await _storage(harness)
        claim = claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL))
        record = await storage.effects.finish(claim, {"a": 1})
        assert (record.owner, record.fencing, record.expires_at_ms) == (ANN, 1, None)
        for call in (
            storage.effects.renew(claim, ttl_ms=TTL),
            storage.effects.finish(claim, {"a": 2}),
            storage.effects.fail(claim, BROKEN),
        ):
            await refuse(storage, call, EffectLeaseLost, naming="'k'")
        assert not await storage.effects.release(claim)
        assert await stored(storage) == record

    async def test_an_answer_may_be_lost(self, harness: Harness) -> None:
        """Finishing or failing again with the same outcome returns the record, even after the expiry."""
        storage, other = await _storage(harness), await harness.open()
        done = claimed(await storage.effects.claim(effect("1"), ANN, ttl_ms=TTL))
        broken = claimed(await storage.effects.claim(effect("2"), ANN, ttl_ms=TTL))
        first = (await storage.effects.finish(done, [1]), await storage.effects.fail(broken, BROKEN))
        await harness.clock.advance(TTL)
        before = await seen(storage)
        assert (await other.effects.finish(done, [1]), await other.effects.fail(broken, BROKEN)) == first
        assert await seen(storage) == before

    async def test_what_is_given_back_runs_again(self, harness: Harness) -> None:
        """A released effect has no outcome; the next caller runs it as if it were new."""
        storage = await _storage(harness)
        claim = claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL))
        assert await storage.effects.release(claim)
        record = await stored(storage)
        assert (record.status, record.owner, record.expires_at_ms) == (EffectStatus.IN_PROGRESS, None, None)
        await _refuse_claim(storage, claim)
        assert not await storage.effects.release(claim)
        again = claimed(await storage.effects.claim(effect(), BOB, ttl_ms=TTL))
        assert again.fencing == 2

    async def test_a_lapsed_claim_can_be_given_back(self, harness: Harness) -> None:
        """A runner may release its lapsed claim as long as no other worker took the effect over."""
        storage = await _storage(harness)
        claim = claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL, once=True))
        await harness.clock.advance(TTL)
        assert await storage.effects.release(claim)
        assert claimed(await storage.effects.claim(effect(), BOB, ttl_ms=TTL, once=True)).fencing == 2

    async def test_a_sleep_is_due_once(self, harness: Harness) -> None:
        """The due time is set by the first claim; renewing, releasing and taking over do not move it."""
        storage = await _storage(harness)
        now = harness.clock.now_ms()
        sleep, moment = effect("for", Sleep(duration_ms=5_000)), effect("until", Sleep(until_ms=now + 7_000))
        claim = claimed(await storage.effects.claim(sleep, ANN, ttl_ms=TTL))
        assert claimed(await storage.effects.claim(moment, ANN, ttl_ms=TTL)).due_at_ms == now + 7_000
        assert (claim.due_at_ms, (await storage.effects.renew(claim, ttl_ms=TTL)).due_at_ms) == (now + 5_000,) * 2
        await harness.clock.advance(TTL)
        heir = claimed(await storage.effects.claim(sleep, BOB, ttl_ms=TTL), taken_over=True)
        await storage.effects.release(heir)
        third = claimed(await storage.effects.claim(sleep, ANN, ttl_ms=TTL))
        assert (heir.due_at_ms, third.due_at_ms) == (now + 5_000,) * 2
        record = await storage.effects.finish(third, None)
        assert (
            replayed(await storage.effects.claim(sleep, BOB, ttl_ms=TTL)).due_at_ms == record.due_at_ms == now + 5_000
        )

    async def test_a_sleep_resumes_after_reopening(self, harness: Harness) -> None:
        """The first due time still counts after the storage was reopened and the sleeper replaced."""
        storage = await _storage(harness)
        sleep = effect("k", Sleep(duration_ms=60_000))
        due = claimed(await storage.effects.claim(sleep, ANN, ttl_ms=TTL)).due_at_ms
        assert due == harness.clock.now_ms() + 60_000
        storage = await harness.reopen()
        await harness.clock.advance(TTL)
        heir = claimed(await storage.effects.claim(sleep, BOB, ttl_ms=TTL), taken_over=True)
        assert (heir.due_at_ms, (await stored(storage)).due_at_ms) == (due, due)

    async def test_times_do_not_overflow(self, harness: Harness) -> None:
        """A sleep beyond the range of time ends at its last moment."""
        storage = await _storage(harness)
        sleep = effect("k", Sleep(duration_ms=MAX_INTEGER))
        assert claimed(await storage.effects.claim(sleep, ANN, ttl_ms=TTL)).due_at_ms == MAX_INTEGER

    async def test_nonsense_is_refused(self, harness: Harness) -> None:
        """Invalid claims, errors and terms are refused before anything is read."""
        storage = await _storage(harness)
        claim = claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL))
        for call in (
            storage.effects.finish(cast("Any", "claim"), 1),
            storage.effects.fail(claim, cast("Any", ValueError("no value"))),
            storage.effects.fail(claim, EffectError(code=" ", message="m")),
            storage.effects.renew(claim, ttl_ms=-1),
            storage.effects.renew(msgspec.structs.replace(claim, fencing=0), ttl_ms=1),
            storage.effects.claim(effect("x"), cast("Any", "ann"), ttl_ms=TTL),
            storage.effects.take_over(effect(), ANN, ttl_ms=10**9),
        ):
            await refuse(storage, call, InvalidInput)


class TestEffectOnce:
    """Laws of effects that must not run twice."""

    async def test_after_a_crash_it_is_unknown(self, harness: Harness) -> None:
        """After a crash the effect is not taken over; every caller learns that it may have happened."""
        storage = await _storage(harness)
        claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL, once=True))
        await harness.clock.advance(TTL)
        before = await seen(storage)
        for once in (True, False):
            record = unknown(await storage.effects.claim(effect(), BOB, ttl_ms=TTL, once=once))
            assert (record.once, record.owner, record.status) == (True, ANN, EffectStatus.IN_PROGRESS)
        assert await seen(storage) == before

    async def test_the_later_caller_may_be_the_careful_one(self, harness: Harness) -> None:
        """A caller that must not repeat the effect is refused, even if it was begun as repeatable."""
        storage = await _storage(harness)
        claimed(await storage.effects.claim(effect(), ANN, ttl_ms=0))
        assert not unknown(await storage.effects.claim(effect(), BOB, ttl_ms=TTL, once=True)).once
        claimed(await storage.effects.claim(effect(), BOB, ttl_ms=TTL), taken_over=True)

    async def test_who_has_looked_it_up_takes_it_over(self, harness: Harness) -> None:
        """A caller that knows the outcome takes the effect over and records it; the old runner is refused."""
        storage = await _storage(harness)
        former = claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL, once=True))
        await harness.clock.advance(TTL)
        claim = await storage.effects.take_over(effect(), BOB, ttl_ms=TTL)
        assert (claim.fencing, claim.owner) == (2, BOB)
        await _refuse_claim(storage, former)
        assert busy(await storage.effects.claim(effect(), ANN, ttl_ms=TTL)).holder == BOB
        await harness.clock.advance(TTL)
        assert unknown(await storage.effects.claim(effect(), ANN, ttl_ms=TTL)).once, "it still must not run twice"
        again = await storage.effects.take_over(effect(), ANN, ttl_ms=TTL)
        record = await storage.effects.finish(again, "found")
        assert (record.fencing, record.once) == (3, True)
        assert replayed(await storage.effects.claim(effect(), BOB, ttl_ms=TTL, once=True)) == record

    async def test_only_what_is_abandoned_is_taken_over(self, harness: Harness) -> None:
        """An effect that never began, is running or has finished cannot be taken over."""
        storage = await _storage(harness)
        await refuse(storage, storage.effects.take_over(effect(), BOB, ttl_ms=TTL), EffectNotRecorded, naming="'k'")
        claim = claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL, once=True))
        await refuse(storage, storage.effects.take_over(effect(), BOB, ttl_ms=TTL), Conflict, naming="is running")
        await storage.effects.finish(claim, 1)
        await refuse(storage, storage.effects.take_over(effect(), BOB, ttl_ms=TTL), Conflict, naming="is completed")

    async def test_one_of_many_takes_it_over(self, harness: Harness) -> None:
        """Of eight concurrent takeovers of a lapsed effect one succeeds."""
        storages = [await _storage(harness), *[await harness.open() for _ in range(3)]]
        claimed(await storages[0].effects.claim(effect(), ANN, ttl_ms=0, once=True))
        taking = [
            storages[number % 4].effects.take_over(effect(), owner(f"w{number}"), ttl_ms=60_000) for number in range(8)
        ]
        answers = await asyncio.gather(*taking, return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in answers) == ["Conflict"] * 7 + ["EffectClaim"]
        assert (await stored(storages[0])).fencing == 2

    async def test_given_back_it_never_began(self, harness: Harness) -> None:
        """A released effect did not happen, so the next caller runs it."""
        storage = await _storage(harness)
        await storage.effects.release(claimed(await storage.effects.claim(effect(), ANN, ttl_ms=TTL, once=True)))
        await harness.clock.advance(TTL)
        claimed(await storage.effects.claim(effect(), BOB, ttl_ms=TTL))
        assert not (await stored(storage)).once


async def _storage(harness: Harness) -> Storage:
    storage = await harness.open()
    await created(storage)
    return storage


async def _refuse_claim(storage: Storage, claim: EffectClaim) -> None:
    """Assert that every use of the claim is refused and changes nothing."""
    for call in (
        storage.effects.renew(claim, ttl_ms=60_000),
        storage.effects.finish(claim, "late"),
        storage.effects.fail(claim, BROKEN),
    ):
        error = await refuse(storage, call, EffectLeaseLost)
        assert error.replay_key == claim.replay_key
