"""The contract of effect groups: ranks given once, in the order of completion."""

from __future__ import annotations

import asyncio

from lash.errors import Conflict, EffectLeaseLost, EffectMismatch, InvalidInput, SessionNotFound
from lash.model.effect import EffectGroup, Step, TurnScope
from lash.testing.harness import Harness
from tests.contract.effect_state import ANN, BOB, TTL, refuse, seen
from tests.factories.effect import BROKEN, TURN, claimed, effect, everywhere, in_session, replayed
from tests.factories.session import created, owner


class TestEffectGroup:
    """Laws of groups."""

    async def test_settled_effects_have_their_places(self, harness: Harness) -> None:
        """Finishing, failing and recording each take the next rank; beginning takes none."""
        storage = await harness.open()
        fence = await in_session(storage)
        assert await storage.effects.group(TURN, "g") is None
        opened = await storage.effects.open_group(TURN, "g", size=4)
        assert opened == EffectGroup(scope=TURN, group_key="g", size=4)
        claims = [claimed(await storage.effects.claim(effect(key, group="g"), ANN, ttl_ms=TTL)) for key in "abc"]
        assert await storage.effects.group(TURN, "g") == opened
        ranks = [
            (await storage.effects.finish(claims[2], 1)).settled_rank,
            (await storage.effects.record(fence, effect("d", group="g"), 1)).settled_rank,
            (await storage.effects.fail(claims[0], BROKEN)).settled_rank,
            (await storage.effects.finish(claims[1], 1)).settled_rank,
        ]
        assert ranks == [1, 2, 3, 4]
        settled = EffectGroup(scope=TURN, group_key="g", size=4, settled=("c", "d", "a", "b"))
        assert await storage.effects.group(TURN, "g") == settled
        assert await (await harness.open()).effects.group(TURN, "g") == settled

    async def test_a_repeat_takes_no_place(self, harness: Harness) -> None:
        """Repeating a record, finish or begin of a completed effect leaves the group unchanged."""
        storage = await harness.open()
        fence = await in_session(storage)
        await storage.effects.open_group(TURN, "g", size=3)
        record = await storage.effects.record(fence, effect("a", group="g"), 1)
        claim = claimed(await storage.effects.claim(effect("b", group="g"), ANN, ttl_ms=TTL))
        finished = await storage.effects.finish(claim, 1)
        before = await seen(storage)
        assert await storage.effects.record(fence, effect("a", group="g"), 2) == record
        assert await storage.effects.finish(claim, 1) == finished
        assert replayed(await storage.effects.claim(effect("a", group="g"), BOB, ttl_ms=TTL)) == record
        assert await seen(storage) == before
        assert (await storage.effects.record(fence, effect("c", group="g"), 1)).settled_rank == 3

    async def test_a_stolen_claim_takes_no_place(self, harness: Harness) -> None:
        """Finishing after a takeover changes neither effect nor counter; the new holder gets the rank."""
        storage = await harness.open()
        await created(storage)
        await storage.effects.open_group(TURN, "g", size=2)
        former = claimed(await storage.effects.claim(effect(group="g"), ANN, ttl_ms=TTL))
        await harness.clock.advance(TTL)
        heir = claimed(await storage.effects.claim(effect(group="g"), BOB, ttl_ms=TTL), taken_over=True)
        for call in (storage.effects.finish(former, 1), storage.effects.fail(former, BROKEN)):
            await refuse(storage, call, EffectLeaseLost)
        assert (await storage.effects.finish(heir, 1)).settled_rank == 1
        await refuse(storage, storage.effects.finish(former, 2), EffectLeaseLost)
        other = claimed(await storage.effects.claim(effect("other", group="g"), BOB, ttl_ms=TTL))
        assert (await storage.effects.finish(other, 1)).settled_rank == 2

    async def test_giving_back_and_taking_over_take_no_more_room(self, harness: Harness) -> None:
        """An effect is one member of its group, however often it is begun."""
        storage = await harness.open()
        await created(storage)
        await storage.effects.open_group(TURN, "g", size=1)
        await storage.effects.release(claimed(await storage.effects.claim(effect(group="g"), ANN, ttl_ms=TTL)))
        claimed(await storage.effects.claim(effect(group="g"), ANN, ttl_ms=0))
        claim = claimed(await storage.effects.claim(effect(group="g"), BOB, ttl_ms=TTL), taken_over=True)
        assert (await storage.effects.finish(claim, 1)).settled_rank == 1

    async def test_a_refused_opening_leaves_nothing(self, harness: Harness) -> None:
        """A refused opening is refused again, and leaves nothing behind."""
        storage = await harness.open()
        await created(storage)
        nowhere = TurnScope(session_id="nowhere", turn_id="t")
        for _ in range(2):
            for size in (0, -1):
                await refuse(storage, storage.effects.open_group(TURN, "g", size=size), InvalidInput, naming="size")
            await refuse(storage, storage.effects.open_group(nowhere, "g", size=1), SessionNotFound, naming="nowhere")
            await refuse(storage, storage.effects.open_group(TURN, " ", size=1), InvalidInput, naming="blank")
        await created(storage, "nowhere")
        assert await storage.effects.group(nowhere, "g") is None

    async def test_a_group_is_opened_equally_or_not_at_all(self, harness: Harness) -> None:
        """Opening again returns the group unchanged; another size is refused every time."""
        storage = await harness.open()
        fence = await in_session(storage)
        await storage.effects.open_group(TURN, "g", size=2)
        await storage.effects.record(fence, effect(group="g"), 1)
        again = await storage.effects.open_group(TURN, "g", size=2)
        assert (again.size, again.settled) == (2, ("k",))
        for _ in range(2):
            await refuse(storage, storage.effects.open_group(TURN, "g", size=3), Conflict, naming="'g'")

    async def test_only_an_open_group_with_room_takes_members(self, harness: Harness) -> None:
        """A group that is full or was not opened takes no member; the refused effect leaves no row."""
        storage = await harness.open()
        fence = await in_session(storage)
        for _ in range(2):
            for call in (
                storage.effects.claim(effect(group="g"), ANN, ttl_ms=TTL),
                storage.effects.record(fence, effect(group="g"), 1),
            ):
                await refuse(storage, call, Conflict, naming="not opened")
        await storage.effects.open_group(TURN, "g", size=1)
        claimed(await storage.effects.claim(effect(group="g"), ANN, ttl_ms=TTL))
        for call in (
            storage.effects.claim(effect("more", group="g"), ANN, ttl_ms=TTL),
            storage.effects.record(fence, effect("more", group="g"), 1),
        ):
            await refuse(storage, call, Conflict, naming="full")

    async def test_another_effect_takes_no_place(self, harness: Harness) -> None:
        """A mismatched effect is counted neither as a member nor as completed."""
        storage = await harness.open()
        fence = await in_session(storage)
        await storage.effects.open_group(TURN, "g", size=2)
        await storage.effects.record(fence, effect(group="g"), 1)
        other = effect("k", Step(name="other"), group="g")
        await refuse(storage, storage.effects.record(fence, other, 1), EffectMismatch)
        await refuse(storage, storage.effects.claim(other, ANN, ttl_ms=TTL), EffectMismatch)
        assert (await storage.effects.record(fence, effect("second", group="g"), 1)).settled_rank == 2

    async def test_those_who_settle_at_once_get_a_place_each(self, harness: Harness) -> None:
        """Twelve effects that begin and finish concurrently get twelve ranks."""
        storages = [await harness.open() for _ in range(3)]
        fence = await in_session(storages[0])
        await storages[0].effects.open_group(TURN, "g", size=12)

        async def run(number: int) -> int | None:
            storage, envelope = storages[number % 3], effect(f"k{number:02}", group="g")
            if number % 4 == 0:
                return (await storage.effects.record(fence, envelope, number)).settled_rank
            claim = claimed(await storage.effects.claim(envelope, owner(f"w{number}"), ttl_ms=60_000))
            return (await storage.effects.finish(claim, number)).settled_rank

        ranks = await asyncio.gather(*(run(number) for number in range(12)))
        assert sorted(rank or 0 for rank in ranks) == list(range(1, 13))
        group = await storages[0].effects.group(TURN, "g")
        assert group is not None
        assert group.settled == tuple(f"k{number:02}" for _, number in sorted(zip(ranks, range(12), strict=True)))

    async def test_the_room_is_not_given_twice(self, harness: Harness) -> None:
        """Of concurrent effects that want the last rank of a group one gets it."""
        storages = [await harness.open() for _ in range(3)]
        await created(storages[0])
        await storages[0].effects.open_group(TURN, "g", size=1)
        asking = [
            storages[number % 3].effects.claim(effect(f"k{number}", group="g"), ANN, ttl_ms=60_000)
            for number in range(6)
        ]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in answers) == ["Conflict"] * 5 + ["EffectClaimed"]
        assert len(await storages[0].effects.list(TURN)) == 1

    async def test_groups_belong_to_their_scope(self, harness: Harness) -> None:
        """The same key in another scope is another group, for every kind of owner."""
        storage = await harness.open()
        scopes = await everywhere(storage)
        for size, scope in enumerate(scopes, start=1):
            await storage.effects.open_group(scope, "g", size=size)
            claim = claimed(await storage.effects.claim(effect(f"k{size}", scope=scope, group="g"), ANN, ttl_ms=TTL))
            await storage.effects.finish(claim, 1)
        for size, scope in enumerate(scopes, start=1):
            assert await storage.effects.group(scope, "g") == EffectGroup(
                scope=scope, group_key="g", size=size, settled=(f"k{size}",)
            )
