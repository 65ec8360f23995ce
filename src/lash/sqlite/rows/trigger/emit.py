"""Occurrences on SQLite: what happened, and the processes that it starts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lash.base.codec import encode
from lash.base.limits import check_identifier, check_integer
from lash.errors import CorruptData, OccurrenceNotFound
from lash.model.process.process import Projection
from lash.model.trigger.trigger import EmitReport, Occurrence, OccurrenceRequest, PrunedOccurrences, TriggerDelivery
from lash.plan.process.event import encode_projection
from lash.plan.session.session import check_limit
from lash.plan.trigger.emit import (
    DeliveryRow,
    EncodedOccurrence,
    OccurrenceRow,
    Planned,
    RegisteredRow,
    Start,
    check_delivery,
    decode_delivery,
    decode_occurrence,
    delivery_columns,
    delivery_of,
    encode_occurrence,
    grant_columns,
    plan_delivery,
    plan_retry,
    process_columns,
    report_of,
    require_delivery,
    same_occurrence,
    settle,
    starts_of,
)
from lash.plan.trigger.trigger import TriggerRow
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlkit.rows import Number, Text
from lash.stores.hints import Hints


class _PrunedRow(msgspec.Struct, frozen=True, array_like=True):
    """An occurrence that was removed."""

    occurred_at_ms: int
    occurrence_key: int
    occurrence_id: str


class SQLiteOccurrenceStore:
    """The occurrences of one SQLite storage; the contract is `lash.stores.trigger.trigger.OccurrenceStore`."""

    def __init__(self, database: Database, hints: Hints) -> None:
        self._database = database
        self._hints = hints

    async def emit(self, request: OccurrenceRequest) -> EmitReport:
        encoded = encode_occurrence(request)
        report = await self._database.write(lambda transaction: _emit(transaction, encoded))
        self._hints.notify()
        return report

    async def get(self, occurrence_id: str) -> Occurrence | None:
        check_identifier("occurrence_id", occurrence_id)
        row = self._database.read(lambda reader: _find(reader, occurrence_id))
        return None if row is None else decode_occurrence(row)

    async def deliveries(self, occurrence_id: str) -> tuple[TriggerDelivery, ...]:
        check_identifier("occurrence_id", occurrence_id)

        def body(reader: Reader) -> list[DeliveryRow]:
            row = _find(reader, occurrence_id)
            if row is None:
                raise OccurrenceNotFound(occurrence_id)
            return reader.all(DeliveryRow, "emit_all_deliveries", occurrence_key=row.occurrence_key)

        return tuple(decode_delivery(row) for row in await self._database.read_in_thread(body))

    async def retry_delivery(self, occurrence_id: str, subscription_id: str) -> TriggerDelivery:
        names = check_delivery(occurrence_id, subscription_id)
        delivery = await self._database.write(lambda transaction: _retry(transaction, names))
        self._hints.notify()
        return delivery

    async def prune(self, *, before_ms: int, limit: int = 100) -> PrunedOccurrences:
        check_integer("before_ms", before_ms)
        size = check_limit(limit)
        rows = await self._database.write(
            lambda transaction: transaction.all(_PrunedRow, "emit_prune", before_ms=before_ms, limit=size)
        )
        # They are removed in the order of the table, which is another one if the clock was ever set back.
        oldest_first = sorted(rows, key=lambda row: (row.occurred_at_ms, row.occurrence_key))
        return PrunedOccurrences(
            occurrence_ids=tuple(row.occurrence_id for row in oldest_first), more=len(rows) == size
        )


def emit_in(transaction: Transaction, request: OccurrenceRequest) -> EmitReport:
    """Emit inside any write transaction; see `OccurrenceStore.emit`.

    Whoever wrote the transaction calls ``hints.notify()`` once it is committed.
    """
    return _emit(transaction, encode_occurrence(request))


def _emit(transaction: Transaction, encoded: EncodedOccurrence) -> EmitReport:
    recorded = transaction.one(
        Number,
        "emit_occurrence",
        occurrence_id=encoded.occurrence_id,
        request_hash=encoded.request_hash,
        request=encoded.body,
        now_ms=transaction.now_ms,
    )
    if recorded is None:
        known = _find(transaction, encoded.occurrence_id)
        if known is None:
            raise CorruptData(f"trigger occurrence {encoded.occurrence_id!r} is there and is not")
        return same_occurrence(encoded, known)
    request = encoded.request
    rows = transaction.all(TriggerRow, "emit_match", source_type=request.source_type, source_key=request.source_key)
    planned = _start(transaction, [plan_delivery(encoded.occurrence_id, request.payload, row) for row in rows])
    report = report_of(encoded.occurrence_id, planned)
    deliveries = json_array(delivery_columns(each) for each in planned)
    transaction.run("emit_deliveries", occurrence_key=recorded.number, deliveries=deliveries)
    text = encode(report, EmitReport, "report")
    transaction.run("emit_report", occurrence_key=recorded.number, report=text)
    return report


def _start(transaction: Transaction, planned: Sequence[Planned]) -> list[Planned]:
    """Register the processes with all that belongs to them, however many, and return what came of the plan."""
    starts = starts_of(planned)
    if not starts:
        return list(planned)
    created = transaction.all(
        Text,
        "emit_processes",
        processes=json_array(process_columns(each) for each in starts),
        projection=encode_projection(Projection()),
        now_ms=transaction.now_ms,
    )
    new = {row.text for row in created}
    process_ids = json_array(each.process_id for each in starts if each.process_id in new)
    transaction.run("emit_leases", process_ids=process_ids)
    transaction.run("emit_forget_tombstones", process_ids=process_ids)
    transaction.run("emit_changes", process_ids=process_ids, now_ms=transaction.now_ms)
    settled = settle(planned, _taken(transaction, [each for each in starts if each.process_id not in new]))
    transaction.run("emit_grants", grants=json_array(grant_columns(starts_of(settled))))
    return settled


def _taken(transaction: Transaction, starts: Sequence[Start]) -> dict[str, str]:
    """Return what is registered under the ids that were not free."""
    if not starts:
        return {}
    process_ids = json_array(each.process_id for each in starts)
    rows = transaction.all(RegisteredRow, "emit_registered", process_ids=process_ids)
    return {row.process_id: row.registration_hash for row in rows}


def _find(reader: Reader, occurrence_id: str) -> OccurrenceRow | None:
    return reader.one(OccurrenceRow, "emit_stored", occurrence_id=occurrence_id)


def _retry(transaction: Transaction, names: tuple[str, str]) -> TriggerDelivery:
    occurrence = _find(transaction, names[0])
    known = None
    if occurrence is not None:
        known = transaction.one(
            DeliveryRow,
            "emit_delivery",
            occurrence_key=occurrence.occurrence_key,
            subscription_id=names[1],
        )
    occurrence, known = require_delivery(occurrence, known, names)
    row = transaction.one(TriggerRow, "emit_subscription", subscription_id=names[1])
    planned = plan_retry(occurrence, known, row)
    if planned is None:
        return decode_delivery(known)
    delivery = delivery_of(_start(transaction, [planned])[0], attempts=known.attempts + 1)
    transaction.run(
        "emit_settle_delivery",
        occurrence_key=occurrence.occurrence_key,
        subscription_id=names[1],
        state=delivery.state.value,
        reason=delivery.reason,
        attempts=delivery.attempts,
    )
    return delivery
