"""Which points of an operation are struck: all of them in the long form, a fixed sample of them in the short one."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from typing import TypeVar

from tests.proof.sweep.learned import Learned
from tests.proof.sweep.seam import Blow, Strike, When

WHOLE = os.environ.get("LASH_SWEEP") == "all"
"""Whether this is the long form."""

G = TypeVar("G")


def chosen(name: str, learned: Learned[G]) -> list[Strike | int]:
    """Return the points to strike; a number is the wait at which the caller is cancelled."""
    return list(every_point(learned) if WHOLE else sample(name, learned))


def every_point(learned: Learned[G]) -> Iterator[Strike | int]:
    """Return every point of the operation."""
    for number in range(len(learned.texts)):
        for when in When:
            for blow in (Blow.FAIL, Blow.CANCEL, Blow.KILL):
                yield Strike(number, when, blow)
        yield Strike(number, When.BEFORE, Blow.REFUSE)
    yield from range(learned.waits)


def sample(name: str, learned: Learned[G]) -> Iterator[Strike | int]:
    """Return a few points, always the same ones for a name: the answer of the last statement is always lost."""
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
