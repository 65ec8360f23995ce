"""Laws of retrying rejected deliveries and of pruning occurrences."""

from __future__ import annotations

import asyncio
from typing import Final

from lash.errors import OccurrenceNotFound, TriggerConflict, TriggerNotFound
from lash.model.artifact import ProcessEnvironment
from lash.model.process.process import ProcessStatus
from lash.model.trigger.trigger import DeliveryState, EmitReport, EventPointer, PrunedOccurrences
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.process_state import feed
from tests.contract.trigger_state import refuse, trigger_world
from tests.factories.process import DONE, granted, stored
from tests.factories.trigger import HOST, pressed, subscribed, the, trigger

TEXT: Final = {"type": "string"}


class TestRetry:
    """Laws of retrying a rejected delivery."""

    async def test_a_fixed_subscription_gets_its_delivery(self, harness: Harness) -> None:
        """After an update a retry starts the delivery, with the same process id and with its grant."""
        storage = await harness.open()
        report, occurrence_id, subscription_id = await _rejected(storage)
        await storage.triggers.update(trigger(wake_session_id="s"), revision=1)
        delivery = await storage.occurrences.retry_delivery(occurrence_id, subscription_id)
        assert (delivery.state, delivery.reason, delivery.attempts) == (DeliveryState.STARTED, None, 2)
        assert delivery.process_id == the(report.deliveries).process_id
        assert await storage.occurrences.deliveries(occurrence_id) == (delivery,)
        assert (await stored(storage, delivery.process_id)).status is ProcessStatus.RUNNING
        assert await storage.grants.of_process(delivery.process_id) == (granted("s", delivery.process_id, kind="work"),)
        assert [change.process_id for change in (await feed(storage))[0]] == [delivery.process_id]

    async def test_a_retry_may_fail_again(self, harness: Harness) -> None:
        """A retry that fails is rejected with the new reason, and counted."""
        storage = await harness.open()
        _, occurrence_id, subscription_id = await _rejected(storage)
        await storage.triggers.update(trigger(input_template={"x": EventPointer(path="/gone")}), revision=1)
        delivery = await storage.occurrences.retry_delivery(occurrence_id, subscription_id)
        assert (delivery.state, delivery.attempts) == (DeliveryState.REJECTED, 2)
        assert delivery.reason is not None
        assert "'/gone'" in delivery.reason
        assert await storage.occurrences.deliveries(occurrence_id) == (delivery,)

    async def test_a_started_delivery_is_returned(self, harness: Harness) -> None:
        """Retrying a started delivery changes nothing, even if its process has ended and was pruned."""
        storage = await harness.open()
        await subscribed(storage)
        report = await storage.occurrences.emit(pressed())
        delivery = the(report.deliveries)
        await storage.processes.complete(delivery.process_id, DONE)
        await harness.clock.advance(10)
        pruned = await storage.processes.prune(ended_before_ms=harness.clock.now_ms(), through_cursor=None)
        assert pruned.pruned_process_ids == (delivery.process_id,)
        before = await trigger_world(storage)
        assert await storage.occurrences.retry_delivery(report.occurrence_id, delivery.subscription_id) == delivery
        assert await storage.occurrences.emit(pressed()) == report
        assert await trigger_world(storage) == before

    async def test_racing_retries_start_one_process(self, harness: Harness) -> None:
        """Of concurrent retries one starts the process, and all return the same delivery."""
        storages = [await harness.open() for _ in range(2)]
        _, occurrence_id, subscription_id = await _rejected(storages[0])
        await storages[0].triggers.update(trigger(), revision=1)
        answers = await asyncio.gather(
            *(storages[n % 2].occurrences.retry_delivery(occurrence_id, subscription_id) for n in range(6))
        )
        assert len(set(answers)) == 1
        assert answers[0].attempts == 2
        assert len((await feed(storages[1]))[0]) == 1

    async def test_only_who_still_watches_gets_it(self, harness: Harness) -> None:
        """A disabled, redirected or deleted subscription starts nothing; the delivery stays rejected."""
        storage = await harness.open()
        report, occurrence_id, subscription_id = await _rejected(storage)
        retry = storage.occurrences.retry_delivery
        await storage.triggers.disable(HOST, "k", revision=1)
        await refuse(storage, retry(occurrence_id, subscription_id), TriggerConflict, "disabled")
        await storage.triggers.enable(HOST, "k", revision=2)
        await storage.triggers.update(trigger(source_key="red"), revision=3)
        await refuse(storage, retry(occurrence_id, subscription_id), TriggerConflict, "source")
        await storage.triggers.delete(HOST, "k", revision=4)
        await subscribed(storage)
        await refuse(storage, retry(occurrence_id, subscription_id), TriggerNotFound, "'k'")
        assert await storage.occurrences.deliveries(occurrence_id) == report.deliveries


class TestOccurrencePrune:
    """Laws of pruning occurrences."""

    async def test_what_runs_keeps_its_occurrence(self, harness: Harness) -> None:
        """An old occurrence is pruned once all its processes have ended, whether pruned or not."""
        storage = await harness.open()
        await subscribed(storage, "a", "b")
        report = await storage.occurrences.emit(pressed())
        await harness.clock.advance(10)
        moment = harness.clock.now_ms()
        young = await storage.occurrences.emit(pressed("2", source_key="red"))
        nothing = PrunedOccurrences()
        assert await storage.occurrences.prune(before_ms=moment) == nothing
        first, second = report.started_process_ids
        await storage.processes.complete(first, DONE)
        await harness.clock.advance(1)
        await storage.processes.prune(ended_before_ms=harness.clock.now_ms(), through_cursor=None)
        assert await storage.occurrences.prune(before_ms=moment) == nothing
        assert await storage.occurrences.emit(pressed()) == report
        assert await storage.processes.get(first) is None
        await storage.processes.complete(second, DONE)
        assert await storage.occurrences.prune(before_ms=moment - 10) == nothing
        assert await storage.occurrences.prune(before_ms=moment) == PrunedOccurrences(
            occurrence_ids=(report.occurrence_id,)
        )
        assert await storage.occurrences.get(report.occurrence_id) is None
        await refuse(storage, storage.occurrences.deliveries(report.occurrence_id), OccurrenceNotFound)
        assert await storage.occurrences.get(young.occurrence_id) is not None

    async def test_a_forgotten_occurrence_is_a_new_one(self, harness: Harness) -> None:
        """After occurrence and process are pruned, the same request is new, with a higher fencing number."""
        storage = await harness.open()
        await subscribed(storage)
        report = await storage.occurrences.emit(pressed())
        await storage.processes.complete(report.started_process_ids[0], DONE)
        await harness.clock.advance(10)
        now = harness.clock.now_ms()
        await storage.processes.prune(ended_before_ms=now, through_cursor=None)
        await storage.occurrences.prune(before_ms=now)
        assert await storage.occurrences.emit(pressed()) == report
        assert (await stored(storage, report.started_process_ids[0])).status is ProcessStatus.RUNNING

    async def test_the_oldest_is_named_first_by_the_clock(self, harness: Harness) -> None:
        """Age counts by recorded time: occurrences recorded after the clock was set back are the older ones."""
        storage = await harness.open()
        ids = []
        for number in range(3):
            ids.append((await storage.occurrences.emit(pressed(str(number)))).occurrence_id)
            await harness.clock.advance(-1)
        pruned = await storage.occurrences.prune(before_ms=harness.clock.now_ms() + 10)
        assert pruned.occurrence_ids == tuple(reversed(ids))

    async def test_pruning_is_done_in_portions(self, harness: Harness) -> None:
        """Pruning removes the oldest first, and ``more`` says whether to call again."""
        storage = await harness.open()
        ids = []
        for number in range(3):
            ids.append((await storage.occurrences.emit(pressed(str(number)))).occurrence_id)
            await harness.clock.advance(1)
        now = harness.clock.now_ms()
        assert await storage.occurrences.prune(before_ms=now, limit=2) == PrunedOccurrences(
            occurrence_ids=tuple(ids[:2]), more=True
        )
        assert await storage.occurrences.prune(before_ms=now, limit=2) == PrunedOccurrences(
            occurrence_ids=tuple(ids[2:])
        )


class TestTriggerEnvironment:
    """Laws of environments that subscriptions refer to."""

    async def test_a_subscription_keeps_its_environment(self, harness: Harness) -> None:
        """An environment is kept while a subscription refers to it, enabled or not, and then collected."""
        storage = await harness.open()
        ref = await storage.artifacts.put_environment(ProcessEnvironment(body={"n": 1}))
        await subscribed(storage, environment_ref=ref)
        await storage.triggers.disable(HOST, "k", revision=1)
        await harness.clock.advance(2 * 24 * 60 * 60 * 1_000)
        assert (await storage.maintenance.collect_garbage()).environments.rows == 0
        await storage.triggers.delete(HOST, "k", revision=2)
        assert (await storage.maintenance.collect_garbage()).environments.rows == 1


async def _rejected(storage: Storage) -> tuple[EmitReport, str, str]:
    """Emit a payload that the subscription refuses."""
    await subscribed(storage, payload_schema=TEXT)
    report = await storage.occurrences.emit(pressed(payload={"n": 1}))
    delivery = the(report.deliveries)
    assert delivery.state is DeliveryState.REJECTED
    return report, report.occurrence_id, delivery.subscription_id
