"""Sweep cases of operators' acts."""

from __future__ import annotations

from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from tests.proof.sweep.case import REPEATED, Again, AnyCase, Case


async def nothing(_storage: Storage, _clock: ManualClock) -> None:
    """No act was recorded."""


async def one(storage: Storage, clock: ManualClock) -> str:
    """An act without an outcome."""
    act = await storage.acts.record("ada", "cancel", "p")
    await clock.advance(10)
    return act.act_id


CASES: tuple[AnyCase, ...] = (
    Case(
        method="ActStore.record",
        ground=nothing,
        call=lambda storage, _: storage.acts.record("ada", "cancel", "p", session_id="s"),
        again=Again.MORE,
    ),
    Case(
        method="ActStore.settle",
        ground=one,
        call=lambda storage, act_id: storage.acts.settle(act_id),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="ActStore.prune",
        ground=one,
        call=lambda storage, _: storage.acts.prune(before_ms=2**53),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
)
