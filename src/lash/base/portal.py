"""An event loop in a thread of its own, and calls into it from other threads and other event loops."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import contextvars
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from lash.errors import ConfigError, LashError, StorageClosed

T = TypeVar("T")

_LAST_WORD_S: Final = 5.0
"""How long the interpreter waits at exit for each thread to close its object."""
_open_portals: Final[weakref.WeakSet[Portal]] = weakref.WeakSet()
_leaving: Final[set[_LoopThread]] = set()
"""Threads that are ending and that only the exit of the interpreter waits for."""


class Caller(Protocol):
    """Calls functions in the event loop of one object, from other threads."""

    @property
    def is_open(self) -> bool: ...

    @property
    def is_inside(self) -> bool: ...

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...  # noqa: ANN401 (what it returns)


class Portal:
    """Runs the calls of one object in one event loop, from any thread.

    The thread starts with `open` and ends with `close`. It is a daemon: a program that exits without closing still
    exits, after a last attempt to close what is open.
    """

    def __init__(self, name: str, closed: Callable[[], LashError] = StorageClosed) -> None:
        self._name = name
        self._closed = closed
        self._guard = threading.Lock()
        self._loop: _LoopThread | None = None
        self._farewell: Callable[[], Coroutine[Any, Any, None]] | None = None

    @property
    def is_open(self) -> bool:
        return self._loop is not None

    @property
    def is_inside(self) -> bool:
        """Whether the caller is code that runs in the loop itself."""
        return self._loop is not None and self._loop.is_current

    def open(self) -> bool:
        """Start the thread, and return whether there was none before."""
        with self._guard:
            if self._loop is not None:
                return False
            self._loop = _LoopThread(self._name)
            _open_portals.add(self)
            return True

    def guard(self, farewell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Set the coroutine to run if the portal is not closed: when it is collected, or at exit.

        It must not refer to the portal, which would then never be collected.
        """
        loop = self._require()
        self._farewell = farewell
        weakref.finalize(self, loop.abandon, farewell).atexit = False

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (what it returns)
        """Call the function in the loop, wait for what it returns or awaits, and return it or raise its error.

        An interrupt, such as Ctrl-C, cancels it there, and is raised here once it has ended.
        """
        return self._require_outside(function).call(function, args, kwargs, self._closed)

    async def await_call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (what it returns)
        """Call the function in the loop from another event loop, which goes on meanwhile; return or raise like `call`.

        A cancellation of the caller cancels the function there, and is raised here once it has ended.
        """
        return await self._require_outside(function).await_call(function, args, kwargs, self._closed)

    def send(self, function: Callable[[], object]) -> None:
        """Call the function in the loop without waiting for it; calls that are sent later start after it."""
        self._require().send(function, self._closed)

    def end(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Call the function that closes the object, then end the thread; idempotent."""
        if not self.is_open:
            return
        self._require_outside(function)
        try:
            self.call(function)
        finally:
            self.close()

    def close(self) -> None:
        """End the thread, and cancel what still runs in it; idempotent."""
        with self._guard:
            loop, self._loop = self._loop, None
        _open_portals.discard(self)
        if loop is not None:
            loop.stop()

    def close_at_exit(self) -> None:
        """Close the object, as far as that is still possible, and then the portal."""
        loop, farewell = self._loop, self._farewell
        if loop is not None and farewell is not None:
            loop.abandon(farewell)

    def _require_outside(self, function: Callable[..., Any]) -> _LoopThread:
        loop = self._require()
        if loop.is_current:
            raise ConfigError(
                f"{getattr(function, '__qualname__', function)} would block the event loop that it needs: this code "
                "runs inside that loop, where agents and processes are async; use what their turn or context offers, "
                "or call this from a plain function, which a step runs in a thread"
            )
        return loop

    def _require(self) -> _LoopThread:
        if self._loop is None:
            raise self._closed()
        return self._loop


class _LoopThread:
    """One event loop in one thread, from its start to its end."""

    def __init__(self, name: str) -> None:
        self._process = os.getpid()
        # Reentrant: the garbage collector may run, and call abandon, while this thread holds it.
        self._guard = threading.RLock()
        self._accepting = True
        self._answers: set[_Answer] = set()
        began: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(began,), name=name, daemon=True)
        self._thread.start()
        self._loop = began.result()

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

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
        call = self._begin(_Call(function, args, kwargs, answer), closed)
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
    ) -> Any:  # noqa: ANN401 (whatever the function returns)
        answer = _LoopAnswer()
        call = self._begin(_Call(function, args, kwargs, answer), closed)
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

        _leaving.add(self)
        try:
            self._send(begin, StorageClosed)
        except LashError:
            # The thread is ending already, or this is a fork, which does not have it.
            _leaving.discard(self)

    def _stop_accepting(self) -> None:
        with self._guard:
            if self._accepting:
                self._accepting = False
                # Runs after every accepted call has started, so that it is cancelled with the rest.
                self._loop.call_soon_threadsafe(self._stopping.set)

    def _begin(self, call: _Call, closed: Callable[[], LashError]) -> _Call:
        answer = call.answer
        with self._guard:
            self._send(call.begin, closed)
            self._answers.add(answer)
        return call

    def _cancel(self, call: _Call) -> None:
        with contextlib.suppress(StorageClosed):
            self._send(call.cancel, StorageClosed)

    def _send(self, begin: Callable[[], object], closed: Callable[[], LashError]) -> None:
        if not self.is_here:
            raise ConfigError("this was opened before the process forked; fork before you open it")
        with self._guard:
            if not self._accepting:
                raise closed()
            try:
                self._loop.call_soon_threadsafe(begin)
            except RuntimeError:
                # The loop has just ended on its own.
                raise closed() from None

    def _run(self, began: concurrent.futures.Future[asyncio.AbstractEventLoop]) -> None:
        async def live() -> None:
            self._stopping = asyncio.Event()
            began.set_result(asyncio.get_running_loop())
            await self._stopping.wait()

        try:
            with asyncio.Runner() as runner:
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
            _leaving.discard(self)
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


class _Answer(Protocol):
    """Where the loop puts the outcome of a call."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...  # noqa: ANN401 (any result)

    def set_exception(self, error: BaseException, /) -> None: ...


class _LoopAnswer:
    """The outcome of a call for a task of another event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._is_set = False
        self._result: Any = None
        self._error: BaseException | None = None
        self.has_arrived = False
        """Whether the task's own loop has the outcome."""

    def done(self) -> bool:
        return self._is_set

    def set_result(self, result: Any, /) -> None:  # noqa: ANN401 (any result)
        self._result = result
        self._set()

    def set_exception(self, error: BaseException, /) -> None:
        self._error = error
        self._set()

    async def arrival(self) -> None:
        """Wait for the outcome; a cancellation ends only this wait."""
        self._waiter = self._loop.create_future()
        await self._waiter

    def result(self) -> Any:  # noqa: ANN401 (whatever the function returned)
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            return self._result
        finally:
            # The error refers to this frame; deleting it avoids a reference cycle.
            del error

    def _set(self) -> None:
        self._is_set = True
        # The task's loop may have been closed meanwhile, and the task with it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._arrive)

    def _arrive(self) -> None:
        self.has_arrived = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Call:
    """One call on its way into the loop and back."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        answer: _Answer,
    ) -> None:
        self._function = function
        self._args = args
        self._kwargs = kwargs
        self.answer = answer
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[Any] | None = None

    def begin(self) -> None:
        """Start, in the loop, with the caller's context variables."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._call(), context=self._context)
        self._task.add_done_callback(self._end)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _call(self) -> Any:  # noqa: ANN401 (whatever the function returns)
        outcome = self._function(*self._args, **self._kwargs)
        return await outcome if inspect.isawaitable(outcome) else outcome

    def _end(self, task: asyncio.Task[Any]) -> None:
        answer = self.answer
        # The traceback of an error leads here; deleting these avoids reference cycles.
        self._task = None
        del self.answer
        if task.cancelled():
            answer.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(task.result())


@atexit.register
def _close_all() -> None:
    for portal in list(_open_portals):
        portal.close_at_exit()
    for thread in list(_leaving):
        thread.join(_LAST_WORD_S)
