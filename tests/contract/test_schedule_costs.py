"""Costs of polling for due schedules, independent of their number, and of a tick."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import asyncpg
import pytest

import lash
from lash.postgres.engine.options import PostgresOptions
from lash.sqlkit.queries import load_queries
from tests.raw import raw

MANY: Final = 20_000
_BOUNDS: Final = frozenset({"begin", "commit", "rollback"})
_LATER_MS: Final = 2**60
_LOAD: Final = f"""
    INSERT INTO lash_schedules (
        owner_session_id, key, definition, enabled, revision, next_tick_ms, next_fire_ms, created_at_ms, updated_at_ms
    )
    SELECT
        's' || (number % 100), 'k' || number, CASE number % 7 WHEN 0 THEN NULL ELSE '{{}}' END, number % 7 > 1,
        1, CASE WHEN number % 7 > 1 THEN {_LATER_MS} + number END,
        CASE WHEN number % 7 > 1 THEN {_LATER_MS} + number END, number, number
    FROM generate_series(1, {MANY}) AS number
"""
_QUESTIONS: Final = (
    ("schedule_next_fire", ""),
    ("schedule_due", "100"),
    ("schedule_row", "'s3', 'k103'"),
    ("schedule_at", "77"),
    ("schedule_take", "77"),
    ("schedule_page", "'', '', NULL, 101"),
    ("schedule_page_owner", "'s3', 'k500', NULL, 101, 's3'"),
    ("schedule_delete_session", "'s4'"),
    ("session_ties", "'s4'"),
    ("session_ties", "'missing'"),
    ("session_delete_untied", "'{s4,missing}', false, true"),
    ("schedule_prune", "50, 100"),
    ("schedule_change", "'s3', 'k103', '{}', false, NULL, NULL, 1, 1, 1, NULL"),
)
"""Statements that must not grow with the number of schedules, with the arguments of a call."""


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _rows_read(node: dict[str, Any]) -> int:
    """Return how many rows a plan node read, filtered out or not."""
    each = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    rows: int = round(each * node["Actual Loops"])
    return rows


async def _plan(connection: asyncpg.Connection[asyncpg.Record], text: str, arguments: str, mode: str) -> dict[str, Any]:
    """Run a statement prepared, as a driver does, roll back, and return its plan."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
        await connection.execute(f"PREPARE asked AS {text}")
        call = f"EXECUTE asked ({arguments})" if arguments else "EXECUTE asked"
        explained = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS off, FORMAT JSON) {call}")
        await connection.execute("DEALLOCATE asked")
    finally:
        await transaction.rollback()
    plan: dict[str, Any] = json.loads(explained)[0]["Plan"]
    return plan


@pytest.mark.parametrize("backend_name", ["postgres"], indirect=True)
async def test_postgres_reads_few_rows_however_many_schedules_there_are(backend_url: str) -> None:
    """With 20,000 schedules no statement reads more than a few hundred rows or scans the table."""
    options = PostgresOptions.from_url(backend_url)
    queries = load_queries("lash.postgres.sql", schema=options.schema)
    await (await lash.open(backend_url)).close()
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    try:
        await connection.execute(_LOAD)
        await connection.execute("ANALYZE lash_schedules")
        for name, arguments in _QUESTIONS:
            for mode in ("force_custom_plan", "force_generic_plan"):
                plan = await _plan(connection, queries[name], arguments, mode)
                touched = [node for node in _nodes(plan) if node.get("Relation Name") == "lash_schedules"]
                assert touched, name
                assert all(node["Node Type"] != "Seq Scan" for node in touched), f"{name}, {mode}"
                assert max(_rows_read(node) for node in touched) <= 300, f"{name}, {mode}"
    finally:
        await connection.close()


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_worker_with_nothing_to_do_asks_once(backend_url: str) -> None:
    """With nothing due, firing is one statement that writes nothing; so is reading the next moment."""
    names: list[str] = []
    async with await lash.open(backend_url, on_statement=names.append) as storage:
        await storage.schedules.register(lash.model.ScheduleDraft(key="k", cron="0 0 1 1 *"))
        names.clear()
        assert await storage.schedules.fire_due() == ()
        assert await storage.schedules.next_fire_at_ms() is not None
    assert [name for name in names if name not in _BOUNDS] == ["schedule_due", "schedule_next_fire"]


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_tick_is_one_transaction(backend_url: str, backend_name: str) -> None:
    """The occurrence and the next tick are one transaction: a few statements on SQLite, one on PostgreSQL."""
    names: list[str] = []
    async with await lash.open(backend_url, on_statement=names.append) as storage:
        await storage.schedules.register(lash.model.ScheduleDraft(key="k", cron="0 0 1 1 *"))
        await raw(backend_url, "UPDATE lash_schedules SET next_tick_ms = 86400000, next_fire_ms = 86400000")
        names.clear()
        [fired] = await storage.schedules.fire_due()
        assert len(fired.ticks) == 1
    if backend_name == "postgres":
        assert names == ["schedule_due", "schedule_at", "emit_facts", "emit_apply"]
        return
    # Finding due schedules is a transaction too.
    assert [name for name in names if name in _BOUNDS] == ["begin", "commit"] * 2
    statements = [name for name in names if name.startswith("schedule_")]
    assert statements == ["schedule_due", "schedule_take", "schedule_advance"]
    assert len([name for name in names if name.startswith("emit_")]) <= 5


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("definition = '{'", "schedule 'b' of the host"),
        ("""definition = '{"key":"b","cron":"0 * * * *","time_zone":"Mars/Olympus"}'""", "Mars/Olympus"),
        ("""definition = '{"key":"b","cron":"0 0 31 2 *"}'""", "0 0 31 2"),
    ],
)
async def test_a_schedule_that_cannot_be_read_blocks_no_other(backend_url: str, damage: str, problem: str) -> None:
    """An unreadable schedule is reported, postponed by a minute and tried again; after a repair it ticks."""
    due = "next_tick_ms = 1780315200000, next_fire_ms = 1780315200000"
    async with await lash.open(backend_url) as storage:
        for key in ("a", "b", "c"):
            await storage.schedules.register(
                lash.model.ScheduleDraft(key=key, cron="0 * * * *", catch_up=lash.CatchUp.ALL)
            )
        [(body,)] = await raw(backend_url, "SELECT definition FROM lash_schedules WHERE key = 'b'")
        await raw(backend_url, f"UPDATE lash_schedules SET {due}")
        await raw(backend_url, f"UPDATE lash_schedules SET {damage} WHERE key = 'b'")
        reports = {report.key: report for report in await storage.schedules.fire_due()}
        assert {key: report.problem is None for key, report in reports.items()} == {"a": True, "b": False, "c": True}
        assert problem in (reports["b"].problem or "")
        assert reports["b"].ticks == ()
        assert await raw(backend_url, "SELECT next_tick_ms, next_fire_ms FROM lash_schedules WHERE key = 'b'") == [
            (1780315200000, reports["b"].next_fire_ms)
        ]
        await raw(backend_url, f"UPDATE lash_schedules SET {due}, definition = '{body}' WHERE key = 'b'")
        mended = {report.key: report for report in await storage.schedules.fire_due()}["b"]
        assert [tick.tick_ms for tick in mended.ticks[:2]] == [1780315200000, 1780318800000]


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_damage_is_told_and_can_be_removed(backend_url: str) -> None:
    """Reading a damaged schedule raises CorruptData, a list names its id, and it can be deleted."""
    async with await lash.open(backend_url) as storage:
        made = [
            (await storage.schedules.register(lash.model.ScheduleDraft(key=key, cron="0 * * * *"))).schedule
            for key in "ab"
        ]
        await raw(backend_url, "UPDATE lash_schedules SET definition = '[]' WHERE key = 'b'")
        with pytest.raises(lash.CorruptData, match="schedule 'b' of the host"):
            await storage.schedules.get(lash.model.HostOriginator(), "b")
        page = await storage.schedules.list()
        assert (page.schedules, page.damaged) == ((made[0],), (made[1].schedule_id,))
        await storage.schedules.delete(lash.model.HostOriginator(), "b", revision=1)
        assert (await storage.schedules.list()).damaged == ()
