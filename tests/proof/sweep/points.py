"""Which points of an operation are struck: a fixed sample, several of them (``LASH_SWEEP=4``), or all (``=all``)."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from typing import Final, TypeVar

from tests.proof.sweep.learned import Learned
from tests.proof.sweep.seam import Blow, Strike, When

_SWEEP: Final = os.environ.get("LASH_SWEEP", "1")

G = TypeVar("G")


def chosen(name: str, learned: Learned[G]) -> list[Strike | int]:
    """Return the points to strike; a number is the wait at which the caller is cancelled."""
    if _SWEEP == "all":
        return list(every_point(learned))
    points = (point for number in range(int(_SWEEP)) for point in sample(f"{name}{number or ''}", learned))
    return list(dict.fromkeys(points))


def every_point(learned: Learned[G]) -> Iterator[Strike | int]:
    """Yield every point of the operation."""
    for number in range(len(learned.texts)):
        for when in When:
            for blow in (Blow.FAIL, Blow.CANCEL, Blow.KILL):
                yield Strike(number, when, blow)
        yield Strike(number, When.BEFORE, Blow.REFUSE)
    yield from range(learned.waits)


def sample(name: str, learned: Learned[G]) -> Iterator[Strike | int]:
    """Yield a few points, always the same for a name: the answer to the last statement is always lost."""
    count, chance = len(learned.texts), zlib.crc32(name.encode())
    number, when = chance // 8 % count, list(When)[chance // 4 % 2]
    yield Strike(count - 1, When.AFTER, Blow.FAIL)
    yield Strike(chance % count, list(When)[chance // 2 % 2], Blow.FAIL)
    yield (
        Strike(number, when, Blow.KILL),
        Strike(number, when, Blow.CANCEL),
        Strike(number, When.BEFORE, Blow.REFUSE),
        chance // 8 % learned.waits,
    )[chance % 4]
