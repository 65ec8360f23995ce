"""Taking turns: who may write to the file now.

SQLite's own waiting is unfair: a process that writes without a pause can keep the others out for seconds. Here
a process takes two locks to write. ``<path>.turn`` is the place at the head of the queue, ``<path>.lock`` the
right to write. Whoever wants to write again has to take the place at the head first, and cannot while
another process stands there. So a writer with more to do lets the one that waits go first.

The kernel drops the locks of a process that dies. Deleting the files while the database is in use costs
fairness, not safety: SQLite's own locks still hold.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from typing import Protocol

from lash.errors import StorageFailure, StoreUnavailable

if sys.platform != "win32":
    import fcntl

_QUEUE_PAUSE = 0.0005
_HEAD_PAUSE = 0.0001


class Turns(Protocol):
    """The right to use the writer's connection."""

    def take(self) -> None:
        """Wait for the right; raise `StoreUnavailable` when it takes too long."""
        ...

    def try_take(self) -> bool:
        """Take the right if nobody has it and nobody waits for it, and return whether that was so."""
        ...

    def give_back(self) -> None: ...

    def close(self) -> None: ...


class NoTurns:
    """No waiting at all: SQLite's own locks decide."""

    def take(self) -> None: ...

    def try_take(self) -> bool:
        return True

    def give_back(self) -> None: ...

    def close(self) -> None: ...


class ThreadTurns:
    """Turns between the threads that share the one connection of a database in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def take(self) -> None:
        self._lock.acquire()

    def try_take(self) -> bool:
        return self._lock.acquire(blocking=False)

    def give_back(self) -> None:
        self._lock.release()

    def close(self) -> None: ...


if sys.platform == "win32":

    def open_turns(path: str, *, timeout_ms: int) -> Turns:  # noqa: ARG001
        """Windows has no ``flock``: processes are kept apart by SQLite's locks alone, safely but unfairly."""
        return NoTurns()

else:

    class FileTurns:
        """Turns between all processes, and all databases of one process, that write to one file."""

        def __init__(self, path: str, *, timeout_ms: int) -> None:
            self._path = path
            self._timeout_ms = timeout_ms
            self._head = _open_lock_file(path + ".turn")
            try:
                self._right = _open_lock_file(path + ".lock")
            except BaseException:
                os.close(self._head)
                raise
            self._closed = False
            _OPEN.add(self)

        def take(self) -> None:
            deadline = time.monotonic() + self._timeout_ms / 1000
            self._wait_for(self._head, deadline, _QUEUE_PAUSE)
            try:
                # Only one process is here at a time, so that it may ask often without disturbing the holder.
                self._wait_for(self._right, deadline, _HEAD_PAUSE)
            finally:
                fcntl.flock(self._head, fcntl.LOCK_UN)

        def try_take(self) -> bool:
            try:
                if not _try_lock(self._head):
                    return False
                try:
                    return _try_lock(self._right)
                finally:
                    fcntl.flock(self._head, fcntl.LOCK_UN)
            except StorageFailure:
                # Whoever waits for the right will be told.
                return False

        def give_back(self) -> None:
            fcntl.flock(self._right, fcntl.LOCK_UN)

        def close(self) -> None:
            if not self._closed:
                self._closed = True
                os.close(self._head)
                os.close(self._right)

        def _wait_for(self, descriptor: int, deadline: float, pause: float) -> None:
            while not _try_lock(descriptor):
                if time.monotonic() >= deadline:
                    raise StoreUnavailable(
                        f"{self._path} was in use by other writers for {self._timeout_ms} ms; try again later"
                    )
                time.sleep(pause)

    _OPEN: weakref.WeakSet[FileTurns] = weakref.WeakSet()

    def open_turns(path: str, *, timeout_ms: int) -> Turns:
        """Open the lock files beside the database, creating them where needed."""
        return FileTurns(path, timeout_ms=timeout_ms)

    def _open_lock_file(name: str) -> int:
        try:
            # Reading is enough to lock, and works for other users of a group that shares the database.
            return os.open(name, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageFailure(f"cannot open the lock file {name}: {error.strerror}") from error

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise StorageFailure(f"cannot lock: {error.strerror}") from error
        return True

    def _close_in_child() -> None:
        # A forked child shares the locks with its parent. Were it to keep the descriptors, a parent killed while
        # it writes would leave the file locked for as long as the child lives.
        for turns in list(_OPEN):
            with contextlib.suppress(OSError):
                turns.close()

    os.register_at_fork(after_in_child=_close_in_child)
