"""Creating, migrating, refusing and checking the tables, on both databases."""

from __future__ import annotations

import asyncio
import multiprocessing
from multiprocessing.synchronize import Barrier

import pytest

import lash
from lash.sqlkit.catalogue import UniqueKey, load_catalogue
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

MIGRATIONS = (
    "0001_sessions",
    "0002_queue",
    "0003_artifacts_attachments",
    "0004_processes",
    "0005_effects",
    "0006_waits",
    "0007_triggers",
    "0008_schedules",
    "0009_work",
    "0010_dead_letters",
    "0011_activity",
    "0012_packed_nodes",
    "0013_cheaper_commits",
    "0014_change_epoch",
    "0015_node_kinds",
    "0016_workers",
    "0017_records",
    "0018_session_labels",
    "0019_shared_runs",
    "0020_failure_counts",
    "0021_queue_pages",
    "0022_usage_times",
    "0023_session_retention",
    "0024_parked_turns",
    "0025_priorities",
    "0026_limits",
    "0027_session_changes",
    "0028_agents_of_input",
    "0029_step_traces",
    "0030_wait_questions",
    "0031_limit_places",
    "0032_relatives",
    "0033_acts",
    "0034_throughput",
    "0035_search",
    "0036_demand",
    "0037_attempt_links",
    "0038_event_feed",
    "0039_consumed_keys",
    "0040_inline_events",
)
ADDITIVE = (36, 37)
_OPENERS = 16
_PACKAGES = {"sqlite": "lash.sqlite.sql", "postgres": "lash.postgres.sql"}


def _open_once(url: str, barrier: Barrier) -> None:
    async def run() -> None:
        async with await lash.open(url) as storage:
            await storage.sessions.create("shared")

    barrier.wait()
    asyncio.run(run())


async def test_sixteen_concurrent_first_opens_all_succeed(backend_url: str) -> None:
    """Sixteen processes open a new storage at the same moment; all succeed; each migration counts once."""
    # Forked from one process that has imported lash: sixteen imports at the same moment take seconds.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lash", "lash.sqlite.storage", "lash.postgres.storage"])
    barrier = context.Barrier(_OPENERS)
    processes = [context.Process(target=_open_once, args=(backend_url, barrier)) for _ in range(_OPENERS)]
    for process in processes:
        process.start()
    for process in processes:
        await asyncio.to_thread(process.join, 60)
    assert [process.exitcode for process in processes] == [0] * _OPENERS
    numbers = await raw(backend_url, "SELECT number FROM lash_migrations ORDER BY number")
    assert numbers == [(number,) for number in range(1, len(MIGRATIONS) + 1) if number not in ADDITIVE]
    additions = await raw(backend_url, "SELECT number FROM lashadditions ORDER BY number")
    assert additions == [(number,) for number in ADDITIVE]
    assert await raw(backend_url, "SELECT count(*) FROM lash_sessions") == [(1,)]


async def test_a_newer_schema_is_refused_with_both_numbers(backend_url: str) -> None:
    """A schema of the future is refused; the message names what was found and what is known."""
    await (await lash.open(backend_url)).close()
    await raw(backend_url, "INSERT INTO lash_migrations (number, name, applied_at_ms) VALUES (41, 'of_the_future', 0)")
    with pytest.raises(lash.NewerSchema, match=rf"schema 41\b.*up to {len(MIGRATIONS)}\b") as refused:
        await lash.open(backend_url)
    assert (refused.value.found, refused.value.supported) == (41, len(MIGRATIONS))


async def test_without_permission_to_migrate_nothing_is_touched(backend_url: str, backend_name: str) -> None:
    """``migrate=False`` on an empty database says what is pending and creates nothing."""
    with pytest.raises(lash.PendingMigrations, match="0001_sessions, 0002_queue") as refused:
        await lash.open(backend_url, migrate=False)
    assert refused.value.pending == MIGRATIONS
    catalogue = {
        "sqlite": "SELECT count(*) FROM sqlite_schema",
        "postgres": "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()",
    }
    assert await raw(backend_url, catalogue[backend_name]) == [(0,)]


async def test_without_permission_to_migrate_a_current_storage_opens(backend_url: str) -> None:
    """``migrate=False`` opens a storage that needs no migration."""
    async with await lash.open(backend_url) as storage:
        await storage.sessions.create("s")
    async with await lash.open(backend_url, migrate=False) as storage:
        assert await storage.sessions.open("s") is not None


async def test_opening_again_applies_nothing(backend_url: str) -> None:
    """A second open leaves the record of migrations as the first one wrote it."""
    await (await lash.open(backend_url)).close()
    first = await raw(backend_url, "SELECT number, name, applied_at_ms FROM lash_migrations")
    await (await lash.open(backend_url)).close()
    assert await raw(backend_url, "SELECT number, name, applied_at_ms FROM lash_migrations") == first


async def test_every_missing_column_is_named(backend_url: str) -> None:
    """A column that the code needs and the database lacks is named when the storage is opened."""
    await (await lash.open(backend_url)).close()
    await raw(backend_url, "ALTER TABLE lash_frames DROP COLUMN body")
    with pytest.raises(lash.SchemaMismatch, match=r"column lash_frames\.body is missing"):
        await lash.open(backend_url)


async def test_a_missing_table_is_named(backend_url: str) -> None:
    """A table that the code needs and the database lacks is named when the storage is opened."""
    await (await lash.open(backend_url)).close()
    await raw(backend_url, "DROP TABLE lash_turns")
    with pytest.raises(lash.SchemaMismatch, match="table lash_turns is missing"):
        await lash.open(backend_url)


async def test_each_dropped_unique_index_is_named(backend_url: str, backend_name: str) -> None:
    """Dropping a unique index in a database makes opening it fail, with the table and its columns named."""
    await (await lash.open(backend_url)).close()
    for index, table, columns in (
        ("lash_nodes_place", "lash_nodes", "(session_key, segment, depth)"),
        ("lash_nodes_id", "lash_nodes", "(session_key, node_id)"),
        ("lash_blobs_hash", "lash_blobs", "(session_key, hash)"),
        ("lash_artifacts_ref", "lash_artifacts", "(namespace, ref)"),
    ):
        await raw(backend_url, f"DROP INDEX {index}")
        with pytest.raises(lash.SchemaMismatch) as refused:
            await lash.open(backend_url)
        assert f"unique index on {table} {columns} is missing" in str(refused.value)
        keys = load_catalogue(_PACKAGES[backend_name]).tables[table].unique
        names = columns.strip("()").split(", ")
        assert UniqueKey(columns=tuple(names)) in keys
        await raw(backend_url, f"CREATE UNIQUE INDEX {index} ON {table} {columns}")
    await (await lash.open(backend_url)).close()


async def test_what_a_host_adds_does_no_harm(backend_url: str) -> None:
    """Tables, columns and indexes of the host beside ours are accepted."""
    await (await lash.open(backend_url)).close()
    await raw(backend_url, "CREATE TABLE hosts_own (id integer)")
    await raw(backend_url, "CREATE INDEX hosts_index ON lash_sessions (name)")
    await raw(backend_url, "ALTER TABLE lash_sessions ADD COLUMN hosts_column integer")
    async with await lash.open(backend_url) as storage:
        assert (await storage.sessions.create("s")).created
