"""Rules about leases, with stale fences among the valid ones."""

from __future__ import annotations

from typing import Final

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import invariant

from lash.backend.liveness import current_process
from lash.model.lease import Acquired, Busy, Lease, LeaseOwner, LocalProcess
from tests.factories.session import owner
from tests.proof.model import lease_model
from tests.proof.model.base_rules import SessionLife, session_ids
from tests.proof.model.kit import action
from tests.proof.model.world import World

TTLS: Final = (60_000, 5_000, 5_000, 5_000, 1_000, 1_000, 1_000, 1, 0)
ttls: Final = st.sampled_from(TTLS)
recent: Final = st.sampled_from((0, 0, 0, 0, 0, 0, 1, 1, 2, 5))
"""Which of the fences seen, the newest first."""


def _process(start: str | None) -> LocalProcess | None:
    """Return this process, or one with its pid that is gone because it started at another time."""
    alive = current_process()
    return alive if start is None or alive is None else msgspec.structs.replace(alive, process_start=start)


OWNERS: Final = {
    "ann": owner("ann", process=_process(None)),
    "bob": owner("bob"),
    "bob again": owner("bob", "2"),
    "eve": owner("eve", process=_process("1")),
    "eve restarted": owner("eve", process=_process(None)),
}
"""A live process, one that cannot be checked, another boot of it, a dead one, and a live one of the same name."""
owners: Final = st.sampled_from(tuple(OWNERS))


class LeaseRules(SessionLife):
    """Claim, reclaim, renew and release."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.leases: list[Lease] = []
        """Every acquisition, newest first: mostly old ones, so that old fences are tried again and again."""
        self._highest: dict[str, int] = {}

    @action(6, session_id=session_ids, who=owners, ttl_ms=ttls)
    def claim_lease(self, session_id: str, who: str, ttl_ms: int) -> None:
        claimant = OWNERS[who]
        outcome = self.step(
            "lease.claim",
            lambda side: side.storage.leases.claim(session_id, claimant, ttl_ms=ttl_ms),
            lambda got: lease_model.claim(self.sessions, session_id, claimant, ttl_ms, _made(got)),
        )
        self._remember("lease.claim", outcome)

    @action(4, when=lambda self: self.leases, which=recent, who=owners, ttl_ms=ttls)
    def reclaim_lease(self, which: int, who: str, ttl_ms: int) -> None:
        claimant = OWNERS[who]
        seen = self.seen_lease(which)
        session_id = seen.resource.id
        outcome = self.step(
            "lease.reclaim",
            lambda side: side.storage.leases.reclaim(
                seen.resource.id, claimant, observed=side.own(seen), ttl_ms=ttl_ms
            ),
            lambda got: lease_model.claim(
                self.sessions, session_id, claimant, ttl_ms, _made(got), over_dead=self._is_dead(seen, claimant)
            ),
        )
        self._remember("lease.reclaim", outcome)

    @action(4, when=lambda self: self.leases, which=recent, ttl_ms=ttls)
    def renew_lease(self, which: int, ttl_ms: int) -> None:
        fence = self.seen_lease(which).fence
        lease = self.step(
            "lease.renew",
            lambda side: side.storage.leases.renew(side.own(fence), ttl_ms=ttl_ms),
            lambda _: lease_model.renew(self.sessions, fence, ttl_ms),
        )
        if lease is not None:
            self.extended(lease)

    @action(4, when=lambda self: self.leases, which=recent, pause_ms=st.sampled_from((0, 500)))
    def release_lease(self, which: int, pause_ms: int) -> None:
        fence = self.seen_lease(which).fence
        freed = self.step(
            "lease.release",
            lambda side: side.storage.leases.release(side.own(fence), pause_ms=pause_ms),
            lambda _: lease_model.release(self.sessions, fence, pause_ms),
        )
        if freed is not None:
            self.count("lease.release:freed" if freed else "lease.release:late")

    @action(session_id=session_ids)
    def look_at_holder(self, session_id: str) -> None:
        self.step(
            "lease.holder",
            lambda side: side.storage.leases.holder(session_id),
            lambda _: self.sessions.need(session_id).lease.holder,
        )

    @invariant()
    def fencing_numbers_only_grow(self) -> None:
        """The newest number of an id never decreases, whatever happens to its sessions."""
        for session_id, state in (self.sessions.deleted | self.sessions.live).items():
            assert state.lease.fencing >= self._highest.get(session_id, 0)
            self._highest[session_id] = state.lease.fencing

    def extended(self, lease: Lease) -> None:
        """Record that a lease was extended; machines with claims extend them here."""

    def seen_lease(self, which: int) -> Lease:
        """Return a current or earlier acquisition."""
        return self.leases[which % len(self.leases)]

    def _remember(self, name: str, outcome: Acquired | Busy | None) -> None:
        if isinstance(outcome, Busy):
            self.count(f"{name}:busy")
        elif isinstance(outcome, Acquired):
            kind = "reentered" if outcome.reentered else "acquired" if outcome.displaced is None else "displaced"
            self.count(f"{name}:{kind}")
            if outcome.reentered:
                self.extended(outcome.lease)
            else:
                assert self.is_new(outcome.lease.token)
                self.leases.insert(0, outcome.lease)

    def _is_dead(self, seen: Lease, who: LeaseOwner) -> bool:
        """Return whether the lease seen is the current one, its holder is dead, and the claimant can check that."""
        state = self.sessions.live.get(seen.resource.id)
        held = None if state is None else state.lease.holder
        is_seen = held is not None and held.token == seen.token
        return is_seen and seen.owner == OWNERS["eve"] and who.process is not None


def _made(outcome: Acquired | Busy | None) -> Lease | None:
    return outcome.lease if isinstance(outcome, Acquired) else None
