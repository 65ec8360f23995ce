"""Noticing that the files of an open database are no longer the ones that carry its name.

A file that was replaced, moved or deleted stays usable to whoever has it open, and all that is written to it is
lost. The same holds for the log, and a second index of the log would let two processes overwrite each other. Asking
for the three costs a few microseconds.
"""

from __future__ import annotations

import os
import time
from typing import Final

from lash.errors import StorageFailure

_PARTS: Final = ("", "-wal", "-shm")
_READ_AGAIN_AFTER_S: Final = 1.0


class Place:
    """The files of one open database, as they were found when it was opened."""

    def __init__(self, path: str) -> None:
        """Look at the files; the database must be open, so that its log is there."""
        found = ((path + part, _identity(path + part)) for part in _PARTS)
        self._files = tuple((name, identity) for name, identity in found if identity is not None)
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
        return next((name for name, identity in self._files if _identity(name) != identity), None)


def _identity(name: str) -> tuple[int, int] | None:
    try:
        status = os.stat(name)  # noqa: PTH116 (a Path would cost more than the question itself)
    except OSError:
        return None
    return status.st_dev, status.st_ino
