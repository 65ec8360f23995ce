"""Rules about durable waits, with old keys among the valid ones."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Final

import msgspec
from hypothesis import strategies as st

from lash.model.effect import ExecutionScope, OperationScope, ProcessScope, TurnScope
from lash.model.process.process import ProcessAcquired, Success
from lash.model.session.created import CreatedSession
from lash.model.wait import (
    Cancelled,
    CustomIdentity,
    Rejected,
    Resolution,
    Resolved,
    TimedOut,
    ToolCompletion,
    UnknownOrRevoked,
    WaitIdentity,
    WaitKey,
    WaitRecord,
)
from tests.factories.process import process
from tests.factories.session import owner
from tests.proof.model.base_rules import SessionLife
from tests.proof.model.expected import like, plain
from tests.proof.model.kit import Refused, action
from tests.proof.model.lease_rules import recent
from tests.proof.model.wait_model import Key, WaitModel
from tests.proof.model.world import Side, World

SCOPES: Final[tuple[ExecutionScope, ...]] = (
    TurnScope(session_id="s0", turn_id="t"),
    TurnScope(session_id="s1", turn_id="t"),
    ProcessScope(process_id="p"),
    OperationScope(operation_id="o"),
)
IDENTITIES: Final[tuple[WaitIdentity, ...]] = (CustomIdentity(key="k"), ToolCompletion(tool_call_id="k"))
RESOLUTIONS: Final[tuple[Resolution, ...]] = (
    Resolved(value={"approved": True}),
    Resolved(),
    Rejected(code="no", message="not today"),
    Cancelled(),
    TimedOut(),
)
PROCESS: Final = "process:p"
scopes: Final = st.sampled_from(SCOPES)
identities: Final = st.sampled_from(IDENTITIES)
timeouts: Final = st.sampled_from((None, 0, 400, 1_000))


@dataclasses.dataclass(frozen=True)
class Seen:
    """One key: the one the storage returned, and what the model remembers of it."""

    key: WaitKey
    known: Key


class WaitRules(SessionLife):
    """Keys are made, waits are opened, resolved, timed out, cancelled and revoked."""

    LEFT_OUT: ClassVar[frozenset[tuple[str, str]]] = frozenset({("lash_waits", "key_id")})

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.waits = WaitModel()
        self.seen: list[Seen] = []

    @action(8, scope=scopes, identity=identities)
    def make_key(self, scope: ExecutionScope, identity: WaitIdentity) -> None:
        """The same key during one life and generation of its owner, and another one afterwards."""

        def model(got: WaitKey | None) -> WaitKey | None:
            known = self.waits.key(scope, identity)
            if got is not None:
                before = next((each.key for each in self.seen if each.known is known), None)
                assert before in (None, got), "the key of a wait never changes"
                strangers = {each.key.text for each in self.seen if each.known is not known}
                assert got.text not in strangers, "no two waits have one key"
                assert (got.scope, got.identity) == (scope, identity)
                self.seen.insert(0, Seen(got, known))
            return got

        self.step("key", lambda side: side.storage.waits.key(scope, identity), model)

    @action(8, when=lambda self: self.seen, which=recent, timeout_ms=timeouts, as_text=st.booleans())
    def open_wait(self, which: int, timeout_ms: int | None, *, as_text: bool) -> None:
        seen = self._seen(which)
        self.step(
            "open",
            lambda side: side.storage.waits.open(_shown(side, seen.key, as_text=as_text), timeout_ms=timeout_ms),
            like(lambda: self.waits.open(seen.known, timeout_ms, self.now_ms)),
        )

    @action(
        8, when=lambda self: self.seen, which=recent, resolution=st.sampled_from(RESOLUTIONS), as_text=st.booleans()
    )
    def resolve(self, which: int, resolution: Resolution, *, as_text: bool) -> None:
        seen = self._seen(which)
        answer = self.step(
            "resolve",
            lambda side: side.storage.waits.resolve(_shown(side, seen.key, as_text=as_text), resolution),
            lambda _: self.waits.resolve(seen.known, resolution, self.now_ms),
        )
        self.count(f"resolve:{type(answer).__name__}")

    @action(2, when=lambda self: self.seen, which=recent)
    def cancel(self, which: int) -> None:
        seen = self._seen(which)
        answer = self.step(
            "cancel",
            lambda side: side.storage.waits.cancel(side.own(seen.key)),
            lambda _: self.waits.resolve(seen.known, Cancelled(), self.now_ms),
        )
        self.count(f"cancel:{type(answer).__name__}")

    @action(2, when=lambda self: self.seen, which=recent, spoil=st.sampled_from(("cut", "turned", "other scope")))
    def tamper(self, which: int, spoil: str) -> None:
        """Any defect of a key is reported like a revoked key, and nothing is written."""
        seen = self._seen(which)

        def spoilt(side: Side) -> WaitKey | str:
            own = side.own(seen.key)
            if spoil == "other scope":
                return msgspec.structs.replace(own, scope=OperationScope(operation_id="mine"))
            return own.text[:-1] if spoil == "cut" else own.text.swapcase()

        self.step(
            "resolve:tampered",
            lambda side: side.storage.waits.resolve(spoilt(side), Resolved(value="mine")),
            lambda _: UnknownOrRevoked(),
        )
        self.step("open:tampered", lambda side: side.storage.waits.open(spoilt(side)), _unknown)
        self.step("get:tampered", lambda side: side.storage.waits.get(spoilt(side)), lambda _: None)

    @action(3, when=lambda self: self.seen, which=recent, timeout_ms=timeouts)
    def wait_impatiently(self, which: int, timeout_ms: int | None) -> None:
        """Wait with a timeout of zero: a resolution is returned, and a deadline is set anyway."""
        seen = self._seen(which)

        def model(_: Resolution | None) -> Resolution:
            known = self.waits.open(seen.known, timeout_ms, self.now_ms)
            if known.resolution is None:
                raise Refused("WaitTimedOut")
            return known.resolution

        # A waiter may time out an overdue wait, or give up before reading: the model must know which.
        if seen.known in [each.key for each in self.waits.due(self.now_ms)] or timeout_ms == 0:
            return
        self.step(
            "wait",
            lambda side: side.storage.waits.wait(side.own(seen.key), timeout_ms=timeout_ms, patience_s=0),
            model,
        )

    @action(3)
    def expire(self) -> None:
        expired = self.step(
            "expire", lambda side: side.storage.waits.expire(), lambda _: self.waits.expire(self.now_ms)
        )
        self.count("expire:some" if expired else "expire:none")

    @action(2, session_id=st.sampled_from(("s0", "s0", "s1", "never")))
    def revoke(self, session_id: str) -> None:
        gone = self.step(
            "revoke", lambda side: side.storage.waits.revoke(session_id), lambda _: self.waits.revoke(session_id)
        )
        self.count("revoke:some" if gone else "revoke:none")

    @action(2, age=st.sampled_from((-1, 0, 400)))
    def prune(self, age: int) -> None:
        before = self.now_ms - age
        gone = self.step(
            "prune",
            lambda side: side.storage.waits.prune(resolved_before_ms=before),
            lambda _: self.waits.prune(before),
        )
        self.count("prune:some" if gone else "prune:none")

    @action(4, when=lambda self: self.seen, which=recent, scope=st.one_of(st.none(), scopes))
    def read(self, which: int, scope: ExecutionScope | None) -> None:
        seen = self._seen(which)
        self.step(
            "get", lambda side: side.storage.waits.get(side.own(seen.key)), like(lambda: self.waits.get(seen.known))
        )
        self.step(
            "pending",
            lambda side: _pending(side, scope),
            lambda _: sorted((plain(each) for each in self.waits.pending(scope)), key=repr),
        )
        if PROCESS in self.waits.lives:
            self.step("reasons", _reasons, lambda _: self.waits.reasons[PROCESS])

    @action(3)
    def register(self) -> None:
        self.step("register", _registered, lambda _: PROCESS not in self.waits.lives)
        if PROCESS not in self.waits.lives:
            self.waits.create_owner(PROCESS)

    @action(1)
    def end_and_prune(self) -> None:
        """End the process and prune it, which removes its waits."""
        if PROCESS in self.waits.lives:
            self.step("prune_process", lambda side: _ended(side, self.now_ms), lambda _: True)
            self.waits.remove_owner(PROCESS)

    def forget_session(self, session_id: str) -> bool:
        if f"session:{session_id}" in self.waits.lives:
            self.waits.remove_owner(f"session:{session_id}")
        return super().forget_session(session_id)

    def _created(self, session_id: str, got: CreatedSession | None) -> CreatedSession:
        if f"session:{session_id}" not in self.waits.lives:
            self.waits.create_owner(f"session:{session_id}")
        return super()._created(session_id, got)

    def _seen(self, which: int) -> Seen:
        return self.seen[which % len(self.seen)]


def _unknown(_: WaitRecord | None) -> WaitRecord:
    raise Refused("WaitUnknown")


def _shown(side: Side, key: WaitKey, *, as_text: bool) -> WaitKey | str:
    own = side.own(key)
    return own.text if as_text else own


async def _pending(side: Side, scope: ExecutionScope | None) -> list[object]:
    """Return what is pending; the order is that of ids, which each database makes separately."""
    found = await side.storage.waits.pending(scope=scope)
    assert [each.key_id for each in found] == sorted(each.key_id for each in found)
    return sorted((plain(each) for each in found), key=repr)


async def _registered(side: Side) -> bool:
    return (await side.storage.processes.register(process("p"))).created


async def _reasons(side: Side) -> int:
    """Return how many reasons there are to run the process: one for each resolution of its waits."""
    claimed = await side.storage.process_leases.claim("p", owner("worker"), ttl_ms=0)
    assert isinstance(claimed, ProcessAcquired)
    return claimed.wake_seq


async def _ended(side: Side, now_ms: int) -> bool:
    await side.storage.processes.complete("p", Success())
    pruned = await side.storage.processes.prune(ended_before_ms=now_ms + 1, through_cursor=None)
    return pruned.pruned_process_ids == ("p",)
