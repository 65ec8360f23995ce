"""The output of the demo: coloured on a terminal, plain text elsewhere."""

from __future__ import annotations

import os
import sys
import time
from typing import Final

_BOLD, _GREEN, _RED, _DIM, _END = "\x1b[1m", "\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"
_BEGAN: Final = time.monotonic()


class Screen:
    """Prints lines prefixed with the seconds since the start."""

    def __init__(self) -> None:
        self._coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def title(self, text: str) -> None:
        print(f"\n{self._paint(text, _BOLD)}", flush=True)

    def line(self, text: str) -> None:
        passed = self._paint(f"{time.monotonic() - _BEGAN:5.1f} s", _DIM)
        print(f"  {passed}  {text}", flush=True)

    def blow(self, text: str) -> None:
        self.line(self._paint(text, _RED))

    def claim(self, text: str, *, holds: bool) -> None:
        sign = self._paint("ok    ", _GREEN) if holds else self._paint("FAILED", _RED)
        print(f"  {sign}  {text}", flush=True)

    def _paint(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_END}" if self._coloured else text
