"""Occurrences on PostgreSQL: what happened, and the processes that it starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from lash.base.codec import encode
from lash.base.limits import check_identifier, check_integer
from lash.errors import OccurrenceNotFound, StoreUnavailable
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
from lash.postgres.engine.database import Database, Transaction
from lash.sqlkit.rows import Number, Text
from lash.stores.hints import Hints

_MAX_PLANS: Final = 10
_GRANT_COLUMNS: Final = 4
_DELIVERY_COLUMNS: Final = 6


class PostgresOccurrenceStore:
    """The occurrences of one PostgreSQL storage; the contract is `lash.stores.trigger.trigger.OccurrenceStore`."""

    def __init__(self, database: Database, hints: Hints) -> None:
        self._database = database
        self._hints = hints

    async def emit(self, request: OccurrenceRequest) -> EmitReport:
        encoded = encode_occurrence(request)
        async with self._database.transaction() as transaction:
            report = await _emit(transaction, encoded)
        self._hints.notify()
        return report

    async def get(self, occurrence_id: str) -> Occurrence | None:
        check_identifier("occurrence_id", occurrence_id)
        row = await self._database.read_one(OccurrenceRow, "emit_stored", occurrence_id)
        return None if row is None else decode_occurrence(row)

    async def deliveries(self, occurrence_id: str) -> tuple[TriggerDelivery, ...]:
        check_identifier("occurrence_id", occurrence_id)
        row = await self._database.read_one(OccurrenceRow, "emit_stored", occurrence_id)
        if row is None:
            raise OccurrenceNotFound(occurrence_id)
        rows = await self._database.read_all(DeliveryRow, "emit_all_deliveries", row.occurrence_key)
        return tuple(decode_delivery(each) for each in rows)

    async def retry_delivery(self, occurrence_id: str, subscription_id: str) -> TriggerDelivery:
        names = check_delivery(occurrence_id, subscription_id)
        async with self._database.transaction() as transaction:
            delivery = await _retry(transaction, names)
        self._hints.notify()
        return delivery

    async def prune(self, *, before_ms: int, limit: int = 100) -> PrunedOccurrences:
        check_integer("before_ms", before_ms)
        size = check_limit(limit)
        async with self._database.transaction() as transaction:
            held = await transaction.all(Number, "emit_prunable", before_ms, size)
            rows = await transaction.all(Text, "emit_prune", [each.number for each in held])
        return PrunedOccurrences(occurrence_ids=tuple(row.text for row in rows), more=len(held) == size)


async def emit_in(transaction: Transaction, request: OccurrenceRequest) -> EmitReport:
    """Emit inside any transaction; see `OccurrenceStore.emit`.

    Whoever wrote the transaction calls ``hints.notify()`` once it is committed. It holds the occurrence, then the
    subscriptions that match, and no process or session that was there before; whoever emits several in one transaction
    does so in the order of their ids, so that two of them cannot wait for each other.
    """
    return await _emit(transaction, encode_occurrence(request))


async def _emit(transaction: Transaction, encoded: EncodedOccurrence) -> EmitReport:
    arguments = (encoded.occurrence_id, encoded.request_hash, encoded.body)
    for _ in range(_MAX_PLANS):
        recorded = await transaction.one(Number, "emit_occurrence", *arguments)
        if recorded is not None:
            return await _deliver(transaction, encoded, recorded.number)
        known = await transaction.one(OccurrenceRow, "emit_stored", encoded.occurrence_id)
        if known is not None:
            return same_occurrence(encoded, known)
    raise StoreUnavailable(f"trigger occurrence {encoded.occurrence_id!r} was pruned {_MAX_PLANS} times meanwhile")


async def _deliver(transaction: Transaction, encoded: EncodedOccurrence, occurrence_key: int) -> EmitReport:
    request = encoded.request
    rows = await transaction.all(TriggerRow, "emit_match", request.source_type, request.source_key)
    planned = await _start(transaction, [plan_delivery(encoded.occurrence_id, request.payload, row) for row in rows])
    report = report_of(encoded.occurrence_id, planned)
    columns = _by_column((delivery_columns(each) for each in planned), _DELIVERY_COLUMNS)
    await transaction.run("emit_deliveries", occurrence_key, encode(report, EmitReport, "report"), *columns)
    return report


async def _start(transaction: Transaction, planned: Sequence[Planned]) -> list[Planned]:
    """Register the processes with all that belongs to them, however many, and return what came of the plan."""
    taken: dict[str, str] = {}
    waiting = starts_of(planned)
    for _ in range(_MAX_PLANS):
        if not waiting:
            break
        columns = _by_column((process_columns(each) for each in waiting), len(process_columns(waiting[0])))
        created = await transaction.all(Text, "emit_processes", *columns, encode_projection(Projection()))
        new = {row.text for row in created}
        taken |= await _taken(transaction, [each for each in waiting if each.process_id not in new])
        # What was neither free nor is there was pruned meanwhile, and is free now.
        waiting = [each for each in waiting if each.process_id not in new and each.process_id not in taken]
    if waiting:
        raise StoreUnavailable(f"process {waiting[0].process_id!r} was pruned {_MAX_PLANS} times meanwhile")
    settled = settle(planned, taken)
    grants = grant_columns(starts_of(settled))
    if grants:
        await transaction.run("emit_grants", *_by_column(grants, _GRANT_COLUMNS))
    return settled


async def _taken(transaction: Transaction, starts: Sequence[Start]) -> dict[str, str]:
    """Return what is registered under the ids that were not free."""
    if not starts:
        return {}
    rows = await transaction.all(RegisteredRow, "emit_registered", [each.process_id for each in starts])
    return {row.process_id: row.registration_hash for row in rows}


async def _retry(transaction: Transaction, names: tuple[str, str]) -> TriggerDelivery:
    occurrence = await transaction.one(OccurrenceRow, "emit_lock", names[0])
    known = None
    if occurrence is not None:
        known = await transaction.one(DeliveryRow, "emit_delivery", occurrence.occurrence_key, names[1])
    occurrence, known = require_delivery(occurrence, known, names)
    planned = plan_retry(occurrence, known, await transaction.one(TriggerRow, "emit_subscription", names[1]))
    if planned is None:
        return decode_delivery(known)
    delivery = delivery_of((await _start(transaction, [planned]))[0], attempts=known.attempts + 1)
    settled = (delivery.state.value, delivery.reason, delivery.attempts)
    await transaction.run("emit_settle_delivery", occurrence.occurrence_key, names[1], *settled)
    return delivery


def _by_column(rows: Iterable[Sequence[str | None]], width: int) -> list[list[str | None]]:
    """Turn rows into the arrays that ``unnest`` reads; none if there are no rows, but as many arrays."""
    columns: list[list[str | None]] = [[] for _ in range(width)]
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return columns
