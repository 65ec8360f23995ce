"""The expected behaviour of processes: logs of plain events, and the state that follows from them."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import msgspec

from lash.model.lease import LeaseOwner
from lash.model.process.event import Appended, EventDraft, ProcessEvent, Wake, WakeRecord, WakeState
from lash.model.process.process import (
    Abandonment,
    Cancellation,
    ChangeKind,
    ExternalRef,
    Failure,
    Outcome,
    ProcessChange,
    ProcessRecord,
    ProcessStatus,
    Projection,
    Recovery,
    Registered,
    Registration,
    SignalWait,
    Success,
)
from lash.model.value import JSON
from tests.proof.model.event_types import MEANINGS
from tests.proof.model.kit import Refused

STATUS: Final[dict[type, ProcessStatus]] = {
    Success: ProcessStatus.COMPLETED,
    Failure: ProcessStatus.FAILED,
    Cancellation: ProcessStatus.CANCELLED,
    Abandonment: ProcessStatus.ABANDONED,
}


@dataclasses.dataclass(eq=False)
class Process:
    """One life of one process."""

    registration: Registration
    created: int
    updated: int
    wake_session: str | None
    fencing: int = 0
    log: list[ProcessEvent] = dataclasses.field(default_factory=list)
    wakes: dict[int, WakeRecord] = dataclasses.field(default_factory=dict)
    ended: int | None = None
    holder: LeaseOwner | None = None
    claimed: int = 0
    expires: int = 0
    reasons: int = 0
    crashes: int = 0
    ready: int | None = None

    @property
    def process_id(self) -> str:
        return self.registration.process_id

    @property
    def is_running(self) -> bool:
        return self.ended is None

    @property
    def is_external(self) -> bool:
        return self.registration.recovery is Recovery.EXTERNAL

    def record(self) -> ProcessRecord:
        """Return what the storage must return for it."""
        return ProcessRecord(
            process_id=self.process_id,
            registration_hash="",
            registration=self.registration,
            projection=self.projection(),
            wake_session_id=self.wake_session,
            last_sequence=len(self.log),
            created_at_ms=self.created,
            updated_at_ms=self.updated,
        )

    def projection(self) -> Projection:
        """Read the whole log, every time: the state of a process is derived from its log alone."""
        told: dict[str, Any] = {}
        for event in self.log:
            end, payload = MEANINGS[event.event_type].ends, event.payload
            if end is not None:
                told |= {"outcome": end(payload), "wait": None}
                told["status"] = STATUS[type(told["outcome"])]
                continue
            match event.event_type, payload:
                case "process.waiting", {"wait": wait}:
                    told["wait"] = msgspec.convert(wait, SignalWait)
                case "process.resumed", _:
                    told["wait"] = None
                case "process.external_ref_set", _:
                    told["external_ref"] = msgspec.convert(payload, ExternalRef)
                case "process.started", {"owner": owner}:
                    told["started_by"] = msgspec.convert(owner, LeaseOwner)
                case "process.cancel_requested", {"reason": reason}:
                    told |= {"cancel_requested": True, "cancel_reason": reason}
                case "process.abandon_requested", _:
                    told["abandon_requested"] = True
        return Projection(**told)

    def wake_up(self, now: int) -> None:
        """Count one more reason to run it."""
        if self.is_running and not self.is_external:
            self.reasons += 1
            self.ready = now if self.ready is None else min(self.ready, now)


class ProcessModel:
    """All processes, the queues of the sessions that they wake, and the feed of changes."""

    def __init__(self) -> None:
        self.processes: dict[str, Process] = {}
        self.pruned: dict[str, int] = {}
        """The last fencing number of each process that was pruned."""
        self.queues: dict[str, list[tuple[Process, int]]] = {}
        """For each existing session, the events whose wakes lie in its queue."""
        self.delivered: dict[str, set[str]] = {}
        """For each existing session, the shared keys of all wakes that it ever got."""
        self.feed: list[ProcessChange] = []
        self.feed_lives: list[Process] = []
        """For each change, the life of the process that changed."""
        self.feed_floor = 0
        """How many changes were pruned from the start of the feed."""

    def find(self, process_id: str) -> Process:
        """Return an existing process."""
        process = self.processes.get(process_id)
        if process is None:
            raise Refused("ProcessPruned" if process_id in self.pruned else "ProcessNotFound")
        return process

    def register(self, registration: Registration, now: int) -> Registered:
        known = self.processes.get(registration.process_id)
        if known is not None:
            if known.registration != registration:
                raise Refused("RegistrationConflict")
            return Registered(record=known.record(), created=False)
        process = Process(registration, now, now, registration.wake_session_id)
        process.fencing = self.pruned.pop(process.process_id, 0)
        process.ready = None if process.is_external else now
        self.processes[process.process_id] = process
        self._changed(process, ChangeKind.REGISTERED, status=ProcessStatus.RUNNING)
        return Registered(record=process.record(), created=True)

    def append(self, process_id: str, draft: EventDraft, now: int) -> Appended:
        process, meaning = self.find(process_id), MEANINGS.get(draft.event_type)
        known = next((each for each in process.log if each.replay_key == draft.replay_key is not None), None)
        if known is not None:
            if (known.event_type, known.payload) != (draft.event_type, draft.payload):
                raise Refused("EventConflict")
            return Appended(event=known, replayed=True, wake=process.wakes.get(known.sequence))
        if meaning is None:
            raise Refused("InvalidInput")
        needs_key = meaning.ends is not None or draft.event_type == "process.cancel_requested"
        if (needs_key and draft.replay_key is None) or not meaning.fits(draft.payload):
            raise Refused("InvalidInput")
        only_running = meaning.ends is not None or draft.event_type in ("process.waiting", "process.started")
        if only_running and not process.is_running:
            raise Refused("ProcessTerminal")
        if not meaning.yields(draft.payload):
            raise Refused("InvalidInput")
        return self._write(process, draft, now)

    def signal(self, process_id: str, name: str, signal_id: str, payload: JSON, now: int) -> Appended:
        key = f"process:{process_id}:signal.{name}:{signal_id}"
        return self.append(process_id, EventDraft(event_type=f"signal.{name}", payload=payload, replay_key=key), now)

    def own_event(self, process_id: str, name: str, payload: JSON, key: str | None, now: int) -> ProcessRecord:
        """Append an event on behalf of an operation of the storage; ``key`` identifies a repeat of it."""
        replay_key = None if key is None else f"process:{process_id}:{key}"
        self.append(process_id, EventDraft(event_type=f"process.{name}", payload=payload, replay_key=replay_key), now)
        return self.processes[process_id].record()

    def complete(self, process_id: str, outcome: Outcome, now: int) -> ProcessRecord:
        if isinstance(outcome, Abandonment):
            raise Refused("InvalidInput")
        return self.end(process_id, outcome, now)

    def abandon(self, process_id: str, outcome: Abandonment, now: int) -> ProcessRecord:
        process = self.find(process_id)
        is_live = process.holder is not None and process.expires > now
        if process.is_running and (is_live or not process.projection().abandon_requested):
            raise Refused("Conflict")
        return self.end(process_id, outcome, now)

    def end(self, process_id: str, outcome: Outcome, now: int) -> ProcessRecord:
        name = STATUS[type(outcome)].value
        payload = {"outcome": msgspec.to_builtins(outcome)}
        return self.own_event(process_id, name, payload, f"terminal:process.{name}", now)

    def prune(self, ended_before: int, seen: int | None) -> set[str]:
        """Remove processes that ended before a moment; ``seen`` is the position of the slowest feed reader, if any."""
        unseen = set() if seen is None else {change.process_id for change in self.feed[seen:]}
        gone = {
            process.process_id
            for process in self.processes.values()
            if process.ended is not None
            and process.ended < ended_before
            and process.process_id not in unseen
            and not any(wake.state is WakeState.QUEUED for wake in process.wakes.values())
        }
        for process_id in sorted(gone):
            process = self.processes.pop(process_id)
            self.pruned[process_id] = process.fencing
            self._changed(process, ChangeKind.PRUNED, status=process.projection().status)
        if seen is not None:
            self.feed_floor = max(self.feed_floor, seen)
        return gone

    def acknowledge(self, process_id: str, sequence: int) -> bool:
        process = self.find(process_id)
        wake = process.wakes.get(sequence)
        if wake is None or wake.state in (WakeState.ACKNOWLEDGED, WakeState.MERGED):
            return False
        self._settle(process, wake, WakeState.ACKNOWLEDGED)
        return True

    def consume(self, session_id: str) -> WakeRecord:
        """Take the first wake out of a session's queue, as a commit does."""
        process, sequence = self.queues[session_id].pop(0)
        wake = process.wakes[sequence]
        if wake.state is WakeState.QUEUED:
            self._settle(process, wake, WakeState.ACKNOWLEDGED)
        return wake

    def create_session(self, session_id: str) -> None:
        self.queues[session_id], self.delivered[session_id] = [], set()

    def detach_session(self, session_id: str, now: int) -> int:
        """Stop all processes from waking the session, and return how many did."""
        targets = [each for each in self.processes.values() if each.wake_session == session_id]
        for process in targets:
            process.wake_session, process.updated = None, now
            self._changed(process, ChangeKind.CHANGED)
        for process in self.processes.values():
            for wake in list(process.wakes.values()):
                if wake.state is WakeState.QUEUED and wake.wake.target_session_id == session_id:
                    self._settle(process, wake, WakeState.UNDELIVERABLE)
        return len(targets)

    def delete_session(self, session_id: str, now: int) -> bool:
        """Cut a session off, whether or not it ever existed, and return whether it did."""
        self.detach_session(session_id, now)
        self.delivered.pop(session_id, None)
        return self.queues.pop(session_id, None) is not None

    def open_wakes(self, process_id: str, after: int) -> list[WakeRecord]:
        done = (WakeState.ACKNOWLEDGED, WakeState.MERGED)
        wakes = self.find(process_id).wakes
        return [wakes[number] for number in sorted(wakes) if number > after and wakes[number].state not in done]

    def _write(self, process: Process, draft: EventDraft, now: int) -> Appended:
        meaning = MEANINGS[draft.event_type]
        event = ProcessEvent(
            process_id=process.process_id,
            sequence=len(process.log) + 1,
            event_type=draft.event_type,
            payload=draft.payload,
            replay_key=draft.replay_key,
            wake=self._wanted_wake(process, draft),
            occurred_at_ms=now,
        )
        was_running = process.is_running
        process.log.append(event)
        process.updated = now
        if meaning.ends is not None:
            process.ended, process.ready = now, None
        self._changed(process, ChangeKind.EVENT, sequence=event.sequence, status=process.projection().status)
        if was_running:
            self._make_ready(process, event.event_type, now)
        return Appended(event=event, wake=self._deliver(process, event))

    def _make_ready(self, process: Process, event_type: str, now: int) -> None:
        if event_type in ("process.cancel_requested", "process.abandon_requested") or event_type.startswith("signal."):
            process.wake_up(now)
        cause = process.registration.provenance.caused_by
        parent = self.processes.get(getattr(cause, "process_id", ""))
        if not process.is_running and parent is not None and parent is not process:
            parent.wake_up(now)

    def _wanted_wake(self, process: Process, draft: EventDraft) -> Wake | None:
        wanted = MEANINGS[draft.event_type].wakes(draft.payload)
        if wanted is None:
            return None
        return Wake(
            wake_id="",
            target_session_id=draft.wake_session_id or process.wake_session,
            input=wanted.text,
            dedupe_key=wanted.key or f"{process.process_id}:{len(process.log) + 1}",
        )

    def _deliver(self, process: Process, event: ProcessEvent) -> WakeRecord | None:
        wake = event.wake
        if wake is None:
            return None
        target, state = wake.target_session_id, WakeState.NO_TARGET
        if target is not None:
            state = WakeState.QUEUED if target in self.queues else WakeState.UNDELIVERABLE
        shared = MEANINGS[event.event_type].wakes(event.payload)
        if state is WakeState.QUEUED and target is not None and shared is not None and shared.key is not None:
            if shared.key in self.delivered[target]:
                state = WakeState.MERGED
            self.delivered[target].add(shared.key)
        record = WakeRecord(
            process_id=process.process_id,
            sequence=event.sequence,
            event_type=event.event_type,
            wake=wake,
            state=state,
            batch_id="" if state in (WakeState.QUEUED, WakeState.MERGED) else None,
        )
        process.wakes[event.sequence] = record
        if state is WakeState.QUEUED and target is not None:
            self.queues[target].append((process, event.sequence))
        return record

    def _settle(self, process: Process, wake: WakeRecord, state: WakeState) -> None:
        process.wakes[wake.sequence] = msgspec.structs.replace(process.wakes[wake.sequence], state=state)

    def _changed(
        self, process: Process, kind: ChangeKind, *, sequence: int | None = None, status: ProcessStatus | None = None
    ) -> None:
        self.feed_lives.append(process)
        self.feed.append(ProcessChange(process_id=process.process_id, kind=kind, sequence=sequence, status=status))
