"""Group commit: several bodies share one transaction, and so one fsync.

A savepoint around each body would isolate their failures, but SQLite would copy every page that a body changes, which
takes as long as the changes themselves. Few bodies fail, and most of those fail before their first write. So the first
attempt has no savepoints. If a body fails after it has written, the transaction is rolled back and all bodies run
again, each in a savepoint of its own.
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Sequence
from typing import Final

import apsw

from lash.base.clock import Clock
from lash.sqlite.engine.errors import as_lash_error
from lash.sqlite.engine.jobs import Job
from lash.sqlite.engine.statements import Statements
from lash.sqlite.engine.transaction import Transaction

_QUICK_EACH_S: Final = 0.000_15
"""What a commit may take longer for each further body and still count as quick: their pages are written too."""
_QUICK_IN_A_ROW: Final = 3
"""How many quick commits show that the disk is fast; a single one may be luck."""


class _Next(enum.Enum):
    """The next step after one body of a group has run."""

    CONTINUE = enum.auto()
    LEAVE_OUT = enum.auto()
    """The transaction is lost or in doubt: run the others in a new one."""
    GUARD = enum.auto()
    """The transaction holds half of the body: run all in a new one, with savepoints."""


class GroupCommit:
    """Runs groups of jobs on the writer's connection; every job has its outcome when `run` returns."""

    def __init__(
        self, connection: apsw.Connection, statements: Statements, clock: Clock, *, loop_commit_ms: float = 0
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._clock = clock
        self._loop_commit_s = loop_commit_ms / 1000
        self._quick_commits = 0

    @property
    def commits_quickly(self) -> bool:
        """Whether each of the last commits took at most ``loop_commit_ms``, plus a little for each body."""
        return self._quick_commits >= _QUICK_IN_A_ROW

    def try_begin(self) -> bool:
        """Begin a transaction for `run`; return False instead of blocking if the database is locked."""
        try:
            self._control("begin")
        except Exception:  # noqa: BLE001 (the retry that waits for the lock raises it)
            self._abandon()
            return False
        return True

    def run(self, jobs: Sequence[Job[Transaction]], *, begun: bool = False) -> None:
        """Run and commit the jobs. A body that fails is undone alone.

        When SQLite rolls the whole transaction back (disk full, I/O error), the body that caused it fails and the
        others run again in a new transaction. ``begun`` means that `try_begin` has begun the first one.
        """
        waiting = list(jobs)
        try:
            while waiting and (culprit := self._attempt(waiting, begun=begun)):
                waiting.remove(culprit)
                begun = False
        except BaseException:
            self._abandon()
            raise

    def _attempt(
        self, jobs: Sequence[Job[Transaction]], *, begun: bool, guarded: bool = False
    ) -> Job[Transaction] | None:
        """Run and commit all of them; return the one to leave out if the others need a new transaction."""
        try:
            if not begun:
                self._control("begin")
        except Exception as error:  # noqa: BLE001
            self._abandon()
            for job in jobs:
                job.fail(as_lash_error(error, "beginning a transaction"))
            return None
        for job in jobs:
            step = _Next.CONTINUE if job.is_cancelled else self._run_one(job, alone=len(jobs) == 1, guarded=guarded)
            if step is _Next.CONTINUE:
                continue
            self._abandon()
            return self._attempt(jobs, begun=False, guarded=True) if step is _Next.GUARD else job
        self._commit(jobs)
        return None

    def _run_one(self, job: Job[Transaction], *, alone: bool, guarded: bool) -> _Next:
        """Run one job and return the next step for the transaction."""
        changes = self._connection.total_changes()
        try:
            now_ms = self._clock.now_ms()
            if guarded:
                self._control("savepoint")
        except BaseException as error:  # noqa: BLE001
            job.fail(as_lash_error(error, "opening a savepoint"))
            return _Next.LEAVE_OUT
        transaction = Transaction(self._connection, self._statements, now_ms)
        try:
            job.attempt(transaction)
            transaction.check_not_lost()
            if guarded:
                self._control("release")
        except BaseException as error:  # noqa: BLE001
            job.fail(as_lash_error(error, "running a transaction"))
            if alone or self._connection.get_autocommit():
                return _Next.LEAVE_OUT
            if guarded:
                return _Next.CONTINUE if self._undo() else _Next.LEAVE_OUT
            return _Next.CONTINUE if self._connection.total_changes() == changes else _Next.GUARD
        finally:
            transaction.end()
        return _Next.CONTINUE

    def _undo(self) -> bool:
        """Roll back to the savepoint; return False if the whole transaction is in doubt."""
        try:
            self._control("rollback")
            self._control("release")
        except Exception:  # noqa: BLE001
            return False
        return True

    def _commit(self, jobs: Sequence[Job[Transaction]]) -> None:
        began = time.perf_counter()
        try:
            self._control("commit")
        except Exception as error:  # noqa: BLE001
            self._abandon()
            if isinstance(error, apsw.ConstraintError) and len(jobs) > 1:
                # The error of a deferred foreign key does not name the body: give each one its own transaction.
                for job in jobs:
                    self.run([job])
                return
            for job in jobs:
                if job.error is None:
                    job.fail(as_lash_error(error, "committing", at_commit=True))
        self._note_commit(time.perf_counter() - began, len(jobs))

    def _note_commit(self, taken_s: float, bodies: int) -> None:
        is_quick = self._loop_commit_s and taken_s <= self._loop_commit_s + _QUICK_EACH_S * bodies
        self._quick_commits = self._quick_commits + 1 if is_quick else 0

    def _abandon(self) -> None:
        """Leave no transaction open, whatever failed before."""
        if self._connection.get_autocommit():
            return
        with contextlib.suppress(Exception):
            self._statements.announce("rollback")
        with contextlib.suppress(apsw.Error):
            self._connection.execute("ROLLBACK")

    def _control(self, name: str) -> None:
        self._statements.control(self._connection, name)
