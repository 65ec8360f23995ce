"""What the rows of triggers, schedules, artifacts, attachments, records and leases must be."""

from __future__ import annotations

from collections.abc import Iterable

from lash.backend.damage.row import Columns, require_same, shaped, text
from lash.backend.record import RecordValues
from lash.base.codec import decode
from lash.base.compression import Compression, unpack_stored
from lash.base.limits import check_digest
from lash.errors import CorruptData
from lash.model.attachment import OwnerKind
from lash.model.lease import LocalProcess
from lash.model.trigger.trigger import EmitReport, TriggerDelivery
from lash.model.value import JSON
from lash.plan.attachment import ByteGuardRow, normal_media_type, sweep_run_of
from lash.plan.record import RecordRow, decode_fields
from lash.plan.trigger.emit import (
    DeliveryRow,
    OccurrenceRow,
    decode_delivery,
    encode_occurrence,
    stored_request,
)
from lash.plan.trigger.schedule import ScheduleRow, decode_schedule, target_of
from lash.plan.trigger.trigger import TriggerRow, decode_subscription, encode_draft


def check_subscription(row: Columns) -> None:
    """Raise CorruptData if a trigger cannot be read, or its columns contradict its definition."""
    subscription = decode_subscription(shaped(TriggerRow, row))
    encoded = encode_draft(subscription.definition)
    draft = encoded.draft
    expected = {
        "owner_session_id": encoded.name.owner_session_id,
        "key": encoded.name.key,
        "fingerprint": encoded.fingerprint,
        "source_type": draft.source_type,
        "source_key": draft.source_key,
        "definition_hash": encoded.definition_hash,
        "environment_ref": draft.environment_ref,
    }
    for column, value in expected.items():
        require_same(column, row[column], value)


def check_receipt(row: Columns) -> None:
    """Raise CorruptData if the answer to a change of a trigger cannot be read."""
    decode(text(row, "answer"), dict[str, JSON], "its answer")
    check_digest("request_hash", row["request_hash"])


def check_occurrence(row: Columns, deliveries: Iterable[Columns]) -> None:
    """Raise CorruptData if an occurrence cannot be read, or its id, hash or deliveries are not those of its request."""
    stored = shaped(OccurrenceRow, row)
    encoded = encode_occurrence(stored_request(stored))
    require_same("occurrence_id", stored.occurrence_id, encoded.occurrence_id)
    require_same("request_hash", stored.request_hash, encoded.request_hash)
    report = decode(stored.report, EmitReport, "its report")
    require_same("report", report.occurrence_id, stored.occurrence_id)
    written = [decode_delivery(shaped(DeliveryRow, each)) for each in deliveries]
    require_same("its deliveries", [_named(each) for each in written], [_named(each) for each in report.deliveries])


def _named(delivery: TriggerDelivery) -> tuple[str | None, ...]:
    """Return what a delivery is about; its state and its attempts change with a retry."""
    return delivery.subscription_id, delivery.owner_session_id, delivery.key, delivery.process_id


def check_schedule(row: Columns) -> None:
    """Raise CorruptData if a schedule cannot be read, or its name is not that of its definition."""
    schedule = decode_schedule(shaped(ScheduleRow, row))
    if schedule is not None:
        require_same("key", (row["owner_session_id"], row["key"]), tuple(target_of(schedule.definition)))


def check_artifact(row: Columns) -> None:
    """Raise CorruptData if the bytes of an artifact are not those of its ref."""
    size, content, ref = row["size"], row["content"], text(row, "ref")
    if not isinstance(size, int) or not isinstance(content, bytes):
        raise CorruptData("size or content cannot be read")
    unpack_stored(ref, text(row, "codec"), size, content)


def check_attachment(row: Columns) -> None:
    """Raise InvalidInput if the id or the media type of an attachment is not one."""
    check_digest("attachment_id", row["attachment_id"])
    require_same("media_type", row["media_type"], normal_media_type(row["media_type"]))
    if row["owner_kind"] is not None and row["owner_kind"] not in tuple(OwnerKind):
        raise CorruptData("owner_kind is unknown")


def check_byte_guard(row: Columns) -> None:
    """Raise CorruptData if a byte guard cannot be read."""
    check_digest("attachment_id", row["attachment_id"])
    sweep_run_of(shaped(ByteGuardRow, row))


def check_record(row: Columns) -> None:
    """Raise CorruptData if a record cannot be read, or its scope is not that of its owner."""
    require_same("scope_key", row["scope_key"], row["session_key"] or 0)
    stored = shaped(RecordRow, row)
    RecordValues(Compression.BALANCED).decode(stored)
    decode_fields(stored.fields)


def check_lease(row: Columns) -> None:
    """Raise CorruptData if the process that holds a lease cannot be read."""
    if row["process"] is not None:
        decode(text(row, "process"), LocalProcess, "its holder")
