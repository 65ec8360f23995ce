"""An event loop in a thread, from its start to its end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from lash.base.calls import Answer, Call, LoopAnswer
from lash.base.in_place import Admission, InPlaceLoop
from lash.errors import ConfigError, LashError, StorageClosed

leaving: Final[set[LoopThread]] = set()
"""Threads that are ending and that only the exit of the interpreter waits for."""


class LoopThread:
    """One event loop in one thread, from its start to its end."""

    def __init__(self, name: str, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._new_loop = new_loop
        self._admission = Admission()
        self._sent: deque[Callable[[], object]] = deque()
        """What was sent to the loop and has not started there."""
        self._process = os.getpid()
        # Reentrant: the garbage collector may run, and call abandon, while this thread holds it.
        self._guard = threading.RLock()
        self._accepting = True
        self._answers: set[Answer] = set()
        began: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(began,), name=name, daemon=True)
        self._thread.start()
        self._loop = began.result()

    @property
    def is_current(self) -> bool:
        running = asyncio._get_running_loop()  # noqa: SLF001 (None instead of an error)
        return threading.current_thread() is self._thread if running is None else running is self._loop

    @property
    def is_here(self) -> bool:
        """Whether this is the process that started the thread; a fork does not have it."""
        return os.getpid() == self._process

    def call(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        closed: Callable[[], LashError],
    ) -> Any:  # noqa: ANN401 (whatever the function returns)
        answer: concurrent.futures.Future[Any] = concurrent.futures.Future()
        call = self._begin(Call(function, args, kwargs, answer), closed)
        try:
            return answer.result()
        except asyncio.CancelledError:
            if self._accepting:
                raise
            raise closed() from None
        except BaseException:
            if not answer.done():
                # The wait was interrupted, as by Ctrl-C: cancel the call before the error leaves.
                self._cancel(call)
                concurrent.futures.wait({answer})
            raise
        finally:
            with self._guard:
                self._answers.discard(answer)
            # An error refers to this frame; deleting these avoids a reference cycle.
            del answer, call

    async def await_call(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        closed: Callable[[], LashError],
        *,
        may_run_here: bool = False,
    ) -> Any:  # noqa: ANN401 (whatever the function returns)
        may_run_here = may_run_here and await self._admission.may_try()
        answer = LoopAnswer()
        call = Call(function, args, kwargs, answer)
        if not (may_run_here and self._begin_here(call, answer)):
            self._begin(call, closed)
        if not answer.has_arrived:
            self._admission.note_gone(answer)
        cancelled: asyncio.CancelledError | None = None
        try:
            while not answer.has_arrived:
                try:
                    await answer.arrival()
                except asyncio.CancelledError as error:
                    # Raised below, once the call has ended: until then it may still write.
                    cancelled = error
                    self._cancel(call)
            if cancelled is not None:
                raise cancelled
            return answer.result()
        except asyncio.CancelledError:
            if self._accepting or cancelled is not None:
                raise
            raise closed() from None
        finally:
            if not answer.has_arrived:
                # The caller's event loop is being closed.
                self._cancel(call)
            with self._guard:
                self._answers.discard(answer)
            self._admission.note_ended(answer)
            del answer, call, cancelled

    def send(self, function: Callable[[], object], closed: Callable[[], LashError]) -> None:
        context = contextvars.copy_context()
        self._send(lambda: context.run(function), closed)

    def stop(self) -> None:
        if not self.is_here:
            return
        self._stop_accepting()
        if not self.is_current:
            self._thread.join()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def abandon(self, farewell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the farewell and end the thread, without waiting: the garbage collector may call this anywhere."""

        async def part() -> None:
            try:
                await farewell()
            finally:
                self._stop_accepting()

        def begin() -> None:
            self._parting = self._loop.create_task(part())

        leaving.add(self)
        try:
            self._send(begin, StorageClosed)
        except LashError:
            # The thread is ending already, or this is a fork, which does not have it.
            leaving.discard(self)

    def _stop_accepting(self) -> None:
        with self._guard:
            if self._accepting:
                self._accepting = False
                # Runs after every accepted call has started, so that it is cancelled with the rest.
                self._loop.call_soon_threadsafe(self._stopping.set)

    def _begin(self, call: Call, closed: Callable[[], LashError]) -> Call:
        answer = call.answer
        with self._guard:
            self._send(call.begin, closed)
            self._answers.add(answer)
        return call

    def _begin_here(self, call: Call, answer: LoopAnswer) -> bool:
        """Begin a call in this thread, unless it would wait for the loop or overtake another call."""
        loop = self._loop
        if not isinstance(loop, InPlaceLoop) or self._sent or not self.is_here:
            return False
        # Checked while the loop cannot end.
        answer.is_here = True
        has_begun = loop.try_in_place(lambda: call.begin() if self._accepting and not self._sent else None)
        answer.is_here = False
        return has_begun

    def _cancel(self, call: Call) -> None:
        with contextlib.suppress(StorageClosed):
            self._send(call.cancel, StorageClosed)

    def _send(self, begin: Callable[[], object], closed: Callable[[], LashError]) -> None:
        if not self.is_here:
            raise ConfigError("this was opened before the process forked; fork before you open it")
        with self._guard:
            if not self._accepting:
                raise closed()
            self._sent.append(begin)
            try:
                self._loop.call_soon_threadsafe(self._start_sent)
            except RuntimeError:
                # The loop has just ended on its own.
                raise closed() from None

    def _start_sent(self) -> None:
        self._sent.popleft()()

    def _run(self, began: concurrent.futures.Future[asyncio.AbstractEventLoop]) -> None:
        async def live() -> None:
            self._stopping = asyncio.Event()
            began.set_result(asyncio.get_running_loop())
            await self._stopping.wait()

        try:
            with asyncio.Runner(loop_factory=self._new_loop) as runner:
                try:
                    runner.run(live())
                finally:
                    self._end_calls(runner.get_loop())
        except BaseException as error:
            if not began.done():
                began.set_exception(error)
                return
            # A callback that exits the program, as sys.exit does, ends this thread; its callers must not wait forever.
            if not isinstance(error, KeyboardInterrupt | SystemExit):
                raise
        finally:
            leaving.discard(self)
            with self._guard:
                self._accepting = False
                for answer in self._answers:
                    # Calls that came too late to start; all others have their answer.
                    if not answer.done():
                        answer.set_exception(asyncio.CancelledError())

    def _end_calls(self, loop: asyncio.AbstractEventLoop) -> None:
        """Refuse further calls, and cancel the ones in flight, even if the loop ended on its own."""
        with self._guard:
            self._accepting = False
        # Calls that were sent start in the next iteration; closing the loop before would leave a task half made.
        loop.run_until_complete(asyncio.sleep(0))
        while tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
