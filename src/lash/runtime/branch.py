"""Which line of a durable function is running, so that its steps have the same names in every run."""

from __future__ import annotations

import contextvars
from collections import Counter
from typing import Final


class Branch:
    """One line of execution. Names are counted within it, so concurrent lines do not disturb each other's numbers."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.blocked = 0
        """How many of its waits have to wait."""
        self.joined = False
        """Whether it waits for branches of its own."""
        self._counts: Counter[str] = Counter()

    def name(self, name: str) -> str:
        """Return the name with its number within this line, from 1."""
        self._counts[name] += 1
        return f"{self.prefix}{name}#{self._counts[name]}"

    def fork(self, group: str, index: int) -> Branch:
        """Return the line for one part of a gathering."""
        return Branch(f"{group}.{index}/")

    @property
    def waits(self) -> bool:
        return self.joined or self.blocked > 0


current_branch: Final[contextvars.ContextVar[Branch]] = contextvars.ContextVar("lash_branch")
