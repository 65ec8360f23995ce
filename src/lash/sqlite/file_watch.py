"""Noticing what other processes write to a file without a datagram, on behalf of all tasks that wait."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from lash.backend.hints import LocalHints, LocalListener
from lash.errors import LashError
from lash.sqlite.engine.database import Database
from lash.sqlite.write_marks import WriteMarks
from lash.sqlkit.rows import Number
from lash.stores.hints import Hint

_BUSY_FOR_S: Final = 1.0
"""How long after a commit the next one is expected soon."""
_POLL_BUSY_S: Final = 0.005
"""A poll takes microseconds; more frequent wake-ups would cost more than they gain in latency."""
_POLL_IDLE_S: Final = 0.025
"""An idle worker wakes 40 times a second, which `top` shows as 0 %."""
_GRACE_S: Final = 0.05
"""How long before or after its announcement a change may be seen: the sender may have to wait for the processor."""
_STRANGE_FOR_S: Final = 10.0
"""How long after a change without an announcement all changes give hints, because announcements may hide more.

As long after a mark of another group of processes, the next one is expected soon.
"""


class FileListener(LocalListener):
    """A listener that remembers which version of the file it has seen.

    The version is None before the first wait, which then returns at once, and after the file could not be read.
    """

    def __init__(self, hints: LocalHints, file: FileWatch, *, everything: bool, work: bool, by_session: bool) -> None:
        super().__init__(hints, everything=everything, work=work, by_session=by_session)
        self._file = file
        self._version: int | None = None
        self._last_change: int | None = None
        self._news = file.news
        if by_session:
            # Its first hint would otherwise be about any session.
            self._note_version()

    def begin_waiting(self) -> None:
        if self._file.is_for_workers or not self.work or not self._file.is_announced:
            self._file.watch(self)

    def end_waiting(self) -> None:
        self._file.unwatch(self)

    def catch_up(self, hint: Hint) -> Hint:
        """Take the current version as seen, and return a hint about everything that may be in it.

        A version says nothing about sessions: it may hold commits of other processes beside the one that is named.
        Hints by session leave it unseen; the next poll then gives a hint about any session.
        """
        if not self._file.durable or self._file.is_announced or (self.by_session and hint.changed is not None):
            return hint
        self._note_version()
        return hint._replace(process=True, queued=None, changed=None, processes=None, ended=None)

    def _note_version(self) -> None:
        if self._file.durable:
            try:
                self.has_missed(self._file.version())
            except LashError:
                self._version = self._last_change = None

    def is_due(self) -> bool:
        """Return whether the file may have changed without an announcement since the last call."""
        news, self._news = self._news, self._file.news
        return news != self._news or not self._file.is_announced

    def has_missed(self, version: int) -> bool:
        """Return whether this version of the file holds news for this listener, and note the version."""
        if version == self._version:
            return False
        # Most commits concern no process, and this read is cheaper than asking for everything that tasks wait for.
        any_change = self.everything or self.work
        last_change = None if any_change else self._file.last_change(version)
        is_new = any_change or last_change != self._last_change
        self._version, self._last_change = version, last_change
        return is_new


class FileWatch:
    """The one timer that polls the file for changes, for all listeners that wait.

    If writes are announced, a change is news if a process that cannot send a datagram here has marked it
    (`write_marks`), or if it has neither a mark nor an announcement and is thus of another program.
    """

    def __init__(self, database: Database, marks: WriteMarks | None) -> None:
        self._database = database
        self._marks = marks
        self._watching: set[FileListener] = set()
        self._timer: asyncio.Handle | None = None
        self._version: int | None = None
        self._changed_at = 0.0
        self._read_at_version: int | None = None
        self._last_change = 0
        self.is_announced = False
        """Whether this storage receives announcements of writes."""
        self.is_for_workers = True
        """Whether the listeners for work are to notice changes without an announcement."""
        self.news = 0
        """Counts the changes without an announcement."""
        self._announced_at = 0.0
        self._polled_at = 0.0
        self._polled_version: int | None = None
        self._unexplained_at: float | None = None
        self._strange_until = 0.0
        self._marked_until = 0.0

    @property
    def durable(self) -> bool:
        """Whether other processes can write; a database in memory has one storage."""
        return self._database.durable

    def note_announced(self) -> None:
        """Note that a write was announced, or that this storage wrote."""
        self._announced_at = time.monotonic()

    def version(self) -> int:
        """Return a number that changes with every commit."""
        version = self._database.data_version()
        if version != self._version:
            self._version, self._changed_at = version, time.monotonic()
        return version

    def last_change(self, version: int) -> int:
        """Return the sequence of the newest change of a process; it is read once for each version."""
        if version != self._read_at_version:
            last = self._database.read(lambda reader: reader.one(Number, "process_last_change"))
            self._read_at_version, self._last_change = version, 0 if last is None else last.number
        return self._last_change

    def watch(self, listener: FileListener) -> None:
        """Give the listener a hint once the file has changed."""
        if self.durable:
            self._watching.add(listener)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_soon(self._tick)

    def unwatch(self, listener: FileListener) -> None:
        """Stop giving it hints; the timer ends with the last listener."""
        self._watching.discard(listener)
        if self._timer is not None and not self._watching:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        try:
            self._poll()
        finally:
            # Even after an unexpected error: it must not end the polling.
            now = time.monotonic()
            is_relied_on = not self.is_announced or now < max(self._strange_until, self._marked_until)
            is_busy = is_relied_on and now - self._changed_at < _BUSY_FOR_S
            pause_s = _POLL_BUSY_S if is_busy else _POLL_IDLE_S
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._tick)

    def _poll(self) -> None:
        try:
            version = self.version()
            self._count_news(version)
            for listener in self._watching:
                if listener.is_due() and listener.has_missed(version):
                    listener.hint()
        except LashError:
            # The tasks that wake now get the same error from their own reads, and can decide what to do.
            for listener in self._watching:
                listener.hint()

    def _count_news(self, version: int) -> None:
        if not self.is_announced:
            return
        # A mark follows its write within milliseconds.
        is_idle = time.monotonic() >= self._changed_at + _STRANGE_FOR_S
        if self._marks is not None and not is_idle and self._marks.has_news():
            self.note_announced()
            self._marked_until = self._announced_at + _STRANGE_FOR_S
            self.news += 1
        self.news += self._is_unexplained(version)

    def _is_unexplained(self, version: int) -> bool:
        """Return whether the file may have changed in a way that was neither announced nor marked."""
        now, since = time.monotonic(), self._polled_at
        is_first, is_new = self._polled_version is None, version != self._polled_version
        self._polled_at, self._polled_version = now, version
        if is_new and not is_first and self._unexplained_at is None and self._announced_at < since - _GRACE_S:
            self._unexplained_at = now
        is_strange = now < self._strange_until
        if self._unexplained_at is not None and self._announced_at >= self._unexplained_at - _GRACE_S:
            self._unexplained_at = None
        elif self._unexplained_at is not None and now >= self._unexplained_at + _GRACE_S:
            self._unexplained_at, self._strange_until = None, now + _STRANGE_FOR_S
            return True
        return is_new and (is_first or is_strange)
