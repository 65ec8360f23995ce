"""When a worker takes no turns for a while, because more workers would only slow the others down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

SLOW_S: Final = 0.05
"""How long the storage calls of a turn take at least, in the mean, before a worker withdraws; usual is a few ms."""
SLOW_SHARE: Final = 1 / 2
"""Which part of the time of a turn that is, at least."""
RETURNING: Final = 2 / 3
"""How much less of both a worker has to see before it comes back: a margin, so that it does not leave again at once."""
STAYING: Final = 2
"""How many workers for each processor never withdraw."""
TRIED_TURNS: Final = 2
"""How many turns a worker that comes back runs, one after the other, before it decides."""
TRIAL_S: Final = 2.0
"""How long it waits for them to end."""
FEW_TURNS: Final = 4
"""How many turns show a worker of the last place that too many work."""
MORE_TURNS: Final = 12
"""How many turns more show it to one of the first places, so that the last ones withdraw first."""
FIRST_PAUSE_S: Final = 2.0
"""How long a worker at the first place that may withdraw does so for the first time."""
LONGEST_PAUSE_S: Final = 4.0
"""How long it does so at most."""
MORE_PAUSES: Final = 3
"""How many pauses it adds without a trial while the processors of the machine are full."""
FULL_PERCENT: Final = 80.0
"""For which part of the time a program waits for a processor on such a machine."""


class TurnTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of one turn went."""

    storage_s: float
    """In calls of the storage: waits for the database, for a processor, and for the event loop."""
    total_s: float


class LocalPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a worker among the workers of its machine that take the same sessions."""

    place: int
    workers: int


def may_withdraw(at: LocalPlace, processors: int) -> bool:
    """Return whether enough workers of the machine come before this one to keep its processors busy."""
    return at.place >= STAYING * processors


def is_slowed(turns: Sequence[TurnTimes], *, part: float = 1.0) -> bool:
    """Return whether turns waited long for the storage, and longer than for all else together; or ``part`` of that.

    Then the database or the processors are the limit, and one more turn at once makes the others slower. An agent that
    waits for a model does not count as slowed, however slow the storage is: more turns at once are then worth it.
    """
    storage_s = sum(each.storage_s for each in turns)
    total_s = sum(each.total_s for each in turns)
    return storage_s > part * SLOW_S * len(turns) and storage_s > part * SLOW_SHARE * total_s


def turns_to_judge(at: LocalPlace) -> int:
    """Return how many turns show a worker that it is slowed: the later its place, the fewer."""
    return FEW_TURNS + MORE_TURNS * (at.workers - 1 - at.place) // max(1, at.workers - 1)


def are_full(pressure: str) -> bool:
    """Return whether processors are full by Linux's report of their pressure; False if it cannot be understood."""
    for part in pressure.split():
        name, _, value = part.partition("=")
        if name == "avg10":
            try:
                return float(value) > FULL_PERCENT
            except ValueError:
                return False
    return False


def plan_pause(at: LocalPlace, processors: int, *, times: int) -> float:
    """Return for how many seconds a worker withdraws that did so ``times`` times in a row before.

    The later its place, the longer: so workers come back one after the other, the first places first.
    """
    pause_s: float = min(FIRST_PAUSE_S * 2**times, LONGEST_PAUSE_S)
    return pause_s * (1 + at.place / (STAYING * processors)) / 2
