"""Detects that the files of an open database were replaced, moved or deleted.

Such a file stays usable to a process that has it open, and everything written to it is lost. The same holds for the
log, and a second index of the log would let two processes overwrite each other.

The guard checks the directory's modification time, which changes when any name in it comes to mean another file. That
is one system call instead of three, and it avoids a cost: since Linux 6.13, reading the times of a file makes its next
write stamp it precisely, and an fsync of the log then takes a fifth longer.
"""

from __future__ import annotations

import os
import time
from typing import Final, NamedTuple

from lash.errors import StorageFailure

_PARTS: Final = ("", "-wal", "-shm")
_READ_AGAIN_AFTER_S: Final = 1.0
"""How often readers check: each check is a system call, and a read is short."""
_SECOND_NS: Final = 1_000_000_000
_TICK_NS: Final = 50_000_000
"""Longer than a tick of any kernel's clock: two changes within one tick leave the same timestamp."""
_COARSE_TICK_NS: Final = 3 * _SECOND_NS
"""The same for a file system that stores whole seconds, or even seconds only."""


class _DirectoryStamp(NamedTuple):
    """The identity of a directory, and when a name in it was last added, replaced or removed."""

    device: int
    number: int
    changed_at_ns: int

    def is_unambiguous(self) -> bool:
        """Return whether the next change will have another timestamp."""
        tick_ns = _TICK_NS if self.changed_at_ns % _SECOND_NS else _COARSE_TICK_NS
        return time.time_ns() - self.changed_at_ns > tick_ns


class FileGuard:
    """The files of one open database, as they were found when it was opened."""

    def __init__(self, path: str) -> None:
        """Remember the files. The database must be open, so that its log exists, and the path must have no links."""
        found = ((path + part, _identity(path + part)) for part in _PARTS)
        self._files = tuple((name, identity) for name, identity in found if identity is not None)
        self._directory = os.path.dirname(path)  # noqa: PTH120 (a Path would cost more than the system call)
        self._unchanged: _DirectoryStamp | None = None
        self._checked_at = time.monotonic()

    def check(self) -> None:
        """Raise `StorageFailure` if a file was replaced, moved or deleted."""
        name = self._missing()
        if name is not None:
            raise StorageFailure(
                f"{name} was replaced, moved or deleted while the storage was open; nothing was written. "
                "Put it back, or close the storage and open it again"
            )
        self._checked_at = time.monotonic()

    def is_unchanged(self) -> bool:
        """Return whether every file is the one that was opened."""
        if self._missing() is not None:
            return False
        self._checked_at = time.monotonic()
        return True

    def check_if_due(self) -> None:
        """Check if the last check is a second old; a reader may see the old file for that long."""
        if time.monotonic() - self._checked_at >= _READ_AGAIN_AFTER_S:
            self.check()

    def _missing(self) -> str | None:
        """Return the name of a file that has changed. The directory is read first, so that no change is missed."""
        stamp = _stamp_of(self._directory)
        if stamp is not None and stamp == self._unchanged:
            return None
        name = next((name for name, identity in self._files if _identity(name) != identity), None)
        self._unchanged = stamp if name is None and stamp is not None and stamp.is_unambiguous() else None
        return name


def _stamp_of(directory: str) -> _DirectoryStamp | None:
    try:
        status = os.stat(directory)  # noqa: PTH116
    except OSError:
        return None
    return _DirectoryStamp(status.st_dev, status.st_ino, status.st_mtime_ns)


def _identity(name: str) -> tuple[int, int] | None:
    try:
        status = os.stat(name)  # noqa: PTH116
    except OSError:
        return None
    return status.st_dev, status.st_ino
