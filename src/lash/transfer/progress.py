"""How long work tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lash.model.value import Count, Value


class Progress(Value, frozen=True, kw_only=True):
    """So many of so many things are done; ``total`` is None where nobody can know it yet."""

    noun: str
    done: Count
    total: Count | None = None


OnProgress: TypeAlias = Callable[[Progress], object]
"""Called on the event loop after each step. What it raises ends the work."""


class Meter:
    """Counts one noun and tells whoever wants to know."""

    def __init__(self, noun: str, total: int | None, listener: OnProgress | None) -> None:
        self._noun = noun
        self._total = total
        self._listener = listener
        self._done = 0

    def step(self, count: int = 1) -> None:
        """Say that so many more are done."""
        self._done += count
        if self._listener is not None:
            self._listener(Progress(noun=self._noun, done=self._done, total=self._total))
