"""The writing connection with its write lock, its file guard and its WAL checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import apsw

from lash.base.clock import Clock
from lash.sqlite.engine.connection import Prepare, open_memory, open_writer
from lash.sqlite.engine.file_guard import FileGuard
from lash.sqlite.engine.group_commit import GroupCommit
from lash.sqlite.engine.jobs import Job
from lash.sqlite.engine.options import SQLiteOptions
from lash.sqlite.engine.statements import Statements
from lash.sqlite.engine.transaction import Transaction
from lash.sqlite.engine.wal import WalCheckpointer
from lash.sqlite.engine.write_lock import NoWriteLock, ThreadWriteLock, WriteLock, open_write_lock


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What all parts of one database share."""

    path: str | None
    statements: Statements
    prepare: Prepare
    options: SQLiteOptions
    clock: Clock


class Engine:
    """The writing connection. The writer's thread uses it, and the event loop while that thread is idle."""

    def __init__(self, connection: apsw.Connection, write_lock: WriteLock, settings: Settings) -> None:
        self.connection = connection
        self.write_lock = write_lock
        self.file_guard = None if settings.path is None else FileGuard(settings.path)
        self._group_commit = GroupCommit(
            connection, settings.statements, settings.clock, loop_commit_ms=settings.options.loop_commit_ms
        )
        self._busy_timeout_ms = settings.options.busy_timeout_ms
        self._checkpointer = (
            None
            if settings.path is None
            else WalCheckpointer(connection, settings.path, settings.statements, settings.options)
        )

    def acquire(self) -> None:
        """Wait for the write lock, then check that the files are still the opened ones."""
        self.write_lock.acquire()
        try:
            if self.file_guard is not None:
                self.file_guard.check()
        except BaseException:
            self.write_lock.release()
            raise

    def try_acquire(self) -> bool:
        """Take the write lock without waiting; return False for any obstacle, whose error `acquire` raises."""
        if not self.write_lock.try_acquire():
            return False
        if self.file_guard is not None and not self.file_guard.is_unchanged():
            self.write_lock.release()
            return False
        return True

    def release(self) -> None:
        """Release the write lock."""
        self.write_lock.release()

    def run(self, jobs: Sequence[Job[Transaction]]) -> None:
        """Give every job its outcome, in as few transactions as possible."""
        self._group_commit.run(jobs)

    def run_now(self, jobs: Sequence[Job[Transaction]]) -> bool:
        """Give every job its outcome without waiting; return False, with nothing done, if the database is locked."""
        self.connection.set_busy_timeout(0)
        try:
            if not self._group_commit.try_begin():
                return False
        finally:
            self.connection.set_busy_timeout(self._busy_timeout_ms)
        self._group_commit.run(jobs, begun=True)
        return True

    @property
    def commits_quickly(self) -> bool:
        """Whether the last commits were so quick that the event loop may run the next one itself."""
        return self._group_commit.commits_quickly

    @property
    def is_log_due(self) -> bool:
        """Whether `maintain_log` has something to do."""
        return self._checkpointer is not None and self._checkpointer.is_due

    def maintain_log(self) -> None:
        """Copy the write-ahead log into the database if it has grown, and make space in it for the next commits.

        Call it after callers have their outcomes.
        """
        if self._checkpointer is not None:
            self._checkpointer.run_if_due()

    def close(self) -> None:
        """Close the connection; the last connection of all processes copies the log back and removes it."""
        try:
            self.connection.close()
        finally:
            self.write_lock.close()


def open_engine(settings: Settings) -> Engine:
    """Open and prepare the database while holding the write lock."""
    if settings.path is None:
        return Engine(open_memory(settings.options, settings.prepare), ThreadWriteLock(), settings)
    write_lock = _open_write_lock(settings.path, settings.options)
    try:
        write_lock.acquire()
        try:
            connection = open_writer(settings.path, settings.options, settings.prepare)
            write_lock.match_rights()
        finally:
            write_lock.release()
    except BaseException:
        write_lock.close()
        raise
    return Engine(connection, write_lock, settings)


def _open_write_lock(path: str, options: SQLiteOptions) -> WriteLock:
    if not options.fair_lock:
        return NoWriteLock()
    return open_write_lock(path, timeout_ms=options.busy_timeout_ms)
