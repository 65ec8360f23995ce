"""A body on its way to whoever runs it, and its outcome on the way back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

S_contra = TypeVar("S_contra", contravariant=True)
S = TypeVar("S")
T = TypeVar("T")


class Work(Protocol[S_contra]):
    """A job as the thread that runs it sees it, whatever it returns."""

    @property
    def abandoned(self) -> bool:
        """Whether the caller was cancelled."""
        ...

    @property
    def error(self) -> BaseException | None: ...

    def attempt(self, scope: S_contra) -> None:
        """Run the body and keep its value; what it raises comes out."""
        ...

    def fail(self, error: BaseException) -> None:
        """Make this error the outcome."""
        ...

    def settle(self) -> None:
        """Hand the outcome to the caller, if it still waits; only on the caller's event loop."""
        ...


class Job(Generic[S, T]):
    """One body and the future of its caller. The last attempt or failure is the outcome."""

    __slots__ = ("_body", "_future", "_value", "error")

    error: BaseException | None

    def __init__(self, body: Callable[[S], T], future: asyncio.Future[T]) -> None:
        self._body = body
        self._future = future
        self.error = None

    @property
    def abandoned(self) -> bool:
        # Only read here, which is safe from any thread; the loop's thread alone changes the future.
        return self._future.cancelled()

    def attempt(self, scope: S) -> None:
        self.error = None
        self._value: T = self._body(scope)

    def fail(self, error: BaseException) -> None:
        self.error = error

    def settle(self) -> None:
        if self._future.done():
            return
        if self.error is None:
            self._future.set_result(self._value)
        elif isinstance(self.error, StopIteration):
            # A future cannot carry this one.
            refused = RuntimeError("the body raised StopIteration")
            refused.__cause__ = self.error
            self._future.set_exception(refused)
        else:
            self._future.set_exception(self.error)


class Errand(Generic[S, T]):
    """One body whose caller stands beside it: there is nobody to tell and nothing to cancel."""

    __slots__ = ("_body", "_value", "error")

    abandoned = False
    error: BaseException | None

    def __init__(self, body: Callable[[S], T]) -> None:
        self._body = body
        self.error = None

    def attempt(self, scope: S) -> None:
        self.error = None
        self._value: T = self._body(scope)

    def fail(self, error: BaseException) -> None:
        self.error = error

    def settle(self) -> None: ...

    def outcome(self) -> T:
        """Return the body's value, or raise what became of it."""
        if self.error is not None:
            raise self.error
        return self._value
