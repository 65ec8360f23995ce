"""Laws of trigger subscriptions: one for each owner and key, changed only at its latest revision."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from lash.errors import SessionDeleted, SessionNotFound, TriggerConflict, TriggerNotFound
from lash.model.process.process import EngineInput, ProcessIdentity
from lash.model.trigger.trigger import DeletedTrigger, RegisteredTrigger, TriggerSubscription
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.trigger_state import listed, refuse, trigger_world
from tests.factories.session import created
from tests.factories.trigger import BUTTON, HOST, by_session, found, pressed, subscribed, trigger

OTHER: Final = EngineInput(kind="work", payload={"module": "other"})


class TestTrigger:
    """Laws of creating, changing and deleting subscriptions."""

    async def test_the_source_key_is_a_function(self, harness: Harness) -> None:
        """The default key of a source depends only on its type and description."""
        storage = await harness.open()
        key = storage.triggers.source_key
        assert key(BUTTON, {"a": 1, "b": [2]}) == key(BUTTON, {"b": [2], "a": 1})
        different = {key(BUTTON), key(BUTTON, {"a": 1}), key("ui.button", {}), key(BUTTON, []), key(BUTTON, "x")}
        assert len(different) == 5
        assert key(BUTTON) == key(BUTTON, {})
        assert key(BUTTON) == (
            "source:ui.button.pressed:v1:888717cfc6f331698a5f2bbd755cebf347d005f0c46d1c9521b92db891bd15a2"
        )

    async def test_registering_twice_is_one(self, harness: Harness) -> None:
        """Registering the same definition returns the same subscription; each name has its own id."""
        storage = await harness.open()
        first = await storage.triggers.register(trigger(label="mine"))
        assert first.created
        await harness.clock.advance(5)
        again = await (await harness.open()).triggers.register(
            trigger(identity=ProcessIdentity(kind="work", label="mine"))
        )
        assert again == RegisteredTrigger(subscription=first.subscription, created=False)
        other = await storage.triggers.register(trigger("other", label="mine"))
        assert other.created
        assert other.subscription.subscription_id != first.subscription.subscription_id
        assert await listed(storage) == ["other", "k"]

    async def test_a_new_subscription_is_enabled_at_revision_one(self, harness: Harness) -> None:
        """A registered definition is returned unchanged, with the given label in its identity."""
        storage = await harness.open()
        subscription = (await storage.triggers.register(trigger(label="mine", source={"a": [1]}))).subscription
        assert (subscription.revision, subscription.enabled) == (1, True)
        assert subscription.created_at_ms == subscription.updated_at_ms == harness.clock.now_ms()
        assert subscription.definition == trigger(
            identity=ProcessIdentity(kind="work", label="mine"), source={"a": [1]}
        )
        assert await found(storage) == subscription

    async def test_another_definition_is_a_conflict(self, harness: Harness) -> None:
        """Registering another definition under a name raises TriggerConflict, which names the revision."""
        storage = await harness.open()
        await subscribed(storage)
        for changed in (trigger(target=OTHER), trigger(source={"a": 1}), trigger(wake_session_id="s")):
            await refuse(storage, storage.triggers.register(changed), TriggerConflict, "'k'", "the host", "revision 1")

    async def test_owners_do_not_share_keys(self, harness: Harness) -> None:
        """The host and each session have separate names; the frame of a session makes no difference."""
        storage = await harness.open()
        await created(storage, "s")
        await created(storage, "t")
        made = [
            await storage.triggers.register(trigger(owner=owner)) for owner in (HOST, by_session(), by_session("t"))
        ]
        assert len({each.subscription.subscription_id for each in made}) == 3
        framed = await storage.triggers.register(trigger(owner=by_session("s", "frame")))
        assert framed == RegisteredTrigger(subscription=made[1].subscription, created=False)
        assert await storage.triggers.get(by_session("s", "other"), "k") == made[1].subscription

    async def test_a_frame_is_kept(self, harness: Harness) -> None:
        """A subscription created in a frame is found by its session and keeps the frame."""
        storage = await harness.open()
        await created(storage, "s")
        await storage.triggers.register(trigger(owner=by_session("s", "frame")))
        assert (await found(storage, owner=by_session())).owner == by_session("s", "frame")
        assert await listed(storage, session_id="s") == ["k"]
        assert await storage.triggers.delete_session("s") == 1

    async def test_a_session_must_be_there_to_own(self, harness: Harness) -> None:
        """A session that does not exist or was deleted cannot own a subscription, which would never be removed."""
        storage = await harness.open()
        await refuse(storage, storage.triggers.register(trigger(owner=by_session("never"))), SessionNotFound)
        await created(storage, "s")
        await storage.sessions.delete("s")
        await refuse(storage, storage.triggers.register(trigger(owner=by_session("s"))), SessionDeleted)

    async def test_changes_are_compare_and_set(self, harness: Harness) -> None:
        """Every change needs the latest revision; another one raises TriggerConflict, which names both."""
        storage = await harness.open()
        await subscribed(storage)
        await harness.clock.advance(7)
        second = await storage.triggers.update(trigger(target=OTHER), revision=1)
        assert (second.revision, second.enabled, second.definition.target) == (2, True, OTHER)
        assert second.updated_at_ms == second.created_at_ms + 7
        third = await storage.triggers.disable(HOST, "k", revision=2)
        assert (third.revision, third.enabled) == (3, False)
        fourth = await storage.triggers.update(trigger(), revision=3)
        assert (fourth.revision, fourth.enabled) == (4, False)
        fifth = await storage.triggers.enable(HOST, "k", revision=4)
        assert (fifth.revision, fifth.enabled) == (5, True)
        assert await found(storage) == fifth
        for call in _changes(storage, revision=4):
            await refuse(storage, call(), TriggerConflict, "revision 5", "expected 4")
        assert await storage.triggers.delete(HOST, "k", revision=5) == DeletedTrigger(
            subscription_id=fifth.subscription_id, revision=5
        )
        assert await storage.triggers.get(HOST, "k") is None

    async def test_what_is_already_so_stays(self, harness: Harness) -> None:
        """A change without effect does not create a revision."""
        storage = await harness.open()
        (first,) = await subscribed(storage)
        await harness.clock.advance(1)
        assert await storage.triggers.update(trigger(), revision=1) == first
        assert await storage.triggers.enable(HOST, "k", revision=1) == first

    async def test_what_is_not_there_cannot_be_changed(self, harness: Harness) -> None:
        """Changing an unknown or deleted name raises TriggerNotFound."""
        storage = await harness.open()
        for call in _changes(storage, revision=1):
            await refuse(storage, call(), TriggerNotFound, "the host", "'k'")
        await subscribed(storage)
        await storage.triggers.delete(HOST, "k", revision=1)
        for call in _changes(storage, revision=1):
            await refuse(storage, call(), TriggerNotFound)

    async def test_owners_cannot_change_each_others(self, harness: Harness) -> None:
        """A session cannot change the subscription of another session with the same key."""
        storage = await harness.open()
        for session in ("s", "t"):
            await created(storage, session)
        await subscribed(storage, owner=by_session("s"))
        for owner in (HOST, by_session("t")):
            await refuse(storage, storage.triggers.disable(owner, "k", revision=1), TriggerNotFound)
            await refuse(storage, storage.triggers.delete(owner, "k", revision=1), TriggerNotFound)

    async def test_a_successor_is_above_its_predecessor(self, harness: Harness) -> None:
        """Registering after a deletion gives another id and a higher revision; a stale change is refused."""
        storage = await harness.open()
        (first,) = await subscribed(storage)
        await storage.triggers.update(trigger(target=OTHER), revision=1)
        await storage.triggers.delete(HOST, "k", revision=2)
        (second,) = await subscribed(storage)
        assert second.revision == 3
        assert second.subscription_id != first.subscription_id
        for revision in (1, 2):
            await refuse(storage, storage.triggers.delete(HOST, "k", revision=revision), TriggerConflict)
        await storage.triggers.delete(HOST, "k", revision=3)
        assert (await subscribed(storage))[0].revision == 4

    async def test_a_session_takes_its_subscriptions_along(self, harness: Harness) -> None:
        """Deleting a session deletes its subscriptions, in all its frames, and no others."""
        storage = await harness.open()
        for session in ("s", "t"):
            await created(storage, session)
        await subscribed(storage, "a", owner=by_session("s"))
        await subscribed(storage, "b", owner=by_session("s", "frame"))
        await subscribed(storage, "c", owner=by_session("t"))
        await subscribed(storage, "d", wake_session_id="s")
        assert await storage.sessions.delete("s")
        assert await listed(storage) == ["d", "c"]
        assert (await storage.occurrences.emit(pressed())).deliveries[0].key == "c"
        assert await storage.triggers.delete_session("t") == 1
        assert await storage.triggers.delete_session("t") == 0
        assert await listed(storage) == ["d"]

    async def test_a_session_created_again_starts_above(self, harness: Harness) -> None:
        """A change from before the deletion of a session does not affect its successor's subscription."""
        storage = await harness.open()
        await created(storage, "s")
        (first,) = await subscribed(storage, owner=by_session())
        await storage.sessions.delete("s")
        await created(storage, "s")
        (second,) = await subscribed(storage, owner=by_session())
        assert (first.revision, second.revision) == (1, 2)
        await refuse(storage, storage.triggers.delete(by_session(), "k", revision=1), TriggerConflict)

    async def test_subscriptions_survive_reopening(self, harness: Harness) -> None:
        """Subscriptions survive reopening, and a new one still gets its own id."""
        storage = await harness.open()
        made = await subscribed(storage, "a", "b")
        report = await storage.occurrences.emit(pressed())
        before = await trigger_world(storage)
        storage = await harness.reopen()
        assert await trigger_world(storage) == before
        assert await storage.occurrences.emit(pressed()) == report
        assert await storage.occurrences.deliveries(report.occurrence_id) == report.deliveries
        (new,) = await subscribed(storage, "c")
        assert new.subscription_id not in {each.subscription_id for each in made}

    async def test_racing_registrations_are_one(self, harness: Harness) -> None:
        """Of many concurrent equal registrations one creates the subscription, and all return it."""
        storages = [await harness.open() for _ in range(2)]
        answers = await asyncio.gather(*(storages[n % 2].triggers.register(trigger()) for n in range(8)))
        assert len({each.subscription.subscription_id for each in answers}) == 1
        assert sum(each.created for each in answers) == 1

    async def test_racing_changes_have_one_winner(self, harness: Harness) -> None:
        """Of many concurrent changes at one revision exactly one succeeds."""
        storages = [await harness.open() for _ in range(2)]
        await subscribed(storages[0])
        targets = [EngineInput(kind="work", payload={"n": n}) for n in range(6)]
        answers = await asyncio.gather(
            *(storages[n % 2].triggers.update(trigger(target=target), revision=1) for n, target in enumerate(targets)),
            return_exceptions=True,
        )
        won = [each for each in answers if isinstance(each, TriggerSubscription)]
        assert len(won) == 1
        assert all(isinstance(each, TriggerConflict) for each in answers if each is not won[0])
        assert await found(storages[1]) == won[0]


class TestTriggerReceipt:
    """Laws of repeating a change under its operation id."""

    async def test_a_repeat_gets_the_first_answer(self, harness: Harness) -> None:
        """A repeated operation returns its first answer, even after later revisions."""
        storage = await harness.open()
        triggers = storage.triggers
        calls: list[Callable[[], Awaitable[msgspec.Struct]]] = [
            lambda: triggers.register(trigger(), operation_id="1"),
            lambda: triggers.update(trigger(target=OTHER), revision=1, operation_id="2"),
            lambda: triggers.disable(HOST, "k", revision=2, operation_id="3"),
            lambda: triggers.enable(HOST, "k", revision=3, operation_id="4"),
            lambda: triggers.delete(HOST, "k", revision=4, operation_id="5"),
        ]
        answers = [await call() for call in calls]
        (successor,) = await subscribed(storage)
        before = await trigger_world(storage)
        await harness.clock.advance(1_000)
        await storage.occurrences.prune(before_ms=harness.clock.now_ms())
        assert [msgspec.json.encode(await call()) for call in calls] == [msgspec.json.encode(each) for each in answers]
        assert await trigger_world(storage) == before
        assert successor.revision == 5

    async def test_a_repeat_after_the_session_is_gone(self, harness: Harness) -> None:
        """A repeated registration neither fails nor creates anything after its session is deleted."""
        storage = await harness.open()
        await created(storage, "s")
        first = await storage.triggers.register(trigger(owner=by_session()), operation_id="1")
        await storage.sessions.delete("s")
        assert await storage.triggers.register(trigger(owner=by_session()), operation_id="1") == first
        assert await listed(storage) == []

    async def test_another_request_is_a_conflict(self, harness: Harness) -> None:
        """An operation id identifies one request: the act, the subscription and the arguments."""
        storage = await harness.open()
        await subscribed(storage, "other")
        await storage.triggers.register(trigger(), operation_id="1")
        for call in (
            storage.triggers.register(trigger("other"), operation_id="1"),
            storage.triggers.register(trigger(target=OTHER), operation_id="1"),
            storage.triggers.update(trigger(), revision=1, operation_id="1"),
            storage.triggers.enable(HOST, "k", revision=1, operation_id="1"),
            storage.triggers.delete(HOST, "k", revision=1, operation_id="1"),
        ):
            await refuse(storage, call, TriggerConflict, "operation id '1'")

    async def test_a_refusal_leaves_no_receipt(self, harness: Harness) -> None:
        """A refused operation changes nothing and leaves no receipt; a repetition is decided again."""
        storage = await harness.open()
        await refuse(storage, storage.triggers.disable(HOST, "k", revision=1, operation_id="1"), TriggerNotFound)
        await subscribed(storage)
        assert not (await storage.triggers.disable(HOST, "k", revision=1, operation_id="1")).enabled

    async def test_racing_repeats_agree(self, harness: Harness) -> None:
        """One operation sent many times concurrently is applied once, and all callers get its answer."""
        storages = [await harness.open() for _ in range(2)]
        await subscribed(storages[0])
        answers = await asyncio.gather(
            *(storages[n % 2].triggers.disable(HOST, "k", revision=1, operation_id="1") for n in range(6))
        )
        assert {msgspec.json.encode(each) for each in answers} == {msgspec.json.encode(await found(storages[0]))}
        assert answers[0].revision == 2

    async def test_old_receipts_can_be_forgotten(self, harness: Harness) -> None:
        """Pruning removes receipts and tombstones from before a moment, limited per call; younger ones stay."""
        storage = await harness.open()
        for number in range(3):
            await storage.triggers.register(trigger(f"k{number}"), operation_id=f"old{number}")
            await storage.triggers.delete(HOST, f"k{number}", revision=1)
        await harness.clock.advance(10)
        moment = harness.clock.now_ms()
        await storage.triggers.register(trigger("young"), operation_id="young")
        assert [await storage.triggers.prune_receipts(before_ms=moment, limit=2) for _ in range(3)] == [4, 2, 0]
        assert (await storage.triggers.register(trigger("k0"), operation_id="old0")).subscription.revision == 1
        await refuse(storage, storage.triggers.register(trigger(), operation_id="young"), TriggerConflict)


def _changes(storage: Storage, *, revision: int) -> list[Callable[[], Awaitable[object]]]:
    triggers = storage.triggers
    return [
        lambda: triggers.update(trigger(label="new"), revision=revision),
        lambda: triggers.enable(HOST, "k", revision=revision),
        lambda: triggers.disable(HOST, "k", revision=revision),
        lambda: triggers.delete(HOST, "k", revision=revision),
    ]
