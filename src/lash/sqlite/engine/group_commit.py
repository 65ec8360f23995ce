"""Group commit: several bodies in one transaction.

A savepoint around each body would keep a copy of every page that the body changes, which takes as long as the changes
themselves. Few bodies fail, and of these nearly all before they have written anything. So there are none at first; if
a body fails that has written, the transaction is given up and all run again, each in a savepoint of its own.
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Sequence
from typing import Final

import apsw

from lash.base.clock import Clock
from lash.sqlite.engine.errors import in_our_terms
from lash.sqlite.engine.jobs import Work
from lash.sqlite.engine.statements import Statements
from lash.sqlite.engine.transaction import Transaction

_QUICK_EACH_S: Final = 0.000_15
_QUICK_IN_A_ROW: Final = 3


class _Next(enum.Enum):
    """What is to be done after one body of a group has run."""

    GO_ON = enum.auto()
    LEAVE_OUT = enum.auto()
    """The transaction is gone or in doubt; the others run in a new one."""
    GUARD = enum.auto()
    """The transaction holds half of the body; all run in a new one, with savepoints."""


class BatchRunner:
    """Runs batches on the writer's connection; every job has its outcome when `run` returns."""

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
        """Whether the last few commits all took no longer than ``loop_commit_ms``, and a little for each body."""
        return self._quick_commits >= _QUICK_IN_A_ROW

    def try_begin(self) -> bool:
        """Begin a transaction for `run`, and return whether that was possible; the one to wait is not this one."""
        try:
            self._control("begin")
        except Exception:  # noqa: BLE001 (whoever tries again and waits will be told)
            self._abandon()
            return False
        return True

    def run(self, jobs: Sequence[Work[Transaction]], *, begun: bool = False) -> None:
        """Run and commit the jobs. A body that fails is undone alone.

        When SQLite gives the whole transaction up (disk full, I/O error), the body that it happened to fails and
        the others are run again in a new transaction. ``begun`` says that `try_begin` has begun the first one.
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
        self, jobs: Sequence[Work[Transaction]], *, begun: bool, guarded: bool = False
    ) -> Work[Transaction] | None:
        """Try to run and commit all of them; return the one to leave out if that needs a new transaction."""
        try:
            if not begun:
                self._control("begin")
        except Exception as error:  # noqa: BLE001
            self._abandon()
            for job in jobs:
                job.fail(in_our_terms(error, "beginning a transaction"))
            return None
        for job in jobs:
            step = _Next.GO_ON if job.abandoned else self._run_one(job, alone=len(jobs) == 1, guarded=guarded)
            if step is _Next.GO_ON:
                continue
            self._abandon()
            return self._attempt(jobs, begun=False, guarded=True) if step is _Next.GUARD else job
        self._commit(jobs)
        return None

    def _run_one(self, job: Work[Transaction], *, alone: bool, guarded: bool) -> _Next:
        """Run one job, and say what has become of the transaction."""
        changes = self._connection.total_changes()
        try:
            now_ms = self._clock.now_ms()
            if guarded:
                self._control("savepoint")
        except BaseException as error:  # noqa: BLE001
            job.fail(in_our_terms(error, "opening a savepoint"))
            return _Next.LEAVE_OUT
        transaction = Transaction(self._connection, self._statements, now_ms)
        try:
            job.attempt(transaction)
            transaction.check_not_lost()
            if guarded:
                self._control("release")
        except BaseException as error:  # noqa: BLE001
            job.fail(in_our_terms(error, "running a transaction"))
            if alone or self._connection.get_autocommit():
                return _Next.LEAVE_OUT
            if guarded:
                return _Next.GO_ON if self._undo() else _Next.LEAVE_OUT
            return _Next.GO_ON if self._connection.total_changes() == changes else _Next.GUARD
        finally:
            transaction.end()
        return _Next.GO_ON

    def _undo(self) -> bool:
        """Undo the present savepoint; return False when the whole transaction is in doubt."""
        try:
            self._control("rollback")
            self._control("release")
        except Exception:  # noqa: BLE001
            return False
        return True

    def _commit(self, jobs: Sequence[Work[Transaction]]) -> None:
        began = time.perf_counter()
        try:
            self._control("commit")
        except Exception as error:  # noqa: BLE001
            self._abandon()
            if isinstance(error, apsw.ConstraintError) and len(jobs) > 1:
                # A deferred foreign key does not say whose it is: each body gets a transaction of its own.
                for job in jobs:
                    self.run([job])
                return
            for job in jobs:
                if job.error is None:
                    job.fail(in_our_terms(error, "committing", at_commit=True))
        self._note_commit(time.perf_counter() - began, len(jobs))

    def _note_commit(self, taken_s: float, bodies: int) -> None:
        is_quick = self._loop_commit_s and taken_s <= self._loop_commit_s + _QUICK_EACH_S * bodies
        self._quick_commits = self._quick_commits + 1 if is_quick else 0

    def _abandon(self) -> None:
        """Leave no transaction open, whatever happened before."""
        if self._connection.get_autocommit():
            return
        with contextlib.suppress(Exception):
            self._statements.announce("rollback")
        with contextlib.suppress(apsw.Error):
            self._connection.execute("ROLLBACK")

    def _control(self, name: str) -> None:
        self._statements.control(self._connection, name)
