"""A body of a transaction or read, with its outcome once it has run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

S_contra = TypeVar("S_contra", contravariant=True)
S = TypeVar("S")
T = TypeVar("T")


class Job(Protocol[S_contra]):
    """A job as the code that runs it sees it, whatever its body returns."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the caller was cancelled."""
        ...

    @property
    def error(self) -> BaseException | None: ...

    def attempt(self, scope: S_contra) -> None:
        """Run the body and keep its value; an exception of the body propagates."""
        ...

    def fail(self, error: BaseException) -> None:
        """Make this error the outcome."""
        ...

    def deliver(self) -> None:
        """Hand the outcome to the caller if it still waits; only on the caller's event loop."""
        ...


class QueuedJob(Generic[S, T]):
    """A body whose caller awaits a future. The last attempt or failure is the outcome."""

    __slots__ = ("_body", "_future", "_value", "error")

    error: BaseException | None

    def __init__(self, body: Callable[[S], T], future: asyncio.Future[T]) -> None:
        self._body = body
        self._future = future
        self.error = None

    @property
    def is_cancelled(self) -> bool:
        # A read, which is safe from any thread; only the loop's thread changes the future.
        return self._future.cancelled()

    def attempt(self, scope: S) -> None:
        self.error = None
        self._value: T = self._body(scope)

    def fail(self, error: BaseException) -> None:
        self.error = error

    def deliver(self) -> None:
        if self._future.done():
            return
        if self.error is None:
            self._future.set_result(self._value)
        elif isinstance(self.error, StopIteration):
            # A future cannot carry StopIteration.
            refused = RuntimeError("the body raised StopIteration")
            refused.__cause__ = self.error
            self._future.set_exception(refused)
        else:
            self._future.set_exception(self.error)


class InlineJob(Generic[S, T]):
    """A body that runs inside its caller's call: no future, and no moment at which it could be cancelled."""

    __slots__ = ("_body", "_value", "error")

    is_cancelled = False
    error: BaseException | None

    def __init__(self, body: Callable[[S], T]) -> None:
        self._body = body
        self.error = None

    def attempt(self, scope: S) -> None:
        self.error = None
        self._value: T = self._body(scope)

    def fail(self, error: BaseException) -> None:
        self.error = error

    def deliver(self) -> None: ...

    def outcome(self) -> T:
        """Return the body's value, or raise its error."""
        if self.error is not None:
            raise self.error
        return self._value
