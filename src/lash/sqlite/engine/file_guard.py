"""Noticing that the files of an open database are no longer the ones that carry its name.

A file that was replaced, moved or deleted stays usable to whoever has it open, and all that is written to it is
lost. The same holds for the log, and a second index of the log would let two processes overwrite each other.

A folder's time of change tells whether any name in it means another file by now. Asking the folder is not only one
question instead of three: Linux, from 6.13 on, stamps a file precisely at its next write after somebody has asked for
its times, and flushing the log then takes a fifth longer.
"""

from __future__ import annotations

import os
import time
from typing import Final, NamedTuple

from lash.errors import StorageFailure

_PARTS: Final = ("", "-wal", "-shm")
_READ_AGAIN_AFTER_S: Final = 1.0
_SECOND_NS: Final = 1_000_000_000
_TICK_NS: Final = 50_000_000
"""Longer than a tick of any kernel's clock: two changes within one tick leave the same time."""
_COARSE_TICK_NS: Final = 3 * _SECOND_NS
"""The same for a file system that keeps whole seconds, or even ones."""


class _Folder(NamedTuple):
    """A folder, and when a name in it last began or ceased to mean a file."""

    device: int
    number: int
    changed_at_ns: int

    def is_at_rest(self) -> bool:
        """Return whether the next change will surely show."""
        tick_ns = _TICK_NS if self.changed_at_ns % _SECOND_NS else _COARSE_TICK_NS
        return time.time_ns() - self.changed_at_ns > tick_ns


class Place:
    """The files of one open database, as they were found when it was opened."""

    def __init__(self, path: str) -> None:
        """Look at the files; the database must be open, so that its log is there. No link may lead to it."""
        found = ((path + part, _identity(path + part)) for part in _PARTS)
        self._files = tuple((name, identity) for name, identity in found if identity is not None)
        self._folder = os.path.dirname(path)  # noqa: PTH120 (a Path would cost more than the question itself)
        self._at_rest: _Folder | None = None
        self._checked_at = time.monotonic()

    def check(self) -> None:
        """Raise `StorageFailure` unless every file is still where it was."""
        name = self._missing()
        if name is not None:
            raise StorageFailure(
                f"{name} was replaced, moved or deleted while the storage was open, so that nothing can be written. "
                "Put it back, or close the storage and open it again"
            )
        self._checked_at = time.monotonic()

    def is_as_it_was(self) -> bool:
        """Return whether every file is still where it was."""
        if self._missing() is not None:
            return False
        self._checked_at = time.monotonic()
        return True

    def check_sometimes(self) -> None:
        """Check if that was not done for a second: a reader may see the old file for so long."""
        if time.monotonic() - self._checked_at >= _READ_AGAIN_AFTER_S:
            self.check()

    def _missing(self) -> str | None:
        """Return the name of a file that is another one now. The folder is asked first: no change slips between."""
        folder = _look_at(self._folder)
        if folder is not None and folder == self._at_rest:
            return None
        name = next((name for name, identity in self._files if _identity(name) != identity), None)
        self._at_rest = folder if name is None and folder is not None and folder.is_at_rest() else None
        return name


def _look_at(folder: str) -> _Folder | None:
    try:
        status = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    return _Folder(status.st_dev, status.st_ino, status.st_mtime_ns)


def _identity(name: str) -> tuple[int, int] | None:
    try:
        status = os.stat(name)  # noqa: PTH116
    except OSError:
        return None
    return status.st_dev, status.st_ino
