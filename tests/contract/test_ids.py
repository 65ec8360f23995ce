"""The contract of lists of ids that begin with a text: in the order of their characters, in one statement."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import apsw
import pytest

import lash
from lash.errors import InvalidInput
from lash.sqlkit.queries import load_queries
from lash.stores.process.process import ProcessStore
from lash.stores.session import SessionStore
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.factories.process import process
from tests.factories.session import created

Add: TypeAlias = Callable[[Storage, str], Awaitable[object]]

IDS: Final = ("b", "a-2", "a", "B", "a-1", "ä", "a-10", "a%1", "\U0010ffff", "a\U0010ffff", "a\U0010ffff1")
ORDERED: Final = ("B", "a", "a%1", "a-1", "a-10", "a-2", "a\U0010ffff", "a\U0010ffff1", "b", "ä", "\U0010ffff")


async def _register(storage: Storage, process_id: str) -> None:
    await storage.processes.register(process(process_id))


def _store(storage: Storage, noun: str) -> SessionStore | ProcessStore:
    return storage.sessions if noun == "session" else storage.processes


@pytest.mark.parametrize(("noun", "add"), [("session", created), ("process", _register)])
class TestIds:
    """Laws of the ids of sessions and processes."""

    async def test_ids_begin_with_a_text_and_are_ordered(self, harness: Harness, noun: str, add: Add) -> None:
        """The order is that of code points on every backend, so an id that equals the text is the first."""
        storage = await harness.open()
        for each in IDS:
            await add(storage, each)
        ids = _store(storage, noun).ids
        assert await ids() == ORDERED
        assert await ids("a") == ORDERED[1:8]
        assert await ids("a-1") == ("a-1", "a-10")
        assert await ids("a-1", limit=1) == ("a-1",)
        assert await ids("a\U0010ffff") == ("a\U0010ffff", "a\U0010ffff1")
        assert await ids("\U0010ffff") == ("\U0010ffff",)
        assert await ids("none") == await ids("a%2") == ()

    async def test_ids_are_read_in_pages_of_one_statement(self, harness: Harness, noun: str, add: Add) -> None:
        """A page continues after the last id of the one before it, also if that is gone."""
        names: list[str] = []
        storage = await harness.open(on_statement=names.append)
        for each in IDS:
            await add(storage, each)
        ids = _store(storage, noun).ids
        names.clear()
        found: list[str] = []
        while page := await ids("a", limit=3, after=found[-1] if found else None):
            found.extend(page)
        assert tuple(found) == ORDERED[1:8]
        assert [name for name in names if name.endswith("_ids")] == [f"{noun}_ids"] * 4
        assert await ids("a", after="a-0") == ORDERED[3:8]
        assert await ids("a", after="b") == ()

    async def test_bad_arguments_are_refused(self, harness: Harness, noun: str, add: Add) -> None:
        """A prefix is text of the length of an id, and a page has a size."""
        ids = _store(await harness.open(), noun).ids
        for prefix in ("\0", "x" * 1_000, "\ud800"):
            with pytest.raises(InvalidInput):
                await ids(prefix)
        with pytest.raises(InvalidInput):
            await ids(limit=0)
        with pytest.raises(InvalidInput):
            await ids(after="")


async def test_what_is_gone_has_no_id(harness: Harness) -> None:
    """Deleted sessions and pruned processes are not listed; ended processes are."""
    storage = await harness.open()
    await created(storage, "s-1")
    await created(storage, "s-2")
    await storage.sessions.delete("s-1")
    assert await storage.sessions.ids("s") == ("s-2",)
    await _register(storage, "p")
    await storage.processes.complete("p", lash.Success(value=1))
    assert await storage.processes.ids("p") == ("p",)
    await harness.clock.advance(10)
    await storage.processes.prune(ended_before_ms=harness.clock.now_ms(), through_cursor=None)
    assert await storage.processes.ids("p") == ()


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_sqlite_reads_a_range_of_the_index(backend_url: str, backend_name: str) -> None:
    """Both queries read the index of ids alone, in its order; the tests of costs show it for PostgreSQL."""
    async with await lash.open(backend_url):
        pass
    queries = load_queries("lash.sqlite.sql")
    connection = apsw.Connection(urlsplit(backend_url).path.removeprefix("/"))
    try:
        for noun, table in (("session", "lash_sessions"), ("process", "lash_processes")):
            values = {"first": "a", "end": "b", "limit": 10}
            plan = [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + queries[f"{noun}_ids"], values)]
            index = f"sqlite_autoindex_{table}_1 ({noun}_id>? AND {noun}_id<?)"
            assert plan == [f"SEARCH {table} USING COVERING INDEX {index}"]
    finally:
        connection.close()
