"""Parts of long suites: each commit runs one of them in CI, so that some commits together run all.

The part follows from the commit, and not from the time: a run that failed is repeated with the same part. With
``LASH_ROTATION`` unset everything runs, as in ``make proof`` and ``make adapters``; ``.ci/run`` sets it. A number picks
the part.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

VARIABLE: Final = "LASH_ROTATION"
ROOT: Final = Path(__file__).resolve().parents[1]


def turn_of(root: Path = ROOT) -> int | None:
    """Return the number from which the parts of this run follow; None if everything is to run."""
    given = os.environ.get(VARIABLE, "")
    if given in ("", "off"):
        return None
    if given.isdecimal():
        return int(given)
    command = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)  # noqa: S603 (our own words)
    # A tree without git has one part only.
    return int(done.stdout.strip()[:12] or "0", 16)


def part_of(items: Sequence[T], turn: int | None, parts: int) -> list[T]:
    """Return the items of a turn's part, which are evenly spread over the sequence; all of them without a turn."""
    return list(items) if turn is None else list(items[turn % parts :: parts])
