"""Datagrams between processes: one reaches one storage or all, and a sender notices a process that has ended."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lash.sqlite.wake import WakeDirectory, WakeSocket, open_wake_directory

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such sockets")

HOLD = """
import asyncio, sys
from lash.sqlite.wake import WakeDirectory

async def main():
    print(WakeDirectory(sys.argv[1]).open_socket(lambda texts: None).name, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for temporary files of this test alone; the path of a socket must be short."""
    with tempfile.TemporaryDirectory(prefix="lash-") as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        monkeypatch.setenv("TMPDIR", name)
        yield Path(name)


@pytest.fixture
def database(tmp_path: Path) -> str:
    file = tmp_path / "lash.db"
    file.touch()
    return os.fspath(file)


def _sockets(temporary: Path) -> list[str]:
    return sorted(file.name for file in temporary.glob("lash-*/*/*"))


class Received:
    """What a socket receives; a list for each time that it was readable."""

    def __init__(self) -> None:
        self.calls: list[Sequence[str] | None] = []

    def __call__(self, texts: Sequence[str] | None) -> None:
        self.calls.append(texts)

    @property
    def texts(self) -> list[str]:
        return [text for call in self.calls for text in call or ()]

    async def until(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.texts) < count:  # noqa: ASYNC110 (nothing signals it)
                await asyncio.sleep(0.001)


def _open(directory: WakeDirectory, received: Received | None = None) -> WakeSocket:
    socket = directory.open_socket(received or Received())
    assert socket is not None
    return socket


async def test_a_datagram_reaches_the_storage_it_names(database: str) -> None:
    """Each storage gets what was sent to it, in order, and nothing else."""
    directory, first, second = WakeDirectory(database), Received(), Received()
    ours, other = _open(directory, first), _open(directory, second)
    assert directory.send(ours.name, "ab12")
    assert directory.send(ours.name, "\u00e9")
    assert directory.send(other.name, "cd34")
    await first.until(2)
    await second.until(1)
    assert (first.texts, second.texts) == (["ab12", "\u00e9"], ["cd34"])
    ours.close()
    other.close()


async def test_all_that_want_it_get_a_datagram_to_all(database: str) -> None:
    """The sender itself and storages that do not want these datagrams get none, also after they have wanted them."""
    directory, inboxes = WakeDirectory(database), [Received() for _ in range(4)]
    sockets = [_open(directory, inbox) for inbox in inboxes]
    for each in sockets[:3]:
        each.get_all(wanted=True)
    WakeDirectory(database).send_to_all("one", sockets[0].name)
    sockets[2].get_all(wanted=False)
    WakeDirectory(database).send_to_all("two", None)
    await inboxes[0].until(1)
    await inboxes[1].until(2)
    await inboxes[2].until(1)
    assert [inbox.texts for inbox in inboxes] == [["two"], ["one", "two"], ["one"], []]
    for each in sockets:
        each.close()


async def test_files_have_separate_sockets(database: str, tmp_path: Path, temporary: Path) -> None:
    """A storage sees the sockets of its own file, under each of its names; nothing is left when all are closed."""
    (tmp_path / "other.db").touch()
    os.link(database, tmp_path / "second-name.db")
    socket = _open(WakeDirectory(database))
    assert not WakeDirectory(database).has_others(socket.name)
    assert WakeDirectory(os.fspath(tmp_path / "second-name.db")).has_others(None)
    assert not WakeDirectory(os.fspath(tmp_path / "other.db")).has_others(None)
    socket.close()
    socket.close()
    assert _sockets(temporary) == []
    assert not WakeDirectory(database)._path.exists()


async def test_a_new_listener_is_seen_at_once(database: str) -> None:
    """The names are read again when the directory has changed, however short ago."""
    directory = WakeDirectory(database)
    for _ in range(5):
        assert not directory.has_others(None)
        socket = _open(WakeDirectory(database))
        assert directory.has_others(None)
        socket.close()


def test_a_closed_socket_is_refused(database: str, temporary: Path) -> None:
    """A storage that was closed, or forgotten with its event loop, leaves nothing behind."""

    async def forget() -> str:
        return _open(WakeDirectory(database)).name

    async def close() -> str:
        socket = _open(WakeDirectory(database))
        socket.close()
        return socket.name

    names = [asyncio.run(close()), asyncio.run(forget())]
    gc.collect()
    assert not any(WakeDirectory(database).send(name, "x") for name in names)
    assert _sockets(temporary) == []


@pytest.mark.parametrize("removed_by", ["a sender", "the next listener"])
def test_a_killed_process_is_refused_and_its_socket_removed(database: str, temporary: Path, removed_by: str) -> None:
    """The kernel refuses the datagram."""
    with subprocess.Popen([sys.executable, "-c", HOLD, database], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert WakeDirectory(database).send(name, "x")
        process.send_signal(signal.SIGKILL)
    assert _sockets(temporary) == [name]
    if removed_by == "a sender":
        assert not WakeDirectory(database).send(name, "x")
    else:

        async def listen() -> None:
            _open(WakeDirectory(database)).close()

        asyncio.run(listen())
    assert _sockets(temporary) == []


async def test_a_full_buffer_is_noticed(database: str) -> None:
    """The sender does not wait, and the storage learns that datagrams may be missing."""
    directory, received = WakeDirectory(database), Received()
    socket = _open(directory, received)
    assert all(directory.send(socket.name, "x") for _ in range(2_000))
    async with asyncio.timeout(60):
        while not received.calls:  # noqa: ASYNC110 (nothing signals it)
            await asyncio.sleep(0.001)
    assert received.calls[0] is None
    socket.close()


@pytest.mark.parametrize("name", ["", "x", "../" + "0" * 16, "0" * 17])
def test_a_name_that_is_none_is_refused(database: str, name: str) -> None:
    """A name comes from the database: nothing outside the directory is addressed by it."""
    assert not WakeDirectory(database).send(name, "x")


def test_without_a_private_directory_there_are_no_sockets(database: str, temporary: Path) -> None:
    """The storage then polls the file."""
    (temporary / f"lash-{os.geteuid()}").touch()
    assert open_wake_directory(database) is None
    assert open_wake_directory(None) is None


async def test_a_path_that_is_too_long_has_no_socket(
    database: str, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    """The storage then polls the file."""
    long = temporary / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(long))
    assert WakeDirectory(database).open_socket(Received()) is None
