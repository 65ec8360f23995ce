"""Which failures are retried, and which are raised, with what is known about the outcome."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from lash.errors import StoreUnavailable
from lash.postgres.engine.database import MAX_TRIES, Database
from lash.postgres.engine.options import PostgresOptions
from lash.sqlkit.queries import in_schema
from lash.testing.postgres_server import PostgresServer
from tests.engine.postgres.kit import Item, opened, queries_for, raw_connection, with_items
from tests.engine.postgres.proxy import Cut, proxy_before

# Its eight bytes travel as they are, so the proxy can recognise the statement that carries it.
MARKED = int.from_bytes(b"lashmark")
LOCK_TWO = """
CREATE FUNCTION :"schema".lock_two(first bigint, second bigint) RETURNS bigint LANGUAGE plpgsql
SET deadlock_timeout = '20ms' AS $$
BEGIN
    UPDATE :"schema".items SET n = n + 1 WHERE id = first;
    PERFORM pg_sleep(0.1);
    UPDATE :"schema".items SET n = n + 1 WHERE id = second;
    RETURN first;
END $$
"""


async def until_waiting(connection: asyncpg.Connection[asyncpg.Record], wait_event_type: str) -> int:
    """Return the process of the server that waits; a test bounds this by its own timeout."""
    query = """
        SELECT pid FROM pg_stat_activity
        WHERE application_name = 'lash' AND state = 'active' AND wait_event_type = $1
    """
    while True:
        pid: int | None = await connection.fetchval(query, wait_event_type)
        if pid is not None:
            return pid
        await asyncio.sleep(0.005)


async def test_a_deadlock_is_repeated(postgres_schema_url: str) -> None:
    """Two statements that lock the same rows in opposite order both succeed, each once."""
    heard: list[str] = []
    async with opened(postgres_schema_url, on_statement=heard.append) as database:
        await with_items(database, 1, 2)
        async with database.transaction() as transaction:
            await transaction.execute_script(in_schema(LOCK_TWO, database.options.schema))
        for tries in range(1, 21):
            await asyncio.gather(
                database.write_one(Item, "lock_two", 1, 2, repeatable=False),
                database.write_one(Item, "lock_two", 2, 1, repeatable=False),
            )
            assert await database.read_all(Item, "list") == [Item(1, 2 * tries), Item(2, 2 * tries)]
            # On a busy machine one of them may be done before the other begins.
            if heard.count("lock_two") > 2 * tries:
                return
    raise AssertionError("no deadlock in 20 rounds")


async def test_a_serialization_failure_is_repeated(postgres_schema_url: str) -> None:
    """A statement that fails to serialize is retried, also when it is not repeatable."""
    heard: list[str] = []
    options = PostgresOptions.from_url(postgres_schema_url)
    strict = {"default_transaction_isolation": "repeatable read", "application_name": "lash"}
    async with (
        raw_connection(postgres_schema_url) as rival,
        asyncpg.create_pool(options.dsn, min_size=0, server_settings=strict) as pool,
        opened(postgres_schema_url, pool=pool, on_statement=heard.append) as database,
    ):
        await with_items(database, 1)
        transaction = rival.transaction()
        await transaction.start()
        await rival.execute(in_schema('UPDATE :"schema".items SET n = n + 10', options.schema))
        adding = asyncio.create_task(database.write_one(Item, "add", 1, repeatable=False))
        async with raw_connection(postgres_schema_url) as watcher:
            await until_waiting(watcher, "Lock")
        await transaction.commit()
        assert await adding == Item(1, 11)
    assert heard.count("add") == 2


async def test_a_lock_timeout_is_repeated_once_and_then_unavailable(postgres_schema_url: str) -> None:
    """Each try waits for the whole timeout, so there are only two; nothing was applied."""
    heard: list[str] = []
    async with (
        raw_connection(postgres_schema_url) as rival,
        opened(postgres_schema_url, lock_timeout_ms=20, on_statement=heard.append) as database,
    ):
        await with_items(database, 1)
        async with rival.transaction():
            await rival.execute(in_schema('UPDATE :"schema".items SET n = 10', database.options.schema))
            with pytest.raises(StoreUnavailable) as caught:
                await database.write_one(Item, "add", 1, repeatable=False)
    assert not caught.value.outcome_unknown
    assert heard.count("add") == 2


async def test_a_statement_timeout_is_not_repeated(postgres_schema_url: str) -> None:
    """A statement that hit its timeout is not retried; the error says that it was not applied."""
    heard: list[str] = []
    async with opened(postgres_schema_url, statement_timeout_ms=20, on_statement=heard.append) as database:
        with pytest.raises(StoreUnavailable, match="57014") as caught:
            await database.write_one(Item, "sleep", 30, repeatable=True)
    assert not caught.value.outcome_unknown
    assert heard == ["sleep"]


async def test_a_read_whose_connection_is_killed_is_repeated(postgres_schema_url: str) -> None:
    """A read succeeds although an administrator terminated its connection."""
    heard: list[str] = []
    async with (
        raw_connection(postgres_schema_url) as rival,
        opened(postgres_schema_url, on_statement=heard.append) as database,
    ):
        reading = asyncio.create_task(database.read_one(Item, "sleep", 0.2))
        pid = await until_waiting(rival, "Timeout")
        await rival.execute("SELECT pg_terminate_backend($1)", pid)
        assert await reading == Item(1, 2)
    assert heard == ["sleep", "sleep"]


async def test_a_write_whose_connection_is_killed_is_of_unknown_outcome(postgres_schema_url: str) -> None:
    """A write that must not run twice is not retried."""
    async with raw_connection(postgres_schema_url) as rival, opened(postgres_schema_url) as database:
        writing = asyncio.create_task(database.write_one(Item, "sleep", 30, repeatable=False))
        pid = await until_waiting(rival, "Timeout")
        await rival.execute("SELECT pg_terminate_backend($1)", pid)
        with pytest.raises(StoreUnavailable) as caught:
            await writing
        assert caught.value.outcome_unknown
        assert await database.read_one(Item, "one") == Item(1, 2)


@pytest.mark.parametrize(("when", "applied"), [(Cut.BEFORE_SENDING, 0), (Cut.BEFORE_ANSWERING, 1)])
async def test_a_lost_answer_is_unknown_whether_or_not_the_server_had_applied_it(
    postgres_schema_url: str, when: Cut, applied: int
) -> None:
    """Both cases look alike to the client, so a write that must not run twice reports an unknown outcome in both."""
    async with proxy_before(postgres_schema_url) as (proxy, url), opened(url) as database:
        await with_items(database, MARKED)
        proxy.cut_once(MARKED.to_bytes(8), when)
        with pytest.raises(StoreUnavailable) as caught:
            await database.write_one(Item, "add", MARKED, repeatable=False)
        assert caught.value.outcome_unknown
        assert await database.read_one(Item, "get", MARKED) == Item(MARKED, applied)


@pytest.mark.parametrize(("when", "expected"), [(Cut.BEFORE_SENDING, 1), (Cut.BEFORE_ANSWERING, 2)])
async def test_a_repeatable_write_is_repeated_after_a_lost_answer(
    postgres_schema_url: str, when: Cut, expected: int
) -> None:
    """It is really sent again, which is why only a ``repeatable`` statement is."""
    async with proxy_before(postgres_schema_url) as (proxy, url), opened(url) as database:
        await with_items(database, MARKED)
        proxy.cut_once(MARKED.to_bytes(8), when)
        assert await database.write_one(Item, "add", MARKED, repeatable=True) == Item(MARKED, expected)


@pytest.mark.parametrize(("when", "applied"), [(Cut.BEFORE_SENDING, 0), (Cut.BEFORE_ANSWERING, 1)])
async def test_a_write_that_cannot_be_repeated_is_of_unknown_outcome(
    postgres_schema_url: str, when: Cut, applied: int
) -> None:
    """If no connection is left for a second try, the first one may have been applied, and the error says so."""
    async with proxy_before(postgres_schema_url) as (proxy, url), opened(url) as database:
        await with_items(database, MARKED)
        proxy.cut_once(MARKED.to_bytes(8), when, for_good=True)
        with pytest.raises(StoreUnavailable) as caught:
            await database.write_one(Item, "add", MARKED, repeatable=True)
        with pytest.raises(StoreUnavailable) as refused:
            await database.write_one(Item, "add", MARKED, repeatable=True)
        assert (caught.value.outcome_unknown, refused.value.outcome_unknown) == (True, False)
        proxy.is_closed = False
        assert await database.read_one(Item, "get", MARKED) == Item(MARKED, applied)


async def test_a_lost_answer_to_a_read_is_repeated(postgres_schema_url: str) -> None:
    """Reads are always repeatable."""
    async with proxy_before(postgres_schema_url) as (proxy, url), opened(url) as database:
        await with_items(database, MARKED)
        proxy.cut_once(MARKED.to_bytes(8), Cut.BEFORE_ANSWERING)
        assert await database.read_one(Item, "get", MARKED) == Item(MARKED, 0)


async def test_a_lost_answer_to_commit_is_unknown_and_a_lost_statement_is_not(postgres_schema_url: str) -> None:
    """Before its COMMIT a transaction has certainly not been applied."""
    async with proxy_before(postgres_schema_url) as (proxy, url), opened(url) as database:
        await with_items(database, MARKED)
        proxy.cut_once(MARKED.to_bytes(8), Cut.BEFORE_ANSWERING)
        with pytest.raises(StoreUnavailable) as lost_statement:
            async with database.transaction() as transaction:
                await transaction.run("add", MARKED)
        proxy.cut_once(b"COMMIT\x00", Cut.BEFORE_ANSWERING)
        with pytest.raises(StoreUnavailable) as lost_commit:
            async with database.transaction() as transaction:
                await transaction.run("add", MARKED)
        assert await database.read_one(Item, "get", MARKED) == Item(MARKED, 1)
    assert (lost_statement.value.outcome_unknown, lost_commit.value.outcome_unknown) == (False, True)


async def test_a_line_that_swallows_everything_does_not_hang_the_caller(
    postgres_schema_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has its own timeout: a read is then unavailable, a write of unknown outcome; neither is retried."""
    monkeypatch.setattr("lash.postgres.engine.pool._RELEASE_LIMIT_S", 0.05)
    heard: list[str] = []
    async with (
        proxy_before(postgres_schema_url) as (proxy, url),
        opened(url, on_statement=heard.append) as database,
    ):
        await with_items(database, MARKED)
        # Only statements that are swallowed have this limit: a busy machine may answer the others later than that.
        usual = database._watch.limit_s
        database._watch.limit_s = 0.5
        proxy.cut_once(MARKED.to_bytes(8), Cut.SWALLOW)
        with pytest.raises(StoreUnavailable) as writing:
            await database.write_one(Item, "add", MARKED, repeatable=True)
        proxy.cut_once(MARKED.to_bytes(8), Cut.SWALLOW)
        with pytest.raises(StoreUnavailable) as reading:
            await database.read_one(Item, "get", MARKED)
        database._watch.limit_s = usual
        assert (writing.value.outcome_unknown, reading.value.outcome_unknown) == (True, False)
        assert await database.read_one(Item, "get", MARKED) == Item(MARKED, 0)
    assert (heard.count("add"), heard.count("get")) == (1, 2)


async def test_an_injected_failure_before_sending_is_repeated_as_often_as_the_budget_allows(
    postgres_schema_url: str,
) -> None:
    """The hook can stand in for a failing network; a call gives up after its tries."""
    heard: list[str] = []

    def fail(name: str) -> None:
        heard.append(name)
        raise ConnectionResetError("made for the test")

    async with opened(postgres_schema_url, on_statement=fail) as database:
        with pytest.raises(StoreUnavailable):
            await database.read_one(Item, "one")
    assert heard == ["one"] * MAX_TRIES


async def test_a_restarted_server_is_used_again(own_server: PostgresServer) -> None:
    """Connections that died with the old server are replaced without an error."""
    async with opened(own_server.url, max_size=4) as database:
        await asyncio.gather(*(database.read_one(Item, "sleep", 0.02) for _ in range(4)))
        await asyncio.to_thread(own_server.restart)
        assert await database.read_one(Item, "one") == Item(1, 2)
        await asyncio.to_thread(own_server.restart, immediate=True)
        assert await asyncio.gather(*(database.read_one(Item, "one") for _ in range(8))) == [Item(1, 2)] * 8


async def test_a_server_that_is_away_is_unavailable_and_named(own_server: PostgresServer) -> None:
    """Opening and reading both name the address; once the server is back the same database works."""
    options = PostgresOptions.from_url(own_server.url)
    async with opened(own_server.url) as database:
        # In a thread, so that the loop notices the end of the idle connection before it is used again.
        await asyncio.to_thread(own_server.stop)
        with pytest.raises(StoreUnavailable, match=options.address) as reading:
            await database.write_one(Item, "one", repeatable=False)
        with pytest.raises(StoreUnavailable, match=options.address):
            await Database.open(options, queries=queries_for(options))
        with pytest.raises(StoreUnavailable, match=options.address):
            async with opened(own_server.url, min_size=2):
                pass
        own_server.start()
        assert await database.read_one(Item, "one") == Item(1, 2)
    assert not reading.value.outcome_unknown
