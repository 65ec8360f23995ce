"""Sweep cases of limits."""

from __future__ import annotations

from typing import Final

from lash.model.lease import LeaseFence
from lash.model.limit import Rate
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from tests.factories.session import acquired, owner
from tests.proof.sweep.case import REPEATED, Again, AnyCase, Case

RATE: Final = Rate(count=60, period_ms=60_000)
_WAKES: Final = "a reason to continue a turn is counted in a transaction of its own (WorkStore.wake)"
_WAKE_ID: Final = "[0-9a-f]{32}"


async def nothing(_storage: Storage, _clock: ManualClock) -> None:
    """No limit is in use."""


async def used(storage: Storage, clock: ManualClock) -> None:
    """A limit that is in use, and one that was."""
    await storage.limits.reserve("old", rate=RATE)
    await clock.advance(1_000)
    await storage.limits.reserve("api", rate=RATE)


async def held(storage: Storage, _clock: ManualClock) -> tuple[LeaseFence, LeaseFence]:
    """A place that one session holds and another one waits for."""
    fences = []
    for name in ("a", "b"):
        await storage.sessions.create(name)
        fences.append(acquired(await storage.leases.claim(name, owner(name), ttl_ms=60_000)).fence)
        await storage.limits.take("api", concurrency=1, fence=fences[-1])
    return fences[0], fences[1]


async def expired(storage: Storage, clock: ManualClock) -> None:
    """A place whose holder died while another session waits for it."""
    _, waiting = await held(storage, clock)
    await storage.leases.renew(waiting, ttl_ms=600_000)
    await clock.advance(60_000)


async def left(storage: Storage, fences: tuple[LeaseFence, LeaseFence]) -> bool:
    """Give the place back, and count the reason to continue, as a poll would."""
    result = await storage.limits.leave("api", fence=fences[0])
    await storage.work.wake()
    return result


async def passed_on(storage: Storage, _ground: None) -> int:
    """Check the lines, and count the reasons to continue, as a poll would."""
    checked = await storage.limits.pass_on()
    await storage.work.wake()
    return checked


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
    Case(
        method="LimitStore.take",
        ground=held,
        call=lambda storage, fences: storage.limits.take("other", concurrency=1, fence=fences[0]),
        again=Again.SAME,
    ),
    Case(
        method="LimitStore.take",
        variant="in use",
        ground=held,
        call=lambda storage, fences: storage.limits.take("api", concurrency=1, fence=fences[0], step="other"),
        again=Again.SAME,
    ),
    Case(
        method="LimitStore.leave",
        ground=held,
        call=left,
        again=Again.REPORTED,
        steps=_WAKES,
        blur=_WAKE_ID,
    ),
    Case(
        method="LimitStore.pass_on",
        ground=expired,
        call=passed_on,
        again=Again.REPORTED,
        steps=_WAKES,
        blur=_WAKE_ID,
    ),
)
