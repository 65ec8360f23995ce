"""The change feed of a storage that was restored or copied: its transaction ids are those of another server."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import asyncpg
import pytest

import lash
from lash.model.process.process import ProcessChange
from lash.postgres import epoch
from lash.runtime.observe.stream import current_cursor, observe
from lash.stores.storage import Storage
from lash.testing.postgres_server import PostgresServer, find_binaries
from tests.backends import run_sql, scratch_database, with_parameters
from tests.contract.process_state import feed
from tests.engine.postgres.copies import advance_beyond, copy_rows, dump, next_transaction, plain_role, restore
from tests.engine.postgres.proxy import proxy_before
from tests.factories.process import DONE, event, process, registered
from tests.factories.session import commit, node, owner, started
from tests.raw import raw

LIMIT_S: Final = 30
TTL_MS: Final = 60_000
_SCHEMA: Final = "kept"
_LOGGER: Final = "lash.postgres"
_OPENING: Final = [
    "schema_has_migrations",
    "schema_applied",
    "schema_columns",
    "schema_keys",
    "change_epoch",
    "seal_mark",
]


class Cursors(NamedTuple):
    """Where readers of the source stopped."""

    session: str
    feed: str


@pytest.fixture(scope="module")
def other_server() -> Iterator[PostgresServer]:
    """A second server, with a transaction counter of its own."""
    with PostgresServer(binaries=find_binaries()) as server:
        yield server


@pytest.fixture
def source_url(own_server: PostgresServer) -> Iterator[str]:
    with scratch_database(own_server.url) as url:
        yield with_parameters(url, schema=_SCHEMA)


@pytest.fixture
def target_url(other_server: PostgresServer) -> Iterator[str]:
    with scratch_database(other_server.url) as url:
        yield with_parameters(url, schema=_SCHEMA)


_TRANSACTIONS: Final = """
SELECT DISTINCT f.xid::text
FROM (
    SELECT xid FROM lash_process_changes
    UNION ALL SELECT xid FROM lash_process_log
    UNION ALL SELECT registered_xid FROM lash_processes
) AS f
ORDER BY 1
"""
"""Of all entries of the feed. A rebase gives transaction 1 to entries that were pruned, and 2 to the others."""


async def fill(url: str) -> Cursors:
    """Write a session and processes of which some changes are pruned; return the cursors of readers of all of it."""
    async with await lash.open(url) as storage:
        await started(storage)
        await storage.process_leases.register_and_claim(process("forgotten"), owner("w"), ttl_ms=TTL_MS)
        seen = (await storage.events.changes()).cursor
        await storage.processes.prune(ended_before_ms=0, through_cursor=seen)
        await storage.process_leases.register_and_claim(process("p", wake_session_id="s"), owner("w"), ttl_ms=TTL_MS)
        await registered(storage, "ended", outcome=DONE)
        await storage.events.append("p", event(payload=1))
        return await cursors_of(storage)


async def cursors_of(storage: Storage) -> Cursors:
    return Cursors(await current_cursor(storage, "s"), (await storage.events.changes()).cursor)


async def go_on(url: str) -> Cursors:
    """Change the source after it was copied, and return the cursors of readers that saw it."""
    async with await lash.open(url) as storage:
        await storage.events.append("p", event(payload="only in the source"))
        await storage.session("s").commit(commit(1, node("b", "a")))
        return await cursors_of(storage)


def told(changes: list[ProcessChange]) -> list[tuple[str, str, int | None]]:
    return [(change.process_id, change.kind.value, change.sequence) for change in changes]


OLD: Final = [
    *(("p", "registered", None), ("p", "event", 1), ("ended", "registered", None), ("ended", "event", 1)),
    ("p", "event", 2),
]
"""The changes that the copy holds."""


async def require_gap_and_new_changes(storage: Storage, cursors: Cursors) -> None:
    """Require that readers with these cursors get one gap and then every later change once, in order."""
    page = await storage.events.changes(cursors.feed)
    assert (page.changes, page.gap) == ((), lash.GapReason.UNAVAILABLE)
    assert (await storage.events.tail(cursors.feed)).gap is lash.GapReason.UNAVAILABLE
    before, _ = await feed(storage)
    async with asyncio.timeout(LIMIT_S), aclosing(observe(storage, "s", cursors.session)) as stream:
        gap = await anext(stream)
        assert isinstance(gap, lash.Gap)
        assert gap.reason is lash.GapReason.UNAVAILABLE
        name = f"new{len(before)}"
        await storage.processes.register(process(name, wake_session_id="s"))
        for number in range(3):
            await storage.events.append(name, event(payload=number))
        await storage.processes.complete(name, DONE)
        seen = [await anext(stream) for _ in range(5)]
    expected = [(name, "registered", None), *((name, "event", number) for number in (1, 2, 3, 4))]
    shown = [each for each in seen if isinstance(each, lash.ProcessChanged)]
    assert [(each.process_id, each.kind.value, each.sequence) for each in shown] == expected
    later, end = await feed(storage, page.cursor, limit=2)
    assert told(later) == expected
    assert await feed(storage, end) == ([], end)
    assert told((await feed(storage, limit=2))[0]) == told(before) + expected


@pytest.mark.parametrize("counter", ["lower", "higher"])
async def test_a_restored_dump_begins_a_new_epoch(
    source_url: str,
    target_url: str,
    own_server: PostgresServer,
    other_server: PostgresServer,
    tmp_path: Path,
    counter: str,
) -> None:
    """On a server with a lower or a higher counter, older cursors get a gap and each later change is seen once."""
    servers = (own_server, other_server) if counter == "lower" else (other_server, own_server)
    await advance_beyond(*servers)
    early = await fill(source_url)
    await asyncio.to_thread(dump, source_url, tmp_path / "dump")
    late = await go_on(source_url)
    await asyncio.to_thread(restore, target_url, tmp_path / "dump")
    assert (await next_transaction(target_url) < await next_transaction(source_url)) is (counter == "lower")
    async with await lash.open(target_url) as storage:
        assert told((await feed(storage, limit=1))[0]) == OLD
        for cursors in (early, late):
            await require_gap_and_new_changes(storage, cursors)
    # The source was not changed.
    async with await lash.open(source_url) as storage:
        assert await feed(storage, late.feed) == ([], late.feed)


async def test_what_the_feed_was_pruned_of_stays_out_of_later_epochs(source_url: str) -> None:
    """A reader of a new epoch begins after it, however often an epoch began and whether it was pruned in between."""
    async with await lash.open(source_url) as storage:
        await registered(storage, "p")
        await storage.events.append("p", event())
    last = 1
    for is_pruned in (True, False, True, True, False):
        async with await lash.open(source_url) as storage:
            if is_pruned:
                while await storage.processes.prune_changes(before_ms=2**62):
                    pass
                last = (await storage.events.append("p", event())).event.sequence
        await raw(source_url, "UPDATE lash_process_change_epoch SET place = 'elsewhere'")
        async with await lash.open(source_url) as storage:
            assert [change.sequence for change in (await feed(storage))[0]] == [last]
            assert [each.sequence for each in (await storage.events.tail()).events] == [last]


@pytest.mark.parametrize("counter", ["lower", "higher"])
async def test_a_logical_copy_begins_a_new_epoch(
    source_url: str, target_url: str, own_server: PostgresServer, other_server: PostgresServer, counter: str
) -> None:
    """The same holds for rows that were copied into existing tables of another server."""
    servers = (own_server, other_server) if counter == "lower" else (other_server, own_server)
    await advance_beyond(*servers)
    early = await fill(source_url)
    await copy_rows(source_url, target_url)
    late = await go_on(source_url)
    async with await lash.open(target_url) as storage:
        assert told((await feed(storage))[0]) == OLD
        for cursors in (early, late):
            await require_gap_and_new_changes(storage, cursors)


async def test_a_dump_restored_in_place_begins_a_new_epoch(
    source_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the same server the transaction ids are valid, but readers have seen changes that are gone."""
    monkeypatch.setattr(epoch, "_REBASED_AT_ONCE", 1)
    await fill(source_url)
    await asyncio.to_thread(dump, source_url, tmp_path / "dump")
    late = await go_on(source_url)
    await asyncio.to_thread(restore, source_url, tmp_path / "dump", "--clean", "--if-exists")
    async with await lash.open(source_url) as storage:
        assert await raw(source_url, _TRANSACTIONS) == [("1",), ("2",)]
        await require_gap_and_new_changes(storage, late)


async def test_a_copied_database_begins_a_new_epoch(source_url: str, own_server: PostgresServer) -> None:
    """A database made from another as its template is not the one that the readers saw."""
    await fill(source_url)
    copy = f"{urlsplit(source_url).path.strip('/')}_copy"
    run_sql(own_server.url, f'CREATE DATABASE "{copy}" TEMPLATE "{urlsplit(source_url).path.strip("/")}"')
    late = await go_on(source_url)
    try:
        async with await lash.open(urlsplit(source_url)._replace(path=f"/{copy}").geturl()) as storage:
            await require_gap_and_new_changes(storage, late)
    finally:
        run_sql(own_server.url, f'DROP DATABASE "{copy}" WITH (FORCE)')


async def test_of_many_openers_one_rebases(
    source_url: str, target_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Storages that open a restored copy at the same moment agree on one new epoch."""
    await fill(source_url)
    await asyncio.to_thread(dump, source_url, tmp_path / "dump")
    await asyncio.to_thread(restore, target_url, tmp_path / "dump")
    with caplog.at_level(logging.WARNING, _LOGGER):
        storages = await asyncio.gather(*(lash.open(target_url) for _ in range(8)))
        ends = {(await storage.events.changes()).cursor for storage in storages}
        for storage in storages:
            await storage.close()
    assert len(ends) == 1
    assert [record.message.partition(";")[0] for record in caplog.records] == [
        f"the storage in schema {_SCHEMA!r} was restored or copied"
    ]


async def test_opening_again_costs_one_read(source_url: str) -> None:
    """A storage that is where it was opens with one read about its epoch, and keeps its cursors."""
    cursors = await fill(source_url)
    names: list[str] = []
    async with await lash.open(source_url, on_statement=names.append) as storage:
        assert names == _OPENING
        assert await feed(storage, cursors.feed) == ([], cursors.feed)


async def test_a_server_behind_the_same_address_is_noticed(
    source_url: str, other_server: PostgresServer, tmp_path: Path
) -> None:
    """An open storage whose address leads to a restored copy rebases it when it listens again."""
    await fill(source_url)
    await asyncio.to_thread(dump, source_url, tmp_path / "dump")
    async with _copy_of_the_same_name(source_url, other_server, tmp_path / "dump") as target_url:
        late = await go_on(source_url)
        async with (
            asyncio.timeout(LIMIT_S),
            proxy_before(_as_role(source_url)) as (proxy, url),
            await lash.open(url) as storage,
            aclosing(observe(storage, "s", late.session)) as stream,
        ):
            waiting = asyncio.ensure_future(anext(stream))
            await _until(source_url, "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
            proxy.lead_to(urlsplit(other_server.url).port)
            while await raw(source_url, _CUT):
                # A connection that was being made is not listed at first.
                await _until(target_url, f"SELECT 1 FROM lash_process_change_epoch WHERE epoch <> '{epoch_of(late)}'")
            assert isinstance(await waiting, lash.Gap)
            await require_gap_and_new_changes(storage, late)


_ROLE: Final = "lash_switched"
_CUT: Final = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{_ROLE}'"
"""Ends the connections through the proxy."""


@asynccontextmanager
async def _copy_of_the_same_name(source: str, server: PostgresServer, file: Path) -> AsyncIterator[str]:
    """Restore a dump into a database of the same name on another server, with a role that both servers have."""
    name = urlsplit(source).path.strip("/")
    here, there = _server(source), server.url
    for url in (here, there):
        await asyncio.to_thread(run_sql, url, f"CREATE ROLE {_ROLE} SUPERUSER LOGIN PASSWORD 'switched'")
    await asyncio.to_thread(run_sql, there, f'CREATE DATABASE "{name}"')
    try:
        target = with_parameters(urlsplit(there)._replace(path=f"/{name}").geturl(), schema=_SCHEMA)
        await asyncio.to_thread(restore, target, file)
        yield target
    finally:
        await asyncio.to_thread(run_sql, there, f'DROP DATABASE "{name}" WITH (FORCE)')
        for url in (here, there):
            await asyncio.to_thread(run_sql, url, f"DROP ROLE {_ROLE}")


def _server(url: str) -> str:
    return urlsplit(url)._replace(path="/postgres", query="").geturl()


def _as_role(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{_ROLE}:switched@{parts.netloc.rpartition('@')[2]}").geturl()


async def _until(url: str, statement: str) -> None:
    """Wait until a statement finds a row."""
    while True:
        if await raw(url, statement):
            return
        await asyncio.sleep(0.02)


def epoch_of(cursors: Cursors) -> str:
    """Return the epoch in the text of a cursor."""
    return base64.urlsafe_b64decode(cursors.feed).decode().split(":")[1]


class TestIdentity:
    """How one database is distinguished from another, with the rights that a role has."""

    async def test_an_unprivileged_role_reads_the_identifier(self, source_url: str) -> None:
        """Every role may read the identifier of the server, unless an administrator revoked that."""
        await fill(source_url)
        async with plain_role(source_url) as url:
            connection = await asyncpg.connect(urlsplit(url)._replace(query="").geturl())
            try:
                found = await connection.fetchval(f'SELECT "{_SCHEMA}".lash_system_id()')
            finally:
                await connection.close()
        assert (found,) == (await raw(source_url, "SELECT system_identifier::text FROM pg_control_system()"))[0]

    async def test_without_the_identifier_the_tables_and_the_counter_decide(
        self, source_url: str, target_url: str, own_server: PostgresServer, other_server: PostgresServer, tmp_path: Path
    ) -> None:
        """Where no role may read it, a restored copy is recognised by its tables, or by its transaction ids."""
        for url in (source_url, target_url):
            await raw(url, _REVOKE)
        await advance_beyond(own_server, other_server)
        cursors = await fill(source_url)
        async with plain_role(source_url) as url, await lash.open(url) as storage:
            assert await feed(storage, cursors.feed) == ([], cursors.feed)
        await asyncio.to_thread(dump, source_url, tmp_path / "dump")
        await asyncio.to_thread(restore, target_url, tmp_path / "dump")
        async with plain_role(target_url) as url, await lash.open(url) as storage:
            await require_gap_and_new_changes(storage, cursors)
        # Rows that name this place, with transaction ids of another server.
        beyond = await next_transaction(target_url) + 1_000
        await raw(target_url, f"UPDATE lash_process_events SET xid = '{beyond}'")
        async with plain_role(target_url) as url, await lash.open(url) as storage:
            await require_gap_and_new_changes(storage, cursors)

    async def test_roles_that_see_less_do_not_begin_epochs(self, source_url: str) -> None:
        """A role that may not read the identifier, and one that may, leave each other's record alone."""
        cursors = await fill(source_url)
        await raw(source_url, _REVOKE)
        async with plain_role(source_url) as url:
            for opened in (url, source_url, url):
                async with await lash.open(opened) as storage:
                    assert await feed(storage, cursors.feed) == ([], cursors.feed)
        await raw(source_url, "UPDATE lash_process_change_epoch SET system_id = NULL")
        async with await lash.open(source_url) as storage:
            assert await feed(storage, cursors.feed) == ([], cursors.feed)
        assert await raw(source_url, "SELECT system_id IS NOT NULL FROM lash_process_change_epoch") == [(True,)]

    async def test_a_role_that_may_only_read_says_so(
        self, source_url: str, target_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It opens a restored copy with a warning, and leaves the rebase to a role that may write."""
        cursors = await fill(source_url)
        await asyncio.to_thread(dump, source_url, tmp_path / "dump")
        await asyncio.to_thread(restore, target_url, tmp_path / "dump")
        async with plain_role(target_url, "SELECT") as url:
            with caplog.at_level(logging.WARNING, _LOGGER):
                await (await lash.open(url, migrate=False)).close()
        assert "could not be rebased" in caplog.text
        async with await lash.open(target_url) as storage:
            await require_gap_and_new_changes(storage, cursors)

    async def test_an_epoch_that_is_missing_is_begun(self, source_url: str) -> None:
        """A storage without a record of its epoch begins one."""
        cursors = await fill(source_url)
        await raw(source_url, "DELETE FROM lash_process_change_epoch")
        async with await lash.open(source_url) as storage:
            await require_gap_and_new_changes(storage, cursors)


_REVOKE: Final = "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC"
