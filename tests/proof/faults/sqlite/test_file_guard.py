"""The files of an open database are replaced, moved or deleted, or were damaged while it was closed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw
import pytest

import lash
from benchmarks.kit.disk import log_bytes
from lash.errors import CorruptData, ForeignDatabase, StorageFailure, StoreUnavailable
from lash.sqlite.engine import file_guard as place
from tests.contract.queue_state import late
from tests.proof.faults.disk import EFFORT, disk_below
from tests.proof.faults.sqlite.power import FILE, Story, digest_of, live, storage_url
from tests.proof.faults.work import OPERATIONS

POINTS: Final = 12 * EFFORT
URL: Final = "sqlite:///{}"


def replace(directory: Path) -> None:
    shutil.copy(directory / FILE, directory / "copy")
    (directory / "copy").replace(directory / FILE)


LOSSES: Final[dict[str, Callable[[Path], object]]] = {
    "replaced": replace,
    "moved": lambda directory: (directory / FILE).rename(directory / "elsewhere"),
    "deleted": lambda directory: (directory / FILE).unlink(),
    "log_deleted": lambda directory: (directory / f"{FILE}-wal").unlink(),
    "index_deleted": lambda directory: (directory / f"{FILE}-shm").unlink(),
    "folder_deleted": shutil.rmtree,
}


async def use(url: str) -> None:
    async with await lash.open(url) as storage:
        for operation in OPERATIONS.values():
            await operation(storage, 0)


async def texts(storage: lash.Storage) -> list[str | None]:
    return [each.source_key for each in await storage.queue.list("s")]


@pytest.mark.parametrize("rested_ms", [0, 10_000])
@pytest.mark.parametrize("loss", LOSSES)
async def test_nothing_is_written_into_the_void(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str, rested_ms: int
) -> None:
    """Once a file is no longer the opened one, each write and, soon, each read raises; a reopened storage works.

    It does not matter how long the directory was idle.
    """
    monkeypatch.setattr(place, "_READ_AGAIN_AFTER_S", 0)
    directory = tmp_path / "storage"
    directory.mkdir()
    async with await lash.open(URL.format(directory / FILE)) as storage:
        last_change_ns = time.time_ns() - rested_ms * 1_000_000
        os.utime(directory, ns=(last_change_ns, last_change_ns))
        await storage.sessions.create("s")
        await storage.queue.enqueue(late("1", source_key="1"))
        LOSSES[loss](directory)
        for _ in range(2):
            with pytest.raises(StorageFailure, match="replaced, moved or deleted") as caught:
                await storage.queue.enqueue(late("2", source_key="2"))
            assert not caught.value.outcome_unknown
        with pytest.raises(StorageFailure, match="replaced, moved or deleted"):
            await texts(storage)
    directory.mkdir(exist_ok=True)
    async with await lash.open(URL.format(directory / FILE)) as storage:
        await storage.sessions.create("s")
        await storage.queue.enqueue(late("3", source_key="3"))
        found = await texts(storage)
    assert "3" in found
    assert "2" not in found
    # Deleting the WAL of an open database loses nothing if the storage manages to copy it back.
    assert "1" in found or loss not in {"log_deleted", "index_deleted"}


async def test_a_folder_at_rest_is_asked_and_not_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the times of the WAL slows the next fsync, so it is skipped while the directory is unchanged."""
    asked: list[str] = []
    stat = os.stat

    def note(path: str, **options: bool) -> os.stat_result:
        if os.fspath(path).startswith(str(tmp_path)):
            asked.append(os.fspath(path))
        return stat(path, **options)

    async with await lash.open(URL.format(tmp_path / FILE)) as storage:
        await storage.sessions.create("s")
        for last_change_ns in (1_000_000_000, 1_000_000_000 - 1):
            os.utime(tmp_path, ns=(0, last_change_ns))
            await storage.queue.enqueue(late("1"))
            monkeypatch.setattr(os, "stat", note)
            await storage.queue.enqueue(late("2"))
            monkeypatch.setattr(os, "stat", stat)
            assert set(asked) == {str(tmp_path)}
        # A file system with whole-second times does not show changes within one second.
        second_ns = time.time_ns() // 1_000_000_000 * 1_000_000_000
        os.utime(tmp_path, ns=(0, second_ns - 1_000_000_000))
        monkeypatch.setattr(os, "stat", note)
        for _ in range(2):
            asked.clear()
            await storage.queue.enqueue(late("3"))
            assert str(tmp_path / f"{FILE}-wal") in asked


async def test_a_file_that_is_put_back(tmp_path: Path) -> None:
    """A database that was moved away and back is used again, with all its rows."""
    async with await lash.open(URL.format(tmp_path / FILE)) as storage:
        await storage.sessions.create("s")
        (tmp_path / FILE).rename(tmp_path / "elsewhere")
        with pytest.raises(StorageFailure):
            await storage.queue.enqueue(late("1"))
        (tmp_path / "elsewhere").rename(tmp_path / FILE)
        await storage.queue.enqueue(late("2", source_key="2"))
        assert await texts(storage) == ["2"]


async def test_closing_the_old_one_leaves_the_new_one_alone(tmp_path: Path) -> None:
    """A storage that lost its file does not delete the WAL of the new file when it closes."""
    old = await lash.open(URL.format(tmp_path / FILE))
    await old.sessions.create("s")
    (tmp_path / "old").mkdir()
    for end in ("", "-wal", "-shm", ".turn", ".lock"):
        (tmp_path / f"{FILE}{end}").rename(tmp_path / "old" / f"{FILE}{end}")
    async with await lash.open(URL.format(tmp_path / FILE)) as new:
        await new.sessions.create("s")
        await new.queue.enqueue(late("1", source_key="1"))
        await old.close()
        await new.queue.enqueue(late("2", source_key="2"))
        assert await texts(new) == ["1", "2"]
    async with await lash.open(URL.format(tmp_path / "old" / FILE)) as storage:
        assert await storage.sessions.open("s") is not None


@pytest.mark.parametrize("damage", ["truncated", "garbage", "index_garbage"])
async def test_a_damaged_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    """A damaged WAL leaves an earlier committed state, never half a transaction; the index is rebuilt."""
    source = tmp_path / "source"
    source.mkdir()
    with disk_below(source, monkeypatch) as disk:
        story = Story(disk)
        async with await lash.open(storage_url(source, 100_000), on_statement=story) as storage:
            story.look()
            for operation in OPERATIONS.values():
                await operation(storage, 0)
                story.look()
            shutil.copytree(source, tmp_path / "killed")
            story.close()
    log = (tmp_path / "killed" / f"{FILE}-wal").read_bytes()[: log_bytes(tmp_path / "killed" / FILE)]
    seen = set()
    for number in range(POINTS):
        directory = tmp_path / str(number)
        shutil.copytree(tmp_path / "killed", directory)
        middle = len(log) * number // POINTS
        if damage == "index_garbage":
            (directory / f"{FILE}-shm").write_bytes(os.urandom(32_768))
        else:
            rest = b"" if damage == "truncated" else os.urandom(len(log) - middle)
            (directory / f"{FILE}-wal").write_bytes(log[:middle] + rest)
        connection = apsw.Connection(str(directory / FILE))
        assert connection.pragma("integrity_check") == "ok"
        if connection.execute("SELECT count(*) FROM sqlite_schema").get:
            assert digest_of(connection) in story.states
            seen.add(digest_of(connection))
        connection.close()
        async with await lash.open(URL.format(directory / FILE)) as storage:
            await storage.sessions.create("s")
    assert len(seen) == 1 if damage == "index_garbage" else len(seen) > 3


async def test_a_truncated_database_is_corrupt_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A truncated file is refused on open or when the missing part is read, never read as empty."""
    with disk_below(tmp_path, monkeypatch) as disk:
        await live(disk, rounds=1, checkpoint_pages=10, reopen_after=1)
    content = (tmp_path / FILE).read_bytes()
    for size in range(100, len(content), len(content) // 8):
        (tmp_path / FILE).write_bytes(content[:size])
        with pytest.raises((CorruptData, ForeignDatabase)):
            await use(URL.format(tmp_path / FILE))


async def test_a_foreign_lock_is_waited_for_and_then_told(tmp_path: Path) -> None:
    """While a tool holds the write lock, writes are unavailable and reads work; afterwards both work."""
    async with await lash.open(f"{URL.format(tmp_path / FILE)}?busy_timeout_ms=50") as storage:
        await storage.sessions.create("s")
        tool = apsw.Connection(str(tmp_path / FILE))
        # Lash takes the lock for a moment after a write, to make space in the log.
        tool.set_busy_timeout(15_000)
        tool.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable) as caught:
            await storage.queue.enqueue(late("1"))
        assert not caught.value.outcome_unknown
        assert await texts(storage) == []
        tool.execute("ROLLBACK")
        await storage.queue.enqueue(late("2", source_key="2"))
        assert await texts(storage) == ["2"]
        tool.close()
