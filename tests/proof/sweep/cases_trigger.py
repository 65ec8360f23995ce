"""Sweep cases of triggers, occurrences and schedules."""

from __future__ import annotations

from lash.errors import ScheduleConflict, ScheduleNotFound, TriggerConflict, TriggerNotFound
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from tests.contract.schedule_state import HOUR, made, of_session, schedule, subscribe
from tests.factories.process import DONE
from tests.factories.session import created
from tests.factories.trigger import HOST, by_session, pressed, subscribed, the, trigger
from tests.proof.sweep.case import REPEATED, Again, AnyCase, Case, bare

CHANGED = trigger("k", label="changed")
TEXT = {"type": "string"}


async def registered(storage: Storage, _clock: ManualClock) -> None:
    await subscribed(storage)


async def disabled(storage: Storage, _clock: ManualClock) -> None:
    await subscribed(storage)
    await storage.triggers.disable(HOST, "k", revision=1)


async def of_a_session(storage: Storage, _clock: ManualClock) -> None:
    await created(storage)
    await subscribed(storage, "k", "l", owner=by_session())
    await made(storage, schedule(owner=of_session("s")))


async def forgettable(storage: Storage, clock: ManualClock) -> int:
    """A receipt, and the trace of a deleted subscription, from before a moment."""
    await storage.triggers.register(trigger(), operation_id="1")
    await storage.triggers.delete(HOST, "k", revision=1)
    await clock.advance(1_000)
    return clock.now_ms()


async def watched(storage: Storage, _clock: ManualClock) -> None:
    """Three subscriptions to one source: one wakes a session, one will be refused."""
    await created(storage)
    await subscribed(storage, "a", wake_session_id="s")
    await subscribed(storage, "b")
    await subscribed(storage, "c", payload_schema=TEXT)


async def rejected(storage: Storage, _clock: ManualClock) -> tuple[str, str]:
    """A delivery that was refused for a reason that is gone."""
    await subscribed(storage, payload_schema=TEXT)
    report = await storage.occurrences.emit(pressed(payload=1))
    await storage.triggers.update(trigger(), revision=1)
    return report.occurrence_id, the(report.deliveries).subscription_id


async def past(storage: Storage, clock: ManualClock) -> int:
    """Two occurrences from before a moment whose process has ended."""
    await subscribed(storage)
    for number in ("1", "2"):
        delivery = the((await storage.occurrences.emit(pressed(number))).deliveries)
        assert delivery.process_id is not None
        await storage.processes.complete(delivery.process_id, DONE)
    await clock.advance(1_000)
    return clock.now_ms()


async def scheduled(storage: Storage, _clock: ManualClock) -> None:
    await made(storage, schedule())


async def halted(storage: Storage, _clock: ManualClock) -> None:
    await made(storage, schedule())
    await storage.schedules.disable(HOST, "k", revision=1)


async def unscheduled(storage: Storage, clock: ManualClock) -> int:
    await made(storage, schedule())
    await storage.schedules.delete(HOST, "k", revision=1)
    await clock.advance(1_000)
    return clock.now_ms()


async def due(storage: Storage, clock: ManualClock) -> None:
    """A schedule with a tick that is due and a subscription that waits for it."""
    made_schedule = await made(storage, schedule())
    await subscribe(storage, made_schedule.source_key)
    await clock.advance(HOUR)


TRIGGERS: tuple[AnyCase, ...] = (
    Case(
        method="TriggerStore.register",
        ground=bare,
        call=lambda storage, _: storage.triggers.register(trigger()),
        again=Again.REPORTED,
    ),
    Case(
        method="TriggerStore.register",
        variant="receipt",
        ground=bare,
        call=lambda storage, _: storage.triggers.register(trigger(), operation_id="1"),
        again=Again.SAME,
    ),
    Case(
        method="TriggerStore.update",
        ground=registered,
        call=lambda storage, _: storage.triggers.update(CHANGED, revision=1, operation_id="1"),
        again=Again.SAME,
    ),
    Case(
        method="TriggerStore.enable",
        ground=disabled,
        call=lambda storage, _: storage.triggers.enable(HOST, "k", revision=2),
        again=TriggerConflict,
    ),
    Case(
        method="TriggerStore.disable",
        ground=registered,
        call=lambda storage, _: storage.triggers.disable(HOST, "k", revision=1, operation_id="1"),
        again=Again.SAME,
    ),
    Case(
        method="TriggerStore.delete",
        ground=registered,
        call=lambda storage, _: storage.triggers.delete(HOST, "k", revision=1),
        again=TriggerNotFound,
    ),
    Case(
        method="TriggerStore.delete",
        variant="receipt",
        ground=registered,
        call=lambda storage, _: storage.triggers.delete(HOST, "k", revision=1, operation_id="1"),
        again=Again.SAME,
    ),
    Case(
        method="TriggerStore.delete_session",
        ground=of_a_session,
        call=lambda storage, _: storage.triggers.delete_session("s"),
        again=Again.REPORTED,
    ),
    Case(
        method="TriggerStore.prune_receipts",
        ground=forgettable,
        call=lambda storage, moment: storage.triggers.prune_receipts(before_ms=moment),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
)

OCCURRENCES: tuple[AnyCase, ...] = (
    Case(
        method="OccurrenceStore.emit",
        ground=watched,
        call=lambda storage, _: storage.occurrences.emit(pressed(payload=1)),
        again=Again.SAME,
    ),
    Case(
        method="OccurrenceStore.retry_delivery",
        ground=rejected,
        call=lambda storage, given: storage.occurrences.retry_delivery(*given),
        again=Again.SAME,
    ),
    Case(
        method="OccurrenceStore.prune",
        ground=past,
        call=lambda storage, moment: storage.occurrences.prune(before_ms=moment),
        again=Again.REPORTED,
    ),
)

SCHEDULES: tuple[AnyCase, ...] = (
    Case(
        method="ScheduleStore.register",
        ground=bare,
        call=lambda storage, _: storage.schedules.register(schedule()),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="ScheduleStore.update",
        ground=scheduled,
        call=lambda storage, _: storage.schedules.update(schedule(cron="30 * * * *"), revision=1),
        again=ScheduleConflict,
    ),
    Case(
        method="ScheduleStore.enable",
        ground=halted,
        call=lambda storage, _: storage.schedules.enable(HOST, "k", revision=2),
        again=ScheduleConflict,
    ),
    Case(
        method="ScheduleStore.disable",
        ground=scheduled,
        call=lambda storage, _: storage.schedules.disable(HOST, "k", revision=1),
        again=ScheduleConflict,
    ),
    Case(
        method="ScheduleStore.delete",
        ground=scheduled,
        call=lambda storage, _: storage.schedules.delete(HOST, "k", revision=1),
        again=ScheduleNotFound,
    ),
    Case(
        method="ScheduleStore.delete_session",
        ground=of_a_session,
        call=lambda storage, _: storage.schedules.delete_session("s"),
        again=Again.REPORTED,
    ),
    Case(
        method="ScheduleStore.prune_deleted",
        ground=unscheduled,
        call=lambda storage, moment: storage.schedules.prune_deleted(before_ms=moment),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="ScheduleStore.fire_due",
        ground=due,
        call=lambda storage, _: storage.schedules.fire_due(),
        again=Again.REPORTED,
    ),
)

CASES: tuple[AnyCase, ...] = (*TRIGGERS, *OCCURRENCES, *SCHEDULES)
