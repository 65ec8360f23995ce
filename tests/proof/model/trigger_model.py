"""The expected behaviour of triggers: subscriptions, occurrences, and the processes started for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import msgspec

from lash.model.causal import TriggerOccurrenceCause
from lash.model.process.process import HostOriginator, Provenance, Registration, SessionOriginator
from lash.model.trigger.trigger import (
    DeletedTrigger,
    DeliveryState,
    EmitReport,
    EventPointer,
    FixedInput,
    Occurrence,
    OccurrenceRequest,
    RegisteredTrigger,
    TriggerDelivery,
    TriggerDraft,
    TriggerOwner,
    TriggerSubscription,
)
from lash.model.value import JSON
from tests.proof.model.kit import Refused
from tests.proof.model.process_model import ProcessModel

T = TypeVar("T")
Name = tuple[str, str]
"""Owner and key; the owner is empty for the host."""
REJECTED = "?"
"""Stands for a reason, whose text is not predicted."""


@dataclasses.dataclass(eq=False)
class Subscription:
    """One life of one subscription."""

    draft: TriggerDraft
    revision: int
    created: int
    updated: int
    enabled: bool = True
    subscription_id: str = ""
    """The id that the storage chose."""

    def told(self) -> TriggerSubscription:
        return TriggerSubscription(
            subscription_id=self.subscription_id,
            definition=self.draft,
            fingerprint="",
            revision=self.revision,
            enabled=self.enabled,
            created_at_ms=self.created,
            updated_at_ms=self.updated,
        )


@dataclasses.dataclass(eq=False)
class Happened:
    """One occurrence, its first report, and its current deliveries."""

    request: OccurrenceRequest
    at: int
    occurrence_id: str
    report: EmitReport
    deliveries: list[TriggerDelivery]

    def told(self) -> Occurrence:
        return Occurrence(
            occurrence_id=self.occurrence_id,
            occurred_at_ms=self.at,
            **{name: getattr(self.request, name) for name in self.request.__struct_fields__},
        )


class TriggerModel:
    """Subscriptions, occurrences, and the processes and grants made from them."""

    def __init__(self, processes: ProcessModel) -> None:
        self.processes = processes
        self.sessions: set[str] = set()
        self.deleted_sessions: set[str] = set()
        self.subscriptions: dict[Name, Subscription] = {}
        self.buried: dict[Name, tuple[int, int]] = {}
        """The last revision of each name that was deleted, and when."""
        self.receipts: dict[str, tuple[object, msgspec.Struct, int]] = {}
        self.occurrences: dict[tuple[str, str, str], Happened] = {}
        self.grants: set[tuple[str, str]] = set()

    def register(self, draft: TriggerDraft, operation: str | None, made_id: str, now: int) -> RegisteredTrigger:
        """Register; a new subscription gets the id that the storage made."""

        def apply() -> RegisteredTrigger:
            name = name_of(draft.owner, draft.key)
            self._require_session(name[0])
            known = self.subscriptions.get(name)
            if known is not None:
                if _definition(known.draft) != _definition(draft):
                    raise Refused("TriggerConflict")
                return RegisteredTrigger(subscription=known.told(), created=False)
            revision, _ = self.buried.pop(name, (0, 0))
            made = self.subscriptions[name] = Subscription(draft, revision + 1, now, now, subscription_id=made_id)
            return RegisteredTrigger(subscription=made.told(), created=True)

        return self._once(operation, ("register", _definition(draft)), apply, now)

    def update(self, draft: TriggerDraft, revision: int, operation: str | None, now: int) -> TriggerSubscription:
        def apply() -> TriggerSubscription:
            found = self._at(name_of(draft.owner, draft.key), revision)
            if _definition(found.draft) != _definition(draft):
                found.draft, found.revision, found.updated = draft, revision + 1, now
            return found.told()

        return self._once(operation, ("update", _definition(draft), revision), apply, now)

    def switch(
        self, name: Name, revision: int, operation: str | None, now: int, *, enabled: bool
    ) -> TriggerSubscription:
        def apply() -> TriggerSubscription:
            found = self._at(name, revision)
            if found.enabled != enabled:
                found.enabled, found.revision, found.updated = enabled, revision + 1, now
            return found.told()

        return self._once(operation, ("switch", enabled, name, revision), apply, now)

    def delete(self, name: Name, revision: int, operation: str | None, now: int) -> DeletedTrigger:
        def apply() -> DeletedTrigger:
            found = self._at(name, revision)
            self._bury(name, now)
            return DeletedTrigger(subscription_id=found.subscription_id, revision=revision)

        return self._once(operation, ("delete", name, revision), apply, now)

    def delete_owned(self, session_id: str, now: int) -> int:
        """Remove the subscriptions of a session."""
        names = [name for name in self.subscriptions if name[0] == session_id]
        for name in names:
            self._bury(name, now)
        return len(names)

    def delete_session(self, session_id: str, now: int) -> None:
        if session_id in self.sessions:
            self.sessions.discard(session_id)
            self.deleted_sessions.add(session_id)
        self.delete_owned(session_id, now)
        self.grants = {each for each in self.grants if each[0] != session_id}
        self.processes.delete_session(session_id, now)

    def prune_receipts(self, before: int) -> int:
        receipts = {key: each for key, each in self.receipts.items() if each[2] >= before}
        buried = {name: each for name, each in self.buried.items() if each[1] >= before}
        forgotten = len(self.receipts) + len(self.buried) - len(receipts) - len(buried)
        self.receipts, self.buried = receipts, buried
        return forgotten

    def emit(self, request: OccurrenceRequest, answer: EmitReport | None, now: int) -> EmitReport:
        """Emit; the ids of new rows are taken from the storage's result."""
        place = (request.source_type, request.source_key, request.idempotency_key)
        known = self.occurrences.get(place)
        if known is not None:
            if (known.request.payload, known.request.source) != (request.payload, request.source):
                raise Refused("OccurrenceConflict")
            return known.report
        matches = [
            each
            for each in self.subscriptions.values()
            if each.enabled and (each.draft.source_type, each.draft.source_key) == place[:2]
        ]
        names = [] if answer is None else [each.process_id for each in answer.deliveries]
        names += [""] * (len(matches) - len(names))
        occurrence_id = "" if answer is None else answer.occurrence_id
        deliveries = [
            self._deliver(occurrence_id, request.payload, each, process_id, 1, now)
            for each, process_id in zip(matches, names, strict=False)
        ]
        report = EmitReport(occurrence_id=occurrence_id, deliveries=tuple(deliveries))
        self.occurrences[place] = Happened(request, now, occurrence_id, report, deliveries)
        return report

    def retry(self, happened: Happened | None, subscription_id: str, now: int) -> TriggerDelivery:
        places = [] if happened is None else [each.subscription_id for each in happened.deliveries]
        if happened is None or subscription_id not in places:
            raise Refused("OccurrenceNotFound")
        place = places.index(subscription_id)
        delivery = happened.deliveries[place]
        if delivery.state is DeliveryState.STARTED:
            return delivery
        found = next((each for each in self.subscriptions.values() if each.subscription_id == subscription_id), None)
        if found is None:
            raise Refused("TriggerNotFound")
        watched, request = (found.draft.source_type, found.draft.source_key), happened.request
        if not found.enabled or watched != (request.source_type, request.source_key):
            raise Refused("TriggerConflict")
        again = self._deliver(
            happened.occurrence_id, request.payload, found, delivery.process_id, delivery.attempts + 1, now
        )
        happened.deliveries[place] = again
        return again

    def prune(self, before: int) -> list[str]:
        """Forget old occurrences without running processes, and return them, oldest first."""
        running = {each.process_id for each in self.processes.processes.values() if each.is_running}
        gone = {
            place: each
            for place, each in self.occurrences.items()
            if each.at < before and not any(delivery.process_id in running for delivery in each.deliveries)
        }
        self.occurrences = {place: each for place, each in self.occurrences.items() if place not in gone}
        return [each.occurrence_id for each in sorted(gone.values(), key=lambda each: each.at)]

    def _once(self, operation: str | None, request: object, apply: Callable[[], T], now: int) -> T:
        """Apply a change, or return its earlier result."""
        if operation is None:
            return apply()
        known = self.receipts.get(operation)
        if known is not None:
            if known[0] != request:
                raise Refused("TriggerConflict")
            return known[1]  # type: ignore[return-value]
        answer = apply()
        assert isinstance(answer, msgspec.Struct)
        self.receipts[operation] = (request, answer, now)
        return answer

    def _deliver(
        self, occurrence_id: str, payload: JSON, found: Subscription, process_id: str, attempts: int, now: int
    ) -> TriggerDelivery:
        started = self._start(occurrence_id, payload, found, process_id, now)
        owner, key = name_of(found.draft.owner, found.draft.key)
        return TriggerDelivery(
            subscription_id=found.subscription_id,
            owner_session_id=owner or None,
            key=key,
            process_id=process_id,
            state=DeliveryState.STARTED if started else DeliveryState.REJECTED,
            reason=None if started else REJECTED,
            attempts=attempts,
        )

    def _start(self, occurrence_id: str, payload: JSON, found: Subscription, process_id: str, now: int) -> bool:
        """Start a process unless the payload does not fit, or another one has its id."""
        draft = found.draft
        if draft.payload_schema and not (isinstance(payload, dict) and type(payload.get("n")) is int):
            return False
        inputs: dict[str, JSON] = {}
        for name, binding in draft.input_template.items():
            if isinstance(binding, EventPointer):
                if not isinstance(payload, dict) or binding.path[1:] not in payload:
                    return False
                inputs[name] = payload[binding.path[1:]]
            else:
                inputs[name] = binding.value if isinstance(binding, FixedInput) else payload
        registration = _registration(draft, process_id, occurrence_id, inputs)
        known = self.processes.processes.get(process_id)
        if known is not None and known.registration != registration:
            return False
        self.processes.register(registration, now)
        if draft.wake_session_id is not None:
            self.grants.add((draft.wake_session_id, process_id))
        return True

    def _at(self, name: Name, revision: int) -> Subscription:
        found = self.subscriptions.get(name)
        if found is None:
            raise Refused("TriggerNotFound")
        if found.revision != revision:
            raise Refused("TriggerConflict")
        return found

    def _bury(self, name: Name, now: int) -> None:
        self.buried[name] = (self.subscriptions.pop(name).revision, now)

    def _require_session(self, session_id: str) -> None:
        if session_id and session_id not in self.sessions:
            raise Refused("SessionDeleted" if session_id in self.deleted_sessions else "SessionNotFound")


def name_of(owner: TriggerOwner, key: str) -> Name:
    """Return the identity of a subscription."""
    return ("" if isinstance(owner, HostOriginator) else owner.scope.session_id), key


def _definition(draft: TriggerDraft) -> TriggerDraft:
    """Return what makes two definitions equal: all of it except the frame of the owner."""
    if isinstance(draft.owner, SessionOriginator):
        scope = msgspec.structs.replace(draft.owner.scope, agent_frame_id=None)
        return msgspec.structs.replace(draft, owner=SessionOriginator(scope=scope))
    return draft


def _registration(draft: TriggerDraft, process_id: str, occurrence_id: str, inputs: dict[str, JSON]) -> Registration:
    assert isinstance(draft.target.payload, dict)
    return Registration(
        process_id=process_id,
        input=msgspec.structs.replace(draft.target, payload={**draft.target.payload, "args": inputs}),
        recovery=draft.recovery,
        identity=draft.identity,
        event_types=draft.event_types,
        provenance=Provenance(originator=draft.owner, caused_by=TriggerOccurrenceCause(occurrence_id=occurrence_id)),
        environment_ref=draft.environment_ref,
        wake_session_id=draft.wake_session_id,
    )
