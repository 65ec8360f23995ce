"""Brief writes on the event loop: when they run there, and that they have the guarantees of other writes."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from lash.errors import RevisionConflict, StorageFailure
from lash.sqlite.engine import inline_writes
from lash.sqlite.engine.database import Database, SQLiteOptions, Transaction
from lash.sqlite.engine.group_commit import GroupCommit
from lash.sqlite.engine.write_lock import open_write_lock
from tests.engine.sqlite.kit import Gate, ids, insert, open_database, write_then_refuse

SLOW_S = 0.1
QUICK_MS = 50
QUICK = SQLiteOptions(loop_commit_ms=60_000, busy_timeout_ms=30_000)


def insert_and_tell_thread(number: int) -> Callable[[Transaction], bool]:
    """Return a body that inserts an item and returns whether it ran on the thread of the event loop."""

    def body(transaction: Transaction) -> bool:
        transaction.run("insert_item", id=number, label="x")
        return threading.current_thread() is threading.main_thread()

    return body


async def warm_up(database: Database) -> None:
    """Write until the disk counts as quick."""
    for number in range(1000, 1100):
        if await database.write_briefly(insert_and_tell_thread(number)):
            return
    raise AssertionError("no brief body ran on the event loop")


async def in_company(database: Database) -> None:
    """Warm up, and let several tasks write, so that writes of one loop iteration are grouped."""
    await warm_up(database)
    await asyncio.gather(*(database.write_briefly(ids) for _ in range(2)))


async def test_the_first_bodies_run_in_the_thread(tmp_path: Path) -> None:
    """The loop runs no commit until a few were quick."""
    database = await open_database(tmp_path / "x.db", options=QUICK)
    assert not await database.write_briefly(insert_and_tell_thread(1))
    await warm_up(database)
    await database.close()


async def test_it_can_be_turned_off() -> None:
    """With ``loop_commit_ms=0`` every write runs on the thread."""
    database = await open_database(options=SQLiteOptions(loop_commit_ms=0))
    assert [await database.write_briefly(insert_and_tell_thread(number)) for number in range(10)] == [False] * 10
    await database.close()


@pytest.mark.parametrize("in_memory", [True, False])
async def test_bodies_of_one_iteration_share_a_transaction(tmp_path: Path, in_memory: bool) -> None:  # noqa: FBT001
    """The writes of one loop iteration run on the loop, in one transaction."""
    names: list[str] = []
    database = await open_database(None if in_memory else tmp_path / "x.db", options=QUICK, hook=names.append)
    await in_company(database)
    names.clear()
    on_loop = await asyncio.gather(*(database.write_briefly(insert_and_tell_thread(number)) for number in range(10)))
    assert on_loop == [True] * 10
    assert names.count("begin") == names.count("commit") == 1
    assert names.count("savepoint") == 0
    assert database.read(ids)[:10] == list(range(10))
    await database.close()


async def test_bodies_of_one_iteration_stay_together_in_the_thread(tmp_path: Path) -> None:
    """On a slow disk they share one fsync: the thread does not start with the first write alone."""
    names: list[str] = []
    database = await open_database(tmp_path / "x.db", options=SQLiteOptions(loop_commit_ms=0), hook=names.append)
    await database.write(insert(100))
    names.clear()

    async def call(number: int) -> bool:
        # Hashing much data releases the GIL, so other threads run meanwhile.
        hashlib.sha256(bytes(500_000)).digest()
        return await database.write_briefly(insert_and_tell_thread(number))

    assert await asyncio.gather(*map(call, range(10))) == [False] * 10
    assert names.count("begin") == names.count("commit") == 1
    await database.close()


async def test_a_task_alone_is_served_at_once(tmp_path: Path) -> None:
    """The write of a lone task is committed before its call returns, and its exception propagates unchanged."""
    names: list[str] = []
    database = await open_database(tmp_path / "x.db", options=QUICK, hook=names.append)
    await warm_up(database)
    await asyncio.sleep(0)
    turned: list[bool] = []
    asyncio.get_running_loop().call_soon(turned.append, True)
    names.clear()
    assert await database.write_briefly(insert_and_tell_thread(1))
    assert not turned
    assert [name for name in names if name in {"begin", "commit"}] == ["begin", "commit"]

    def refuse(transaction: Transaction) -> None:
        transaction.run("insert_item", id=2, label="gone")
        raise RevisionConflict("s", 1, 2)

    await asyncio.sleep(0)
    with pytest.raises(RevisionConflict):
        await database.write_briefly(refuse)
    assert database.read(ids)[:2] == [1, 1000]
    await database.close()


async def test_a_task_alone_does_not_hold_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that writes without a pause lets other tasks run after 2 ms."""
    monkeypatch.setattr(inline_writes, "_MAX_HOLD_S", 0.0)
    database = await open_database(tmp_path / "x.db", options=QUICK)
    await warm_up(database)
    turned: list[int] = []

    def turn() -> None:
        turned.append(len(turned))
        asyncio.get_running_loop().call_soon(turn)

    asyncio.get_running_loop().call_soon(turn)
    for number in range(10):
        assert await database.write_briefly(insert_and_tell_thread(number))
    assert len(turned) >= 5
    await database.close()


async def test_two_tasks_that_write_share_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When several tasks write continuously, only the first write is committed alone."""
    monkeypatch.setattr(inline_writes, "_MAX_HOLD_S", 0.0)
    names: list[str] = []
    database = await open_database(tmp_path / "x.db", options=QUICK, hook=names.append)
    await warm_up(database)
    await asyncio.sleep(0)
    names.clear()

    async def several(first: int) -> None:
        for number in range(first, first + 20):
            await database.write_briefly(insert(number))

    await asyncio.gather(several(0), several(100))
    assert names.count("insert_item") == 40
    assert names.count("commit") <= 23
    await database.close()


async def test_a_failing_body_is_undone_alone(tmp_path: Path) -> None:
    """A body that raises on the loop loses its own writes, alone or in a group."""
    database = await open_database(tmp_path / "x.db", options=QUICK)
    await warm_up(database)
    with pytest.raises(RevisionConflict):
        await database.write_briefly(write_then_refuse)
    bodies = (insert(1), write_then_refuse, insert(2))
    results = await asyncio.gather(*map(database.write_briefly, bodies), return_exceptions=True)
    assert results[0] == results[2] == 1
    assert isinstance(results[1], RevisionConflict)
    assert database.read(ids)[:3] == [1, 2, 1000]
    await database.close()


async def test_brief_and_other_bodies_run_in_order(tmp_path: Path) -> None:
    """A body sees the writes submitted before it, on whichever thread each of them runs."""
    database = await open_database(tmp_path / "x.db", options=QUICK)
    await warm_up(database)
    known = database.read(ids)
    results = await asyncio.gather(
        database.write_briefly(insert(1)),
        database.write(ids),
        database.write_briefly(insert(2)),
        database.write_briefly(ids),
    )
    assert list(results) == [1, [1, *known], 1, [1, 2, *known]]
    await database.close()


async def test_more_than_the_loop_takes_goes_to_the_thread(tmp_path: Path) -> None:
    """Writes beyond the limit of one iteration run on the thread, in order."""
    database = await open_database(tmp_path / "x.db", options=QUICK)
    await in_company(database)
    on_loop = await asyncio.gather(*(database.write_briefly(insert_and_tell_thread(number)) for number in range(40)))
    assert on_loop == [False] * 40
    assert database.read(ids)[:40] == list(range(40))
    await database.close()


async def test_the_loop_does_not_wait_for_another_process(tmp_path: Path) -> None:
    """While another process holds the write lock, the loop goes on and the body waits on the thread."""
    database = await open_database(tmp_path / "x.db", options=QUICK)
    await warm_up(database)
    other = open_write_lock(str(tmp_path / "x.db"), timeout_ms=30_000)
    other.acquire()
    task = asyncio.create_task(database.write_briefly(insert_and_tell_thread(1)))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()
    other.release()
    other.close()
    assert not await task
    await database.close()


async def test_the_loop_does_not_wait_for_a_foreign_tool(tmp_path: Path) -> None:
    """A program that ignores the write lock and holds SQLite's own lock blocks the body, not the loop."""
    database = await open_database(tmp_path / "x.db", options=QUICK)
    await warm_up(database)
    foreign = apsw.Connection(str(tmp_path / "x.db"))
    foreign.execute("BEGIN IMMEDIATE")
    task = asyncio.create_task(database.write_briefly(insert_and_tell_thread(1)))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()
    foreign.execute("ROLLBACK")
    foreign.close()
    assert not await task
    assert database.read(ids)[0] == 1
    await database.close()


async def test_a_slow_disk_is_left_to_the_thread(tmp_path: Path) -> None:
    """After one slow commit the next ones run on the thread, until several in a row were quick."""
    slow = [False]

    def hook(name: str) -> None:
        if name == "commit" and slow[0]:
            time.sleep(SLOW_S)

    database = await open_database(tmp_path / "x.db", options=SQLiteOptions(loop_commit_ms=QUICK_MS), hook=hook)
    await warm_up(database)
    slow[0] = True
    await database.write_briefly(insert_and_tell_thread(1))
    assert [await database.write_briefly(insert_and_tell_thread(number)) for number in range(2, 5)] == [False] * 3
    slow[0] = False
    await database.write(insert(8))
    assert not await database.write_briefly(insert_and_tell_thread(9))
    await database.close()


async def test_closing_finishes_what_waits(tmp_path: Path) -> None:
    """An accepted brief write is committed although the database is closed before the loop reaches it."""
    database = await open_database(tmp_path / "x.db", options=QUICK)
    await in_company(database)
    task = asyncio.create_task(database.write_briefly(insert(1)))
    await asyncio.sleep(0)
    await database.close()
    assert await task == 1
    again = await open_database(tmp_path / "x.db", options=QUICK)
    assert again.read(ids)[0] == 1
    await again.close()


async def test_a_cancelled_caller_writes_nothing(tmp_path: Path) -> None:
    """A caller that is cancelled before its body runs writes nothing."""
    database = await open_database(tmp_path / "x.db", options=QUICK)
    await in_company(database)
    gone, kept = (asyncio.create_task(database.write_briefly(insert(number))) for number in (1, 2))
    await asyncio.sleep(0)
    gone.cancel()
    assert await kept == 1
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert database.read(ids)[0] == 2
    await database.close()


async def test_brief_bodies_wait_for_the_thread(tmp_path: Path) -> None:
    """While the thread is busy, brief writes queue behind its jobs."""
    database = await open_database(tmp_path / "x.db", options=QUICK)
    await warm_up(database)
    gate = Gate()
    first = asyncio.create_task(database.write(gate))
    await gate.entered()
    second = asyncio.create_task(database.write_briefly(insert_and_tell_thread(1)))
    await asyncio.sleep(0)
    assert not second.done()
    gate.open()
    await first
    assert not await second
    await database.close()


async def test_the_log_is_kept_short(tmp_path: Path) -> None:
    """The thread checkpoints the WAL of a database that only the loop writes to."""
    names: list[tuple[str, bool]] = []

    def hook(name: str) -> None:
        names.append((name, threading.current_thread() is threading.main_thread()))

    database = await open_database(
        tmp_path / "x.db", options=SQLiteOptions(checkpoint_pages=4, loop_commit_ms=60_000), hook=hook
    )
    await warm_up(database)
    names.clear()
    for number in range(20):
        await database.write_briefly(insert(number))
    await database.close()
    assert ("checkpoint", False) in names
    assert ("checkpoint", True) not in names


async def test_a_deleted_file(tmp_path: Path) -> None:
    """The loop acknowledges no write to a deleted file."""
    database = await open_database(tmp_path / "x.db", options=QUICK)
    await warm_up(database)
    (tmp_path / "x.db").rename(tmp_path / "y.db")
    with pytest.raises(StorageFailure, match="moved"):
        await database.write_briefly(insert(1))
    (tmp_path / "y.db").rename(tmp_path / "x.db")
    assert await database.write_briefly(insert(1)) == 1
    await database.close()


async def test_a_failure_of_the_engine_reaches_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error on the loop reaches every caller, and the next write works."""
    database = await open_database(tmp_path / "x.db", options=QUICK)
    await warm_up(database)

    def broken(_runner: GroupCommit, _jobs: object, *, begun: bool) -> None:
        raise RuntimeError(f"made for the test, begun: {begun}")

    with monkeypatch.context() as patch:
        patch.setattr(GroupCommit, "_attempt", broken)
        with pytest.raises(RuntimeError, match="begun: True"):
            await asyncio.wait_for(database.write_briefly(insert(1)), 30)
    await database.write(insert(2))
    assert database.read(ids)[0] == 2
    await database.close()


def test_a_closed_loop_with_waiting_bodies(tmp_path: Path) -> None:
    """Accepted writes are committed when the database is closed from another loop."""
    first = asyncio.new_event_loop()
    database = first.run_until_complete(open_database(tmp_path / "x.db", options=QUICK))
    first.run_until_complete(in_company(database))
    calling = database.write_briefly(insert(1))

    def ask_and_be_interrupted() -> None:
        # The loop ends in the iteration in which the call was accepted, before the body runs.
        calling.send(None)
        raise KeyboardInterrupt

    first.call_soon(ask_and_be_interrupted)
    with pytest.raises(KeyboardInterrupt):
        first.run_forever()
    first.close()
    calling.close()
    asyncio.run(database.close())

    async def read_again() -> int:
        again = await open_database(tmp_path / "x.db")
        try:
            return again.read(ids)[0]
        finally:
            await again.close()

    assert asyncio.run(read_again()) == 1
