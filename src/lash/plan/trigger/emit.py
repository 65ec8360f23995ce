"""What an occurrence means: to whom it is delivered, as which process, or why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

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


class OccurrenceRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored occurrence."""

    occurrence_key: int
    occurrence_id: str
    request_hash: str
    request: str
    report: str
    occurred_at_ms: int


class DeliveryRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored delivery; the owner is empty for the host."""

    subscription_id: str
    owner_session_id: str
    key: str
    process_id: str
    state: str
    reason: str | None
    attempts: int


class RegisteredRow(msgspec.Struct, frozen=True, array_like=True):
    """Which process there is under an id."""

    process_id: str
    registration_hash: str


class EncodedOccurrence(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence ready to be written."""

    request: OccurrenceRequest
    occurrence_id: str
    request_hash: str
    body: str


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Register this process, and let the session that it wakes see it."""

    subscription: TriggerRow
    registration: EncodedRegistration

    @property
    def process_id(self) -> str:
        return self.registration.registration.process_id


class Reject(msgspec.Struct, frozen=True, kw_only=True):
    """Start nothing, for this reason."""

    subscription: TriggerRow
    process_id: str
    reason: str


Planned: TypeAlias = Start | Reject


def occurrence_id(source_type: str, source_key: str, idempotency_key: str) -> str:
    """Return the id of an occurrence, the same on every machine; its content is no part of it."""
    parts = canonical([source_type, source_key, idempotency_key])
    return "trigger:" + content_hash(b"lash.trigger.occurrence.v1\0" + parts)


def delivery_process_id(occurrence: str, subscription: str) -> str:
    """Return the id of the process that an occurrence starts for a subscription."""
    return "process:trigger:" + content_hash(b"lash.trigger.process.v1\0" + canonical([occurrence, subscription]))


def encode_occurrence(request: OccurrenceRequest) -> EncodedOccurrence:
    """Check an occurrence and turn it into what is written."""
    if not isinstance(request, OccurrenceRequest):
        raise InvalidInput(f"an OccurrenceRequest is needed, not {type(request).__name__}")
    check_source_type(request.source_type)
    check_identifier("source_key", request.source_key)
    check_identifier("idempotency_key", request.idempotency_key)
    what = f"the occurrence {request.idempotency_key!r} of {request.source_type!r}"
    body = encode(request, OccurrenceRequest, what)
    if len(body) > MAX_TRIGGER_LENGTH:
        raise InvalidInput(
            f"{what} has {len(body):,} characters of JSON; at most {MAX_TRIGGER_LENGTH:,} are allowed:"
            " keep large things as artifacts or attachments"
        )
    content = canonical([request.source_type, request.source_key, request.payload, request.source])
    return EncodedOccurrence(
        # Read back: a tuple in the payload is a list for the processes too, now as on a retry.
        request=decode(body, OccurrenceRequest, what),
        occurrence_id=occurrence_id(request.source_type, request.source_key, request.idempotency_key),
        request_hash=content_hash(b"lash.trigger.request.v1\0" + content),
        body=body,
    )


def decode_occurrence(row: OccurrenceRow) -> Occurrence:
    """Return the occurrence that the row means."""
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
    """Return what was once emitted."""
    return decode(row.request, OccurrenceRequest, f"trigger occurrence {row.occurrence_id!r}")


def same_occurrence(encoded: EncodedOccurrence, row: OccurrenceRow) -> EmitReport:
    """Return the first report of an equal request, or raise OccurrenceConflict."""
    if row.request_hash != encoded.request_hash:
        request = encoded.request
        raise OccurrenceConflict(request.source_type, request.source_key, request.idempotency_key)
    return decode(row.report, EmitReport, f"the report of trigger occurrence {row.occurrence_id!r}")


def plan_delivery(occurrence: str, payload: JSON, row: TriggerRow) -> Planned:
    """Decide about one match. Whatever is wrong with it is its own reason and keeps no other match from starting."""
    process_id = delivery_process_id(occurrence, row.subscription_id)
    try:
        draft = decode_subscription(row).definition
        check_payload("payload", draft.payload_schema, payload)
        inputs: JSONObject = {name: _bind(name, each, payload) for name, each in draft.input_template.items()}
        registration = registration_of(draft, process_id=process_id, occurrence_id=occurrence, inputs=inputs)
    except (CorruptData, InvalidInput) as error:
        return Reject(subscription=row, process_id=process_id, reason=_reason(str(error)))
    return Start(subscription=row, registration=registration)


def starts_of(planned: Iterable[Planned]) -> list[Start]:
    """Return those that want a process."""
    return [each for each in planned if isinstance(each, Start)]


def settle(planned: Sequence[Planned], taken: Mapping[str, str]) -> list[Planned]:
    """Reject what wants an id under which another process is already registered.

    ``taken`` has the registration hashes of those ids that were not free. An equal process is the one that was wanted.
    """
    settled: list[Planned] = []
    for each in planned:
        found = taken.get(each.process_id)
        if isinstance(each, Start) and found not in (None, each.registration.registration_hash):
            reason = f"process {each.process_id!r} is already registered, with another specification"
            settled.append(Reject(subscription=each.subscription, process_id=each.process_id, reason=reason))
        else:
            settled.append(each)
    return settled


def delivery_of(planned: Planned, *, attempts: int = 1) -> TriggerDelivery:
    """Return what is told of a decision once it is carried out."""
    row = planned.subscription
    return TriggerDelivery(
        subscription_id=row.subscription_id,
        owner_session_id=row.owner_session_id or None,
        key=row.key,
        process_id=planned.process_id,
        state=DeliveryState.STARTED if isinstance(planned, Start) else DeliveryState.REJECTED,
        reason=None if isinstance(planned, Start) else planned.reason,
        attempts=attempts,
    )


def report_of(occurrence: str, planned: Iterable[Planned]) -> EmitReport:
    """Return the report of an occurrence that was just recorded."""
    return EmitReport(occurrence_id=occurrence, deliveries=tuple(delivery_of(each) for each in planned))


def process_columns(start: Start) -> tuple[str | None, ...]:
    """Return what is written of a process, in the order in which both backends hand it over."""
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


def grant_columns(starts: Iterable[Start]) -> list[tuple[str, str, str, str | None]]:
    """Return the grants of the sessions that are woken: session, process, kind, label."""
    return [
        (session_id, each.process_id, each.registration.kind, each.registration.label)
        for each in starts
        if (session_id := each.registration.registration.wake_session_id) is not None
    ]


def delivery_columns(planned: Planned) -> tuple[str | None, ...]:
    """Return what is written of a delivery at its first attempt."""
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
    """Return the delivery that the row means."""
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


def plan_retry(occurrence: OccurrenceRow, delivery: DeliveryRow, subscription: TriggerRow | None) -> Planned | None:
    """Decide about a rejected delivery once more, with the subscription as it is now; None if it was started.

    A subscription that is gone, disabled or turned to another source gets nothing.
    """
    if decode_delivery(delivery).state is DeliveryState.STARTED:
        return None
    owner = owner_text(delivery.owner_session_id)
    if subscription is None:
        raise TriggerNotFound(owner, delivery.key)
    if not subscription.enabled:
        raise TriggerConflict(owner, delivery.key, "is disabled; enable it before a delivery is retried")
    request = stored_request(occurrence)
    definition = decode_subscription(subscription).definition
    if (definition.source_type, definition.source_key) != (request.source_type, request.source_key):
        raise TriggerConflict(owner, delivery.key, f"no longer watches the source of {occurrence.occurrence_id!r}")
    return plan_delivery(occurrence.occurrence_id, request.payload, subscription)


def check_delivery(occurrence: object, subscription: object) -> tuple[str, str]:
    """Return the names of a delivery."""
    return check_identifier("occurrence_id", occurrence), check_identifier("subscription_id", subscription)


def require_delivery(
    occurrence: OccurrenceRow | None, delivery: DeliveryRow | None, names: tuple[str, str]
) -> tuple[OccurrenceRow, DeliveryRow]:
    """Return both, or raise OccurrenceNotFound saying which is missing."""
    if occurrence is None:
        raise OccurrenceNotFound(names[0])
    if delivery is None:
        raise OccurrenceNotFound(*names)
    return occurrence, delivery


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
    """Return a reason that fits a column: a validator's message may quote the whole payload."""
    return text.replace("\0", "\\0")[:_MAX_REASON]
