"""A server that goes back to an earlier state under open storages, as a fail-over to a standby that is behind does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

import lash
from tests.factories.process import event, process
from tests.factories.session import append, commit, node
from tests.raw import raw

_TABLES: Final = (
    "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace "
    "AND relkind = 'r' AND relname LIKE 'lash_%'"
)
_SEQUENCE: Final = "pg_get_serial_sequence('lash_processes', 'process_key')"
_NEXT_PROCESS: Final = f"SELECT nextval({_SEQUENCE})"
# It waits for their end: a connection that is still open would take one more statement.
_CUT_OFF: Final = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'one'"
_COLUMNS: Final = (
    "SELECT c.relname::text, string_agg(a.attname, ', ' ORDER BY a.attnum) FROM pg_class AS c "
    "JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' "
    "WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' GROUP BY c.relname"
)
"""The columns of each table, without generated ones."""


@asynccontextmanager
async def lost(url: str) -> AsyncIterator[None]:
    """Undo all that is written in the context, without a trace that an open storage could notice."""
    tables = [name for (name,) in await raw(url, _TABLES)]
    columns = {str(name): str(names) for name, names in await raw(url, _COLUMNS)}
    for name in tables:
        await raw(url, f"CREATE TABLE saved_{name} AS SELECT {columns[name]} FROM {name}")
    yield
    # Without foreign keys, whose order would matter.
    back = ["SET LOCAL session_replication_role = replica"]
    back += [f"DELETE FROM {name}" for name in tables]
    back += [
        f"INSERT INTO {name} ({columns[name]}) OVERRIDING SYSTEM VALUE SELECT * FROM saved_{name}" for name in tables
    ]
    await raw(url, f"DO $$ BEGIN {'; '.join(back)}; END $$")


def make_app(url: str, name: str, seen: list[list[str]]) -> lash.App:
    """Return an app whose agent notes the conversation that it gets."""
    app = lash.App(url, worker=False)

    @app.agent(name="agent")
    async def agent(turn: lash.Turn) -> str:
        seen.append([lash.text_of(message) for message in turn.messages()])
        return f"{turn.text}, {name}"

    return app


async def test_a_worker_sees_the_conversation_that_is_stored(postgres_storage_url: str) -> None:
    """Turns were lost and others took their revisions: a worker that had the lost ones in memory reads again."""
    seen: list[list[str]] = []
    one, two = (make_app(postgres_storage_url, name, seen) for name in ("one", "two"))

    async def say(app: lash.App, text: str) -> None:
        await app.session("s", "agent").send(text)
        await app.drain()

    async with one, two:
        await say(one, "first")
        async with lost(postgres_storage_url):
            await say(one, "lost")
        await say(two, "second")
        await say(one, "third")
        stored = [lash.text_of(message) for message in await two.session("s").messages()]
    assert seen[-1] == ["first", "first, one", "second", "second, two", "third"]
    assert stored == [*seen[-1], "third, one"]


@pytest.mark.parametrize("together", [False, True])
async def test_a_commit_behind_a_lost_one_is_refused(postgres_storage_url: str, together: bool) -> None:  # noqa: FBT001
    """A commit that follows a lost node writes nothing, though its revision and the number of nodes fit."""
    attachments: tuple[str, ...] = ()
    async with await lash.open(postgres_storage_url) as one, await lash.open(postgres_storage_url) as two:
        await one.sessions.create("s")
        if together:
            # A commit with an attachment takes the general statement.
            attachments = ((await one.attachments.put("s", b"x", "text/plain")).id,)
        await one.session("s").commit(commit(0, graph=append(node("n0"))))
        async with lost(postgres_storage_url):
            await one.session("s").commit(commit(1, graph=append(node("lost", "n0"))))
        await two.session("s").commit(commit(1, graph=append(node("n1", "n0"))))
        with pytest.raises(lash.LashError, match="lost"):
            await one.session("s").commit(commit(2, graph=append(node("n2", "lost")), attachments=attachments))
        read = await one.session("s").load()
    assert read is not None
    assert [each.node_id for each in read.graph.nodes] == ["n0", "n1"]


async def test_an_event_of_a_lost_process_reaches_no_other(postgres_storage_url: str) -> None:
    """Another process has the number of a lost one: a storage that knew the lost one finds out that it is gone."""
    url = f"{postgres_storage_url}&application_name=one"
    async with await lash.open(url) as one, await lash.open(postgres_storage_url) as two:
        ((number,),) = await raw(postgres_storage_url, _NEXT_PROCESS)
        async with lost(postgres_storage_url):
            await one.processes.register(process("lost"))
            await one.events.append("lost", event(payload={"to": "lost"}, key="1"))
        await raw(postgres_storage_url, f"SELECT setval({_SEQUENCE}, {number})")
        await two.processes.register(process("other"))
        await two.events.append("other", event(payload={"to": "other"}, key="1"))
        await raw(postgres_storage_url, _CUT_OFF)
        with pytest.raises(lash.ProcessNotFound):
            await one.events.append("lost", event(payload={"to": "lost"}, key="2"))
        log = await two.events.after("other")
    assert [each.payload for each in log] == [{"to": "other"}]
