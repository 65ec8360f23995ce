"""The write lock of a database file: which process may write now, in a fair order.

SQLite's own waiting is unfair: a process that writes without a pause can keep the others out for seconds. Here a
process needs two lock files to write. ``<path>.turn`` is the head of the queue, ``<path>.lock`` the write lock itself.
A process holds the head while it waits for the write lock, and a process that wants to write again needs the head
first. So a writer with more to do lets the waiting process go first.

Only users who may write the database can open the files (`lock_file`). What is in them does not matter to the lock;
``<path>.turn`` also holds marks of writes.
The kernel drops the locks of a process that dies. Deleting the files while the database is in use costs fairness, not
safety: SQLite's own locks still hold.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from typing import Final, Protocol

from lash.base.file_rights import rights_of
from lash.errors import StorageFailure, StoreUnavailable

if sys.platform != "win32":
    import fcntl

    from lash.sqlite.engine.lock_file import match_rights, open_lock_file

_QUEUE_PAUSE_S: Final = 0.0005
"""The pause between two tries for the head of the queue: many processes may try, so not often."""
_HEAD_PAUSE_S: Final = 0.0001
"""The pause between two tries for the write lock: only the head of the queue tries, so it may try often."""


class WriteLock(Protocol):
    """The right to write to a database."""

    def acquire(self) -> None:
        """Wait for the lock; raise `StoreUnavailable` after the timeout."""
        ...

    def try_acquire(self) -> bool:
        """Take the lock and return True if it is free and no other process waits for it; never wait."""
        ...

    def release(self) -> None: ...

    def match_rights(self) -> None:
        """Open the lock to the users who may write the database, which exists by now."""
        ...

    def close(self) -> None: ...


class NoWriteLock:
    """No lock: SQLite's own locks decide."""

    def acquire(self) -> None: ...

    def try_acquire(self) -> bool:
        return True

    def release(self) -> None: ...

    def match_rights(self) -> None: ...

    def close(self) -> None: ...


class ThreadWriteLock:
    """A lock between the threads that share the one connection of a database in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self) -> None:
        self._lock.acquire()

    def try_acquire(self) -> bool:
        return self._lock.acquire(blocking=False)

    def release(self) -> None:
        self._lock.release()

    def match_rights(self) -> None: ...

    def close(self) -> None: ...


if sys.platform == "win32":

    def open_write_lock(path: str, *, timeout_ms: int) -> WriteLock:  # noqa: ARG001
        """Return no lock: Windows has no ``flock``, so SQLite's own locks decide, safely but unfairly."""
        return NoWriteLock()

else:

    class FileWriteLock:
        """A lock between all processes, and all databases of one process, that write to one file."""

        def __init__(self, path: str, *, timeout_ms: int) -> None:
            self._path = path
            self._timeout_ms = timeout_ms
            database = rights_of(path)
            self._head = open_lock_file(path + ".turn", database)
            try:
                self._write = open_lock_file(path + ".lock", database)
            except BaseException:
                os.close(self._head)
                raise
            self._closed = False
            _OPEN.add(self)
            self.match_rights()

        def acquire(self) -> None:
            deadline = time.monotonic() + self._timeout_ms / 1000
            self._wait_for(self._head, deadline, _QUEUE_PAUSE_S)
            try:
                # Only the head of the queue is here, so it may try often without disturbing the holder.
                self._wait_for(self._write, deadline, _HEAD_PAUSE_S)
            finally:
                fcntl.flock(self._head, fcntl.LOCK_UN)

        def try_acquire(self) -> bool:
            try:
                if not _try_lock(self._head):
                    return False
                try:
                    return _try_lock(self._write)
                finally:
                    fcntl.flock(self._head, fcntl.LOCK_UN)
            except StorageFailure:
                # `acquire` raises it.
                return False

        def release(self) -> None:
            fcntl.flock(self._write, fcntl.LOCK_UN)

        def match_rights(self) -> None:
            database = rights_of(self._path)
            if database is not None:
                for descriptor in (self._head, self._write):
                    match_rights(descriptor, database)

        def close(self) -> None:
            if not self._closed:
                self._closed = True
                os.close(self._head)
                os.close(self._write)

        def _wait_for(self, descriptor: int, deadline: float, pause: float) -> None:
            while not _try_lock(descriptor):
                if time.monotonic() >= deadline:
                    raise StoreUnavailable(
                        f"{self._path} was locked by other writers for {self._timeout_ms} ms; try again later"
                    )
                time.sleep(pause)

    _OPEN: weakref.WeakSet[FileWriteLock] = weakref.WeakSet()

    def open_write_lock(path: str, *, timeout_ms: int) -> WriteLock:
        """Open the lock files beside the database, creating them where needed."""
        return FileWriteLock(path, timeout_ms=timeout_ms)

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise StorageFailure(f"cannot lock: {error.strerror}") from error
        return True

    def _close_in_child() -> None:
        # A forked child shares the locks of its parent. If it kept the descriptors, a parent killed while it writes
        # would leave the file locked for as long as the child lives.
        for write_lock in list(_OPEN):
            with contextlib.suppress(OSError):
                write_lock.close()

    os.register_at_fork(after_in_child=_close_in_child)
