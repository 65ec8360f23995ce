"""The rows of occurrences on PostgreSQL, and the processes that they start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from lash.base.codec import encode
from lash.errors import StoreUnavailable
from lash.model.process.process import Projection
from lash.model.trigger.trigger import EmitReport, PrunedOccurrences, TriggerDelivery
from lash.plan.process.event import encode_projection
from lash.plan.trigger.emit import (
    DeliveryRetry,
    DeliveryRow,
    EncodedOccurrence,
    OccurrenceRow,
    Planned,
    RegistrationHashRow,
    RetryFacts,
    StartDelivery,
    delivery_columns,
    delivery_of,
    grant_columns,
    process_columns,
    reject_taken,
    report_of,
    starts_of,
)
from lash.plan.trigger.trigger import TriggerRow
from lash.postgres.arguments import columns
from lash.postgres.engine.database import Database, Transaction
from lash.sqlkit.rows import Number, Text

_MAX_TRIES: Final = 10
"""More concurrent prunes of one occurrence or process are a fault, not a race."""
_DELIVERY_COLUMNS: Final = 6
"""The number of columns of `delivery_columns`."""


class PostgresOccurrenceRows:
    """The occurrences of one PostgreSQL storage; the contract is `lash.stores.trigger.emit.OccurrenceRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def emit(self, encoded: EncodedOccurrence) -> EmitReport:
        async with self._database.transaction() as transaction:
            return await emit_in(transaction, encoded)

    async def row(self, occurrence_id: str) -> OccurrenceRow | None:
        return await self._database.read_one(OccurrenceRow, "emit_stored", occurrence_id)

    async def deliveries(self, occurrence_id: str) -> list[DeliveryRow] | None:
        row = await self.row(occurrence_id)
        if row is None:
            return None
        return await self._database.read_all(DeliveryRow, "emit_all_deliveries", row.occurrence_key)

    async def retry(
        self, names: tuple[str, str], decide: Callable[[RetryFacts], DeliveryRetry | TriggerDelivery]
    ) -> TriggerDelivery:
        async with self._database.transaction() as transaction:
            # Locked in this order, as an emission does.
            occurrence = await transaction.one(OccurrenceRow, "emit_lock", names[0])
            key = None if occurrence is None else occurrence.occurrence_key
            delivery = await transaction.one(DeliveryRow, "emit_delivery", key, names[1])
            subscription = await transaction.one(TriggerRow, "emit_subscription", names[1])
            decided = decide(RetryFacts(occurrence, delivery, subscription))
            return await _retry(transaction, decided) if isinstance(decided, DeliveryRetry) else decided

    async def prune(self, before_ms: int, limit: int) -> PrunedOccurrences:
        async with self._database.transaction() as transaction:
            held = await transaction.all(Number, "emit_prunable", before_ms, limit)
            rows = await transaction.all(Text, "emit_prune", [each.number for each in held])
        return PrunedOccurrences(occurrence_ids=tuple(row.text for row in rows), more=len(held) == limit)


async def emit_in(transaction: Transaction, encoded: EncodedOccurrence) -> EmitReport:
    """Emit inside any transaction; see `OccurrenceStore.emit`.

    The caller calls ``hints.notify()`` after the commit. The transaction locks the occurrence and then the matching
    subscriptions, but no existing process or session. To avoid deadlocks, a caller that emits several occurrences in
    one transaction does so in the order of their ids.
    """
    arguments = (encoded.occurrence_id, encoded.request_hash, encoded.body)
    for _ in range(_MAX_TRIES):
        recorded = await transaction.one(Number, "emit_occurrence", *arguments)
        if recorded is not None:
            return await _deliver(transaction, encoded, recorded.number)
        known = await transaction.one(OccurrenceRow, "emit_stored", encoded.occurrence_id)
        if known is not None:
            return encoded.first_report(known)
    raise StoreUnavailable(f"trigger occurrence {encoded.occurrence_id!r} was pruned {_MAX_TRIES} times meanwhile")


async def _deliver(transaction: Transaction, encoded: EncodedOccurrence, occurrence_key: int) -> EmitReport:
    request = encoded.request
    matches = await transaction.all(TriggerRow, "emit_match", request.source_type, request.source_key)
    planned = await _start(transaction, encoded.deliveries(matches))
    report = report_of(encoded.occurrence_id, planned)
    arrays = columns((delivery_columns(each) for each in planned), _DELIVERY_COLUMNS)
    await transaction.run("emit_deliveries", occurrence_key, encode(report, EmitReport, "report"), *arrays)
    return report


async def _start(transaction: Transaction, planned: Sequence[Planned]) -> list[Planned]:
    """Register all processes with their leases and grants; return the deliveries, those with taken ids rejected."""
    taken: dict[str, str] = {}
    waiting = starts_of(planned)
    for _ in range(_MAX_TRIES):
        if not waiting:
            break
        arrays = columns(process_columns(each) for each in waiting)
        created = {
            row.text for row in await transaction.all(Text, "emit_processes", *arrays, encode_projection(Projection()))
        }
        taken |= await _taken(transaction, [each for each in waiting if each.process_id not in created])
        # An id that was neither free nor is taken now was pruned meanwhile, and is free now.
        waiting = [each for each in waiting if each.process_id not in created and each.process_id not in taken]
    if waiting:
        raise StoreUnavailable(f"process {waiting[0].process_id!r} was pruned {_MAX_TRIES} times meanwhile")
    started = reject_taken(planned, taken)
    grants = grant_columns(starts_of(started))
    if grants:
        await transaction.run("emit_grants", *columns(grants))
    return started


async def _taken(transaction: Transaction, starts: Sequence[StartDelivery]) -> dict[str, str]:
    """Return the registration hashes of the ids that were not free."""
    ids = [each.process_id for each in starts]
    found = await transaction.all(RegistrationHashRow, "emit_registered", ids) if ids else []
    return {each.process_id: each.registration_hash for each in found}


async def _retry(transaction: Transaction, retry: DeliveryRetry) -> TriggerDelivery:
    (started,) = await _start(transaction, [retry.planned])
    delivery = delivery_of(started, attempts=retry.attempts)
    attempt = (delivery.subscription_id, delivery.state.value, delivery.reason, delivery.attempts)
    await transaction.run("emit_record_attempt", retry.occurrence_key, *attempt)
    return delivery
