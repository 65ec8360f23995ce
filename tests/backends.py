"""Backends as tests see them: their names, which test belongs to which, and fresh schemas and databases."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

import lash
from lash.testing.clock import START_MS

T = TypeVar("T")

BACKENDS = ("sqlite", "memory", "postgres")
SCHEMA = "lash"
"""Where the storage of a reused database is; not the default, so that a forgotten schema is noticed."""

KIT = "test_kit"
"""The application name of the connection that empties a reused database."""

TESTS_FOLDER = Path(__file__).resolve().parent
_FOLDER_BACKENDS = {
    TESTS_FOLDER / folder / name: name for folder in ("engine", "proof/faults") for name in ("sqlite", "postgres")
}


@functools.cache
def backend_of_path(path: Path) -> str | None:
    """Return the backend whose directory the test file is in."""
    return next((name for folder, name in _FOLDER_BACKENDS.items() if path.is_relative_to(folder)), None)


@dataclasses.dataclass
class BackendTally:
    """How many tests ran on each backend, and which of them failed."""

    ran: dict[str, set[str]] = dataclasses.field(default_factory=lambda: {name: set() for name in BACKENDS})
    failed: dict[str, set[str]] = dataclasses.field(default_factory=lambda: {name: set() for name in BACKENDS})

    def record(self, backend: str, test: str, *, failed: bool) -> None:
        """Count a test once, whichever of its phases reported."""
        self.ran[backend].add(test)
        if failed:
            self.failed[backend].add(test)

    def lines(self) -> list[str]:
        """Return one line for each backend."""
        return [self._line(name) for name in BACKENDS]

    def _line(self, name: str) -> str:
        ran, failed = len(self.ran[name]), len(self.failed[name])
        ending = f", {failed} failed" if failed else ""
        return f"backend {name}: {ran} tests ran, {ran - failed} passed{ending}"


def with_parameters(url: str, **parameters: str) -> str:
    """Return the URL with these query parameters set."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query)) | parameters
    return urlunsplit(parts._replace(query=urlencode(query)))


@contextmanager
def fresh_schema(url: str) -> Iterator[str]:
    """Create an empty schema, give its URL, and drop it with all that is in it."""
    schema = f"test_{uuid.uuid4().hex}"
    run_sql(url, f'CREATE SCHEMA "{schema}"')
    try:
        yield with_parameters(url, schema=schema)
    finally:
        # A connection that a test left behind must fail this test, not hang the run.
        run_sql(url, "SET lock_timeout = '5s'", f'DROP SCHEMA "{schema}" CASCADE')


@contextmanager
def scratch_database(url: str) -> Iterator[str]:
    """Create an empty database, give its URL, and drop it even while connections remain."""
    name = f"test_{uuid.uuid4().hex}"
    run_sql(url, f'CREATE DATABASE "{name}"')
    try:
        yield _on_database(url, name)
    finally:
        run_sql(url, f'DROP DATABASE "{name}" WITH (FORCE)')


class ReusedDatabase:
    """A database with an empty storage that is emptied after each test, which is far quicker than creating a new one.

    A new database takes its place after a test that changed the schema itself. One connection stays open to empty it:
    a new server process for each test would read all its caches again. With ``manual_clock`` the storage's time stands
    still at the start of a `ManualClock`, until the test sets another time with `SET_CLOCK`.
    """

    def __init__(self, server_url: str, *, manual_clock: bool = False) -> None:
        self._server_url = server_url
        self._manual_clock = manual_clock
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-kit", daemon=True)
        self._thread.start()
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._name = self._create()

    @property
    def url(self) -> str:
        """The URL of the storage, in its schema."""
        return with_parameters(_on_database(self._server_url, self._name), schema=SCHEMA)

    def clean(self) -> None:
        """Empty the storage. A connection that a test left behind, with locks, fails that test."""
        if not self._run(self._clean()):
            self._run(self._disconnect())
            self._drop()
            self._name = self._create()

    def close(self) -> None:
        """Drop the database."""
        self._run(self._disconnect())
        self._drop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _drop(self) -> None:
        # By force: the server may not have noticed yet that a process which a test has killed is gone.
        run_sql(self._server_url, f'DROP DATABASE "{self._name}" WITH (FORCE)')

    def _create(self) -> str:
        name = f"test_{uuid.uuid4().hex}"
        run_sql(self._server_url, f'CREATE DATABASE "{name}"')
        url = _on_database(self._server_url, name)
        migrate(with_parameters(url, schema=SCHEMA))
        scripts = (_CLOCK, _STOP_CLOCK, _KIT) if self._manual_clock else (_CLOCK, _KIT)
        for script in scripts:
            run_sql(url, *script.format(schema=SCHEMA, start_ms=START_MS).split(";;"))
        return name

    async def _clean(self) -> bool:
        if self._connection is None or self._connection.is_closed():
            settings = {"application_name": KIT, "lock_timeout": "5s"}
            url = _on_database(self._server_url, self._name)
            self._connection = await asyncpg.connect(url, server_settings=settings)
        clean: bool = await self._connection.fetchval("SELECT test_kit.clean()")
        return clean

    async def _disconnect(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    def _run(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


SET_CLOCK = "UPDATE test_kit.clock SET now_ms = {now_ms}"
_CLOCK = """
CREATE SCHEMA test_kit;;
CREATE TABLE test_kit.clock (now_ms bigint NOT NULL);;
INSERT INTO test_kit.clock VALUES ({start_ms})
"""
_STOP_CLOCK = """
CREATE OR REPLACE FUNCTION "{schema}".lash_now_ms() RETURNS bigint LANGUAGE sql VOLATILE
    AS 'SELECT now_ms FROM test_kit.clock'
"""
_KIT = """
CREATE TABLE test_kit.functions AS
SELECT pg_get_functiondef(p.oid) AS definition
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname = '{schema}';;
CREATE TABLE test_kit.migrations AS TABLE "{schema}".lash_migrations;;
CREATE TABLE test_kit.additions AS TABLE "{schema}".lashadditions;;
CREATE TABLE test_kit.epoch AS TABLE "{schema}".lash_process_change_epoch;;
CREATE FUNCTION test_kit.fingerprint() RETURNS text LANGUAGE sql AS $$
    SELECT md5(string_agg(line, ',' ORDER BY line))
    FROM (
        SELECT concat_ws(' ', c.relname, a.attname, a.atttypid, a.attnotnull, a.attnum) AS line
        FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
        WHERE c.relnamespace = '{schema}'::regnamespace AND a.attnum > 0
        UNION ALL
        SELECT concat_ws(' ', conname, contype, conrelid) FROM pg_constraint
        WHERE connamespace = '{schema}'::regnamespace
        UNION ALL
        SELECT concat_ws(' ', 'function', proname) FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace
        UNION ALL
        SELECT concat_ws(' ', 'trigger', t.tgname) FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
        WHERE c.relnamespace = '{schema}'::regnamespace AND NOT t.tgisinternal
    ) AS lines
$$;;
CREATE TABLE test_kit.sizes AS
SELECT oid, reltuples, relpages, relallvisible FROM pg_class WHERE relnamespace = '{schema}'::regnamespace;;
CREATE TABLE test_kit.pristine AS SELECT test_kit.fingerprint() AS fingerprint;;
DO $$ BEGIN
    -- With its statements written out, so that the server plans them once.
    EXECUTE format(
        'CREATE FUNCTION test_kit.empty() RETURNS void LANGUAGE plpgsql AS %L',
        'BEGIN '
        || (SELECT string_agg(format('DELETE FROM "{schema}".%I;', tablename), ' ' ORDER BY tablename)
            FROM pg_tables WHERE schemaname = '{schema}')
        || ' END'
    );
END $$;;
CREATE FUNCTION test_kit.clean() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    item text;
BEGIN
    UPDATE test_kit.clock SET now_ms = {start_ms} WHERE now_ms <> {start_ms};
    DROP TABLE IF EXISTS "{schema}".lash_test_clock;
    FOR item IN
        SELECT f.definition FROM test_kit.functions AS f
        WHERE f.definition NOT IN (
            SELECT pg_get_functiondef(p.oid) FROM pg_proc AS p WHERE p.pronamespace = '{schema}'::regnamespace
        )
    LOOP
        EXECUTE item;
    END LOOP;
    SET LOCAL session_replication_role = replica;
    BEGIN
        PERFORM test_kit.empty();
    EXCEPTION WHEN undefined_table THEN
        RETURN false;
    END;
    INSERT INTO "{schema}".lash_migrations SELECT * FROM test_kit.migrations;
    INSERT INTO "{schema}".lashadditions SELECT * FROM test_kit.additions;
    INSERT INTO "{schema}".lash_process_change_epoch SELECT * FROM test_kit.epoch;
    -- What a test has analysed would plan the statements of the next.
    IF EXISTS (
        SELECT FROM pg_class WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r' AND reltuples >= 0
    ) THEN
        DELETE FROM pg_statistic AS s USING pg_class AS c
        WHERE c.oid = s.starelid AND c.relnamespace = '{schema}'::regnamespace;
        UPDATE pg_class AS c SET reltuples = s.reltuples, relpages = s.relpages, relallvisible = s.relallvisible
        FROM test_kit.sizes AS s WHERE c.oid = s.oid;
    END IF;
    PERFORM setval(c.oid, 1, false)
    FROM pg_class AS c WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind = 'S';
    RETURN test_kit.fingerprint() = (SELECT fingerprint FROM test_kit.pristine);
END
$$
"""


def run_sql(url: str, *statements: str) -> None:
    """Run statements on a connection of their own, from a test with or without an event loop."""
    _in_thread(lambda: asyncio.run(_execute(url, statements)))


def migrate(url: str) -> None:
    """Create an empty storage, from a test with or without an event loop."""

    async def run() -> None:
        await (await lash.open(url)).close()

    _in_thread(lambda: asyncio.run(run()))


def _on_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def _in_thread(work: Callable[[], T]) -> T:
    """Run a function in a thread without an event loop, and return or raise its result here."""
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as failure:  # noqa: BLE001 (it is raised again in the caller's thread)
            failures.append(failure)

    thread = threading.Thread(target=run, name="test-sql")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


async def _execute(url: str, statements: tuple[str, ...]) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
