"""Where a node is in its source text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A range of the source text in code points; the end is exclusive."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """Return the range from the start of this span to the end of the other."""
        return Span(self.start, max(self.end, other.end))
