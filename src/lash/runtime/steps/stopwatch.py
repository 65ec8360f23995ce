"""Measures how a step runs, for its record."""

from __future__ import annotations

import time

from lash.model.effect import EffectRun


class Stopwatch:
    """Measures one step from its first call on, and counts the calls of its function."""

    def __init__(self, attempt: int, took_ms: int = 0) -> None:
        """Start; ``attempt`` is that of the turn or process, ``took_ms`` what the step took before."""
        self._attempt = attempt
        self._took_ms = took_ms
        self._began = time.monotonic()
        self.tries = 1

    def ran(self) -> EffectRun:
        """Return how the step has run up to now."""
        took_ms = self._took_ms + round((time.monotonic() - self._began) * 1_000)
        return EffectRun(took_ms=took_ms, attempt=self._attempt, tries=self.tries)
