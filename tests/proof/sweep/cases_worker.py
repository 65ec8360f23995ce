"""Sweep cases of the registry of workers."""

from __future__ import annotations

from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from tests.contract.test_worker import BEAT_MS, beat, sent
from tests.proof.sweep.case import REPEATED, Again, AnyCase, Case


async def registered(storage: Storage, clock: ManualClock) -> None:
    """A worker that lives, and one that missed all of its beats."""
    await sent(storage, beat("gone"))
    await clock.advance(10 * BEAT_MS)
    await sent(storage, beat("living"))


CASES: tuple[AnyCase, ...] = (
    Case(
        method="WorkStore.poll",
        variant="beat",
        ground=registered,
        call=lambda storage, _: sent(storage, beat("new")),
        again=Again.SAME,
    ),
    Case(
        method="WorkerStore.drain",
        ground=registered,
        call=lambda storage, _: storage.workers.drain("living"),
        again=Again.SAME,
    ),
    Case(
        method="WorkerStore.leave",
        ground=registered,
        call=lambda storage, _: storage.workers.leave("living"),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
)
