"""Sweep cases of effects and waits."""

from __future__ import annotations

from lash.errors import Conflict
from lash.model.effect import EffectClaim, EffectRecord
from lash.model.lease import LeaseFence
from lash.model.wait import WaitKey
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from tests.factories.effect import BROKEN, OPERATION, RUN, TURN, claimed, effect, in_session
from tests.factories.process import process_lease, registered
from tests.factories.session import created, owner
from tests.factories.wait import CUSTOM, YES, key_of
from tests.proof.sweep.case import REPEATED, Again, AnyCase, Case

TTL = 60_000


async def session(storage: Storage, _clock: ManualClock) -> None:
    await created(storage)


async def grouped(storage: Storage, _clock: ManualClock) -> None:
    await created(storage)
    await storage.effects.open_group(TURN, "g", size=2)


async def under_lease(storage: Storage, _clock: ManualClock) -> LeaseFence:
    return await in_session(storage)


async def in_process(storage: Storage, _clock: ManualClock) -> LeaseFence:
    await registered(storage)
    return process_lease(await storage.process_leases.claim("p", owner("w"), ttl_ms=TTL)).fence


async def begun(storage: Storage, clock: ManualClock) -> EffectClaim:
    """A claim on an effect of a group."""
    await grouped(storage, clock)
    claim = claimed(await storage.effects.claim(effect(group="g"), owner("ann"), ttl_ms=TTL))
    await clock.advance(1_000)
    return claim


async def left_behind(storage: Storage, clock: ManualClock) -> None:
    """An effect that must not run twice, whose runner is gone."""
    await created(storage)
    await storage.effects.claim(effect(), owner("ann"), ttl_ms=1_000, once=True)
    await clock.advance(1_000)


async def settled(storage: Storage, clock: ManualClock) -> None:
    await storage.effects.finish(await begun(storage, clock), {"answer": 1})
    await storage.effects.claim(effect("other"), owner("ann"), ttl_ms=TTL)


async def keyed(storage: Storage, _clock: ManualClock) -> WaitKey:
    await created(storage)
    return await key_of(storage)


async def opened(storage: Storage, clock: ManualClock) -> WaitKey:
    key = await keyed(storage, clock)
    await storage.waits.open(key, timeout_ms=1_000)
    return key


async def overdue(storage: Storage, clock: ManualClock) -> None:
    await opened(storage, clock)
    await clock.advance(1_000)


async def resolved(storage: Storage, clock: ManualClock) -> int:
    """A wait without an owner that was resolved before a moment."""
    await storage.waits.resolve(await key_of(storage, scope=OPERATION), YES)
    await clock.advance(1_000)
    return clock.now_ms()


async def record_seen(storage: Storage, fence: LeaseFence) -> EffectRecord:
    """Record an effect of a process that the storage knows."""
    await storage.processes.get("p")
    return await storage.effects.record(fence, effect(scope=RUN), {"answer": 1})


EFFECTS: tuple[AnyCase, ...] = (
    Case(
        method="EffectStore.claim",
        ground=grouped,
        call=lambda storage, _: storage.effects.claim(effect(group="g"), owner("ann"), ttl_ms=TTL),
        again=Again.REPORTED,
    ),
    Case(
        method="EffectStore.claim",
        variant="once",
        ground=session,
        call=lambda storage, _: storage.effects.claim(effect(), owner("ann"), ttl_ms=TTL, once=True),
        again=Again.REPORTED,
    ),
    Case(
        method="EffectStore.record",
        ground=under_lease,
        call=lambda storage, fence: storage.effects.record(fence, effect(), {"answer": 1}),
        again=Again.SAME,
    ),
    Case(
        method="EffectStore.record",
        variant="process",
        ground=in_process,
        call=lambda storage, fence: storage.effects.record(fence, effect(scope=RUN), BROKEN),
        again=Again.SAME,
    ),
    Case(
        method="EffectStore.record",
        variant="seen-process",
        ground=in_process,
        call=record_seen,
        again=Again.SAME,
    ),
    Case(
        method="EffectStore.renew",
        ground=begun,
        call=lambda storage, claim: storage.effects.renew(claim, ttl_ms=TTL),
        again=Again.SAME,
    ),
    Case(
        method="EffectStore.finish",
        ground=begun,
        call=lambda storage, claim: storage.effects.finish(claim, {"answer": 1}),
        again=Again.SAME,
    ),
    Case(
        method="EffectStore.fail",
        ground=begun,
        call=lambda storage, claim: storage.effects.fail(claim, BROKEN),
        again=Again.SAME,
    ),
    Case(
        method="EffectStore.release",
        ground=begun,
        call=lambda storage, claim: storage.effects.release(claim),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="EffectStore.take_over",
        ground=left_behind,
        call=lambda storage, _: storage.effects.take_over(effect(), owner("bob"), ttl_ms=TTL),
        again=Conflict,
    ),
    Case(
        method="EffectStore.retire",
        ground=settled,
        call=lambda storage, _: storage.effects.retire(TURN),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="EffectStore.open_group",
        ground=session,
        call=lambda storage, _: storage.effects.open_group(TURN, "g", size=2),
        again=Again.SAME,
    ),
)

WAITS: tuple[AnyCase, ...] = (
    Case(
        method="WaitStore.key",
        ground=session,
        call=lambda storage, _: storage.waits.key(TURN, CUSTOM),
        again=Again.SAME,
    ),
    Case(
        method="WaitStore.open",
        ground=keyed,
        call=lambda storage, key: storage.waits.open(key, timeout_ms=1_000),
        again=Again.SAME,
    ),
    Case(
        method="WaitStore.resolve",
        ground=opened,
        call=lambda storage, key: storage.waits.resolve(key, YES),
        again=Again.REPORTED,
        lost="its contract: a call whose connection was lost gets its own resolution",
    ),
    Case(
        method="WaitStore.resolve",
        variant="early",
        ground=keyed,
        call=lambda storage, key: storage.waits.resolve(key.text, YES),
        again=Again.REPORTED,
        lost="its contract: a call whose connection was lost gets its own resolution",
    ),
    Case(
        method="WaitStore.resolve_id",
        ground=opened,
        call=lambda storage, key: storage.waits.resolve_id(key.key_id, YES),
        again=Again.REPORTED,
        lost="as resolve",
    ),
    Case(
        method="WaitStore.cancel",
        ground=opened,
        call=lambda storage, key: storage.waits.cancel(key),
        again=Again.REPORTED,
        lost="as resolve",
    ),
    Case(
        method="WaitStore.wait",
        ground=keyed,
        call=lambda storage, key: storage.waits.wait(key, timeout_ms=1_000, patience_s=0),
        again=Again.SAME,
        elusive="its first look ends when its patience does, wherever that is",
    ),
    Case(
        method="WaitStore.revoke",
        ground=opened,
        call=lambda storage, _: storage.waits.revoke("s"),
        again=Again.MORE,
    ),
    Case(
        method="WaitStore.expire",
        ground=overdue,
        call=lambda storage, _: storage.waits.expire(),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="WaitStore.prune",
        ground=resolved,
        call=lambda storage, moment: storage.waits.prune(resolved_before_ms=moment),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
)

CASES: tuple[AnyCase, ...] = (*EFFECTS, *WAITS)
