"""Laws of emitting: occurrence and processes in one transaction, and one report for all repetitions."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from lash.errors import OccurrenceConflict, OccurrenceNotFound
from lash.model.causal import TriggerOccurrenceCause
from lash.model.process.event import EventType
from lash.model.process.process import (
    ChangeKind,
    EngineInput,
    ProcessIdentity,
    ProcessStatus,
    Provenance,
    Recovery,
    Registration,
)
from lash.model.trigger.trigger import (
    DeliveryState,
    EmitReport,
    EventPointer,
    FixedInput,
    Occurrence,
    TriggerDelivery,
    WholeEvent,
)
from lash.testing.harness import Harness
from tests.contract.process_state import check_logs, feed
from tests.contract.trigger_state import refuse, trigger_world
from tests.factories.process import DONE, granted, process_lease, registered, scope, stored
from tests.factories.session import created, owner
from tests.factories.trigger import BLUE, BUTTON, HOST, by_session, pressed, subscribed, the, trigger

OCCURRENCE: Final = "trigger:ecb7a2f13da7a2a8cfba635aae9e3563e0baf97d7a33dab20dde09f44bcd9593"
"""The id of `pressed()`, computed independently."""
NUMBER: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
"""A payload with an integer ``n`` and nothing else."""


class TestEmit:
    """Laws of recording occurrences and starting their processes."""

    async def test_an_occurrence_starts_a_process(self, harness: Harness) -> None:
        """The process has the inputs, the originator and the cause that follow from the subscription."""
        storage = await harness.open()
        await created(storage)
        draft = trigger(
            owner=by_session("s", "frame"),
            target=EngineInput(kind="work", payload={"module": "m", "args": {"old": 1}}),
            identity=ProcessIdentity(kind="job", definition={"d": 1}),
            label="mine",
            event_types=(EventType(name="note"),),
            input_template={
                "all": WholeEvent(),
                "fixed": FixedInput(value=[1]),
                "button": EventPointer(path="/button/0"),
            },
            wake_session_id="s",
            recovery=Recovery.OWNER_BOUND,
        )
        subscription = (await storage.triggers.register(draft)).subscription
        payload = {"button": ["Blue", None]}
        report = await storage.occurrences.emit(pressed(payload=payload))
        delivery = the(report.deliveries)
        assert delivery == TriggerDelivery(
            subscription_id=subscription.subscription_id,
            owner_session_id="s",
            key="k",
            process_id=delivery.process_id,
            state=DeliveryState.STARTED,
        )
        assert report == EmitReport(occurrence_id=OCCURRENCE, deliveries=(delivery,))
        record = await stored(storage, delivery.process_id)
        inputs = {"all": payload, "fixed": [1], "button": "Blue"}
        assert record.registration == Registration(
            process_id=delivery.process_id,
            input=EngineInput(kind="work", payload={"module": "m", "args": inputs}),
            recovery=Recovery.OWNER_BOUND,
            identity=ProcessIdentity(kind="job", label="mine", definition={"d": 1}),
            event_types=(EventType(name="note"),),
            provenance=Provenance(
                originator=by_session("s", "frame"), caused_by=TriggerOccurrenceCause(occurrence_id=OCCURRENCE)
            ),
            environment_ref="environment",
            wake_session_id="s",
        )
        assert (record.status, record.wake_session_id, record.last_sequence) == (ProcessStatus.RUNNING, "s", 0)
        grants = (granted("s", delivery.process_id, kind="job", label="mine"),)
        assert await storage.grants.of_process(delivery.process_id) == grants

    async def test_a_started_process_is_a_whole_one(self, harness: Harness) -> None:
        """A started process is in the work list and the change feed, and can be claimed, run and ended."""
        storage = await harness.open()
        await subscribed(storage, "a", "b")
        (first, second) = (await storage.occurrences.emit(pressed())).started_process_ids
        assert [(change.process_id, change.kind) for change in (await feed(storage))[0]] == [
            (first, ChangeKind.REGISTERED),
            (second, ChangeKind.REGISTERED),
        ]
        assert {record.process_id for record in await storage.processes.runnable()} == {first, second}
        assert await storage.grants.list(scope("s")) == ()
        lease = process_lease(await storage.process_leases.claim(first, owner("w"), ttl_ms=1_000))
        await storage.process_leases.complete(lease.fence, DONE)
        await check_logs(storage)
        assert (await stored(storage, first)).status is ProcessStatus.COMPLETED

    async def test_the_occurrence_is_kept(self, harness: Harness) -> None:
        """An occurrence without a match is recorded under the id that follows from its three names."""
        storage = await harness.open()
        request = pressed(payload={"button": "Blue"}, source={"a": 1})
        report = await storage.occurrences.emit(request)
        assert report == EmitReport(occurrence_id=OCCURRENCE)
        expected = Occurrence(
            occurrence_id=OCCURRENCE,
            source_type=BUTTON,
            source_key=BLUE,
            idempotency_key="1",
            payload={"button": "Blue"},
            source={"a": 1},
            occurred_at_ms=harness.clock.now_ms(),
        )
        await harness.clock.advance(5)
        await storage.occurrences.emit(request)
        assert await storage.occurrences.get(OCCURRENCE) == expected
        assert await storage.occurrences.deliveries(OCCURRENCE) == ()

    async def test_emitting_again_returns_the_first_report(self, harness: Harness) -> None:
        """A repetition returns the same report, from any storage, after any change, and starts nothing."""
        storage = await harness.open()
        await subscribed(storage, "a", payload_schema=NUMBER)
        await subscribed(storage, "b")
        first = await storage.occurrences.emit(pressed())
        assert [each.state for each in first.deliveries] == [DeliveryState.REJECTED, DeliveryState.STARTED]
        for process_id in first.started_process_ids:
            await storage.processes.complete(process_id, DONE)
        await storage.triggers.update(trigger("a"), revision=1)
        await storage.occurrences.retry_delivery(first.occurrence_id, first.deliveries[0].subscription_id)
        await storage.triggers.delete(HOST, "b", revision=1)
        await harness.clock.advance(1_000)
        before = await trigger_world(storage)
        again = [await each.occurrences.emit(pressed()) for each in (storage, await harness.open())]
        assert {msgspec.json.encode(each) for each in again} == {msgspec.json.encode(first)}
        assert await trigger_world(storage) == before

    async def test_late_subscribers_are_not_matched(self, harness: Harness) -> None:
        """A repetition returns the first report; a later subscription is not matched."""
        storage = await harness.open()
        await subscribed(storage, "early")
        first = await storage.occurrences.emit(pressed())
        await subscribed(storage, "late")
        assert await storage.occurrences.emit(pressed()) == first
        assert [each.key for each in await storage.occurrences.deliveries(first.occurrence_id)] == ["early"]

    async def test_other_content_is_a_conflict(self, harness: Harness) -> None:
        """Another payload or description under the same key raises OccurrenceConflict and changes nothing."""
        storage = await harness.open()
        await subscribed(storage)
        await storage.occurrences.emit(pressed(payload=1, source=2))
        for other in (pressed(payload=2, source=2), pressed(payload=1), pressed(payload=1, source=3), pressed()):
            await refuse(storage, storage.occurrences.emit(other), OccurrenceConflict, "'1'", repr(BUTTON), repr(BLUE))
        # Numbers are compared as JSON: 1 and 1.0 differ.
        await refuse(storage, storage.occurrences.emit(pressed(payload=1.0, source=2)), OccurrenceConflict)

    async def test_keys_belong_to_their_source(self, harness: Harness) -> None:
        """Two sources may use the same idempotency key."""
        storage = await harness.open()
        requests = (
            pressed(),
            pressed(source_key="red"),
            msgspec.structs.replace(pressed(), source_type="ui.button"),
            pressed("2"),
        )
        reports = [await storage.occurrences.emit(each) for each in requests]
        assert len({each.occurrence_id for each in reports}) == 4

    async def test_matching_is_exact(self, harness: Harness) -> None:
        """Both source fields are compared exactly, without wildcards or prefixes."""
        storage = await harness.open()
        for number, (kind, name) in enumerate(
            [(BUTTON, "Blue"), (BUTTON, "blu"), (BUTTON, "*"), ("%", "%"), ("ui.button.Pressed", BLUE), (BLUE, BUTTON)]
        ):
            await subscribed(storage, f"k{number}", source_type=kind, source_key=name)
        assert (await storage.occurrences.emit(pressed())).deliveries == ()

    async def test_the_disabled_and_deleted_get_nothing(self, harness: Harness) -> None:
        """Disabled and deleted subscriptions start nothing; their running processes go on."""
        storage = await harness.open()
        await subscribed(storage, "a", "b", "c")
        started = (await storage.occurrences.emit(pressed())).started_process_ids
        await storage.triggers.disable(HOST, "a", revision=1)
        await storage.triggers.delete(HOST, "b", revision=1)
        assert the((await storage.occurrences.emit(pressed("2"))).deliveries).key == "c"
        assert [(await stored(storage, each)).status for each in started] == [ProcessStatus.RUNNING] * 3
        await storage.triggers.enable(HOST, "a", revision=2)
        assert [each.key for each in (await storage.occurrences.emit(pressed("3"))).deliveries] == ["a", "c"]

    async def test_an_update_moves_a_subscription(self, harness: Harness) -> None:
        """Matching uses the definition at the moment of the emission."""
        storage = await harness.open()
        await subscribed(storage)
        await storage.triggers.update(trigger(source_key="red"), revision=1)
        assert (await storage.occurrences.emit(pressed())).deliveries == ()
        assert the((await storage.occurrences.emit(pressed(source_key="red"))).deliveries).key == "k"

    async def test_deliveries_come_in_order(self, harness: Harness) -> None:
        """Deliveries are in the numeric order of the subscriptions' creation, in the report and when read."""
        storage = await harness.open()
        await created(storage)
        keys = [f"k{number}" for number in range(12)]
        for number, key in enumerate(keys):
            await subscribed(storage, key, owner=by_session() if number % 2 else HOST)
        await storage.triggers.update(trigger("k0", label="moved"), revision=1)
        report = await storage.occurrences.emit(pressed())
        assert [each.key for each in report.deliveries] == keys
        assert [each.owner_session_id for each in report.deliveries] == [None, "s"] * 6
        assert await storage.occurrences.deliveries(report.occurrence_id) == report.deliveries
        changes = [change.process_id for change in (await feed(storage))[0]]
        assert changes == list(report.started_process_ids)

    async def test_one_failure_stops_no_other(self, harness: Harness) -> None:
        """A payload that a subscription's schema refuses is a rejected delivery with a reason."""
        storage = await harness.open()
        await subscribed(storage, "strict", payload_schema=NUMBER)
        await subscribed(storage, "lost", input_template={"x": EventPointer(path="/missing/0")})
        await subscribed(storage, "fine", input_template={"x": EventPointer(path="/n")})
        report = await storage.occurrences.emit(pressed(payload={"n": None}))
        strict, lost, fine = report.deliveries
        assert [each.state for each in report.deliveries] == ["rejected", "rejected", "started"]
        assert strict.reason is not None
        assert "payload.n" in strict.reason
        assert lost.reason is not None
        assert "'/missing/0'" in lost.reason
        assert "'x'" in lost.reason
        assert fine.reason is None
        assert report.started_process_ids == (fine.process_id,)
        assert await storage.processes.get(strict.process_id) is None

    async def test_a_reason_is_of_bounded_length(self, harness: Harness) -> None:
        """The reason of a rejection quotes only part of a large payload."""
        storage = await harness.open()
        await subscribed(storage, payload_schema={"type": "integer"})
        report = await storage.occurrences.emit(pressed(payload=["\0long" * 20_000]))
        reason = the(report.deliveries).reason
        assert reason is not None
        assert len(reason) <= 1_000

    async def test_two_subscriptions_start_two_processes(self, harness: Harness) -> None:
        """Each pair of occurrence and subscription has its own process."""
        storage = await harness.open()
        await subscribed(storage, "a", "b")
        reports = [await storage.occurrences.emit(pressed(key)) for key in ("1", "2")]
        ids = [process_id for report in reports for process_id in report.started_process_ids]
        assert len(set(ids)) == 4
        assert {record.process_id for record in (await storage.processes.list()).processes} == set(ids)

    async def test_a_successor_gets_its_own_process(self, harness: Harness) -> None:
        """A subscription that was deleted and registered again gets deliveries of its own."""
        storage = await harness.open()
        await subscribed(storage)
        first = the((await storage.occurrences.emit(pressed())).deliveries)
        await storage.triggers.delete(HOST, "k", revision=1)
        await subscribed(storage)
        second = the((await storage.occurrences.emit(pressed("2"))).deliveries)
        assert first.subscription_id != second.subscription_id

    async def test_unknown_occurrences(self, harness: Harness) -> None:
        """An unknown occurrence is None, and reading its deliveries raises OccurrenceNotFound."""
        storage = await harness.open()
        assert await storage.occurrences.get("trigger:none") is None
        await refuse(storage, storage.occurrences.deliveries("trigger:none"), OccurrenceNotFound, "'trigger:none'")
        await refuse(storage, storage.occurrences.retry_delivery("trigger:none", "x"), OccurrenceNotFound)
        report = await storage.occurrences.emit(pressed())
        await refuse(storage, storage.occurrences.retry_delivery(report.occurrence_id, "x"), OccurrenceNotFound, "'x'")

    async def test_racing_equal_emissions_agree(self, harness: Harness) -> None:
        """Concurrent equal emissions return the same report, and every delivery has one process."""
        storages = [await harness.open() for _ in range(2)]
        await subscribed(storages[0], *(f"k{number}" for number in range(5)))
        reports = await asyncio.gather(*(storages[n % 2].occurrences.emit(pressed(payload=7)) for n in range(8)))
        assert len({msgspec.json.encode(each) for each in reports}) == 1
        records = (await storages[1].processes.list()).processes
        assert {record.process_id for record in records} == set(reports[0].started_process_ids)
        assert len((await feed(storages[0]))[0]) == 5

    async def test_racing_different_emissions_have_one_winner(self, harness: Harness) -> None:
        """Of concurrent emissions of different content under one key one wins; the others start nothing."""
        storages = [await harness.open() for _ in range(2)]
        await subscribed(storages[0])
        answers = await asyncio.gather(
            *(storages[n % 2].occurrences.emit(pressed(payload=n)) for n in range(6)), return_exceptions=True
        )
        assert sum(isinstance(each, EmitReport) for each in answers) == 1
        assert sum(isinstance(each, OccurrenceConflict) for each in answers) == 5
        assert len((await storages[0].processes.list()).processes) == 1

    async def test_emissions_race_with_the_end_of_a_session(self, harness: Harness) -> None:
        """An emission concurrent with a session's deletion leaves no grant and no wake target of the session."""
        storages = [await harness.open() for _ in range(2)]
        for number in range(5):
            session = f"s{number}"
            await created(storages[0], session)
            await subscribed(storages[0], "a", "b", owner=by_session(session), wake_session_id=session)
            report, _ = await asyncio.gather(
                storages[0].occurrences.emit(pressed(session)), storages[1].sessions.delete(session)
            )
            assert await storages[0].grants.list(scope(session)) == ()
            for process_id in report.started_process_ids:
                assert (await stored(storages[0], process_id)).wake_session_id is None

    async def test_an_id_in_use_is_left_alone(self, harness: Harness) -> None:
        """A taken process id is accepted for an equal registration and rejects the delivery for another one."""
        storage = await harness.open()
        await subscribed(storage, input_template={"all": WholeEvent()})
        first = await storage.occurrences.emit(pressed(payload=1))
        delivery = the(first.deliveries)
        await storage.processes.complete(delivery.process_id, DONE)
        await harness.clock.advance(10)
        await storage.occurrences.prune(before_ms=harness.clock.now_ms())
        before = await stored(storage, delivery.process_id)
        assert await storage.occurrences.emit(pressed(payload=1)) == first
        assert await stored(storage, delivery.process_id) == before
        await storage.occurrences.prune(before_ms=harness.clock.now_ms() + 1)
        rejected = the((await storage.occurrences.emit(pressed(payload=2))).deliveries)
        assert rejected.state is DeliveryState.REJECTED
        assert rejected.reason is not None
        assert delivery.process_id in rejected.reason
        assert await stored(storage, delivery.process_id) == before

    async def test_nothing_else_is_touched(self, harness: Harness) -> None:
        """Other processes, grants and logs do not change."""
        storage = await harness.open()
        await registered(storage, "p")
        await storage.grants.grant(granted("s"))
        before = await stored(storage, "p")
        await subscribed(storage, wake_session_id="s")
        await harness.clock.advance(3)
        await storage.occurrences.emit(pressed())
        assert await stored(storage, "p") == before
        assert await storage.grants.of_process("p") == (granted("s"),)
