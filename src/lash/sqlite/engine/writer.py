"""The one thread that writes, and the one connection, which the event loop may use while the thread rests."""

from __future__ import annotations

import contextlib
import copy
import enum
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future

import apsw

from lash.sqlite.engine.engine import Engine, Settings, open_engine
from lash.sqlite.engine.errors import in_our_terms
from lash.sqlite.engine.gil_yield import Lender
from lash.sqlite.engine.jobs import Work
from lash.sqlite.engine.transaction import Transaction


class _Call(enum.Enum):
    """What the thread may be asked for beside jobs."""

    STOP = enum.auto()
    TIDY = enum.auto()


class Writer:
    """Takes jobs in order, runs all that wait in one transaction, and answers after the commit."""

    def __init__(self, settings: Settings, lender: Lender, before_closing: Callable[[], None]) -> None:
        self.opened: Future[Engine] = Future()
        """Done when the database is usable, or with the reason why it is not."""
        self.ended: Future[None] = Future()
        """Done when the thread has closed its connection."""
        self._settings = settings
        self._before_closing = before_closing
        self._lender = lender
        self._group_limit = settings.options.group_limit
        self._jobs: queue.SimpleQueue[Work[Transaction] | _Call] = queue.SimpleQueue()
        self._stopping = False
        self._engine: Engine | None = None
        self._in_use = threading.Lock()
        self._on_the_way = 0
        # Marked as running, they cannot be cancelled by a caller that stops waiting for them.
        self.opened.set_running_or_notify_cancel()
        self.ended.set_running_or_notify_cancel()
        # A daemon: a program that ends without closing must not hang on this thread.
        self._thread = threading.Thread(target=self._main, name="lash-sqlite-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Work[Transaction]) -> None:
        """Queue a job. Every job queued before `stop` is run. Only on the loop's thread."""
        self._on_the_way += 1
        self._jobs.put(job)
        self._lender.expect()

    @property
    def is_busy(self) -> bool:
        """Whether something is under way to the thread, or back."""
        return self._on_the_way > 0

    @property
    def is_at_hand(self) -> bool:
        """Whether `serve_now` is worth trying: nothing is under way, and the disk is quick."""
        return self._engine is not None and not self._on_the_way and self._engine.commits_quickly

    def serve_now(self, batch: list[Work[Transaction]]) -> bool:
        """Run jobs here and answer them; return False, with nothing done, if that would mean to wait.

        Only on the loop's thread, and only when `is_at_hand`.
        """
        engine = self._engine
        if engine is None or not self._in_use.acquire(blocking=False):
            return False
        try:
            if not engine.try_turn():
                return False
            try:
                if not _run_now(engine, batch):
                    return False
            finally:
                engine.turns.give_back()
        finally:
            self._in_use.release()
        for job in batch:
            job.settle()
        if engine.is_untidy:
            self._jobs.put(_Call.TIDY)
        return True

    def stop(self) -> None:
        """Let the thread finish what is queued, then call ``before_closing``, close its connection and end."""
        self._jobs.put(_Call.STOP)

    def join(self) -> None:
        """Wait for the thread; it is about to end once `ended` is done."""
        self._thread.join()

    def _main(self) -> None:
        try:
            engine = open_engine(self._settings)
        except BaseException as error:  # noqa: BLE001
            self.opened.set_exception(in_our_terms(error, f"opening {self._settings.path or 'in memory'}"))
        else:
            self._engine = engine
            self.opened.set_result(engine)
            while self._serve_next(engine):
                pass
            self._close(engine)
        self.ended.set_result(None)
        self._lender.call_back()

    def _serve_next(self, engine: Engine) -> bool:
        """Serve one batch, after waiting for it; return False when the thread is to end.

        A function of its own, so that nothing of a batch stays in memory while the thread waits for the next.
        """
        batch = self._next_batch()
        with self._in_use:
            if batch:
                self._serve(engine, batch)
            elif not self._stopping:
                self._tidy(engine)
        return not self._stopping

    def _next_batch(self) -> list[Work[Transaction]]:
        """Return all jobs that wait now, after waiting for the first; empty when the thread is to end or to tidy."""
        batch: list[Work[Transaction]] = []
        with contextlib.suppress(queue.Empty):
            while not self._stopping and len(batch) < self._group_limit:
                job = self._jobs.get_nowait() if batch else self._jobs.get()
                if job is _Call.STOP:
                    self._stopping = True
                elif job is not _Call.TIDY:
                    batch.append(job)
                elif not batch:
                    break
        return batch

    def _tidy(self, engine: Engine) -> None:
        # A turn that cannot be had means that another process writes, which then tidies itself.
        with contextlib.suppress(Exception):
            engine.take_turn()
            try:
                engine.tidy()
            finally:
                engine.turns.give_back()

    def _serve(self, engine: Engine, batch: list[Work[Transaction]]) -> None:
        if all(job.abandoned for job in batch):
            self._answer(batch)
            return
        try:
            engine.take_turn()
        except Exception as error:  # noqa: BLE001
            for job in batch:
                # Each caller raises an exception of its own: a shared one would collect all their tracebacks.
                job.fail(copy.copy(error))
            self._answer(batch)
            return
        try:
            _run(engine, batch)
            self._answer(batch)
            engine.tidy()
        finally:
            engine.turns.give_back()

    def _answer(self, batch: list[Work[Transaction]]) -> None:
        self._lender.answer(lambda: self._settle(batch))

    def _settle(self, batch: list[Work[Transaction]]) -> None:
        self._lender.settled(len(batch))
        self._on_the_way -= len(batch)
        for job in batch:
            job.settle()

    def _close(self, engine: Engine) -> None:
        self._before_closing()
        with contextlib.suppress(apsw.Error):
            engine.close()


def _run(engine: Engine, batch: list[Work[Transaction]]) -> None:
    try:
        engine.run(batch)
    except BaseException as error:  # noqa: BLE001
        _fail(batch, error)


def _run_now(engine: Engine, batch: list[Work[Transaction]]) -> bool:
    try:
        return engine.run_now(batch)
    except BaseException as error:  # noqa: BLE001
        _fail(batch, error)
        return True


def _fail(batch: list[Work[Transaction]], error: BaseException) -> None:
    """Give every job this outcome: its caller would wait for ever if it had none."""
    for job in batch:
        job.fail(in_our_terms(error, "running a transaction"))
