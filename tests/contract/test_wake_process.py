"""The piece with which other nouns, such as a wait that is resolved, wake a process in their own transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

import lash
from lash.postgres import work as postgres_work
from lash.postgres.storage import PostgresStorage
from lash.sqlite import work as sqlite_work
from lash.sqlite.database import Transaction
from lash.sqlite.storage import SQLiteStorage
from lash.stores.storage import Storage
from lash.testing.contract.work_state import parked, ready, run
from lash.testing.process_factories import DONE, external, registered


@pytest_asyncio.fixture
async def storage(backend_url: str) -> AsyncIterator[Storage]:
    async with await lash.open(backend_url) as opened:
        yield opened


async def _wake(storage: Storage, process_id: str) -> bool:
    """Wake a process in a transaction of its own."""
    if isinstance(storage, SQLiteStorage):
        return await storage._database.write(lambda each: sqlite_work.wake_process(each, process_id))
    assert isinstance(storage, PostgresStorage)
    async with storage._database.transaction() as transaction:
        return await postgres_work.wake_process(transaction, process_id)


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_parked_process_is_woken(storage: Storage, backend_name: str) -> None:
    """It is ready at once, and a run of it has one more reason; a second reason counts too."""
    await registered(storage)
    await parked(storage)
    assert await _wake(storage, "p") is True
    assert await _wake(storage, "p") is True
    assert await ready(storage) == ["p"]
    assert (await run(storage)).wake_seq == 2


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_what_nobody_runs_is_not_woken(storage: Storage, backend_name: str) -> None:
    """An external process, one that ended and one that does not exist are left alone."""
    await registered(storage, "ended", outcome=DONE)
    await storage.processes.register(external("external"))
    assert [await _wake(storage, name) for name in ("ended", "external", "nobody")] == [False] * 3
    assert await ready(storage) == []


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_transaction_that_fails_wakes_nobody(storage: Storage, backend_name: str) -> None:
    """The reason belongs to the transaction that gives it."""
    await registered(storage)
    await parked(storage)
    with pytest.raises(RuntimeError):
        await _wake_and_fail(storage)
    assert await ready(storage) == []


async def _wake_and_fail(storage: Storage) -> None:
    if isinstance(storage, SQLiteStorage):

        def body(transaction: Transaction) -> None:
            sqlite_work.wake_process(transaction, "p")
            raise RuntimeError

        await storage._database.write(body)
    else:
        assert isinstance(storage, PostgresStorage)
        async with storage._database.transaction() as transaction:
            await postgres_work.wake_process(transaction, "p")
            raise RuntimeError
