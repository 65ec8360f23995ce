"""Sweep cases of processes, their leases, their events and their grants."""

from __future__ import annotations

import msgspec

from lash.backend.liveness import current_process
from lash.errors import GrantNotFound, LeaseLost
from lash.model.lease import Lease, LeaseOwner
from lash.model.process.continuation import Continuation
from lash.model.process.process import Abandonment, ExternalRef
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from tests.contract.work_state import child
from tests.factories.process import (
    DONE,
    GO,
    NEWS,
    event,
    granted,
    news,
    process,
    process_lease,
    registered,
    scope,
    wait,
)
from tests.factories.session import created, owner
from tests.proof.sweep.case import REPEATED, Again, AnyCase, Case, bare

TTL = 60_000
GONE = Abandonment(message="the host is lost", evidence={"host": "lost"})


async def session(storage: Storage, _clock: ManualClock) -> None:
    await created(storage)


async def running(storage: Storage, _clock: ManualClock) -> None:
    """A process that wakes a session with its news, accepts a signal, and is granted to the session."""
    await created(storage)
    await storage.processes.register(process("p", NEWS, GO, wake_session_id="s"))
    await storage.grants.grant(granted("s"))


async def with_parent(storage: Storage, clock: ManualClock) -> None:
    """A process whose end wakes its parked parent."""
    lease, wake_seq = await leased(storage, clock)
    await storage.processes.register(child())
    await storage.process_leases.park(lease.fence, wake_seq=wake_seq, until_ms=None)


async def parked(storage: Storage, clock: ManualClock) -> None:
    await running(storage, clock)
    await storage.processes.set_wait("p", wait())


async def given_up(storage: Storage, clock: ManualClock) -> None:
    await running(storage, clock)
    await storage.processes.request_abandon("p", reason="lost")


async def woken(storage: Storage, clock: ManualClock) -> int:
    """A process with a wake that waits in the session's queue."""
    await running(storage, clock)
    return (await storage.events.append("p", news())).event.sequence


async def ended(storage: Storage, clock: ManualClock) -> int:
    """Two processes that ended before a moment, with their logs."""
    await woken(storage, clock)
    await registered(storage, "q")
    await storage.processes.complete("p", DONE)
    await storage.processes.complete("q", DONE)
    await clock.advance(1_000)
    return clock.now_ms()


async def leased(storage: Storage, clock: ManualClock) -> tuple[Lease, int]:
    """The lease of a process, and its number of wakes when the lease was taken."""
    await running(storage, clock)
    outcome = await storage.process_leases.claim("p", owner("w"), ttl_ms=TTL)
    await clock.advance(1_000)
    return process_lease(outcome), getattr(outcome, "wake_seq", 0)


async def leased_by_the_dead(storage: Storage, clock: ManualClock) -> tuple[Lease, LeaseOwner]:
    await running(storage, clock)
    alive = current_process()
    assert alive is not None
    dead = msgspec.structs.replace(alive, process_start="1")
    lease = process_lease(await storage.process_leases.claim("p", owner("dead", process=dead), ttl_ms=TTL))
    return lease, owner("heir", process=alive)


PROCESSES: tuple[AnyCase, ...] = (
    Case(
        method="ProcessStore.register",
        ground=session,
        call=lambda storage, _: storage.processes.register(process("p", NEWS, wake_session_id="s")),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="ProcessStore.complete",
        ground=running,
        call=lambda storage, _: storage.processes.complete("p", DONE),
        again=Again.SAME,
    ),
    Case(
        method="ProcessStore.complete",
        variant="child",
        ground=with_parent,
        call=lambda storage, _: storage.processes.complete("c", DONE),
        again=Again.SAME,
    ),
    Case(
        method="ProcessStore.abandon",
        ground=given_up,
        call=lambda storage, _: storage.processes.abandon("p", GONE),
        again=Again.SAME,
    ),
    Case(
        method="ProcessStore.request_cancel",
        ground=parked,
        call=lambda storage, _: storage.processes.request_cancel("p", reason="enough"),
        again=Again.SAME,
    ),
    Case(
        method="ProcessStore.request_abandon",
        ground=running,
        call=lambda storage, _: storage.processes.request_abandon("p", reason="lost"),
        again=Again.SAME,
    ),
    Case(
        method="ProcessStore.set_external_ref",
        ground=running,
        call=lambda storage, _: storage.processes.set_external_ref("p", ExternalRef(backend="b", id="1")),
        again=Again.MORE,
    ),
    Case(
        method="ProcessStore.set_wait",
        ground=running,
        call=lambda storage, _: storage.processes.set_wait("p", wait()),
        again=Again.SAME,
    ),
    Case(
        method="ProcessStore.clear_wait",
        ground=parked,
        call=lambda storage, _: storage.processes.clear_wait("p", wait()),
        again=Again.SAME,
    ),
    Case(
        method="ProcessStore.prune",
        ground=ended,
        call=lambda storage, moment: storage.processes.prune(ended_before_ms=moment, through_cursor=None),
        again=Again.REPORTED,
    ),
    Case(
        method="ProcessStore.prune_changes",
        ground=ended,
        call=lambda storage, moment: storage.processes.prune_changes(before_ms=moment),
        again=Again.REPORTED,
    ),
)

LEASES: tuple[AnyCase, ...] = (
    Case(
        method="ProcessLeaseStore.claim",
        ground=running,
        call=lambda storage, _: storage.process_leases.claim("p", owner("w"), ttl_ms=TTL),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="ProcessLeaseStore.register_and_claim",
        ground=bare,
        call=lambda storage, _: storage.process_leases.register_and_claim(process("p"), owner("w"), ttl_ms=TTL),
        again=Again.REPORTED,
    ),
    Case(
        method="ProcessLeaseStore.reclaim",
        ground=leased_by_the_dead,
        call=lambda storage, given: storage.process_leases.reclaim("p", given[1], observed=given[0], ttl_ms=TTL),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="ProcessLeaseStore.renew",
        ground=leased,
        call=lambda storage, given: storage.process_leases.renew(given[0].fence, ttl_ms=TTL),
        again=Again.SAME,
    ),
    Case(
        method="ProcessLeaseStore.release",
        ground=leased,
        call=lambda storage, given: storage.process_leases.release(given[0].fence),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="ProcessLeaseStore.park",
        ground=leased,
        call=lambda storage, given: storage.process_leases.park(given[0].fence, wake_seq=given[1], until_ms=None),
        again=LeaseLost,
    ),
    Case(
        method="ProcessLeaseStore.continue_as_new",
        ground=leased,
        call=lambda storage, given: storage.process_leases.continue_as_new(
            given[0].fence, Continuation(run=2, input=1)
        ),
        again=Again.SAME,
    ),
    Case(
        method="ProcessLeaseStore.complete",
        ground=leased,
        call=lambda storage, given: storage.process_leases.complete(given[0].fence, DONE),
        again=Again.SAME,
    ),
)

EVENTS: tuple[AnyCase, ...] = (
    Case(
        method="EventStore.append",
        ground=running,
        call=lambda storage, _: storage.events.append("p", news(key="k")),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="EventStore.append",
        variant="keyless",
        ground=running,
        call=lambda storage, _: storage.events.append("p", news()),
        again=Again.MORE,
    ),
    Case(
        method="EventStore.append",
        variant="wait",
        ground=running,
        call=lambda storage, _: storage.events.append("p", event("signal.go", {"n": 1}, key="k")),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="EventStore.signal",
        ground=parked,
        call=lambda storage, _: storage.events.signal("p", "go", signal_id="1", payload={"n": 1}),
        again=Again.REPORTED,
        lost=REPEATED,
    ),
    Case(
        method="EventStore.acknowledge_wake",
        ground=woken,
        call=lambda storage, sequence: storage.events.acknowledge_wake("p", sequence),
        again=Again.REPORTED,
    ),
)

GRANTS: tuple[AnyCase, ...] = (
    Case(
        method="GrantStore.grant",
        ground=running,
        call=lambda storage, _: storage.grants.grant(granted("s", frame="f", kind="k", label="l")),
        again=Again.SAME,
    ),
    Case(
        method="GrantStore.revoke",
        ground=running,
        call=lambda storage, _: storage.grants.revoke(scope("s"), "p"),
        again=Again.REPORTED,
    ),
    Case(
        method="GrantStore.transfer",
        ground=running,
        call=lambda storage, _: storage.grants.transfer(scope("s"), scope("s", "f"), ["p"]),
        again=GrantNotFound,
    ),
    Case(
        method="GrantStore.detach_session",
        ground=woken,
        call=lambda storage, _: storage.grants.detach_session("s"),
        again=Again.REPORTED,
    ),
)

CASES: tuple[AnyCase, ...] = (*PROCESSES, *LEASES, *EVENTS, *GRANTS)
