"""The rows of occurrences on SQLite, and the processes that they start."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from lash.backend.seal import delivery_values, process_values
from lash.base.codec import encode
from lash.errors import CorruptData
from lash.model.process.process import Projection
from lash.model.trigger.trigger import EmitReport, PrunedOccurrences, TriggerDelivery
from lash.plan.process.event import encode_projection
from lash.plan.sealed import DELIVERY, OCCURRENCE, REPORT
from lash.plan.trigger.emit import (
    DeliveryRetry,
    DeliveryRow,
    EncodedOccurrence,
    OccurrenceRow,
    Planned,
    RegistrationHashRow,
    RetryFacts,
    StartDelivery,
    delivery_of,
    grant_columns,
    reject_taken,
    report_of,
    starts_of,
)
from lash.plan.trigger.trigger import TriggerRow
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlkit.rows import Number, Text


class _PrunedRow(msgspec.Struct, frozen=True, array_like=True):
    """An occurrence that was removed."""

    occurred_at_ms: int
    occurrence_key: int
    occurrence_id: str


class SQLiteOccurrenceRows:
    """The occurrences of one SQLite storage; the contract is `lash.stores.trigger.emit.OccurrenceRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def emit(self, encoded: EncodedOccurrence) -> EmitReport:
        return await self._database.write(lambda transaction: emit_in(transaction, encoded))

    async def row(self, occurrence_id: str) -> OccurrenceRow | None:
        return self._database.read(lambda reader: _find(reader, occurrence_id))

    async def deliveries(self, occurrence_id: str) -> list[DeliveryRow] | None:
        def body(reader: Reader) -> list[DeliveryRow] | None:
            row = _find(reader, occurrence_id)
            if row is None:
                return None
            return reader.all(DeliveryRow, "emit_all_deliveries", occurrence_key=row.occurrence_key)

        return await self._database.read_in_thread(body)

    async def retry(
        self, names: tuple[str, str], decide: Callable[[RetryFacts], DeliveryRetry | TriggerDelivery]
    ) -> TriggerDelivery:
        def body(transaction: Transaction) -> TriggerDelivery:
            decided = decide(_facts(transaction, *names))
            return _retry(transaction, decided) if isinstance(decided, DeliveryRetry) else decided

        return await self._database.write(body)

    async def prune(self, before_ms: int, limit: int) -> PrunedOccurrences:
        rows = await self._database.write(
            lambda transaction: transaction.all(_PrunedRow, "emit_prune", before_ms=before_ms, limit=limit)
        )
        # RETURNING lists them in table order, which is not the order of time if the clock was ever set back.
        oldest_first = sorted(rows, key=lambda row: (row.occurred_at_ms, row.occurrence_key))
        return PrunedOccurrences(
            occurrence_ids=tuple(row.occurrence_id for row in oldest_first), more=len(rows) == limit
        )


def emit_in(transaction: Transaction, encoded: EncodedOccurrence) -> EmitReport:
    """Emit inside any write transaction; see `OccurrenceStore.emit`.

    The caller calls ``hints.notify()`` after the commit.
    """
    recorded = transaction.one(
        Number,
        "emit_occurrence",
        occurrence_id=encoded.occurrence_id,
        request_hash=encoded.request_hash,
        request=transaction.seals.text(OCCURRENCE, encoded.body, encoded.occurrence_id),
        now_ms=transaction.now_ms,
    )
    if recorded is None:
        known = _find(transaction, encoded.occurrence_id)
        if known is None:
            raise CorruptData(
                f"trigger occurrence {encoded.occurrence_id!r} exists and cannot be read (index and table disagree)"
            )
        return encoded.first_report(known)
    source = {"source_type": encoded.request.source_type, "source_key": encoded.request.source_key}
    planned = _start(transaction, encoded.deliveries(transaction.all(TriggerRow, "emit_match", **source)))
    report = report_of(encoded.occurrence_id, planned)
    deliveries = json_array(delivery_values(transaction.seals, each) for each in planned)
    transaction.run("emit_deliveries", occurrence_key=recorded.number, deliveries=deliveries)
    text = transaction.seals.text(REPORT, encode(report, EmitReport, "report"), encoded.occurrence_id)
    transaction.run("emit_report", occurrence_key=recorded.number, report=text)
    return report


def _start(transaction: Transaction, planned: list[Planned]) -> list[Planned]:
    """Register all processes with their leases and grants; return the deliveries, those with taken ids rejected."""
    starts = starts_of(planned)
    if not starts:
        return planned
    created = transaction.all(
        Text,
        "emit_processes",
        processes=json_array(process_values(transaction.seals, each) for each in starts),
        projection=encode_projection(Projection()),
        now_ms=transaction.now_ms,
    )
    new = {row.text for row in created}
    process_ids = json_array(each.process_id for each in starts if each.process_id in new)
    transaction.run("emit_leases", process_ids=process_ids)
    transaction.run("emit_forget_tombstones", process_ids=process_ids)
    started = reject_taken(planned, _taken(transaction, [each for each in starts if each.process_id not in new]))
    transaction.run("emit_grants", grants=json_array(grant_columns(starts_of(started))))
    return started


def _taken(transaction: Transaction, starts: Sequence[StartDelivery]) -> dict[str, str]:
    """Return the registration hashes of the ids that were not free."""
    if not starts:
        return {}
    process_ids = json_array(each.process_id for each in starts)
    rows = transaction.all(RegistrationHashRow, "emit_registered", process_ids=process_ids)
    return {row.process_id: row.registration_hash for row in rows}


def _find(reader: Reader, occurrence_id: str) -> OccurrenceRow | None:
    return reader.one(OccurrenceRow, "emit_stored", occurrence_id=occurrence_id)


def _facts(transaction: Transaction, occurrence_id: str, subscription_id: str) -> RetryFacts:
    occurrence = _find(transaction, occurrence_id)
    key = None if occurrence is None else occurrence.occurrence_key
    return RetryFacts(
        occurrence,
        transaction.one(DeliveryRow, "emit_delivery", occurrence_key=key, subscription_id=subscription_id),
        transaction.one(TriggerRow, "emit_subscription", subscription_id=subscription_id),
    )


def _retry(transaction: Transaction, retry: DeliveryRetry) -> TriggerDelivery:
    delivery = delivery_of(_start(transaction, [retry.planned])[0], attempts=retry.attempts)
    transaction.run(
        "emit_record_attempt",
        occurrence_key=retry.occurrence_key,
        subscription_id=delivery.subscription_id,
        state=delivery.state.value,
        reason=transaction.seals.text(DELIVERY, delivery.reason, delivery.subscription_id, delivery.process_id),
        attempts=delivery.attempts,
    )
    return delivery
