"""Opening, closing, cancelling, and use from another event loop or process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from urllib.parse import urlsplit

import asyncpg
import pytest

import lash
from lash.errors import ConfigError, StorageClosed, StorageFailure, StoreUnavailable
from lash.postgres.engine.database import Database
from lash.postgres.engine.options import PostgresOptions
from lash.testing.postgres_server import PostgresServer
from tests.backends import run_sql, scratch_database
from tests.engine.postgres.kit import RUNNING, Item, opened, queries_for, raw_connection, until_count, with_items

SLEEPING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'PgSleep'"


async def add_and_raise(database: Database, error: BaseException) -> None:
    async with database.transaction() as transaction:
        assert await transaction.one(Item, "add", 1) == Item(1, 1)
        raise error


async def test_after_close_every_call_says_so_and_a_second_close_is_harmless(postgres_schema_url: str) -> None:
    """A closed database refuses reads, writes and transactions."""
    async with opened(postgres_schema_url) as database:
        await database.close()
        with pytest.raises(StorageClosed):
            await database.read_one(Item, "one")
        with pytest.raises(StorageClosed):
            await database.read_all(Item, "one")
        with pytest.raises(StorageClosed):
            await database.write_one(Item, "one", repeatable=True)
        with pytest.raises(StorageClosed):
            async with database.transaction():
                pass
        await database.close()


async def test_close_waits_for_calls_under_way_and_leaves_no_connection(postgres_schema_url: str) -> None:
    """Calls in flight finish, and the server then has no connection of ours."""
    async with opened(postgres_schema_url, application_name="closing") as database:
        reading = asyncio.create_task(database.read_one(Item, "sleep", 0.1))
        async with raw_connection(postgres_schema_url) as watcher:
            await until_count(watcher, SLEEPING, "closing", 1)
            await database.close()
            assert reading.done()
            assert await reading == Item(1, 2)
            await until_count(watcher, RUNNING, "closing", 0)


async def test_a_cancelled_call_ends_at_once_and_its_connection_is_used_again(postgres_schema_url: str) -> None:
    """The only connection of the pool serves the next call, and the server no longer runs the cancelled one."""
    async with opened(postgres_schema_url, max_size=1, application_name="cancelling") as database:
        await with_items(database, 1)
        reading = asyncio.create_task(database.read_one(Item, "sleep", 60))
        async with raw_connection(postgres_schema_url) as watcher:
            await until_count(watcher, SLEEPING, "cancelling", 1)
            reading.cancel()
            # One iteration of the loop delivers the cancellation; the caller waits for nothing else.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert reading.cancelled()
            assert await database.write_one(Item, "add", 1, repeatable=False) == Item(1, 1)
            assert await watcher.fetchval(SLEEPING, "cancelling") == 0


async def test_a_call_cancelled_while_it_waits_for_a_connection_leaves_the_pool_whole(
    postgres_schema_url: str,
) -> None:
    """Cancelled callers that waited leak no connection."""
    async with opened(postgres_schema_url, max_size=1) as database:
        async with database.transaction():
            waiting = [asyncio.create_task(database.read_one(Item, "one")) for _ in range(5)]
            await asyncio.sleep(0)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        assert await database.read_one(Item, "one") == Item(1, 2)


async def test_a_transaction_counts_whole_or_not_at_all(postgres_schema_url: str) -> None:
    """An error or a cancellation inside the block rolls it back, and the connection is usable afterwards."""
    async with opened(postgres_schema_url, max_size=1) as database:
        await with_items(database, 1)
        with pytest.raises(ZeroDivisionError):
            await add_and_raise(database, ZeroDivisionError())
        assert await database.read_one(Item, "get", 1) == Item(1, 0)

        inside = asyncio.Event()

        async def hang() -> None:
            async with database.transaction() as transaction:
                await transaction.run("add", 1)
                inside.set()
                await asyncio.Event().wait()

        hanging = asyncio.create_task(hang())
        await inside.wait()
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        assert await database.read_one(Item, "get", 1) == Item(1, 0)

        async with database.transaction() as transaction:
            assert await transaction.run("add", 1) == 1
            assert await transaction.run("add", 999) == 0
            assert await transaction.run("insert", 2, 0) == 1
            await transaction.execute_script("SET LOCAL work_mem = '1MB'; SELECT 1")
            assert await transaction.all(Item, "list") == [Item(1, 1), Item(2, 0)]
        assert await database.read_one(Item, "get", 1) == Item(1, 1)


async def test_a_cancelled_transaction_is_not_reported_as_a_fault(
    postgres_schema_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection is rolled back before it returns to the driver, so that the driver warns of nothing."""
    async with opened(postgres_schema_url, max_size=1) as database:
        await with_items(database, 1)
        with pytest.raises(asyncio.CancelledError):
            await add_and_raise(database, asyncio.CancelledError())
        assert await database.read_one(Item, "get", 1) == Item(1, 0)
    assert caplog.records == []


async def test_an_exhausted_pool_is_unavailable(postgres_schema_url: str) -> None:
    """A caller waits for a free connection no longer than ``acquire_timeout_s``."""
    async with opened(postgres_schema_url, min_size=1, max_size=1, acquire_timeout_s=0.05) as database:
        async with database.transaction():
            with pytest.raises(StoreUnavailable) as caught:
                await database.write_one(Item, "one", repeatable=False)
        assert not caught.value.outcome_unknown
        assert await database.read_one(Item, "one") == Item(1, 2)


async def test_a_connection_is_replaced_when_it_is_old(postgres_schema_url: str) -> None:
    """Without a lifetime one connection serves every call; with one that has passed, each call gets a new one."""

    async def backends(lifetime_s: float) -> int:
        async with opened(postgres_schema_url, max_size=1, lifetime_s=lifetime_s) as database:
            return len({await database.read_one(Item, "backend") for _ in range(3)})

    assert await backends(0) == 1
    assert await backends(1800) == 1
    assert await backends(1e-9) == 3


async def test_a_statement_is_planned_once_for_a_connection(postgres_schema_url: str) -> None:
    """The server never plans for particular arguments: that takes longer than running a statement."""
    async with opened(postgres_schema_url, max_size=1) as database:
        for number in range(8):
            await database.read_one(Item, "number", number)
        plans = await database.read_one(Item, "planned_anew")
        assert plans is not None
        assert plans.id == 0
        assert plans.n >= 8


async def test_a_pool_of_the_caller_is_used_and_left_as_it_is(postgres_schema_url: str) -> None:
    """Its connections are shared, its settings stay, and closing the database does not close it."""
    options = PostgresOptions.from_url(postgres_schema_url)
    settings = {"application_name": "host", "lock_timeout": "77ms"}
    async with asyncpg.create_pool(options.dsn, min_size=0, max_size=1, server_settings=settings) as pool:
        theirs = await pool.fetchval("SELECT pg_backend_pid()")
        async with opened(postgres_schema_url, pool=pool) as database:
            ours = await database.read_one(Item, "backend")
            assert ours == Item(theirs, 0)
        assert await pool.fetchval("SHOW lock_timeout") == "77ms"
        assert await pool.fetchval("SHOW application_name") == "host"
        assert (pool.get_max_size(), pool.get_min_size()) == (1, 0)


async def test_a_pool_that_its_owner_closed_is_a_closed_storage(postgres_schema_url: str) -> None:
    """The driver's error about its closed pool is translated."""
    options = PostgresOptions.from_url(postgres_schema_url)
    pool = await asyncpg.create_pool(options.dsn, min_size=0)
    async with opened(postgres_schema_url, pool=pool) as database:
        await pool.close()
        with pytest.raises(StorageClosed):
            await database.read_one(Item, "one")


async def test_a_read_only_server_refuses_writes_as_a_failure_of_the_storage(postgres_schema_url: str) -> None:
    """A read-only standby is not retried."""
    options = PostgresOptions.from_url(postgres_schema_url)
    async with opened(postgres_schema_url) as database:
        await with_items(database, 1)
    read_only = {"default_transaction_read_only": "on"}
    async with (
        asyncpg.create_pool(options.dsn, min_size=0, server_settings=read_only) as pool,
        opened(postgres_schema_url, pool=pool) as database,
    ):
        with pytest.raises(StorageFailure, match="25006"):
            await database.write_one(Item, "add", 1, repeatable=False)


async def test_a_minimum_of_connections_is_opened_at_once(postgres_schema_url: str) -> None:
    """``min_size`` connections wait for the first calls."""
    async with (
        opened(postgres_schema_url, min_size=3, application_name="warm"),
        raw_connection(postgres_schema_url) as watcher,
    ):
        assert await watcher.fetchval(RUNNING, "warm") == 3


async def test_use_in_a_forked_child_is_refused(postgres_schema_url: str) -> None:
    """The child gets a clear error, and the parent's connections go on working."""
    async with opened(postgres_schema_url) as database:
        await database.read_one(Item, "one")
        child = os.fork()
        if child == 0:
            try:
                database.read_one(Item, "one").send(None)
            except ConfigError as error:
                os._exit(7 if "fork" in str(error) else 1)
            finally:
                os._exit(1)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        assert await database.read_one(Item, "one") == Item(1, 2)


def test_use_in_another_event_loop_is_refused(postgres_server: PostgresServer) -> None:
    """The error names the remedy; the loop of the database is not disturbed."""
    options = PostgresOptions.from_url(postgres_server.url)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        database = first.run(Database.open(options, queries=queries_for(options)))
        with pytest.raises(ConfigError, match="event loop"):
            second.run(database.read_one(Item, "one"))
        with pytest.raises(ConfigError, match="event loop"):
            second.run(database.close())
        assert first.run(database.read_one(Item, "one")) == Item(1, 2)
        first.run(database.close())


def run_python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=30)
    return done.stdout.strip()


def test_without_the_driver_the_error_says_what_to_install() -> None:
    """A missing extra is a mistake of configuration, not an ImportError."""
    program = """
import sys
from urllib.parse import urlsplit
sys.modules["asyncpg"] = None
import lash
from lash.errors import ConfigError
try:
    import lash.postgres.engine.database
except ConfigError as error:
    print(error)
"""
    assert "pip install 'lash-runtime[postgres]'" in run_python(program)


def test_importing_lash_does_not_import_the_driver() -> None:
    """Importing lash does not import asyncpg, so SQLite alone needs no driver."""
    assert run_python("import sys, lash, lash.postgres; print('asyncpg' in sys.modules)") == "False"


async def test_a_server_that_quotes_every_name_is_accepted(postgres_server: PostgresServer) -> None:
    """How the server prints the predicates of indexes does not matter to the check of the tables."""
    with scratch_database(postgres_server.url) as url:
        name = urlsplit(url).path.removeprefix("/")
        run_sql(url, f'ALTER DATABASE "{name}" SET quote_all_identifiers = on')
        for _ in range(2):
            async with await lash.open(url) as storage:
                assert await storage.sessions.open("s") is None
