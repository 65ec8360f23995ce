"""The rights that the page on PostgreSQL asks for are enough."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg

import lash
from tests.docs.pages import DOCS

_ROLE = "lash_documented_role"


async def _grant(url: str, schema: str) -> None:
    """Give the role what the page says, no more."""
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


async def test_the_role_of_the_application(postgres_schema_url: str) -> None:
    """Turns, processes, waits, triggers, upkeep, forking and deleting work without a right to change tables."""
    parts = urlsplit(postgres_schema_url)
    server = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
    (schema,) = parse_qs(parts.query)["schema"]
    await (await lash.open(postgres_schema_url)).close()
    await _grant(server, schema)
    try:
        host = parts.netloc.rpartition("@")[2]
        await _use(urlunsplit((parts.scheme, f"{_ROLE}:documented@{host}", parts.path, parts.query, "")))
    finally:
        await _drop(server)


async def _use(url: str) -> None:
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
