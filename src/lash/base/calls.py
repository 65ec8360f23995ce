"""Calls on their way into an event loop and back."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
from collections.abc import Callable
from typing import Any, Protocol


class Answer(Protocol):
    """Where the loop puts the outcome of a call."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...  # noqa: ANN401 (any result)

    def set_exception(self, error: BaseException, /) -> None: ...


class LoopAnswer:
    """The outcome of a call for a task of another event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._is_set = False
        self._result: Any = None
        self._error: BaseException | None = None
        self.has_arrived = False
        """Whether the task's own loop has the outcome."""
        self.is_here = False
        """Whether the call runs in the thread of the task, which needs no message then."""

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
        if self.is_here:
            self.has_arrived = True
            return
        # The task's loop may have been closed meanwhile, and the task with it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._arrive)

    def _arrive(self) -> None:
        self.has_arrived = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Call:
    """One call on its way into the loop and back."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        answer: Answer,
    ) -> None:
        self._function = function
        self._args = args
        self._kwargs = kwargs
        self.answer = answer
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[Any] | None = None

    def begin(self) -> asyncio.Task[Any]:
        """Start, in the loop, with the caller's context variables."""
        loop = asyncio.get_running_loop()
        self._task = task = loop.create_task(self._call(), context=self._context)
        task.add_done_callback(self._end)
        return task

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
