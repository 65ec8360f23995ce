"""Progress reports of long operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lash.model.value import Count, Value


class Progress(Value, frozen=True, kw_only=True):
    """The progress of one noun; ``total`` is None while it is unknown."""

    noun: str
    done: Count
    total: Count | None = None


OnProgress: TypeAlias = Callable[[Progress], object]
"""Called on the event loop after each step. An exception that it raises ends the operation."""


class Meter:
    """Counts one noun and reports its progress."""

    def __init__(self, noun: str, total: int | None, listener: OnProgress | None) -> None:
        self._noun = noun
        self._total = total
        self._listener = listener
        self._done = 0

    def step(self, count: int = 1) -> None:
        """Add to the count and report it."""
        self._done += count
        if self._listener is not None:
            self._listener(Progress(noun=self._noun, done=self._done, total=self._total))
