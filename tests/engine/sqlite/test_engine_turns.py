from __future__ import annotations

import asyncio
import fcntl
import threading
import time
from pathlib import Path

import pytest

from lash.errors import StorageFailure, StoreUnavailable
from lash.sqlite.engine.database import SQLiteOptions
from lash.sqlite.engine.lockfile import open_turns
from tests.engine.sqlite.kit import ids, insert, open_database

PATIENT_MS = 30_000


async def test_a_turn_that_does_not_come(tmp_path: Path) -> None:
    """A writer that waits too long is told to try again, and can."""
    database = await open_database(tmp_path / "x.db", options=SQLiteOptions(busy_timeout_ms=20))
    other = open_turns(str(tmp_path / "x.db"), timeout_ms=20)
    other.take()
    results = await asyncio.gather(*(database.write(insert(number)) for number in range(3)), return_exceptions=True)
    for result in results:
        assert isinstance(result, StoreUnavailable)
        assert not result.outcome_unknown
    assert len({id(result) for result in results}) == 3
    other.give_back()
    other.close()
    assert await database.write(insert(2)) == 1
    assert database.read(ids) == [2]
    await database.close()


async def test_opening_waits_for_its_turn_too(tmp_path: Path) -> None:
    """The tables are prepared under the lock, so an open can be told to try again."""
    other = open_turns(str(tmp_path / "x.db"), timeout_ms=20)
    other.take()
    with pytest.raises(StoreUnavailable, match="in use"):
        await open_database(tmp_path / "x.db", options=SQLiteOptions(busy_timeout_ms=20))
    other.close()


def test_the_one_that_waits_goes_first(tmp_path: Path) -> None:
    """A holder that wants to go on lets the one that already waits in before."""
    path = str(tmp_path / "x.db")
    holder, waiter = (open_turns(path, timeout_ms=PATIENT_MS) for _ in range(2))
    impatient = open_turns(path, timeout_ms=0)
    order: list[str] = []

    def wait() -> None:
        waiter.take()
        order.append("waiter")
        waiter.give_back()

    holder.take()
    thread = threading.Thread(target=wait)
    thread.start()
    # The one that waits stands at the head of the queue when nobody else can get there.
    while not _head_is_taken(path):
        time.sleep(0.001)
    with pytest.raises(StoreUnavailable):
        impatient.take()
    holder.give_back()
    holder.take()
    order.append("holder")
    holder.give_back()
    thread.join()
    assert order == ["waiter", "holder"]
    for turns in (holder, waiter, impatient):
        turns.close()


def _head_is_taken(path: str) -> bool:
    with Path(path + ".turn").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_lock_files_that_cannot_be_made(tmp_path: Path) -> None:
    """A folder in the place of a lock file is a failure of the storage, and leaves no file open."""
    (tmp_path / "x.db.lock").mkdir()
    (tmp_path / "x.db.turn").touch()
    with pytest.raises(StorageFailure, match=r"x\.db\.lock"):
        open_turns(str(tmp_path / "x.db"), timeout_ms=0)
