"""Async iterators as plain ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from lash.base.portal import Caller

T = TypeVar("T")

_END: Final = object()


class Stream(Generic[T]):
    """Values as they come; each ``next`` waits for one. Leaving its ``with`` block, or `close`, ends it early."""

    def __init__(self, portal: Caller, source: AsyncIterator[T]) -> None:
        self._portal = portal
        self._source = source

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        value: T = self._portal.call(self._next)
        if value is _END:
            raise StopIteration
        return value

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration. Idempotent, also after the storage was closed."""
        close = getattr(self._source, "aclose", None)
        if close is not None and self._portal.is_open:
            self._portal.call(close)

    async def _next(self) -> T | object:
        return await anext(self._source, _END)
