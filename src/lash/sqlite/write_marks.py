"""Marks of writes in the file ``<path>.turn``, for the processes on a database file that no datagram reaches.

Containers with directories of their own for temporary files, and programs of different users, have no sockets in
common. But they share the directory of the database. Each group of processes that can send each other datagrams has a
slot in the file and changes it after its writes; the other groups poll the slots. The file is not locked and not
synced: it holds nothing that has to survive.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import time
from typing import Final

_SLOTS: Final = 512
_SLOT_BYTES: Final = 8
"""All slots are one page of the file system's cache."""


class WriteMarks:
    """The marks of one database file. ``group`` names the processes that can send each other datagrams."""

    def __init__(self, path: str, group: str) -> None:
        self._path = path + ".turn"
        self._at = int.from_bytes(hashlib.sha256(group.encode()).digest()[:4], "big") % _SLOTS * _SLOT_BYTES
        self._seen = self._others()

    def add(self) -> None:
        """Mark a write of this group. A file that cannot be opened is not marked."""
        with contextlib.suppress(OSError):
            descriptor = self._open(os.O_RDWR)
            try:
                os.pwrite(descriptor, time.time_ns().to_bytes(_SLOT_BYTES, "big"), self._at)
            finally:
                os.close(descriptor)

    def has_news(self) -> bool:
        """Return whether another group has written since the last call."""
        seen, self._seen = self._seen, self._others()
        return seen != self._seen

    def _others(self) -> bytes:
        """Return the slots of the other groups."""
        try:
            descriptor = self._open(os.O_RDONLY)
            try:
                marks = os.pread(descriptor, _SLOTS * _SLOT_BYTES, 0)
            finally:
                os.close(descriptor)
        except OSError:
            return b""
        # The slots end with the last one that was ever used.
        return (marks[: self._at].ljust(self._at, b"\0") + marks[self._at + _SLOT_BYTES :]).rstrip(b"\0")

    def _open(self, flags: int) -> int:
        """Open the file for a moment: it may be replaced, and a forked child must not keep it open."""
        # Without O_NONBLOCK a pipe of this name would stop the process.
        descriptor = os.open(self._path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise OSError(f"{self._path} is not a regular file")


def open_write_marks(path: str | None, group: str) -> WriteMarks | None:
    """Return the marks of a file; None in memory, and on Windows, where no datagrams are sent."""
    return None if path is None or sys.platform == "win32" else WriteMarks(path, group)
