"""Rules of parked turns: whether a turn that waits may be parked, and when it can be claimed.

Parking is scheduling state, as the lease is: the session shows it and no commit is written for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from lash.base.limits import check_identifier, check_integer
from lash.model.lease import LeaseFence, ParkedTurn
from lash.model.queue import PARKED_AT_MS
from lash.plan.lease import LeaseRow, require_fence

NEVER: Final = PARKED_AT_MS
"""The moment until which a turn without a time limit is parked."""


class Parking(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request to park a turn."""

    wake_seq: int
    """The number of reasons to continue that the run has seen."""
    until_ms: int
    """The moment from which on the turn can be claimed without a further reason."""
    waiting_for: str
    """What the turn waits for, as people read it."""


DecidePark: TypeAlias = Callable[[LeaseRow, int], bool]
"""Decides from the lease row and the time whether a turn is parked; raises LeaseLost if the fence does not hold."""


def check_parking(wake_seq: object, until_ms: object, waiting_for: object) -> Parking:
    """Return the checked request, or raise InvalidInput; without a moment the turn is parked until it is woken."""
    return Parking(
        wake_seq=check_integer("wake_seq", wake_seq, at_least=0),
        until_ms=NEVER if until_ms is None else check_integer("until_ms", until_ms, at_least=0),
        waiting_for=check_identifier("waiting_for", waiting_for),
    )


def plan_park(row: LeaseRow, now_ms: int, *, fence: LeaseFence, parking: Parking) -> bool:
    """Return whether the turn is parked: not if there was a reason to continue that the run has not seen.

    Raises LeaseLost if the fence does not hold a live lease.
    """
    require_fence(row, fence, now_ms)
    return row.wake_seq == parking.wake_seq


def is_ready(row: LeaseRow, now_ms: int) -> bool:
    """Return whether a turn is parked that can be claimed now."""
    return row.waiting_for is not None and row.paused_until_ms is not None and row.paused_until_ms <= now_ms


def parked_turn(row: LeaseRow) -> ParkedTurn | None:
    """Return the parked turn of the session; None if it has none."""
    if row.waiting_for is None:
        return None
    return ParkedTurn(waiting_for=row.waiting_for, until_ms=known_moment(row.paused_until_ms))


def known_moment(at_ms: int | None) -> int | None:
    """Return the moment, or None if it never comes."""
    return None if at_ms == NEVER else at_ms
