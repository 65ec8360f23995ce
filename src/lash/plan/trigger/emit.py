"""Rules of occurrences: which process a delivery starts, or why it is rejected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec

from lash.base.codec import canonical, content_hash, decode, encode
from lash.base.limits import check_identifier
from lash.errors import (
    CorruptData,
    InvalidInput,
    OccurrenceConflict,
    OccurrenceNotFound,
    TriggerConflict,
    TriggerNotFound,
)
from lash.model.process.event import Pointer
from lash.model.trigger.trigger import (
    DeliveryState,
    EmitReport,
    EventPointer,
    FixedInput,
    InputBinding,
    Occurrence,
    OccurrenceRequest,
    TriggerDelivery,
)
from lash.model.value import JSON, JSONObject
from lash.plan.process.process import EncodedRegistration
from lash.plan.process.schema import check_payload
from lash.plan.sealed import DELIVERY, OCCURRENCE, REPORT
from lash.plan.trigger.selector import select
from lash.plan.trigger.trigger import (
    MAX_TRIGGER_LENGTH,
    TriggerRow,
    check_source_type,
    decode_subscription,
    owner_text,
    registration_of,
)

_MAX_REASON: Final = 1_000
"""The most characters of a reason: a validator's message may quote the whole payload."""


class OccurrenceRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored occurrence."""

    occurrence_key: int
    occurrence_id: str
    request_hash: str
    request: Annotated[str, OCCURRENCE]
    report: Annotated[str, REPORT]
    occurred_at_ms: int


class DeliveryRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored delivery; the owner is empty for the host."""

    subscription_id: str
    owner_session_id: str
    key: str
    process_id: str
    state: str
    reason: Annotated[str | None, DELIVERY]
    attempts: int


class RegistrationHashRow(msgspec.Struct, frozen=True, array_like=True):
    """The registration hash of the process under an id."""

    process_id: str
    registration_hash: str


class EncodedOccurrence(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence ready to be written."""

    request: OccurrenceRequest
    occurrence_id: str
    request_hash: str
    body: str

    def first_report(self, row: OccurrenceRow) -> EmitReport:
        """Return the report of the equal request that was recorded first, or raise OccurrenceConflict."""
        if row.request_hash != self.request_hash:
            request = self.request
            raise OccurrenceConflict(request.source_type, request.source_key, request.idempotency_key)
        return decode(row.report, EmitReport, f"the report of trigger occurrence {row.occurrence_id!r}")

    def deliveries(self, rows: Iterable[TriggerRow]) -> list[Planned]:
        """Decide on every subscription that matches."""
        return [plan_delivery(self.occurrence_id, self.request.payload, row) for row in rows]


class StartDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """Register this process, and grant it to the session that it wakes."""

    subscription: TriggerRow
    registration: EncodedRegistration

    @property
    def process_id(self) -> str:
        return self.registration.registration.process_id


class RejectDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """Start no process, for this reason."""

    subscription: TriggerRow
    process_id: str
    reason: str


Planned: TypeAlias = StartDelivery | RejectDelivery


class RetryFacts(NamedTuple):
    """A delivery that is retried, as far as its rows exist."""

    occurrence: OccurrenceRow | None
    delivery: DeliveryRow | None
    subscription: TriggerRow | None


class DeliveryRetry(msgspec.Struct, frozen=True, kw_only=True):
    """Try a delivery again."""

    occurrence_key: int
    planned: Planned
    attempts: int


def occurrence_id(source_type: str, source_key: str, idempotency_key: str) -> str:
    """Return the id of an occurrence, the same on every machine. Its content is not part of it."""
    parts = canonical([source_type, source_key, idempotency_key])
    return "trigger:" + content_hash(b"lash.trigger.occurrence.v1\0" + parts)


def delivery_process_id(occurrence: str, subscription: str) -> str:
    """Return the id of the process that an occurrence starts for a subscription."""
    return "process:trigger:" + content_hash(b"lash.trigger.process.v1\0" + canonical([occurrence, subscription]))


def encode_occurrence(request: OccurrenceRequest) -> EncodedOccurrence:
    """Check an occurrence and return its stored form."""
    if not isinstance(request, OccurrenceRequest):
        raise InvalidInput(f"expected an OccurrenceRequest, got {type(request).__name__}")
    check_source_type(request.source_type)
    check_identifier("source_key", request.source_key)
    check_identifier("idempotency_key", request.idempotency_key)
    what = f"the occurrence {request.idempotency_key!r} of {request.source_type!r}"
    body = encode(request, OccurrenceRequest, what)
    if len(body) > MAX_TRIGGER_LENGTH:
        raise InvalidInput(
            f"{what} has {len(body):,} characters of JSON; at most {MAX_TRIGGER_LENGTH:,} are allowed:"
            " store large content as an artifact or attachment"
        )
    content = canonical([request.source_type, request.source_key, request.payload, request.source])
    return EncodedOccurrence(
        # Decode again: processes get a list for a tuple in the payload, now as on a retry.
        request=decode(body, OccurrenceRequest, what),
        occurrence_id=occurrence_id(request.source_type, request.source_key, request.idempotency_key),
        request_hash=content_hash(b"lash.trigger.request.v1\0" + content),
        body=body,
    )


def decode_occurrence(row: OccurrenceRow) -> Occurrence:
    """Return the occurrence of a row, or raise CorruptData."""
    request = stored_request(row)
    return Occurrence(
        occurrence_id=row.occurrence_id,
        source_type=request.source_type,
        source_key=request.source_key,
        idempotency_key=request.idempotency_key,
        payload=request.payload,
        source=request.source,
        occurred_at_ms=row.occurred_at_ms,
    )


def stored_request(row: OccurrenceRow) -> OccurrenceRequest:
    """Return the request that was emitted first."""
    return decode(row.request, OccurrenceRequest, f"trigger occurrence {row.occurrence_id!r}")


def plan_delivery(occurrence: str, payload: JSON, row: TriggerRow) -> Planned:
    """Decide on one match. An error rejects this delivery and no other."""
    process_id = delivery_process_id(occurrence, row.subscription_id)
    try:
        draft = decode_subscription(row).definition
        check_payload("payload", draft.payload_schema, payload)
        inputs: JSONObject = {name: _bind(name, each, payload) for name, each in draft.input_template.items()}
        registration = registration_of(draft, process_id=process_id, occurrence_id=occurrence, inputs=inputs)
    except (CorruptData, InvalidInput) as error:
        return RejectDelivery(subscription=row, process_id=process_id, reason=_reason(str(error)))
    return StartDelivery(subscription=row, registration=registration)


def starts_of(planned: Iterable[Planned]) -> list[StartDelivery]:
    """Return the deliveries that start a process."""
    return [each for each in planned if isinstance(each, StartDelivery)]


def reject_taken(planned: Sequence[Planned], taken: Mapping[str, str]) -> list[Planned]:
    """Reject deliveries whose process id belongs to a process with another registration.

    ``taken`` maps the ids that were not free to their registration hashes. A process with an equal registration is the
    one that the delivery would start.
    """
    result: list[Planned] = []
    for each in planned:
        found = taken.get(each.process_id)
        if isinstance(each, StartDelivery) and found not in (None, each.registration.registration_hash):
            reason = f"process {each.process_id!r} is already registered, with another specification"
            result.append(RejectDelivery(subscription=each.subscription, process_id=each.process_id, reason=reason))
        else:
            result.append(each)
    return result


def delivery_of(planned: Planned, *, attempts: int = 1) -> TriggerDelivery:
    """Return the delivery that is reported for a decision."""
    row = planned.subscription
    return TriggerDelivery(
        subscription_id=row.subscription_id,
        owner_session_id=row.owner_session_id or None,
        key=row.key,
        process_id=planned.process_id,
        state=DeliveryState.STARTED if isinstance(planned, StartDelivery) else DeliveryState.REJECTED,
        reason=None if isinstance(planned, StartDelivery) else planned.reason,
        attempts=attempts,
    )


def report_of(occurrence: str, planned: Iterable[Planned]) -> EmitReport:
    """Return the report of a new occurrence."""
    return EmitReport(occurrence_id=occurrence, deliveries=tuple(delivery_of(each) for each in planned))


def process_columns(start: StartDelivery) -> tuple[str | None, ...]:
    """Return the columns of a process, in the order in which both backends write them."""
    encoded = start.registration
    registration = encoded.registration
    return (
        registration.process_id,
        encoded.registration_hash,
        encoded.body,
        registration.recovery.value,
        encoded.kind,
        encoded.label,
        encoded.definition_hash,
        encoded.originator_session_id,
        registration.wake_session_id,
        registration.environment_ref,
    )


def grant_columns(starts: Iterable[StartDelivery]) -> list[tuple[str, str, str, str | None]]:
    """Return the grants of the woken sessions: session, process, kind, label."""
    return [
        (session_id, each.process_id, each.registration.kind, each.registration.label)
        for each in starts
        if (session_id := each.registration.registration.wake_session_id) is not None
    ]


def delivery_columns(planned: Planned) -> tuple[str | None, ...]:
    """Return the columns of a delivery at its first attempt."""
    delivery = delivery_of(planned)
    return (
        delivery.subscription_id,
        planned.subscription.owner_session_id,
        delivery.key,
        delivery.process_id,
        delivery.state.value,
        delivery.reason,
    )


def decode_delivery(row: DeliveryRow) -> TriggerDelivery:
    """Return the delivery of a row, or raise CorruptData."""
    try:
        return TriggerDelivery(
            subscription_id=row.subscription_id,
            owner_session_id=row.owner_session_id or None,
            key=row.key,
            process_id=row.process_id,
            state=DeliveryState(row.state),
            reason=row.reason,
            attempts=row.attempts,
        )
    except ValueError as error:
        raise CorruptData(f"the delivery to {row.subscription_id!r} cannot be read: {error}") from None


def plan_retry(names: tuple[str, str], facts: RetryFacts) -> DeliveryRetry | TriggerDelivery:
    """Decide on a rejected delivery again, with the current subscription; return a started delivery unchanged.

    Raises OccurrenceNotFound without the occurrence or the delivery, TriggerNotFound without the subscription, and
    TriggerConflict if the subscription is disabled or has another source.
    """
    if facts.occurrence is None:
        raise OccurrenceNotFound(names[0])
    if facts.delivery is None:
        raise OccurrenceNotFound(*names)
    delivery, subscription = decode_delivery(facts.delivery), facts.subscription
    if delivery.state is DeliveryState.STARTED:
        return delivery
    owner = owner_text(facts.delivery.owner_session_id)
    if subscription is None:
        raise TriggerNotFound(owner, delivery.key)
    if not subscription.enabled:
        raise TriggerConflict(owner, delivery.key, "is disabled; enable it before a delivery is retried")
    request = stored_request(facts.occurrence)
    definition = decode_subscription(subscription).definition
    if (definition.source_type, definition.source_key) != (request.source_type, request.source_key):
        raise TriggerConflict(owner, delivery.key, f"no longer watches the source of {names[0]!r}")
    return DeliveryRetry(
        occurrence_key=facts.occurrence.occurrence_key,
        planned=plan_delivery(names[0], request.payload, subscription),
        attempts=delivery.attempts + 1,
    )


def check_delivery(occurrence: object, subscription: object) -> tuple[str, str]:
    """Return the ids that name a delivery, or raise InvalidInput."""
    return check_identifier("occurrence_id", occurrence), check_identifier("subscription_id", subscription)


def _bind(name: str, binding: InputBinding, payload: JSON) -> JSON:
    if isinstance(binding, FixedInput):
        return binding.value
    if isinstance(binding, EventPointer):
        try:
            return select(Pointer(path=binding.path), payload)
        except InvalidInput as error:
            raise InvalidInput(f"input {name!r}: {error}") from None
    return payload


def _reason(text: str) -> str:
    """Return a reason without NUL, which PostgreSQL refuses, cut to the longest allowed."""
    return text.replace("\0", "\\0")[:_MAX_REASON]
