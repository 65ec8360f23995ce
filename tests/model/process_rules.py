"""Rules about processes: what is registered, what is appended to their logs, whom they wake, and how they end."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from lash.model.causal import ProcessCause
from lash.model.event import EventDraft, WakeState
from lash.model.process import (
    Abandonment,
    Cancellation,
    EngineInput,
    ExternalInput,
    ExternalRef,
    Failure,
    Identity,
    Outcome,
    ProcessFilter,
    ProcessRecord,
    ProcessStatus,
    Provenance,
    Recovery,
    Registration,
    SignalWait,
    Success,
)
from lash.model.queue import Boundary, Claim, ProcessWake
from lash.model.session import CreatedSession
from lash.model.value import JSON
from lash.testing.factories import acquired, commit, owner
from tests.model.base_rules import SessionLife, session_ids
from tests.model.event_types import DECLARED
from tests.model.expected import like
from tests.model.kit import action
from tests.model.process_model import ProcessModel
from tests.model.world import Side, World

PROCESS_IDS: Final = ("P", "a", "ä")
"""In the order of their code points, which is not that of every language."""
process_ids: Final = st.sampled_from(("a", "a", "a", *PROCESS_IDS))

ENGINE: Final = EngineInput(kind="work", payload={"n": 1})
KINDS: Final[tuple[dict[str, Any], ...]] = (
    {"input": ENGINE, "environment_ref": "e", "wake_session_id": "s0"},
    {"input": ENGINE, "environment_ref": "e", "wake_session_id": "s1", "recovery": Recovery.OWNER_BOUND},
    {"input": ExternalInput(metadata={"at": "elsewhere"}), "recovery": Recovery.EXTERNAL},
    {
        "input": ENGINE,
        "environment_ref": "e",
        "provenance": Provenance(caused_by=ProcessCause(process_id="a")),
    },
)
PAYLOADS: Final[tuple[tuple[str, JSON], ...]] = (
    ("note", None),
    ("note", {"x": [1, 2.5, "ü"]}),
    ("count", {"n": 1}),
    ("count", {"n": "one"}),
    ("news", {"text": "hello"}),
    ("news", {"txt": "hello"}),
    ("ping", {"who": "ann"}),
    ("ping", {"who": "bob"}),
    ("ping", {}),
    ("done", {"answer": 42}),
    ("done", {}),
    ("broke", "it did"),
    ("process.completed", {"outcome": {"type": "success", "value": 1}}),
    ("process.cancel_requested", {"reason": "by hand"}),
    ("unheard_of", None),
)
OUTCOMES: Final[tuple[Outcome, ...]] = (
    Success(value={"answer": 42}),
    Success(value=None),
    Failure(code="broken", message="it broke"),
    Cancellation(message="as asked"),
    Abandonment(message="gone", evidence={"since": 3}),
)
REFERENCES: Final = (ExternalRef(backend="k8s", id="pod-1"), ExternalRef(backend="k8s", id="pod-2", metadata=[1]))
WAITS: Final = (SignalWait(name="go", ordinal=1), SignalWait(name="go", ordinal=2), SignalWait(name="stop", ordinal=1))
FILTERS: Final = (
    ProcessFilter(),
    ProcessFilter(status=ProcessStatus.RUNNING),
    ProcessFilter(status=ProcessStatus.COMPLETED, kind="work"),
    ProcessFilter(waiting=True),
    ProcessFilter(wake_session_id="s0"),
)


def registration(process_id: str, kind: int) -> Registration:
    """Return one of the registrations that there are of an id."""
    fields = KINDS[kind]
    return Registration(
        process_id=process_id,
        identity=Identity(kind="external" if kind == 2 else "work"),  # noqa: PLR2004 (the third is external)
        event_types=DECLARED,
        **fields,
    )


class ProcessRules(SessionLife):
    """Processes, their logs, their wakes and their ends."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.processes = ProcessModel()
        self.create("s0")
        self.register("a", 0)

    @action(6, process_id=process_ids, kind=st.sampled_from((0, 0, 1, 2, 3)))
    def register(self, process_id: str, kind: int) -> None:
        wanted = registration(process_id, kind)
        made = self.step(
            "register",
            lambda side: side.storage.processes.register(wanted),
            like(lambda: self.processes.register(wanted, self.now_ms)),
        )
        if made is not None:
            self.count("register:new" if made.created else "register:known")

    @action(
        8,
        process_id=process_ids,
        content=st.sampled_from(PAYLOADS),
        key=st.sampled_from((None, None, "k1", "k2")),
        target=st.sampled_from((None, None, "s0", "s2")),
    )
    def append(self, process_id: str, content: tuple[str, JSON], key: str | None, target: str | None) -> None:
        draft = EventDraft(event_type=content[0], payload=content[1], replay_key=key, wake_session_id=target)
        appended = self.step(
            "append",
            lambda side: side.storage.events.append(process_id, draft),
            like(lambda: self.processes.append(process_id, draft, self.now_ms)),
        )
        if appended is not None:
            self.count("append:replayed" if appended.replayed else "append:new")
            if appended.wake is not None and not appended.replayed:
                self.count(f"wake:{appended.wake.state.value}")
        self.check(process_id)

    @action(
        4,
        process_id=process_ids,
        name=st.sampled_from(("go", "go", "stop", "unheard_of")),
        signal_id=st.sampled_from("abc"),
        payload=st.sampled_from(("x", 3)),
    )
    def signal(self, process_id: str, name: str, signal_id: str, payload: JSON) -> None:
        self.step(
            "signal",
            lambda side: side.storage.events.signal(process_id, name, signal_id=signal_id, payload=payload),
            like(lambda: self.processes.signal(process_id, name, signal_id, payload, self.now_ms)),
        )
        self.check(process_id)

    @action(2, process_id=process_ids, outcome=st.sampled_from(OUTCOMES))
    def complete(self, process_id: str, outcome: Outcome) -> None:
        self.step(
            "complete",
            lambda side: side.storage.processes.complete(process_id, outcome),
            like(lambda: self.processes.complete(process_id, outcome, self.now_ms)),
        )
        self.check(process_id)

    @action(2, process_id=process_ids)
    def abandon(self, process_id: str) -> None:
        outcome = Abandonment(message="gone", evidence={"since": 3})
        self.step(
            "abandon",
            lambda side: side.storage.processes.abandon(process_id, outcome),
            like(lambda: self.processes.abandon(process_id, outcome, self.now_ms)),
        )
        self.check(process_id)

    @action(3, process_id=process_ids, what=st.sampled_from(("cancel", "abandon")), reason=st.sampled_from(("", "why")))
    def request(self, process_id: str, what: str, reason: str) -> None:
        async def ask(side: Side) -> ProcessRecord:
            store = side.storage.processes
            request = store.request_cancel if what == "cancel" else store.request_abandon
            return await request(process_id, reason=reason)

        self.step(
            f"request_{what}",
            ask,
            like(
                lambda: self.processes.own_event(
                    process_id, f"{what}_requested", {"reason": reason}, f"{what}:{reason}", self.now_ms
                )
            ),
        )
        self.check(process_id)

    @action(1, process_id=process_ids, reference=st.sampled_from(REFERENCES))
    def set_external_ref(self, process_id: str, reference: ExternalRef) -> None:
        payload = {"backend": reference.backend, "id": reference.id}
        if reference.metadata is not None:
            payload["metadata"] = reference.metadata
        self.step(
            "external_ref",
            lambda side: side.storage.processes.set_external_ref(process_id, reference),
            like(lambda: self.processes.own_event(process_id, "external_ref_set", payload, None, self.now_ms)),
        )
        self.check(process_id)

    @action(2, process_id=process_ids, wait=st.sampled_from(WAITS))
    def set_wait(self, process_id: str, wait: SignalWait) -> None:
        payload: JSON = {"wait": {"name": wait.name, "ordinal": wait.ordinal}}
        key = f"waiting:signal.{wait.name}:{wait.ordinal}"
        self.step(
            "set_wait",
            lambda side: side.storage.processes.set_wait(process_id, wait),
            like(lambda: self.processes.own_event(process_id, "waiting", payload, key, self.now_ms)),
        )
        self.check(process_id)

    @action(2, process_id=process_ids, wait=st.sampled_from(WAITS))
    def clear_wait(self, process_id: str, wait: SignalWait) -> None:
        payload: JSON = {"name": wait.name, "ordinal": wait.ordinal}
        key = f"resumed:signal.{wait.name}:{wait.ordinal}"
        self.step(
            "clear_wait",
            lambda side: side.storage.processes.clear_wait(process_id, wait),
            like(lambda: self.processes.own_event(process_id, "resumed", payload, key, self.now_ms)),
        )
        self.check(process_id)

    @action(3, age=st.sampled_from((-1, 0, 1_000)))
    def prune(self, age: int) -> None:
        before = self.now_ms - age
        pruned = self.step(
            "prune",
            lambda side: _pruned(side, before),
            lambda _: sorted(self.pruned(before)),
        )
        self.count("prune:some" if pruned else "prune:none")

    @action(2, process_id=process_ids, sequence=st.integers(1, 6))
    def acknowledge(self, process_id: str, sequence: int) -> None:
        was_open = self.step(
            "acknowledge",
            lambda side: side.storage.events.acknowledge_wake(process_id, sequence),
            lambda _: self.processes.acknowledge(process_id, sequence),
        )
        self.count(f"acknowledge:{was_open}")

    @action(3, when=lambda self: any(self.processes.queues.values()), session_id=session_ids)
    def consume(self, session_id: str) -> None:
        if not self.processes.queues.get(session_id):
            return
        revision = self.sessions.live[session_id].revision
        self.step(
            "consume", lambda side: _consumed(side, session_id, revision), lambda _: self._consume(session_id)
        )

    @action(1, process_id=process_ids, ordinal=st.integers(1, 3), after=st.integers(0, 4))
    def read(self, process_id: str, ordinal: int, after: int) -> None:
        self.step(
            "signal_at",
            lambda side: side.storage.events.signal_at(process_id, "go", ordinal),
            like(lambda: next(iter(self._of_type(process_id, "signal.go")[ordinal - 1 :]), None)),
        )
        self.step(
            "wakes_after",
            lambda side: side.storage.events.wakes_after(process_id, after),
            like(lambda: self.processes.open_wakes(process_id, after)),
        )
        self.step(
            "recent",
            lambda side: side.storage.events.recent(process_id, ordinal),
            like(lambda: self.processes.find(process_id).log[-ordinal:]),
        )
        self.step(
            "count_through",
            lambda side: side.storage.events.count_through(process_id, "note", after),
            lambda _: sum(event.sequence <= after for event in self._of_type(process_id, "note")),
        )

    @action(1, wanted=st.sampled_from(FILTERS))
    def list_all(self, wanted: ProcessFilter) -> None:
        self.step(
            "list",
            lambda side: side.storage.processes.list(wanted),
            like(lambda: {"processes": [each for each in self._newest_first() if _fits(each, wanted)]}),
        )
        self.step(
            "last_sequences",
            lambda side: side.storage.events.last_sequences(PROCESS_IDS),
            lambda _: {each.process_id: len(each.log) for each in self.processes.processes.values()},
        )
        self.step(
            "undeliverable",
            lambda side: side.storage.events.undeliverable_wakes(),
            like(
                lambda: [
                    each.wakes[number]
                    for each in self.processes.processes.values()
                    for number in sorted(each.wakes)
                    if each.wakes[number].state is WakeState.UNDELIVERABLE
                ]
            ),
        )

    def check(self, process_id: str) -> None:
        """The record is what the log adds up to, and the log has no gap."""
        known = self.processes.processes.get(process_id)
        self.step(
            "get",
            lambda side: side.storage.processes.get(process_id),
            like(lambda: None if known is None else known.record()),
        )
        if known is not None:
            self.step("log", lambda side: side.storage.events.after(process_id), like(lambda: known.log))

    def pruned(self, before: int) -> set[str]:
        """Prune in the model; machines with more about processes say so here."""
        return self.processes.prune(before, None)

    def forget_session(self, session_id: str) -> bool:
        self.processes.delete_session(session_id, self.now_ms)
        return super().forget_session(session_id)

    def _created(self, session_id: str, got: CreatedSession | None) -> CreatedSession:
        if session_id not in self.sessions.live:
            self.processes.create_session(session_id)
        return super()._created(session_id, got)

    def _consume(self, session_id: str) -> tuple[str, int, str]:
        wake = self.processes.consume(session_id)
        self.sessions.live[session_id].revision += 1
        return wake.process_id, wake.sequence, wake.wake.input

    def _of_type(self, process_id: str, name: str) -> list[Any]:
        return [event for event in self.processes.find(process_id).log if event.event_type == name]

    def _newest_first(self) -> list[ProcessRecord]:
        return [each.record() for each in reversed(self.processes.processes.values())]

    def wake_states(self) -> Counter[str]:
        """Return how many wakes there should be of each state."""
        return Counter(
            wake.state.value for process in self.processes.processes.values() for wake in process.wakes.values()
        )


def _fits(record: ProcessRecord, wanted: ProcessFilter) -> bool:
    identity = record.registration.identity
    return (
        wanted.status in (None, record.status)
        and wanted.waiting in (None, record.projection.wait is not None)
        and wanted.kind in (None, None if identity is None else identity.kind)
        and wanted.wake_session_id in (None, record.wake_session_id)
    )


async def _pruned(side: Side, before: int) -> list[str]:
    answer = await side.storage.processes.prune(ended_before_ms=before, through_cursor=None)
    assert not answer.more
    return sorted(answer.pruned_process_ids)


async def _consumed(side: Side, session_id: str, revision: int) -> tuple[str, int, str]:
    """Run a turn that takes the next wake, and return what it was."""
    storage = side.storage
    lease = acquired(await storage.leases.claim(session_id, owner("consumer"), ttl_ms=60_000))
    claim = await storage.queue.claim(lease.fence, boundary=Boundary.IDLE, ttl_ms=60_000)
    assert isinstance(claim, Claim), claim
    values = commit(revision, session_id=session_id, fence=lease.fence, release=lease.fence)
    await storage.session(session_id).commit(msgspec.structs.replace(values, completions=(claim.completion,)))
    [batch] = claim.batches
    [wake] = batch.payloads
    assert isinstance(wake, ProcessWake)
    return wake.process_id, wake.sequence, wake.input
