"""Rules about processes: registration, appends to their logs, the sessions they wake, and how they end."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from lash.model.process.event import EventDraft, WakeState
from lash.model.process.process import (
    Abandonment,
    ExternalRef,
    ProcessFilter,
    ProcessRecord,
    ProcessStatus,
    SignalWait,
    Success,
)
from lash.model.queue import Boundary, Claim, ProcessWake
from lash.model.value import JSON, JSONObject
from tests.factories.session import acquired, commit, owner
from tests.proof.model.base_rules import SESSION_IDS, session_ids
from tests.proof.model.expected import like
from tests.proof.model.kit import action
from tests.proof.model.process_life import PROCESS_IDS, ProcessLife, process_ids
from tests.proof.model.rows import Dump
from tests.proof.model.world import Side

PAYLOADS: Final[tuple[tuple[str, JSON], ...]] = (
    ("note", None),
    ("note", {"x": [1, 2.5, "ü"]}),
    ("count", {"n": 1}),
    ("count", {"n": "one"}),
    ("news", {"text": "hello"}),
    ("news", {"txt": "hello"}),
    ("news", {"text": "hello again"}),
    *(("ping", {"who": "ann"}),) * 3,
    ("ping", {"who": "bob"}),
    ("ping", {}),
    ("done", {"answer": 42}),
    ("done", {}),
    ("broke", "it did"),
    ("process.completed", {"outcome": {"type": "success", "value": 1}}),
    ("process.cancel_requested", {"reason": "by hand"}),
    ("unheard_of", None),
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


class ProcessRules(ProcessLife):
    """Processes, their logs, their wakes and their ends."""

    def prepare(self) -> None:
        super().prepare()
        self.register("P", 3)

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

    @action(4, process_id=process_ids)
    def abandon(self, process_id: str) -> None:
        outcome = Abandonment(message="gone", evidence={"since": 3})
        self.step(
            "abandon",
            lambda side: side.storage.processes.abandon(process_id, outcome),
            like(lambda: self.processes.abandon(process_id, outcome, self.now_ms)),
        )
        self.check(process_id)

    @action(2, process_id=process_ids)
    def give_up(self, process_id: str) -> None:
        """Request a cancellation, and carry it out: chance seldom combines the two."""
        self.request(process_id, "abandon", "")
        self.abandon(process_id)

    @action(2, process_id=process_ids)
    def end_twice(self, process_id: str) -> None:
        self.append(process_id, ("broke", "it did"), "k1", None)
        self.append(process_id, ("done", {"answer": 42}), "k2", None)

    @action(1, process_id=process_ids)
    def complete_twice(self, process_id: str) -> None:
        self.complete(process_id, Success(value={"answer": 42}))
        self.complete(process_id, Success(value=None))

    @action(1, process_id=process_ids)
    def lose_wakes(self, process_id: str) -> None:
        """Wake a session, and delete it before it consumes the wake: chance seldom combines the two."""
        self.append(process_id, ("news", {"text": "hello"}), None, SESSION_IDS[0])
        self.delete(SESSION_IDS[0])
        self._look_at_undeliverable()
        self.create(SESSION_IDS[0])

    @action(1, process_id=process_ids, reference=st.sampled_from(REFERENCES))
    def set_external_ref(self, process_id: str, reference: ExternalRef) -> None:
        payload: JSONObject = {"backend": reference.backend, "id": reference.id}
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

    @action(2, process_id=process_ids, sequence=st.integers(1, 6))
    def acknowledge(self, process_id: str, sequence: int) -> None:
        process = self.processes.processes.get(process_id)
        if process is not None and process.wakes and sequence > 2:
            sequence = sorted(process.wakes)[sequence % len(process.wakes)]
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
        self.step("consume", lambda side: _consumed(side, session_id, revision), lambda _: self._consume(session_id))

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
        self._look_at_undeliverable()

    def forget_session(self, session_id: str) -> bool:
        if self.processes.queues.get(session_id):
            self.count("delete:queued wakes")
        return super().forget_session(session_id)

    def _look_at_undeliverable(self) -> None:
        self.step(
            "undeliverable",
            lambda side: side.storage.events.undeliverable_wakes(),
            like(
                lambda: [
                    each.wakes[number]
                    for each in sorted(self.processes.processes.values(), key=lambda each: each.process_id)
                    for number in sorted(each.wakes)
                    if each.wakes[number].state is WakeState.UNDELIVERABLE
                ]
            ),
        )

    def _consume(self, session_id: str) -> tuple[str, int, str]:
        wake = self.processes.consume(session_id)
        self.sessions.live[session_id].revision += 1
        return wake.process_id, wake.sequence, wake.wake.input

    def _of_type(self, process_id: str, name: str) -> list[Any]:
        return [event for event in self.processes.find(process_id).log if event.event_type == name]

    def _newest_first(self) -> list[ProcessRecord]:
        return [each.record() for each in reversed(self.processes.processes.values())]

    def compare_rows(self) -> Dump:
        """Compare the rows of wakes with the model too: none is lost, and none is in two states."""
        dump = super().compare_rows()
        [columns] = [table.columns for table in self.world.sides[0].tables if table.name == "lash_wakes"]
        stored = Counter(row[columns.index("state")] for row in dump.get("lash_wakes", ()))
        lives = self.processes.processes.values()
        assert stored == Counter(wake.state.value for process in lives for wake in process.wakes.values())
        return dump


def _fits(record: ProcessRecord, wanted: ProcessFilter) -> bool:
    identity = record.registration.identity
    return (
        wanted.status in (None, record.status)
        and wanted.waiting in (None, record.projection.wait is not None)
        and wanted.kind in (None, None if identity is None else identity.kind)
        and wanted.wake_session_id in (None, record.wake_session_id)
    )


async def _consumed(side: Side, session_id: str, revision: int) -> tuple[str, int, JSON]:
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
