from __future__ import annotations

import asyncio
import fcntl
import threading
import time
from pathlib import Path

import pytest

from lash.errors import StorageFailure, StoreUnavailable
from lash.sqlite.engine.database import SQLiteOptions
from lash.sqlite.engine.write_lock import open_write_lock
from tests.engine.sqlite.kit import ids, insert, open_database

PATIENT_MS = 30_000


async def test_a_lock_that_stays_held(tmp_path: Path) -> None:
    """A writer that waits too long raises StoreUnavailable, and succeeds later."""
    database = await open_database(tmp_path / "x.db", options=SQLiteOptions(busy_timeout_ms=20))
    other = open_write_lock(str(tmp_path / "x.db"), timeout_ms=20)
    other.acquire()
    results = await asyncio.gather(*(database.write(insert(number)) for number in range(3)), return_exceptions=True)
    for result in results:
        assert isinstance(result, StoreUnavailable)
        assert not result.outcome_unknown
    assert len({id(result) for result in results}) == 3
    other.release()
    other.close()
    assert await database.write(insert(2)) == 1
    assert database.read(ids) == [2]
    await database.close()


async def test_opening_waits_for_the_lock(tmp_path: Path) -> None:
    """The tables are prepared under the lock, so opening can time out."""
    other = open_write_lock(str(tmp_path / "x.db"), timeout_ms=20)
    other.acquire()
    with pytest.raises(StoreUnavailable, match="locked by other writers"):
        await open_database(tmp_path / "x.db", options=SQLiteOptions(busy_timeout_ms=20))
    other.close()


def test_a_waiting_writer_goes_first(tmp_path: Path) -> None:
    """A holder that wants to write again lets a waiting writer go first."""
    path = str(tmp_path / "x.db")
    holder, waiter = (open_write_lock(path, timeout_ms=PATIENT_MS) for _ in range(2))
    impatient = open_write_lock(path, timeout_ms=0)
    order: list[str] = []

    def wait() -> None:
        waiter.acquire()
        order.append("waiter")
        waiter.release()

    holder.acquire()
    thread = threading.Thread(target=wait)
    thread.start()
    # The waiting writer is at the head of the queue once no other can take the head.
    while not _head_is_taken(path):
        time.sleep(0.001)
    with pytest.raises(StoreUnavailable):
        impatient.acquire()
    holder.release()
    holder.acquire()
    order.append("holder")
    holder.release()
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


def test_lock_files_that_cannot_be_created(tmp_path: Path) -> None:
    """A directory in place of a lock file raises StorageFailure, and leaves no file open."""
    (tmp_path / "x.db.lock").mkdir()
    (tmp_path / "x.db.turn").touch()
    with pytest.raises(StorageFailure, match=r"x\.db\.lock"):
        open_write_lock(str(tmp_path / "x.db"), timeout_ms=0)
