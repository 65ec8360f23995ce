"""The cost of waiting for hints on a SQLite file, with and without datagrams between its storages."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

import lash
from lash.errors import StoreUnavailable
from lash.model.process.event import EventDraft, EventType
from lash.model.process.process import ExternalInput, Recovery, Registration
from lash.sqlite.hints import SQLiteHints
from lash.sqlite.storage import SQLiteStorage
from lash.stores.hints import ANYTHING, NO_HINT
from tests.base.waiting_kit import changes_of
from tests.contract.test_worker import beat

TICK = EventDraft(event_type="tick")


class Counted:
    """A storage with processes ``p`` and ``q`` whose waiters depend on hints, and a log of its database calls."""

    def __init__(self, storage: SQLiteStorage, names: list[str]) -> None:
        self.storage = storage
        self.names = names
        self.asked = 0
        self._data_version = storage._database.data_version
        storage._database.data_version = self._count  # type: ignore[method-assign]
        changes_of(storage)._poll_s = 3_600

    def _count(self) -> int:
        self.asked += 1
        return self._data_version()

    async def waiting(self) -> asyncio.Task[object]:
        """Start a wait for a tick of ``p`` and let it start."""

        async def wait() -> object:
            return await self.storage.waiter.wait_event_after("p", "tick")

        task = asyncio.create_task(wait())
        await until(lambda: any(watch.state is not None for watch in changes_of(self.storage)._watches))
        await self.asked_again()
        return task

    async def asked_again(self) -> None:
        """Wait until the file was polled twice more and the hints were delivered."""
        enough = self.asked + 2
        await until(lambda: self.asked >= enough)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until the condition holds; fail the test if it never does."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 (nothing signals it)
            await asyncio.sleep(0.005)


@pytest_asyncio.fixture
async def counted(url: str) -> AsyncIterator[Counted]:
    async with opened(url) as storage:
        yield storage


@pytest_asyncio.fixture
async def silent(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counted]:
    """A storage on a system without sockets."""
    monkeypatch.setattr("lash.sqlite.hints.open_wake_directory", lambda _path: None)
    async with opened(url) as storage:
        yield storage


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Counted]:
    names: list[str] = []
    async with await lash.open(url, on_statement=names.append) as storage:
        assert isinstance(storage, SQLiteStorage)
        for process_id in ("p", "q"):
            await storage.processes.register(
                Registration(
                    process_id=process_id,
                    input=ExternalInput(),
                    recovery=Recovery.EXTERNAL,
                    event_types=(EventType(name="tick"),),
                )
            )
        yield Counted(storage, names)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'lash.db'}"


async def test_nothing_is_asked_while_nobody_waits(counted: Counted) -> None:
    """The file is polled while a listener waits, and neither before nor after."""
    assert counted.asked == 0
    task = await counted.waiting()
    await counted.asked_again()
    await counted.storage.events.append("p", TICK)
    await asyncio.wait_for(task, 60)
    await asyncio.sleep(0)
    asked = counted.asked
    await asyncio.sleep(0.05)
    assert counted.asked == asked


async def test_all_who_wait_are_asked_for_at_once(silent: Counted, url: str) -> None:
    """Fifty listeners cost one poll every 5 ms, and one read of the processes for each change of the file."""
    counted = silent
    listeners = [counted.storage.hints.listen(everything=bool(number % 2)) for number in range(50)]
    await asyncio.gather(*(listener.wait(3_600) for listener in listeners))
    waiting = [asyncio.create_task(listener.wait(3_600)) for listener in listeners]
    loop = asyncio.get_running_loop()
    counted.asked, began = 0, loop.time()
    await asyncio.sleep(0.1)
    assert 1 <= counted.asked <= (loop.time() - began) / 0.005 + 1
    counted.names.clear()
    async with await lash.open(url) as other:
        await other.events.append("p", TICK)
    await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert 1 <= counted.names.count("process_last_change") <= 3
    for listener in listeners:
        listener.close()
    asked = counted.asked
    await asyncio.sleep(0.03)
    assert counted.asked == asked


async def test_commits_to_sessions_cost_waiters_nothing(silent: Counted, url: str) -> None:
    """A commit that concerns no process is noticed, and the awaited processes are not read."""
    counted = silent
    task = await counted.waiting()
    counted.names.clear()
    async with await lash.open(url) as other:
        for number in range(3):
            await other.sessions.create(f"s{number}")
            await counted.asked_again()
        assert counted.names.count("process_last_change") >= 1
        assert counted.names.count("event_last_sequences") == 0
        await other.events.append("p", TICK)
        await asyncio.wait_for(task, 60)


async def test_own_writes_are_one_hint_each(silent: Counted) -> None:
    """A storage does not take its own write for one of another storage.

    The file can be polled between a commit and the store's own hint; then one hint is redundant.
    """
    counted = silent
    task = await counted.waiting()
    counted.names.clear()
    for _ in range(10):
        await counted.storage.events.append("q", TICK)
        await counted.asked_again()
        await counted.asked_again()
    assert 10 <= counted.names.count("event_last_sequences") <= 15
    await counted.storage.events.append("p", TICK)
    await asyncio.wait_for(task, 60)


async def test_announced_writes_cost_only_the_waiters_that_they_concern(counted: Counted, url: str) -> None:
    """A datagram names what another storage changed: a caller reads nothing after writes to other processes."""
    async with await lash.open(url) as other:
        task = await counted.waiting()
        counted.names.clear()
        for number in range(5):
            await other.events.append("q", TICK)
            await other.sessions.create(f"s{number}")
            await counted.storage.events.append("q", TICK)
            await counted.asked_again()
        # On a busy machine an announcement may come too late to explain a change.
        assert counted.names.count("event_last_sequences") <= 2
        await other.events.append("p", TICK)
        await asyncio.wait_for(task, 60)


async def test_a_change_without_an_announcement_is_a_hint(counted: Counted, url: str) -> None:
    """A program that sends no datagrams and leaves no marks is noticed by the file: an older version, another tool."""
    task = await counted.waiting()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lash.sqlite.hints.open_wake_directory", lambda _path: None)
        patch.setattr("lash.sqlite.hints.open_write_marks", lambda _path, _group: None)
        async with await lash.open(url) as other:
            await other.events.append("p", TICK)
            await asyncio.wait_for(task, 60)


async def test_a_mark_is_a_hint_among_announced_writes(
    counted: Counted, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write by a process with another directory for temporary files is noticed, however near announced writes are."""
    async with await lash.open(url) as near:
        task = await counted.waiting()
        monkeypatch.setattr(tempfile, "tempdir", os.fspath(tmp_path))
        async with await lash.open(url) as far:
            await counted.storage.events.append("q", TICK)
            await near.events.append("q", TICK)
            await far.events.append("p", TICK)
            while not task.done():
                # Without the mark these announcements would explain the change.
                await near.events.append("q", TICK)
                await asyncio.wait((task,), timeout=0.01)
                assert counted.asked < 400


async def test_a_mark_is_kept_for_a_listener_that_does_not_wait(counted: Counted, url: str, tmp_path: Path) -> None:
    """A poll on behalf of one listener takes nothing from the others, which get the hint with their next wait."""
    task = await counted.waiting()
    listener = counted.storage.hints.listen(everything=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", os.fspath(tmp_path))
        async with await lash.open(url) as far:
            await far.events.append("p", TICK)
    await asyncio.wait_for(task, 20)
    assert await listener.wait(20) == ANYTHING


@pytest.mark.parametrize("in_reach", [True, False])
async def test_a_worker_out_of_reach_is_noticed_by_the_file(counted: Counted, url: str, *, in_reach: bool) -> None:
    """A worker without a duty relies on datagrams, but not if the registry has a worker that cannot send it any."""
    hints = counted.storage.hints
    listener = hints.listen(work=True)
    await listener.wait(0)
    channel = hints.channel if in_reach else "0" * 16
    other = beat("other", beat_ms=60_000, channel=channel)
    await counted.storage.work.poll(sessions=0, processes=0, owner=other.owner, beat=other)
    hints.serve("own", duty=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lash.sqlite.hints.open_wake_directory", lambda _path: None)
        async with await lash.open(url) as stranger:
            await stranger.sessions.create("s")
    noticed = await listener.wait(0.3 if in_reach else 20)
    assert (noticed == NO_HINT) is in_reach


async def test_lost_datagrams_are_a_hint_about_anything(counted: Counted, url: str) -> None:
    """A caller whose buffer was full reads once."""
    task = await counted.waiting()
    async with await lash.open(url) as other:
        counted.storage.hints._receive(None)
        await until(lambda: "event_last_sequences" in counted.names)
        await other.events.append("p", TICK)
        await asyncio.wait_for(task, 60)


async def test_the_socket_stays_a_while(counted: Counted, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without listeners the socket is kept for the next one, and removed in the end or when the storage is closed."""
    hints = counted.storage.hints
    with hints.listen():
        name = hints.channel
        assert name is not None
    with hints.listen():
        assert hints.channel == name
        monkeypatch.setattr("lash.sqlite.hints._LINGER_S", 0)
    await until(lambda: hints.channel is None)
    async with await lash.open(url) as other:
        directory = hints._directory
        assert directory is not None
        other.hints.listen()
        assert directory.has_others(None)
    assert not directory.has_others(None)


async def test_an_unexpected_error_ends_no_polling(counted: Counted, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll that raises an error of no kind that lash knows is followed by the next one."""
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context["exception"]))
    listener = counted.storage.hints.listen(everything=True)
    await listener.wait(3_600)
    ask, failed = counted.storage._database.data_version, asyncio.Event()

    def fail() -> int:
        if not failed.is_set():
            failed.set()
            raise MemoryError("made for the test")
        return ask()

    waiting = asyncio.create_task(listener.wait(3_600))
    await asyncio.sleep(0)
    monkeypatch.setattr(counted.storage._database, "data_version", fail)
    await asyncio.wait_for(failed.wait(), 60)
    async with await lash.open(url) as other:
        await other.events.append("p", TICK)
        await asyncio.wait_for(waiting, 60)
    assert [str(error) for error in errors] == ["made for the test"]


async def test_a_file_that_cannot_be_asked_is_a_hint(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing poll wakes the listeners, whose own reads raise the error."""

    def fail() -> int:
        raise StoreUnavailable("busy")

    monkeypatch.setattr(counted.storage._database, "data_version", fail)
    hints = SQLiteHints(counted.storage._database)
    await asyncio.wait_for(hints.listen().wait(3_600), 60)
    await hints.close()
