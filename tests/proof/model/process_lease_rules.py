"""Rules about process leases, with stale fences among the valid ones."""

from __future__ import annotations

import dataclasses
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import invariant

from lash.model.lease import Lease, LeaseOwner
from lash.model.process.process import (
    Abandonment,
    Outcome,
    ProcessAcquired,
    ProcessLeaseOutcome,
    ProcessRefused,
)
from tests.proof.model.expected import like
from tests.proof.model.kit import action
from tests.proof.model.lease_rules import OWNERS, recent, ttls
from tests.proof.model.process_lease_model import Held, ProcessLeaseModel, lease_of
from tests.proof.model.process_life import OUTCOMES, ProcessLife, process_ids
from tests.proof.model.world import Side, World

DEAD: Final = OWNERS["eve"]
owners: Final = st.sampled_from((*OWNERS, "eve"))
ABLE: Final = ("ann", "ann", "bob", "eve restarted")
"""Mostly owners that can check whether a process of their machine is dead."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """One acquisition: the storage's result, and what the model remembers of it."""

    lease: Lease
    held: Held


class ProcessLeaseRules(ProcessLife):
    """Claim, reclaim, renew, release, park and complete, and the work list that workers poll."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.leases = ProcessLeaseModel(self.processes)
        self.seen: list[Seen] = []
        """Every acquisition, newest first: mostly old ones, so that old fences are tried again and again."""
        self._highest: dict[str, int] = {}

    def prepare(self) -> None:
        super().prepare()
        self.register("P", 1)
        self.register("ä", 2)

    @action(8, process_id=process_ids, who=owners, ttl_ms=ttls)
    def claim(self, process_id: str, who: str, ttl_ms: int) -> None:
        claimant = OWNERS[who]
        outcome = self.step(
            "claim",
            lambda side: side.storage.process_leases.claim(process_id, claimant, ttl_ms=ttl_ms),
            like(lambda: self.leases.claim(process_id, claimant, ttl_ms, self.now_ms)),
        )
        self._remember("claim", outcome)
        self.check(process_id)

    @action(6, when=lambda self: self.seen, which=st.integers(0, 1), who=st.sampled_from(ABLE), ttl_ms=ttls)
    def reclaim(self, which: int, who: str, ttl_ms: int) -> None:
        claimant = OWNERS[who]
        seen = self._seen(which)
        # The claimant must be able to check it, so it has to be a process of the same machine.
        dead = seen.held if seen.lease.owner == DEAD and claimant.process is not None else None
        outcome = self.step(
            "reclaim",
            lambda side: side.storage.process_leases.reclaim(
                seen.lease.resource.id, claimant, observed=side.own(seen.lease), ttl_ms=ttl_ms
            ),
            like(lambda: self.leases.claim(seen.lease.resource.id, claimant, ttl_ms, self.now_ms, displacing=dead)),
        )
        self._remember("reclaim", outcome)
        self.check(seen.lease.resource.id)

    @action(4, when=lambda self: self.seen, which=recent, ttl_ms=ttls)
    def renew(self, which: int, ttl_ms: int) -> None:
        seen = self._seen(which)
        self.step(
            "renew",
            lambda side: side.storage.process_leases.renew(side.own(seen.lease.fence), ttl_ms=ttl_ms),
            like(lambda: self.leases.renew(seen.held, ttl_ms, self.now_ms)),
        )

    @action(3, when=lambda self: self.seen, which=recent)
    def release(self, which: int) -> None:
        seen = self._seen(which)
        freed = self.step(
            "release",
            lambda side: side.storage.process_leases.release(side.own(seen.lease.fence)),
            lambda _: self.leases.release(seen.held),
        )
        self.count(f"release:{freed}")

    @action(
        5,
        when=lambda self: self.seen,
        which=recent,
        late=st.sampled_from((0, 0, 1)),
        pause=st.sampled_from((None, 0, 1_000)),
    )
    def park(self, which: int, late: int, pause: int | None) -> None:
        seen, until = self._seen(which), None if pause is None else self.now_ms + pause
        reasons = seen.held.reasons + late
        parked = self.step(
            "park",
            lambda side: side.storage.process_leases.park(side.own(seen.lease.fence), wake_seq=reasons, until_ms=until),
            lambda _: self.leases.park(seen.held, reasons, until, self.now_ms),
        )
        self.count(f"park:{parked}")

    @action(3, when=lambda self: self.seen, which=recent, outcome=st.sampled_from(OUTCOMES))
    def complete_leased(self, which: int, outcome: Outcome) -> None:
        seen = self._seen(which)
        self.step(
            "complete_leased",
            lambda side: side.storage.process_leases.complete(side.own(seen.lease.fence), outcome),
            like(lambda: self.leases.complete(seen.held, outcome, self.now_ms)),
        )
        self.check(seen.lease.resource.id)

    @action(2)
    def claim_bound(self) -> None:
        """Let one owner begin a process that is then bound to it, and another claim it once the lease has expired."""
        self.claim("P", "ann", 0)
        self.claim("P", "bob", 1_000)

    @action(1, when=lambda self: self.seen, which=recent)
    def lose(self, which: int) -> None:
        """End and prune a process, and go on with its fences."""
        process_id = self._seen(which).lease.resource.id
        self.complete(process_id, OUTCOMES[0])
        self.prune(-1)
        self.renew(which, 1_000)
        self.claim(process_id, "ann", 1_000)

    @action(3, process_id=process_ids)
    def abandon(self, process_id: str) -> None:
        outcome = Abandonment(message="gone", evidence={"since": 3})
        self.step(
            "abandon",
            lambda side: side.storage.processes.abandon(process_id, outcome),
            like(lambda: self.processes.abandon(process_id, outcome, self.now_ms)),
        )
        self.check(process_id)

    @action(4, who=owners, process_id=process_ids)
    def look_for_work(self, who: str, process_id: str) -> None:
        self.step("look", lambda side: _ready(side, OWNERS[who]), lambda _: self.leases.ready(OWNERS[who], self.now_ms))
        self.step("runnable", _runnable, lambda _: self.leases.runnable(self.now_ms))
        self.step(
            "holder",
            lambda side: side.storage.process_leases.holder(process_id),
            like(lambda: self._holder(process_id)),
        )

    @invariant()
    def fencing_numbers_only_grow(self) -> None:
        """The newest number of an id never decreases, not even by pruning."""
        live = {each.process_id: each.fencing for each in self.processes.processes.values()}
        for process_id, fencing in (self.processes.pruned | live).items():
            assert fencing >= self._highest.get(process_id, 0)
            self._highest[process_id] = fencing

    def _holder(self, process_id: str) -> Lease | None:
        process = self.processes.find(process_id)
        return None if process.holder is None else lease_of(process)

    def _seen(self, which: int) -> Seen:
        return self.seen[which % len(self.seen)]

    def _remember(self, name: str, outcome: ProcessLeaseOutcome | None) -> None:
        if isinstance(outcome, ProcessRefused):
            self.count(f"{name}:{outcome.reason.value}")
        elif isinstance(outcome, ProcessAcquired):
            kind = "reentered" if outcome.reentered else "acquired" if outcome.displaced is None else "displaced"
            self.count(f"{name}:{kind}")
            lease = outcome.lease
            if not outcome.reentered:
                assert self.is_new(lease.token)
            held = Held(self.processes.processes[lease.resource.id], lease.owner, lease.fencing, outcome.wake_seq)
            self.seen.insert(0, Seen(lease, held))


async def _ready(side: Side, who: LeaseOwner) -> set[str]:
    return set((await side.storage.work.poll(sessions=0, processes=100, owner=who)).process_ids)


async def _runnable(side: Side) -> list[str]:
    return [record.process_id for record in await side.storage.processes.runnable()]
