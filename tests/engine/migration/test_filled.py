"""Upgrades of storages of every earlier schema, with rows in every table, as `filled` describes them."""

from __future__ import annotations

from typing import Final

import pytest

import lash
from lash.cli.doctor import storage_checks
from lash.sqlkit.migrations import last_number
from tests.engine.migration.filled import WRITTEN_BY_MIGRATIONS, count_rows, fill
from tests.engine.migration.upgraded import Upgraded

KNOWN: Final = last_number("lash.sqlite.sql.migrations")
MERGED: Final = {19: {"lash_inherited": "lash_runs"}}
"""By migration: tables that it ends or gives another meaning, each with the table that has what its rows said."""
EVENT_FEED: Final = 38
"""The migration that makes registrations and events entries of the change feed themselves."""

pytestmark = [
    pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True),
    pytest.mark.parametrize("schema", range(1, KNOWN + 1)),
]


def _expected(before: dict[str, int], schema: int) -> dict[str, int]:
    """Return the least number of rows of each table after the upgrade."""
    expected = {table: count for table, count in before.items() if table not in WRITTEN_BY_MIGRATIONS}
    for tables in (tables for number, tables in MERGED.items() if number > schema):
        for ended, heir in tables.items():
            expected[heir] = max(expected.get(heir, 0), expected.pop(ended, 0))
    if schema < EVENT_FEED and "lash_process_changes" in expected:
        # It repeated each registration and each event.
        expected["lash_process_changes"] -= before["lash_processes"] + before["lash_process_events"]
    return expected


async def test_a_filled_storage_is_upgraded_whole(backend_url: str, schema: int) -> None:
    """No row of any table is lost, nothing is damaged, every store reads what was written, and work is finished."""
    before = await fill(backend_url, schema)
    assert {table for table, count in before.items() if count == 0} == set()
    async with await lash.open(backend_url) as storage:
        after = await count_rows(backend_url)
        expected = _expected(before, schema)
        assert {table: after[table] for table in expected} == expected
        assert await storage.maintenance.find_damage() == ()
        checks = [check async for check in storage_checks(storage, str)]
        # Both backends have buried input since schema 10.
        assert {check.name for check in checks if check.state != "ok"} <= {"dead letters"}
        await Upgraded(storage, schema).read()
    await _finish(backend_url, schema)


async def _finish(url: str, schema: int) -> None:
    """Let a worker finish what one of that schema had begun: queued, claimed and parked turns, and processes."""
    app = lash.App(url, options=lash.WorkerOptions(process_names=("job",)))

    async def mark(_text: str) -> str:
        return "after"

    @app.agent
    async def assistant(turn: lash.Turn) -> str:
        said = await turn.step("mark", mark, turn.text)
        if turn.text == "park":
            return str(await (await turn.start(job, "child")).result())
        return f"{said}: {turn.text}"

    @app.process
    async def job(ctx: lash.Context, name: str) -> list[object]:
        return [await ctx.step("first", mark, name), await ctx.wait_signal("go")]

    # What has a record keeps its result. Effects have been recorded since schema 5.
    recorded = "before" if schema >= 5 else "after"
    async with app:
        # A repeated key returns the answer of the message that is queued already.
        assert await app.session("chat").ask("three", key="three", timeout_s=60) == "after: three"
        if schema >= 2:
            assert await app.session("busy").ask("hang", key="hang", timeout_s=60) == f"{recorded}: hang"
        if schema >= 4:
            for name in ("waiting", "crashed"):
                await app.signal(name, "go", name)
                assert await app.handle(name).result(timeout_s=60) == [recorded, name]
        if schema >= 24:
            parent = await app.storage.leases.parked("parked")
            assert parent is not None
            await app.signal(parent.waiting_for.removeprefix("process "), "go", "now")
            assert await app.session("parked").ask("park", key="park", timeout_s=60) == "['before', 'now']"
