"""Rules about effects, with old claims and fences among the valid ones."""

from __future__ import annotations

import dataclasses
from typing import Final

import msgspec
from hypothesis import strategies as st

from lash.model.effect import (
    EffectClaim,
    EffectClaimed,
    EffectDecision,
    EffectError,
    Envelope,
    ExecutionScope,
    OperationScope,
    ProcessScope,
    Sleep,
    Step,
    TurnScope,
)
from lash.model.lease import LeaseFence
from lash.model.process.process import Success
from lash.model.session.commit import Commit
from lash.model.session.created import CreatedSession
from lash.model.value import JSON
from tests.factories.process import process, process_lease
from tests.factories.session import acquired, commit, owner
from tests.proof.model.base_rules import SessionLife, session_ids
from tests.proof.model.effect_model import WORKER, Claimed, EffectModel, Lease, owner_of
from tests.proof.model.expected import like
from tests.proof.model.kit import action
from tests.proof.model.lease_rules import OWNERS, owners, recent
from tests.proof.model.world import Side, World

TURNS: Final = (TurnScope(session_id="s0", turn_id="t"), TurnScope(session_id="s1", turn_id="t"))
ttls: Final = st.sampled_from((5_000, 1_000, 1, 0))
RUN: Final = ProcessScope(process_id="p")
SCOPES: Final[tuple[ExecutionScope, ...]] = (*TURNS, RUN, OperationScope(operation_id="o"))
scopes: Final = st.sampled_from((TURNS[0], TURNS[0], *SCOPES))
COMMANDS: Final = (
    Step(name="a"),
    Step(name="a", input={"n": 1}),
    Sleep(duration_ms=500),
    Sleep(until_ms=1_700_000_009_000),
)
OUTCOMES: Final = ({"n": 1}, None, EffectError(code="broken", message="it broke"))
envelopes: Final = st.builds(
    lambda scope, key, command, group: Envelope(
        scope=scope, replay_key=key, command=COMMANDS[command], group_key=group
    ),
    scopes,
    st.sampled_from(("k", "k", "K", "ö")),
    st.sampled_from((0, 0, 0, 1, 2, 3)),
    st.sampled_from((None, None, "g")),
)


@dataclasses.dataclass(frozen=True)
class Seen:
    """One claim: the storage's result, and what the model remembers of it."""

    claim: EffectClaim
    claimed: Claimed


@dataclasses.dataclass(frozen=True)
class Fence:
    """One lease: the storage's result, its owner, and the number that the model remembers."""

    fence: LeaseFence
    holder: str
    fencing: int


class EffectRules(SessionLife):
    """Begin, renew, finish, fail, release, take over, record and retire."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.effects = EffectModel()
        self.seen: list[Seen] = []
        self.fences: list[Fence] = []
        self.committed: set[tuple[str, int]] = set()
        """The sessions whose one turn was committed."""

    def prepare(self) -> None:
        super().prepare()
        self.create("s1")
        self.register()
        self.lease("session:s0", 60_000)

    @action(
        10,
        envelope=envelopes,
        who=owners,
        ttl_ms=ttls,
        once=st.sampled_from((False, False, True)),
        strict=st.sampled_from((False, False, False, False, True)),
    )
    def begin(self, envelope: Envelope, who: str, ttl_ms: int, *, once: bool, strict: bool) -> None:
        decision = self.step(
            "begin",
            lambda side: side.storage.effects.claim(envelope, OWNERS[who], ttl_ms=ttl_ms, once=once, strict=strict),
            like(lambda: self.effects.claim(envelope, OWNERS[who], ttl_ms, self.now_ms, once=once, strict=strict)),
        )
        if decision is not None:
            self.count(_kind_of(decision))
        if isinstance(decision, EffectClaimed):
            self._remember(decision.claim)

    @action(4, envelope=envelopes, who=owners, ttl_ms=ttls)
    def take_over(self, envelope: Envelope, who: str, ttl_ms: int) -> None:
        claim = self.step(
            "take_over",
            lambda side: side.storage.effects.take_over(envelope, OWNERS[who], ttl_ms=ttl_ms),
            like(lambda: self.effects.take_over(envelope, OWNERS[who], ttl_ms, self.now_ms)),
        )
        if claim is not None:
            self._remember(claim)

    @action(4, when=lambda self: self.seen, which=recent, who=owners, ttl_ms=ttls)
    def take_over_seen(self, which: int, who: str, ttl_ms: int) -> None:
        self.take_over(self._seen(which).claimed.effect.envelope, who, ttl_ms)

    @action(
        4,
        when=lambda self: self.seen,
        which=recent,
        who=owners,
        ttl_ms=ttls,
        once=st.booleans(),
    )
    def begin_seen(self, which: int, who: str, ttl_ms: int, *, once: bool) -> None:
        self.begin(self._seen(which).claimed.effect.envelope, who, ttl_ms, once=once, strict=False)

    @action(3, when=lambda self: self.seen, which=recent, who=owners)
    def begin_lapsed(self, which: int, who: str) -> None:
        """Begin again an effect whose claim has expired by then."""
        self.jump(5_000)
        self.begin_seen(which, who, 1_000, once=False)

    @action(3, when=lambda self: self.seen, which=recent, ttl_ms=ttls)
    def renew(self, which: int, ttl_ms: int) -> None:
        seen = self._seen(which)
        self.step(
            "renew",
            lambda side: _renewed(side, seen.claim, ttl_ms),
            lambda _: self.effects.renew(seen.claimed, ttl_ms, self.now_ms),
        )

    @action(6, when=lambda self: self.seen, which=recent, outcome=st.sampled_from(OUTCOMES))
    def finish(self, which: int, outcome: JSON | EffectError) -> None:
        seen = self._seen(which)
        is_error = isinstance(outcome, EffectError)
        self.step(
            "fail" if is_error else "finish",
            lambda side: (
                side.storage.effects.fail(side.own(seen.claim), outcome)
                if isinstance(outcome, EffectError)
                else side.storage.effects.finish(side.own(seen.claim), outcome)
            ),
            like(lambda: self.effects.finish(seen.claimed, outcome, self.now_ms)),
        )

    @action(3, when=lambda self: self.seen, which=recent)
    def release(self, which: int) -> None:
        seen = self._seen(which)
        freed = self.step(
            "release",
            lambda side: side.storage.effects.release(side.own(seen.claim)),
            lambda _: self.effects.release(seen.claimed, self.now_ms),
        )
        self.count(f"release:{freed}")

    @action(
        5, name=st.sampled_from(("session:s0", "session:s1", "process:p")), ttl_ms=st.sampled_from((1, 1_000, 60_000))
    )
    def lease(self, name: str, ttl_ms: int) -> None:
        """Take the lease of a session or a process again, like a worker that takes it from another."""
        lease = self.effects.leases.get(name)
        if lease is None:
            return
        fence = self.step("lease", lambda side: _leased(side, name, ttl_ms), lambda got: self._leased(lease, got))
        assert fence is not None
        lease.expires = self.now_ms + ttl_ms
        self.fences.insert(0, Fence(fence, name, lease.fencing))

    @action(8, when=lambda self: self.fences, which=recent, envelope=envelopes, outcome=st.sampled_from(OUTCOMES))
    def record(self, which: int, envelope: Envelope, outcome: JSON | EffectError) -> None:
        seen = self.fences[which % len(self.fences)]
        self.step(
            "record",
            lambda side: side.storage.effects.record(side.own(seen.fence), envelope, outcome),
            like(lambda: self.effects.record(envelope, seen.holder, seen.fencing, outcome, self.now_ms)),
        )

    @action(3, when=lambda self: self.effects.effects, which=st.integers(0, 3), command=st.integers(0, 3))
    def record_again(self, which: int, command: int) -> None:
        """Record an existing effect under the newest fence of its owner, with the same or another outcome."""
        known = list(self.effects.effects.values())
        envelope = known[which % len(known)].envelope
        places = [place for place, each in enumerate(self.fences) if each.holder == owner_of(envelope.scope)]
        if places:
            self.record(places[0], msgspec.structs.replace(envelope, command=COMMANDS[command]), {"n": 1})

    @action(3, scope=scopes, size=st.sampled_from((1, 2, 2)))
    def open_group(self, scope: ExecutionScope, size: int) -> None:
        self.step(
            "open_group",
            lambda side: side.storage.effects.open_group(scope, "g", size=size),
            lambda _: self.effects.open_group(scope, "g", size),
        )

    @action(1, scope=scopes)
    def retire(self, scope: ExecutionScope) -> None:
        self.step("retire", lambda side: side.storage.effects.retire(scope), lambda _: self.effects.retire(scope))

    @action(1, session_id=session_ids)
    def commit_turn(self, session_id: str) -> None:
        """Commit the turn, which removes its effects."""
        state = self.sessions.live.get(session_id)
        if state is None or (session_id, state.incarnation) in self.committed:
            return
        values = commit(state.revision, session_id=session_id, turn_id="t")
        self.step("commit", lambda side: _committed(side, values), lambda _: state.revision + 1)
        state.revision += 1
        self.committed.add((session_id, state.incarnation))
        self.effects.retire(TurnScope(session_id=session_id, turn_id="t"))

    @action(3)
    def register(self) -> None:
        name = owner_of(RUN)
        assert name is not None
        self.step("register", _registered, lambda _: name not in self.effects.leases)
        self.effects.add_owner(name)

    @action(1)
    def end_and_prune(self) -> None:
        """End the process and prune it, which removes its effects."""
        name = owner_of(RUN)
        assert name is not None
        if name not in self.effects.leases:
            return
        self.step("prune", lambda side: _ended(side, self.now_ms), lambda _: True)
        self.effects.remove_owner(name)

    @action(4, scope=scopes, key=st.sampled_from(("k", "K", "none")))
    def read(self, scope: ExecutionScope, key: str) -> None:
        self.step("get", lambda side: side.storage.effects.get(scope, key), like(lambda: self.effects.get(scope, key)))
        self.step("list", lambda side: side.storage.effects.list(scope), like(lambda: self.effects.list(scope)))
        self.step(
            "group", lambda side: side.storage.effects.group(scope, "g"), lambda _: self.effects.group(scope, "g")
        )

    def forget_session(self, session_id: str) -> bool:
        name = f"session:{session_id}"
        if name in self.effects.leases:
            self.effects.remove_owner(name)
        return super().forget_session(session_id)

    def _created(self, session_id: str, got: CreatedSession | None) -> CreatedSession:
        name = f"session:{session_id}"
        self.effects.add_owner(name)
        return super()._created(session_id, got)

    def _leased(self, lease: Lease, got: LeaseFence | None) -> LeaseFence:
        assert got is not None, "no other owner holds it"
        assert got.fencing > lease.fencing, "fencing numbers only grow"
        lease.fencing = got.fencing
        return got

    def _seen(self, which: int) -> Seen:
        return self.seen[which % len(self.seen)]

    def _remember(self, claim: EffectClaim) -> None:
        assert self.is_new(claim.token)
        effect = self.effects.effects[claim.scope, claim.replay_key]
        self.seen.insert(0, Seen(claim, Claimed(effect, claim.fencing)))


def _kind_of(decision: EffectDecision) -> str:
    if isinstance(decision, EffectClaimed) and decision.taken_over:
        return "begin:taken over"
    return f"begin:{type(decision).__name__}"


async def _renewed(side: Side, claim: EffectClaim, ttl_ms: int) -> int:
    return (await side.storage.effects.renew(side.own(claim), ttl_ms=ttl_ms)).expires_at_ms


async def _leased(side: Side, name: str, ttl_ms: int) -> LeaseFence:
    """Take a lease after freeing it; no other owner competes for it."""
    kind, _, own_id = name.partition(":")
    storage = side.storage
    if kind == "session":
        held = await storage.leases.holder(own_id)
        if held is not None:
            await storage.leases.release(held.fence)
        return acquired(await storage.leases.claim(own_id, owner(WORKER), ttl_ms=ttl_ms)).fence
    running = await storage.process_leases.holder(own_id)
    if running is not None:
        await storage.process_leases.release(running.fence)
    return process_lease(await storage.process_leases.claim(own_id, owner(WORKER), ttl_ms=ttl_ms)).fence


async def _committed(side: Side, values: Commit) -> int:
    return (await side.storage.session(values.session_id).commit(values)).revision


async def _registered(side: Side) -> bool:
    return (await side.storage.processes.register(process("p"))).created


async def _ended(side: Side, now_ms: int) -> bool:
    await side.storage.processes.complete("p", Success())
    pruned = await side.storage.processes.prune(ended_before_ms=now_ms + 1, through_cursor=None)
    return pruned.pruned_process_ids == ("p",)
