"""The privileges that the page on PostgreSQL documents are sufficient."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg
import pytest

import lash
from tests.backends import run_sql
from tests.docs.pages import DOCS
from tests.proof.fuzz.everything import demands, fill_everything, questions
from tests.proof.fuzz.kit import lash_only_from

_ROLE = "lash_documented_role"
_REFUSED = (
    "CREATE TABLE {schema}.mine (a int)",
    "CREATE FUNCTION {schema}.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OR REPLACE FUNCTION {schema}.lash_now_ms() RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'",
    "CREATE TRIGGER mine AFTER INSERT ON {schema}.lash_nodes EXECUTE FUNCTION lash_now_ms()",
    "ALTER TABLE {schema}.lash_sessions ADD COLUMN mine int",
    "ALTER TABLE {schema}.lash_sessions DISABLE TRIGGER ALL",
    "DROP TABLE {schema}.lash_nodes",
    "DROP SCHEMA {schema} CASCADE",
    "TRUNCATE {schema}.lash_nodes CASCADE",
    "CREATE INDEX mine ON {schema}.lash_nodes (node_id)",
    "ALTER ROLE lash_documented_role SUPERUSER",
    "SET session_replication_role = replica",
    "COPY {schema}.lash_nodes TO PROGRAM 'id'",
    "SELECT pg_read_file('/etc/passwd')",
)


async def _grant(url: str, schema: str) -> None:
    """Grant the role the documented privileges, and no others."""
    page = (DOCS / "howto/postgresql.md").read_text(encoding="utf-8")
    line = re.search(r"The role of the application needs .*", page)
    assert line is not None
    rights = set(re.findall(r"`([A-Z]+)`", line[0]))
    assert rights == {"USAGE", "SELECT", "INSERT", "UPDATE", "DELETE", "EXECUTE"}
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"""
            DROP ROLE IF EXISTS {_ROLE};
            CREATE ROLE {_ROLE} LOGIN PASSWORD 'documented';
            GRANT USAGE ON SCHEMA "{schema}" TO {_ROLE};
            GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{schema}" TO {_ROLE};
        """)
    finally:
        await connection.close()


async def _drop(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"DROP OWNED BY {_ROLE}; DROP ROLE {_ROLE}")
    finally:
        await connection.close()


@asynccontextmanager
async def _as_the_role(storage_url: str) -> AsyncIterator[tuple[str, str]]:
    """Create a storage, and return its schema and the URL with which the role reaches it."""
    parts = urlsplit(storage_url)
    server = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
    (schema,) = parse_qs(parts.query)["schema"]
    await (await lash.open(storage_url)).close()
    await _grant(server, schema)
    try:
        host = parts.netloc.rpartition("@")[2]
        yield urlunsplit((parts.scheme, f"{_ROLE}:documented@{host}", parts.path, parts.query, "")), schema
    finally:
        await _drop(server)


async def test_the_role_of_the_application(postgres_schema_url: str) -> None:
    """Turns, processes, waits, triggers, maintenance, forks and deletes work without the privilege to change tables."""
    async with _as_the_role(postgres_schema_url) as (url, _schema):
        await use_everything(url)


async def test_the_role_of_the_application_changes_no_tables(postgres_schema_url: str) -> None:
    """The application's role can change rows of this storage, and nothing else."""
    async with _as_the_role(postgres_schema_url) as (url, schema):
        connection = await asyncpg.connect(urlunsplit(urlsplit(url)._replace(query="")))
        try:
            for statement in _REFUSED:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(statement.format(schema=f'"{schema}"'))
        finally:
            await connection.close()


async def test_the_role_of_the_application_can_do_everything_else(postgres_schema_url: str) -> None:
    """Every operation of a storage works, and a pending migration raises an error before it starts."""
    async with _as_the_role(postgres_schema_url) as (url, schema):
        async with await lash.open(url, migrate=False) as storage:
            known = await fill_everything(storage)
            for group in (questions, demands):
                for name, call in group(storage, known):
                    outcome = await lash_only_from(call())
                    assert not isinstance(outcome, lash.StorageFailure | lash.SchemaMismatch), (name, outcome)
        run_sql(
            postgres_schema_url.partition("?")[0],
            f'DELETE FROM "{schema}".lash_migrations WHERE number > 9',
            f'DELETE FROM "{schema}".lashadditions',
        )
        for migrate in (False, True):
            with pytest.raises(lash.StoreError):
                await lash.open(url, migrate=migrate)


async def use_everything(url: str) -> None:
    app = lash.App(url, migrate=False)

    @app.process
    async def heard(ctx: lash.Context, payload: dict[str, int]) -> int:
        return payload["number"]

    @app.process
    async def job(ctx: lash.Context, number: int) -> None:
        await app.resolve(await ctx.wait_key("answer"), number)
        await ctx.sleep(0.01)
        await ctx.emit("job.done", {"number": await ctx.wait("answer", of_type=int)})
        await ctx.wake("done")

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        if not turn.wakes:
            await turn.attach(b"bytes", "text/plain")
            turn.activity({"text": "working"})
            await turn.start(job, await turn.step(len, turn.text))
        return "woken" if turn.wakes else "begun"

    app.on("job.done", heard)
    app.cron("0 0 1 1 *", heard, inputs={"payload": {"number": 0}})
    async with app, asyncio.timeout(30):
        chat = app.session("chat", agent)
        assert await chat.ask("hello") == "begun"
        async for _ in chat.observe(await chat.cursor()):
            if lash.text_of((await chat.messages(last=1))[0]) == "woken":
                break
        await _tidy(app.storage)


async def _tidy(storage: lash.Storage) -> None:
    await storage.maintenance.collect_garbage()
    await storage.maintenance.prune_turns(older_than_ms=0)
    await storage.maintenance.prune_source_keys(older_than_ms=0)
    await storage.maintenance.prune_activity()
    assert (await storage.report()).bytes > 0
    await storage.sessions.fork("chat", "fork")
    assert await storage.sessions.delete("chat")
