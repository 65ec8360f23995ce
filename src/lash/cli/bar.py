"""A bar that shows how far long work is, on terminals only, and nothing of which is left at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Final

_WIDEST: Final = 36
_NARROWEST: Final = 5
_PAUSE_S: Final = 0.1
_ERASE: Final = "\r\x1b[K"
_FALLBACK_COLUMNS: Final = 80


class Bar:
    """One line of standard error, drawn over and over in the width that the terminal has at the moment."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._label = ""
        self._drawn_at_s = 0.0
        self._begun_at_s = time.monotonic()

    def show(self, label: str, done: int, total: int | None) -> None:
        """Say that so many of so many are done; ``total`` is None where nobody can know it."""
        if self._is_due(label, is_last=done == total):
            tail = f"  {done:,}" if total is None else f"  {_percent(done, total):>3}%  {done:,}/{total:,}"
            self._draw(label, tail, None if total is None else done / max(total, 1))

    def pulse(self, label: str) -> None:
        """Say that the work goes on, and for how long it has."""
        if self._is_due(label, is_last=False):
            self._draw(label, f"  {int(time.monotonic() - self._begun_at_s)}s", None)

    def erase(self) -> None:
        if self._shows and self._drawn_at_s:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()
            self._drawn_at_s = 0.0

    def _is_due(self, label: str, *, is_last: bool) -> bool:
        """Return whether to draw: a terminal is slow, and nobody reads a hundred lines a second."""
        now = time.monotonic()
        if not self._shows or (label == self._label and not is_last and now - self._drawn_at_s < _PAUSE_S):
            return False
        self._label, self._drawn_at_s = label, now
        return True

    def _draw(self, label: str, tail: str, share: float | None) -> None:
        # The last column stays free: a terminal may begin a new line behind it.
        room = _columns() - 1
        inside = min(_WIDEST, room - len(label) - len(tail) - 4)
        line = f"{label}{tail}" if inside < _NARROWEST else f"{label}  [{self._inside(inside, share)}]{tail}"
        sys.stderr.write(_ERASE + line[:room])
        sys.stderr.flush()

    def _inside(self, width: int, share: float | None) -> str:
        if share is not None:
            filled = int(width * min(share, 1.0))
            return "#" * filled + "-" * (width - filled)
        # Back and forth, as long as nobody knows how far it is.
        way = width - 3
        place = int((self._drawn_at_s - self._begun_at_s) / _PAUSE_S) % (2 * way)
        return "-" * min(place, 2 * way - place) + "###" + "-" * (way - min(place, 2 * way - place))


def _percent(done: int, total: int) -> int:
    return min(100 * done // max(total, 1), 100)


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _FALLBACK_COLUMNS
    except (OSError, ValueError):
        return _FALLBACK_COLUMNS


@contextlib.contextmanager
def drawn() -> Iterator[Bar]:
    """Give a bar, and take it away at the end, however that comes."""
    bar = Bar()
    try:
        yield bar
    finally:
        bar.erase()


@contextlib.asynccontextmanager
async def busy(label: str) -> AsyncIterator[None]:
    """Show that work goes on which cannot say how far it is."""
    # Only here: help and completion need not wait for it.
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
