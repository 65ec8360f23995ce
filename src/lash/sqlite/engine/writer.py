"""The writer's thread and its connection, which the event loop may use while the thread is idle."""

from __future__ import annotations

import contextlib
import copy
import enum
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import apsw

from lash.sqlite.engine.engine import Engine, Settings, open_engine
from lash.sqlite.engine.errors import as_lash_error
from lash.sqlite.engine.gil_yield import GilYield
from lash.sqlite.engine.jobs import Job
from lash.sqlite.engine.transaction import Transaction


class _Request(enum.Enum):
    """Requests to the thread other than jobs."""

    STOP = enum.auto()
    LOG = enum.auto()


class Writer:
    """Takes jobs in order, runs all waiting ones in one transaction, and delivers their outcomes after the commit."""

    def __init__(self, settings: Settings, gil_yield: GilYield, before_closing: Callable[[], None]) -> None:
        self.opened: Future[Engine] = Future()
        """Done when the database is usable; failed with the reason if it is not."""
        self.ended: Future[None] = Future()
        """Done when the thread has closed its connection."""
        self._settings = settings
        self._before_closing = before_closing
        self._gil_yield = gil_yield
        self._group_limit = settings.options.group_limit
        self._jobs: queue.SimpleQueue[Job[Transaction] | _Request] = queue.SimpleQueue()
        self._stopping = False
        self._engine: Engine | None = None
        self._connection_lock = threading.Lock()
        self._in_flight = 0
        # Futures that are marked as running cannot be cancelled by a caller that stops waiting for them.
        self.opened.set_running_or_notify_cancel()
        self.ended.set_running_or_notify_cancel()
        # A daemon thread: a program that exits without closing the storage must not hang on it.
        self._thread = threading.Thread(target=self._main, name="lash-sqlite-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Job[Transaction]) -> None:
        """Queue a job. Every job queued before `stop` is run. Only on the loop's thread."""
        self._in_flight += 1
        self._jobs.put(job)
        self._gil_yield.expect()

    @property
    def is_busy(self) -> bool:
        """Whether jobs are on their way to the thread, or their outcomes on their way back."""
        return self._in_flight > 0

    @property
    def can_run_inline(self) -> bool:
        """Whether `run_inline` is worth trying: no job is in flight, and the last commits were quick."""
        return self._engine is not None and not self._in_flight and self._engine.commits_quickly

    def run_inline(self, group: list[Job[Transaction]]) -> bool:
        """Run jobs on the calling thread and deliver their outcomes; return False, with nothing done, if it must wait.

        Only on the loop's thread, and only when `can_run_inline`.
        """
        engine = self._engine
        if engine is None or not self._connection_lock.acquire(blocking=False):
            return False
        try:
            if not engine.try_acquire():
                return False
            try:
                if not _run_now(engine, group):
                    return False
            finally:
                engine.release()
        finally:
            self._connection_lock.release()
        for job in group:
            job.deliver()
        if engine.is_log_due:
            self._jobs.put(_Request.LOG)
        return True

    @contextlib.contextmanager
    def between_writes(self) -> Iterator[bool]:
        """Hold the connection for a short read of the calling thread; False if a transaction has it or needs it soon.

        Only on the loop's thread.
        """
        is_held = not self._in_flight and self._connection_lock.acquire(blocking=False)
        try:
            yield is_held
        finally:
            if is_held:
                self._connection_lock.release()

    def stop(self) -> None:
        """Let the thread finish what is queued, then call ``before_closing``, close its connection and end."""
        self._jobs.put(_Request.STOP)

    def join(self) -> None:
        """Wait for the thread; it is about to end once `ended` is done."""
        self._thread.join()

    def _main(self) -> None:
        try:
            engine = open_engine(self._settings)
        except BaseException as error:  # noqa: BLE001
            self.opened.set_exception(as_lash_error(error, f"opening {self._settings.path or 'in memory'}"))
        else:
            self._engine = engine
            self.opened.set_result(engine)
            while self._run_next(engine):
                pass
            self._close(engine)
        self.ended.set_result(None)
        self._gil_yield.end_wait()

    def _run_next(self, engine: Engine) -> bool:
        """Wait for a group of jobs and run it; return False when the thread should end.

        A separate function, so that no local variable keeps a group alive while the thread waits for the next.
        """
        group = self._next_group()
        with self._connection_lock:
            if group:
                self._run_group(engine, group)
            elif not self._stopping:
                self._maintain_log(engine)
        return not self._stopping

    def _next_group(self) -> list[Job[Transaction]]:
        """Wait for a job and return all that are queued; an empty group means to stop, or to maintain the log."""
        group: list[Job[Transaction]] = []
        with contextlib.suppress(queue.Empty):
            while not self._stopping and len(group) < self._group_limit:
                job = self._jobs.get_nowait() if group else self._jobs.get()
                if job is _Request.STOP:
                    self._stopping = True
                elif job is not _Request.LOG:
                    group.append(job)
                elif not group:
                    break
        return group

    def _maintain_log(self, engine: Engine) -> None:
        # If the lock cannot be had, another process is writing and will do it itself.
        with contextlib.suppress(Exception):
            engine.acquire()
            try:
                engine.maintain_log()
            finally:
                engine.release()

    def _run_group(self, engine: Engine, group: list[Job[Transaction]]) -> None:
        if all(job.is_cancelled for job in group):
            self._deliver_soon(group)
            return
        try:
            engine.acquire()
        except Exception as error:  # noqa: BLE001
            for job in group:
                # Each caller raises its own copy: a shared exception would collect the tracebacks of all.
                job.fail(copy.copy(error))
            self._deliver_soon(group)
            return
        try:
            _run(engine, group)
            self._deliver_soon(group)
            engine.maintain_log()
        finally:
            engine.release()

    def _deliver_soon(self, group: list[Job[Transaction]]) -> None:
        self._gil_yield.deliver(lambda: self._deliver(group))

    def _deliver(self, group: list[Job[Transaction]]) -> None:
        self._gil_yield.finished(len(group))
        self._in_flight -= len(group)
        for job in group:
            job.deliver()

    def _close(self, engine: Engine) -> None:
        self._before_closing()
        with contextlib.suppress(apsw.Error):
            engine.close()


def _run(engine: Engine, group: list[Job[Transaction]]) -> None:
    try:
        engine.run(group)
    except BaseException as error:  # noqa: BLE001
        _fail(group, error)


def _run_now(engine: Engine, group: list[Job[Transaction]]) -> bool:
    try:
        return engine.run_now(group)
    except BaseException as error:  # noqa: BLE001
        _fail(group, error)
        return True


def _fail(group: list[Job[Transaction]], error: BaseException) -> None:
    """Give every job this outcome; a caller whose job had none would wait forever."""
    for job in group:
        job.fail(as_lash_error(error, "running a transaction"))
