"""Space in the write-ahead log: commits overwrite zeros instead of making the file longer.

When a file has grown, its fsync also writes the new length and the new blocks, which takes the file system about as
long again. SQLite uses the log again after a checkpoint, so a log of full length no longer grows. A storage that was
just opened begins with an empty log; the writer's thread therefore fills it with zeros ahead of the commits.

SQLite ignores what follows the last valid frame of the log: after a checkpoint, frames of before are there. So zeros
change nothing for readers, for other programs, and after a crash.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from typing import Final

import apsw

from lash.sqlite.engine.options import SQLiteOptions

_LOG = logging.getLogger(__name__)

_HEADER: Final = 32
_FRAME_HEADER: Final = 24
"""The header of the log, and that of each page in it."""
_FLAGS: Final = os.O_RDWR | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_LEAST: Final = 256 * 1024
_MOST: Final = 1024 * 1024
"""The log is doubled, within these limits: a program that writes little has a short one."""
_LEFT: Final = 96 * 1024
"""The log is made longer before these last bytes are used, some eight commits later."""


class LogSpace:
    """Makes the log of one database longer, up to the length at which it is copied into the database."""

    def __init__(self, connection: apsw.Connection, path: str, options: SQLiteOptions) -> None:
        self._connection = connection
        self._log = f"{path}-wal"
        self._options = options
        self._frame = 0
        self._pages = 0
        self._end = 0
        """How long the file is at least."""
        # Without an fsync for each commit there is nothing to gain.
        self._is_given_up = options.synchronous != "full"

    def note(self, pages: int) -> None:
        """Note how many pages the log holds after a commit."""
        if pages < self._pages:
            # It began again; another process may have emptied it.
            self._end = 0
            self._is_given_up = self._options.synchronous != "full"
        self._pages = pages

    @property
    def is_due(self) -> bool:
        """Whether little space is left, and the log is shorter than it becomes anyway."""
        return not self._is_given_up and self._end < self._wanted()

    def make(self) -> None:
        """Make the log longer, on the writer's thread and under the write lock. A failure only costs speed."""
        try:
            log = os.open(self._log, _FLAGS)
            try:
                self._end = self._alone(lambda: self._extended(log))
                os.fsync(log)
            finally:
                os.close(log)
        except (apsw.Error, OSError) as error:
            _LOG.debug("%s was not made longer: %s", self._log, error)
            # It is tried again when the log begins again.
            self._is_given_up = True
            # A transaction that stays open would fail the next write.
            with contextlib.suppress(apsw.Error):
                self._roll_back()

    def _alone(self, extended: Callable[[], int]) -> int:
        """Call the function while no program can append to the log, also none without lash's write lock."""
        self._connection.set_busy_timeout(0)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            return extended()
        finally:
            self._roll_back()
            self._connection.set_busy_timeout(self._options.busy_timeout_ms)

    def _roll_back(self) -> None:
        if not self._connection.get_autocommit():
            self._connection.execute("ROLLBACK")

    def _wanted(self) -> int:
        """Return how long the log should be at least."""
        if not self._frame:
            self._frame = _FRAME_HEADER + int(self._connection.pragma("page_size"))
        return min(self._bytes(self._pages) + _LEFT, self._bytes(self._options.checkpoint_pages))

    def _bytes(self, pages: int) -> int:
        return _HEADER + pages * self._frame

    def _extended(self, log: int) -> int:
        """Add zeros to the end of the log, and return its length."""
        # Not `stat`: reading the times of the log makes its next fsync slower (`file_guard`).
        end = os.lseek(log, 0, os.SEEK_END)
        if end >= self._wanted():
            return end
        doubled = end + min(max(end, _LEAST), _MOST)
        target = min(max(doubled, self._wanted()), self._bytes(self._options.checkpoint_pages))
        try:
            return end + os.write(log, bytes(target - end))
        except OSError:
            # A full disk: the space is left to the commits.
            os.ftruncate(log, end)
            raise
