"""An emission and a tick in one guarded statement: what changed since the facts were read is never ignored."""

from __future__ import annotations

import asyncio

import pytest

import lash
from lash.postgres.engine.options import PostgresOptions
from lash.sqlkit.queries import in_schema
from tests.backends import run_sql
from tests.engine.postgres.test_trigger_guards import gate_on
from tests.factories.process import process
from tests.factories.trigger import pressed, subscribed, trigger


class Meddler:
    """Runs SQL once, right before a statement of this name is sent."""

    def __init__(self, url: str, before: str) -> None:
        options = PostgresOptions.from_url(url)
        self._dsn, self._schema = options.dsn, options.schema
        self._before = before
        self.sql = ""
        self.names: list[str] = []

    def __call__(self, name: str) -> None:
        self.names.append(name)
        if name == self._before and self.sql:
            sql, self.sql = self.sql, ""
            run_sql(self._dsn, in_schema(sql, self._schema))


async def test_an_undisturbed_emission_is_two_statements(postgres_storage_url: str) -> None:
    """Reading the facts and writing everything; a repetition only reads."""
    meddler = Meddler(postgres_storage_url, "emit_apply")
    async with await lash.open(postgres_storage_url, on_statement=meddler) as storage:
        await subscribed(storage)
        meddler.names.clear()
        report = await storage.occurrences.emit(pressed())
        assert await storage.occurrences.emit(pressed()) == report
    assert meddler.names == ["emit_facts", "emit_apply", "emit_facts"]


@pytest.mark.parametrize(
    ("sql", "started"),
    [
        ('DELETE FROM :"schema".lash_trigger_subscriptions', []),
        ('UPDATE :"schema".lash_trigger_subscriptions SET enabled = false', []),
        ('UPDATE :"schema".lash_trigger_subscriptions SET enabled = true', ["k", "off"]),
        ('UPDATE :"schema".lash_trigger_subscriptions SET revision = revision + 1', ["k"]),
    ],
)
async def test_subscriptions_that_change_meanwhile_are_matched_again(
    postgres_storage_url: str, sql: str, started: list[str]
) -> None:
    """The emission starts what matches when it is written, not what matched when it was planned."""
    meddler = Meddler(postgres_storage_url, "emit_apply")
    async with await lash.open(postgres_storage_url, on_statement=meddler) as storage:
        await subscribed(storage, "k", "off")
        await storage.triggers.disable(lash.model.HostOriginator(), "off", revision=1)
        meddler.sql = sql
        report = await storage.occurrences.emit(pressed())
        assert [each.key for each in report.deliveries] == started
        assert len((await storage.processes.list()).processes) == len(started)
    assert "emit_occurrence" in meddler.names


async def test_an_occurrence_that_is_recorded_meanwhile_stands(postgres_storage_url: str) -> None:
    """The emission that comes second returns the report of the first."""
    meddler = Meddler(postgres_storage_url, "emit_apply")
    async with await lash.open(postgres_storage_url, on_statement=meddler) as storage:
        await subscribed(storage)
        first = await storage.occurrences.emit(pressed("1"))
        # An equal occurrence gets the id of the new one right before that is written.
        meddler.sql = (
            'INSERT INTO :"schema".lash_trigger_occurrences (occurrence_id, request_hash, request, report, '
            f"occurred_at_ms) SELECT '{_occurrence_id(pressed('2'))}', request_hash, request, report, occurred_at_ms "
            'FROM :"schema".lash_trigger_occurrences'
        )
        assert await storage.occurrences.emit(pressed("2")) == first
        assert len((await storage.processes.list()).processes) == 1


def _occurrence_id(request: lash.model.OccurrenceRequest) -> str:
    from lash.plan.trigger.emit import occurrence_id

    return occurrence_id(request.source_type, request.source_key, request.idempotency_key)


def _process_id(occurrence_id: str, subscription_id: str) -> str:
    from lash.plan.trigger.emit import delivery_process_id

    return delivery_process_id(occurrence_id, subscription_id)


@pytest.mark.parametrize("racing", [False, True])
async def test_a_process_id_that_is_taken_rejects_the_delivery(postgres_storage_url: str, *, racing: bool) -> None:
    """Whether the process was registered before or at the same moment, nothing is written twice or by half."""
    async with await lash.open(postgres_storage_url) as storage:
        (subscription,) = await subscribed(storage)
        taken = process(_process_id(_occurrence_id(pressed()), subscription.subscription_id))
        if not racing:
            await storage.processes.register(taken)
            report = await storage.occurrences.emit(pressed())
        else:
            async with gate_on(postgres_storage_url, "lash_processes") as gate:
                registering = asyncio.create_task(storage.processes.register(taken))
                assert await gate.until_waiting(1, registering)
                emitting = asyncio.create_task(storage.occurrences.emit(pressed()))
                assert await gate.until_waiting(2, emitting)
                await gate.open()
                await registering
                report = await emitting
        (delivery,) = report.deliveries
        assert delivery.state is lash.model.DeliveryState.REJECTED
        assert "already registered" in (delivery.reason or "")
        assert len((await storage.processes.list()).processes) == 1
        assert await storage.occurrences.emit(pressed()) == report


@pytest.mark.parametrize(
    ("sql", "ticks"),
    [
        ('UPDATE :"schema".lash_schedules SET revision = revision + 1, enabled = false, next_fire_ms = NULL', 0),
        (
            'UPDATE :"schema".lash_schedules SET last_tick_ms = next_tick_ms, next_fire_ms = next_fire_ms + 3600000000',
            0,
        ),
        ('DELETE FROM :"schema".lash_trigger_subscriptions', 1),
    ],
)
async def test_a_schedule_that_changes_meanwhile(postgres_storage_url: str, sql: str, ticks: int) -> None:
    """A tick that another worker fired, or whose schedule was disabled, is not emitted; other changes allow it."""
    meddler = Meddler(postgres_storage_url, "emit_apply")
    async with await lash.open(postgres_storage_url, on_statement=meddler) as storage:
        registered = await storage.schedules.register(lash.model.ScheduleDraft(key="k", cron="0 0 1 1 *"))
        await storage.triggers.register(trigger(source_type="cron", source_key=registered.schedule.source_key))
        due = 'UPDATE :"schema".lash_schedules SET next_tick_ms = 86400000, next_fire_ms = 86400000'
        run_sql(PostgresOptions.from_url(postgres_storage_url).dsn, in_schema(due, "lash"))
        meddler.sql = sql
        fired = await storage.schedules.fire_due()
        assert sum(len(each.ticks) for each in fired) == ticks
        assert (await storage.processes.list()).processes == ()


async def test_workers_fire_a_tick_once(postgres_storage_url: str) -> None:
    """Of many workers that see the same tick, one fires it."""
    async with await lash.open(postgres_storage_url) as storage:
        registered = await storage.schedules.register(lash.model.ScheduleDraft(key="k", cron="0 0 1 1 *"))
        await storage.triggers.register(trigger(source_type="cron", source_key=registered.schedule.source_key))
        due = 'UPDATE :"schema".lash_schedules SET next_tick_ms = 86400000, next_fire_ms = 86400000'
        run_sql(PostgresOptions.from_url(postgres_storage_url).dsn, in_schema(due, "lash"))
        fired = await asyncio.gather(*(storage.schedules.fire_due() for _ in range(12)))
        assert sum(len(each) for each in fired) == 1
        assert len((await storage.processes.list()).processes) == 1
