"""Sweep cases of limits."""

from __future__ import annotations

from typing import Final

from lash.model.limit import Rate
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from tests.proof.sweep.case import REPEATED, Again, AnyCase, Case

RATE: Final = Rate(count=60, period_ms=60_000)


async def nothing(_storage: Storage, _clock: ManualClock) -> None:
    """No limit is in use."""


async def used(storage: Storage, clock: ManualClock) -> None:
    """A limit that is in use, and one that was."""
    await storage.limits.reserve("old", rate=RATE)
    await clock.advance(1_000)
    await storage.limits.reserve("api", rate=RATE)


CASES: tuple[AnyCase, ...] = (
    Case(
        method="LimitStore.reserve",
        ground=nothing,
        call=lambda storage, _: storage.limits.reserve("api", rate=RATE),
        again=Again.MORE,
    ),
    Case(
        method="LimitStore.reserve",
        variant="in use",
        ground=used,
        call=lambda storage, _: storage.limits.reserve("api", rate=RATE),
        again=Again.MORE,
    ),
    Case(
        method="LimitStore.prune",
        ground=used,
        call=lambda storage, _: storage.limits.prune(),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
)
