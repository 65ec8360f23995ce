"""The clock of a SQLite storage; PostgreSQL uses its server's clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of wall-clock time in whole milliseconds since the epoch."""

    def now_ms(self) -> int: ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
