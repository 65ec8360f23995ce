"""Datagrams between the processes on one file: each process that listens binds a socket.

SQLite has no notifications. Without datagrams, every worker would have to query the file after every commit of another
process. The sockets are in a directory that only their user can enter, one for each file. The kernel refuses datagrams
to a process that has ended, so a sender can choose another worker at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hashlib
import os
import re
import secrets
import socket
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from lash.backend.presence import private_directory

_NAME: Final = re.compile(r"[0-9a-f]{16}")
"""The name of a socket: random, and short because the path of a socket has at most 103 bytes."""
_MARK: Final = ".all"
"""The end of the name of a file beside a socket that gets the datagrams to all listeners."""
_LONGEST: Final = 65_536
"""Longer datagrams are not sent."""
_QUEUE_LENGTH: Final = Path("/proc/sys/net/unix/max_dgram_qlen")
_SHORTEST_QUEUE: Final = 8
"""How many unread datagrams any system keeps. It refuses further ones."""
_FULL: Final = (errno.EAGAIN, errno.ENOBUFS)
_COARSE_S: Final = 0.05
"""Two changes of a directory within this time may leave the same time of modification."""


class WakeSocket:
    """The socket of one storage. ``receive`` gets the texts that have arrived, in the event loop that opened it."""

    def __init__(self, path: Path, bound: socket.socket, receive: Callable[[Sequence[str] | None], None]) -> None:
        """Start to receive; use `WakeDirectory.open_socket`."""
        self.name: Final = path.name
        self._mark = path.with_name(path.name + _MARK)
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(bound, self._read)
        self._descriptor = bound.detach()
        self._release = weakref.finalize(self, _release, os.getpid(), self._descriptor, path)

    def get_all(self, *, wanted: bool) -> None:
        """Get the datagrams to all listeners too, or no longer. Idempotent."""
        with contextlib.suppress(OSError):
            if wanted:
                self._mark.touch()
            else:
                self._mark.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the socket: senders see at once that its process does not listen. Idempotent."""
        if self._release.alive:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._descriptor)
            self._release()

    def _read(self) -> None:
        """Pass on all datagrams that have arrived; None if some may be missing."""
        texts: list[str] = []
        with contextlib.suppress(OSError):
            while len(texts) < _LONGEST:
                texts.append(os.read(self._descriptor, _LONGEST).decode("utf-8", "replace"))
        self._receive(None if len(texts) >= _queue_length() else texts)


class WakeDirectory:
    """The sockets of the processes of this user that listen on one file."""

    def __init__(self, database: str) -> None:
        status = Path(database).stat()
        name = hashlib.sha256(f"{status.st_dev}:{status.st_ino}".encode()).hexdigest()[:12]
        private = private_directory()
        place = private.stat()
        self.group: Final = f"{place.st_dev}:{place.st_ino}"
        """Names the processes that can send each other datagrams: they share the directory, by whatever path."""
        self._path = private / name
        self._names: frozenset[str] = frozenset()
        self._changed_ns = -1
        self._is_settled = False

    def open_socket(self, receive: Callable[[Sequence[str] | None], None]) -> WakeSocket | None:
        """Bind a socket, or return None where that is impossible: the storage then polls the file."""
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bound.setblocking(False)
        path = self._path / secrets.token_hex(8)
        try:
            self._remove_dead()
            try:
                bound.bind(os.fspath(path))
            except FileNotFoundError:
                # No directory yet, or the last listener has just removed it.
                self._path.mkdir(0o700, exist_ok=True)
                bound.bind(os.fspath(path))
            return WakeSocket(path, bound, receive)
        except (OSError, NotImplementedError):
            # A path that is too long, a directory that cannot be written, or an event loop without readers.
            bound.close()
            return None

    def names(self) -> frozenset[str]:
        """Return the names of all files in the directory; it is read again only if it has changed."""
        try:
            changed_ns = self._path.stat().st_mtime_ns
            if changed_ns != self._changed_ns or not self._is_settled:
                self._is_settled = time.time() - changed_ns / 1e9 > _COARSE_S
                self._changed_ns = changed_ns
                self._names = frozenset(os.listdir(self._path))  # noqa: PTH208 (only names are needed)
        except FileNotFoundError:
            self._names, self._changed_ns = frozenset(), -1
        return self._names

    def has_others(self, own: str | None) -> bool:
        """Return whether any other storage listens on the file."""
        return any(name != own and name.removesuffix(_MARK) == name for name in self.names())

    def send_to_all(self, text: str, own: str | None) -> None:
        """Send a datagram to all other storages that want all of them."""
        for mark in self.names():
            name = mark.removesuffix(_MARK)
            if name not in (mark, own):
                self.send(name, text)

    def send(self, name: str, text: str) -> bool:
        """Send a datagram to one storage, and return False if its process has ended.

        One whose buffer is full has datagrams that it did not read yet, and learns by them that some are missing.
        """
        data = text.encode()
        if _NAME.fullmatch(name) is None or len(data) > _LONGEST:
            return False
        path = self._path / name
        # One socket for each datagram: a receiver that has stopped would fill the buffer of a shared one.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                sender.sendto(data, os.fspath(path))
            except ConnectionRefusedError:
                _remove(path)
                return False
            except OSError as error:
                return error.errno in _FULL
        return True

    def _remove_dead(self) -> None:
        """Remove the sockets of killed processes: the kernel refuses connections to them."""
        for name in self.names():
            if _NAME.fullmatch(name) is not None:
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
                    try:
                        probe.connect(os.fspath(self._path / name))
                    except ConnectionRefusedError:
                        _remove(self._path / name)
                    except OSError:
                        # Another process removed it at the same moment.
                        continue


def open_wake_directory(database: str | None) -> WakeDirectory | None:
    """Return the sockets of a file; None in memory, on Windows, and without a private directory."""
    if database is None or sys.platform == "win32":
        return None
    try:
        return WakeDirectory(database)
    except OSError:
        return None


@functools.cache
def _queue_length() -> int:
    """Return from how many unread datagrams on some may have been refused."""
    try:
        return max(_SHORTEST_QUEUE, int(_QUEUE_LENGTH.read_text()))
    except (OSError, ValueError):
        return _SHORTEST_QUEUE


def _release(pid: int, descriptor: int, path: Path) -> None:
    """Close a socket and remove its name; a forked child has a copy of the socket, but not the name."""
    if os.getpid() == pid:
        os.close(descriptor)
        _remove(path)
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def _remove(path: Path) -> None:
    for each in (path.with_name(path.name + _MARK), path):
        with contextlib.suppress(OSError):
            each.unlink()
