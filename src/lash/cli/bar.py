"""A progress bar, on terminals only, that erases itself at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Final

from lash.cli.output import ERASE, write

_WIDEST: Final = 36
_NARROWEST: Final = 5
_PAUSE_S: Final = 0.1
"""The pause between two drawings."""
_FALLBACK_COLUMNS: Final = 80


class Bar:
    """One line of standard error, redrawn in the current width of the terminal."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._label = ""
        self._drawn_at_s = 0.0
        self._begun_at_s = time.monotonic()

    def show(self, label: str, done: int, total: int | None) -> None:
        """Show the progress; ``total`` is None if it is unknown."""
        if self._is_due(label, is_last=done == total):
            tail = f"  {done:,}" if total is None else f"  {_percent(done, total):>3}%  {done:,}/{total:,}"
            self._draw(label, tail, None if total is None else done / max(total, 1))

    def pulse(self, label: str) -> None:
        """Show that the work goes on, and for how long."""
        if self._is_due(label, is_last=False):
            self._draw(label, f"  {int(time.monotonic() - self._begun_at_s)}s", None)

    def erase(self) -> None:
        if self._shows and self._drawn_at_s:
            write(sys.stderr, before=ERASE, end="")
            self._drawn_at_s = 0.0

    def _is_due(self, label: str, *, is_last: bool) -> bool:
        """Return whether to draw: a terminal is slow, so at most ten times a second."""
        now = time.monotonic()
        if not self._shows or (label == self._label and not is_last and now - self._drawn_at_s < _PAUSE_S):
            return False
        self._label, self._drawn_at_s = label, now
        return True

    def _draw(self, label: str, tail: str, share: float | None) -> None:
        # The last column stays free: a terminal may start a new line after it.
        room = _columns() - 1
        inside = min(_WIDEST, room - len(label) - len(tail) - 4)
        line = f"{label}{tail}" if inside < _NARROWEST else f"{label}  [{self._inside(inside, share)}]{tail}"
        write(sys.stderr, line[:room], before=ERASE, end="")

    def _inside(self, width: int, share: float | None) -> str:
        if share is not None:
            filled = int(width * min(share, 1.0))
            return "#" * filled + "-" * (width - filled)
        # A block that moves back and forth while the total is unknown.
        way = width - 3
        step = int((self._drawn_at_s - self._begun_at_s) / _PAUSE_S) % (2 * way)
        return "-" * min(step, 2 * way - step) + "###" + "-" * (way - min(step, 2 * way - step))


def _percent(done: int, total: int) -> int:
    return min(100 * done // max(total, 1), 100)


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _FALLBACK_COLUMNS
    except (OSError, ValueError):
        return _FALLBACK_COLUMNS


@contextlib.contextmanager
def drawn() -> Iterator[Bar]:
    """Yield a bar, and erase it at the end, also after an error."""
    bar = Bar()
    try:
        yield bar
    finally:
        bar.erase()


@contextlib.asynccontextmanager
async def busy(label: str) -> AsyncIterator[None]:
    """Show that work without a known total goes on."""
    # Imported here so that help and completion stay fast.
    import asyncio

    with drawn() as bar:
        pulsing = asyncio.create_task(_pulse(bar, label))
        try:
            yield
        finally:
            pulsing.cancel()


async def _pulse(bar: Bar, label: str) -> None:
    import asyncio

    while True:
        bar.pulse(label)
        await asyncio.sleep(_PAUSE_S)
