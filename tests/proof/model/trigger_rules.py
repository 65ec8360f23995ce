"""Rules about triggers: subscriptions, occurrences, and the processes started for them."""

from __future__ import annotations

from typing import Any, ClassVar, Final, TypeVar

import msgspec
from hypothesis import strategies as st

from lash.model.process.process import (
    AgentScope,
    EngineInput,
    HostOriginator,
    ProcessIdentity,
    SessionOriginator,
    Success,
)
from lash.model.session.created import CreatedSession
from lash.model.trigger.trigger import (
    DeliveryState,
    EmitReport,
    EventPointer,
    FixedInput,
    Occurrence,
    OccurrenceRequest,
    RegisteredTrigger,
    TriggerDelivery,
    TriggerDraft,
    TriggerFilter,
    TriggerOwner,
    TriggerSubscription,
    WholeEvent,
)
from lash.model.value import JSON
from tests.factories.process import process
from tests.proof.model.base_rules import SessionLife, session_ids
from tests.proof.model.expected import like
from tests.proof.model.kit import action
from tests.proof.model.process_model import ProcessModel
from tests.proof.model.trigger_model import REJECTED, Happened, Subscription, TriggerModel, name_of
from tests.proof.model.world import Side, World

T = TypeVar("T")

HOST: Final = HostOriginator()
OWNERS: Final[tuple[TriggerOwner, ...]] = (
    HOST,
    SessionOriginator(scope=AgentScope(session_id="s0")),
    SessionOriginator(scope=AgentScope(session_id="s0", agent_frame_id="f")),
    SessionOriginator(scope=AgentScope(session_id="s1")),
)
NUMBER: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
VARIANTS: Final[tuple[dict[str, Any], ...]] = (
    {"wake_session_id": "s0"},
    {"payload_schema": NUMBER, "input_template": {"n": EventPointer(path="/n"), "all": WholeEvent()}},
    {"input_template": {"n": EventPointer(path="/n"), "one": FixedInput(value=1)}, "wake_session_id": "s2"},
    {"source_key": "red"},
)
PAYLOADS: Final[tuple[JSON, ...]] = (None, {"n": 1}, {"n": "one"}, {"n": "one"})
owners: Final = st.sampled_from((HOST, *OWNERS))
keys: Final = st.sampled_from("kkü")
variants: Final = st.integers(0, len(VARIANTS) - 1)
operations: Final = st.sampled_from((None, None, "op1", "op2"))
stale: Final = st.sampled_from((0, 0, 0, 1))
"""How far behind the caller's expected revision is."""


def draft(owner: TriggerOwner, key: str, variant: int) -> TriggerDraft:
    """Return one of the definitions that there are of a name."""
    fields = {"source_key": "blue", **VARIANTS[variant]}
    return TriggerDraft(
        owner=owner,
        key=key,
        source_type="ui.button",
        target=EngineInput(kind="work", payload={"module": "m"}),
        environment_ref="environment",
        identity=ProcessIdentity(kind="work", label="l"),
        **fields,
    )


class TriggerRules(SessionLife):
    """Subscriptions are created, changed and deleted; occurrences start processes."""

    LEFT_OUT: ClassVar[frozenset[tuple[str, str]]] = frozenset({("lash_processes", "registration_hash")})

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.processes = ProcessModel()
        self.triggers = TriggerModel(self.processes)
        self.happened: list[Happened] = []
        """All recorded occurrences, newest first, including forgotten ones."""
        self.known: list[str] = []
        """The ids of all subscriptions that ever existed, newest first."""

    def prepare(self) -> None:
        super().prepare()
        self.register(HOST, "k", 1, None)
        self.register(HOST, "ü", 0, None)

    @action(8, owner=owners, key=keys, variant=variants, operation=operations)
    def register(self, owner: TriggerOwner, key: str, variant: int, operation: str | None) -> None:
        wanted = draft(owner, key, variant)

        def model(got: RegisteredTrigger | None) -> object:
            made_id = "" if got is None else got.subscription.subscription_id
            return like(lambda: self.triggers.register(wanted, operation, made_id, self.now_ms))(got)

        answer = self.step(
            "register", lambda side: side.storage.triggers.register(wanted, operation_id=operation), model
        )
        if answer is None:
            return
        self.count("register:new" if answer.created else "register:known")
        if answer.subscription.subscription_id not in self.known:
            assert self.is_new(answer.subscription.subscription_id)
            self.known.insert(0, answer.subscription.subscription_id)

    @action(5, owner=owners, key=keys, variant=variants, behind=stale, operation=operations)
    def update(self, owner: TriggerOwner, key: str, variant: int, behind: int, operation: str | None) -> None:
        wanted, revision = draft(owner, key, variant), self._revision(owner, key, behind)
        self.step(
            "update",
            lambda side: side.storage.triggers.update(wanted, revision=revision, operation_id=operation),
            like(lambda: self.triggers.update(wanted, revision, operation, self.now_ms)),
        )

    @action(5, owner=owners, key=keys, enabled=st.booleans(), behind=stale, operation=operations)
    def switch(self, owner: TriggerOwner, key: str, behind: int, operation: str | None, *, enabled: bool) -> None:
        revision, name = self._revision(owner, key, behind), name_of(owner, key)

        async def switch(side: Side) -> TriggerSubscription:
            store = side.storage.triggers
            change = store.enable if enabled else store.disable
            return await change(owner, key, revision=revision, operation_id=operation)

        self.step(
            "enable" if enabled else "disable",
            switch,
            like(lambda: self.triggers.switch(name, revision, operation, self.now_ms, enabled=enabled)),
        )

    @action(3, owner=owners, key=keys, behind=stale, operation=operations)
    def remove(self, owner: TriggerOwner, key: str, behind: int, operation: str | None) -> None:
        revision, name = self._revision(owner, key, behind), name_of(owner, key)
        self.step(
            "remove",
            lambda side: side.storage.triggers.delete(owner, key, revision=revision, operation_id=operation),
            lambda _: self.triggers.delete(name, revision, operation, self.now_ms),
        )

    @action(1, session_id=session_ids)
    def remove_owned(self, session_id: str) -> None:
        self.step(
            "remove_owned",
            lambda side: side.storage.triggers.delete_session(session_id),
            lambda _: self.triggers.delete_owned(session_id, self.now_ms),
        )

    @action(2, age=st.sampled_from((-1, 0, 1_000)))
    def prune_receipts(self, age: int) -> None:
        before = self.now_ms - age
        forgotten = self.step(
            "prune_receipts",
            lambda side: side.storage.triggers.prune_receipts(before_ms=before),
            lambda _: self.triggers.prune_receipts(before),
        )
        self.count("prune_receipts:some" if forgotten else "prune_receipts:none")

    @action(
        10,
        color=st.sampled_from(("blue", "blue", "red")),
        key=st.sampled_from("123"),
        payload=st.sampled_from(PAYLOADS),
    )
    def emit(self, color: str, key: str, payload: JSON) -> None:
        request = OccurrenceRequest(source_type="ui.button", source_key=color, idempotency_key=key, payload=payload)
        known = len(self.triggers.occurrences)
        report = self.step(
            "emit",
            lambda side: side.storage.occurrences.emit(request),
            lambda got: _unreasoned(self.triggers.emit(request, got, self.now_ms), got),
        )
        if report is None:
            return
        self.count("emit:new" if len(self.triggers.occurrences) > known else "emit:known")
        for each in report.deliveries:
            self.count(f"delivery:{each.state.value}")
        happened = self.triggers.occurrences["ui.button", color, key]
        if happened not in self.happened:
            self.happened.insert(0, happened)

    @action(6, when=lambda self: self.happened and self.known, which=st.integers(0, 3), whom=st.integers(0, 3))
    def retry(self, which: int, whom: int) -> None:
        old = self.happened[which % len(self.happened)]
        rejected = [each.subscription_id for each in old.deliveries if each.state is DeliveryState.REJECTED]
        candidates = rejected if rejected and whom > 0 else self.known
        subscription_id = candidates[whom % len(candidates)]
        kept = next((each for each in self.triggers.occurrences.values() if each is old), None)
        if kept is None and old.occurrence_id in {each.occurrence_id for each in self.triggers.occurrences.values()}:
            return
        self.step(
            "retry",
            lambda side: side.storage.occurrences.retry_delivery(old.occurrence_id, side.own(subscription_id)),
            lambda got: _unreasoned(self.triggers.retry(kept, subscription_id, self.now_ms), got),
        )

    @action(4, when=lambda self: self.happened, which=st.integers(0, 3), gone=st.booleans())
    def retry_in_vain(self, which: int, *, gone: bool) -> None:
        """Disable or remove what got nothing of an occurrence, and try to deliver it once more."""
        old = self.happened[which % len(self.happened)]
        rejected = {each.subscription_id for each in old.deliveries if each.state is DeliveryState.REJECTED}
        found = [each.draft for each in self.triggers.subscriptions.values() if each.subscription_id in rejected]
        if found:
            if gone:
                self.remove(found[0].owner, found[0].key, 0, None)
            else:
                self.switch(found[0].owner, found[0].key, 0, None, enabled=False)
            self.retry(which, 1)

    @action(2, when=lambda self: self.happened, which=st.integers(0, 3))
    def squat(self, which: int) -> None:
        """Register another process under the id that a rejected delivery would have."""
        deliveries = self.happened[which % len(self.happened)].deliveries
        wanted = [each.process_id for each in deliveries if each.state is DeliveryState.REJECTED]
        if not wanted or wanted[0] in self.processes.processes:
            return
        squatter = process(wanted[0], identity=ProcessIdentity(kind="work"))
        self.step(
            "squat",
            lambda side: side.storage.processes.register(side.own(squatter)),
            like(lambda: self.processes.register(squatter, self.now_ms)),
        )

    @action(4, when=lambda self: self.processes.processes, which=st.integers(0, 5))
    def end(self, which: int) -> None:
        running = list(self.processes.processes)
        process_id = running[which % len(running)]
        self.step(
            "end",
            lambda side: side.storage.processes.complete(side.own(process_id), Success()),
            like(lambda: self.processes.complete(process_id, Success(), self.now_ms)),
        )

    @action(2)
    def prune_processes(self) -> None:
        before = self.now_ms + 1
        self.step("prune_processes", lambda side: _pruned(side, before), lambda _: self._pruned(before))

    @action(5, age=st.sampled_from((-1, -1, -1, 1_000)))
    def prune(self, age: int) -> None:
        before = self.now_ms - age
        gone = self.step("prune", lambda side: _forgotten(side, before), lambda _: self.triggers.prune(before))
        self.count("prune:some" if gone else "prune:none")

    @action(3, owner=owners, key=keys, enabled=st.sampled_from((None, True, False)))
    def read(self, owner: TriggerOwner, key: str, *, enabled: bool | None) -> None:
        found = self.triggers.subscriptions.get(name_of(owner, key))
        self.step(
            "get",
            lambda side: side.storage.triggers.get(owner, key),
            like(lambda: None if found is None else found.told()),
        )
        self.step(
            "list",
            lambda side: side.storage.triggers.list(TriggerFilter(enabled=enabled)),
            like(lambda: {"subscriptions": [each.told() for each in self._newest_first(enabled=enabled)]}),
        )

    @action(3, when=lambda self: self.triggers.occurrences, which=st.integers(0, 3))
    def read_occurrence(self, which: int) -> None:
        happened = list(self.triggers.occurrences.values())
        chosen = happened[which % len(happened)]
        self.step("occurrence", lambda side: _occurrence(side, chosen.occurrence_id), lambda _: chosen.told())
        self.step(
            "deliveries",
            lambda side: side.storage.occurrences.deliveries(chosen.occurrence_id),
            lambda got: _unreasoned(tuple(chosen.deliveries), got),
        )

    @action(3)
    def look_at_processes(self) -> None:
        """Each started process exists once, as defined, and the sessions that it wakes may see it."""
        self.step(
            "processes",
            lambda side: side.storage.processes.list(),
            like(lambda: {"processes": [each.record() for each in reversed(self.processes.processes.values())]}),
        )
        self.step("grants", _granted, lambda _: self.triggers.grants)

    def forget_session(self, session_id: str) -> bool:
        self.triggers.delete_session(session_id, self.now_ms)
        return super().forget_session(session_id)

    def _created(self, session_id: str, got: CreatedSession | None) -> CreatedSession:
        if session_id not in self.sessions.live:
            self.triggers.sessions.add(session_id)
            self.triggers.deleted_sessions.discard(session_id)
            self.processes.create_session(session_id)
        return super()._created(session_id, got)

    def _revision(self, owner: TriggerOwner, key: str, behind: int) -> int:
        found = self.triggers.subscriptions.get(name_of(owner, key))
        return max(1, (1 if found is None else found.revision) - behind)

    def _newest_first(self, *, enabled: bool | None) -> list[Subscription]:
        return [each for each in reversed(self.triggers.subscriptions.values()) if enabled in (None, each.enabled)]

    def _pruned(self, before: int) -> set[str]:
        gone = self.processes.prune(before, None)
        self.triggers.grants = {each for each in self.triggers.grants if each[1] not in gone}
        return gone


def _unreasoned(expected: T, got: T | None) -> T:
    """Return the result where it equals the prediction; the text of a reason is not predicted."""
    return got if got is not None and _blank(got) == expected else expected


def _blank(value: object) -> object:
    if isinstance(value, TriggerDelivery):
        return msgspec.structs.replace(value, reason=REJECTED if value.reason else None)
    if isinstance(value, EmitReport):
        return msgspec.structs.replace(value, deliveries=_blank(value.deliveries))
    return tuple(_blank(each) for each in value) if isinstance(value, tuple) else value


async def _pruned(side: Side, before: int) -> set[str]:
    return set((await side.storage.processes.prune(ended_before_ms=before, through_cursor=None)).pruned_process_ids)


async def _forgotten(side: Side, before: int) -> list[str]:
    return list((await side.storage.occurrences.prune(before_ms=before)).occurrence_ids)


async def _occurrence(side: Side, occurrence_id: str) -> Occurrence:
    found = await side.storage.occurrences.get(occurrence_id)
    assert found is not None
    return found


async def _granted(side: Side) -> set[tuple[str, str]]:
    """Return which sessions may see which processes."""
    return {
        (session_id, entry.grant.process_id)
        for session_id in ("s0", "s1", "s2")
        for entry in await side.storage.grants.list(AgentScope(session_id=session_id))
    }
