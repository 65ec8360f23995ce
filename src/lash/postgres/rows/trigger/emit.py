"""The rows of occurrences on PostgreSQL, and the processes that they start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from lash.backend.seal import delivery_values, process_values
from lash.base.codec import encode
from lash.base.seal import Seals
from lash.errors import CorruptData, StoreUnavailable
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
from lash.postgres.arguments import columns
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.engine.errors import is_taken_key
from lash.sqlkit.rows import Number, Text

_MAX_TRIES: Final = 10
"""More concurrent prunes of one occurrence or process are a fault, not a race."""
_PROCESS_COLUMNS: Final = 10
"""The number of columns of `process_columns`."""
_GRANT_COLUMNS: Final = 4
"""The number of columns of `grant_columns`."""
_DELIVERY_COLUMNS: Final = 6
"""The number of columns of `delivery_columns`."""


class ScheduleStep(NamedTuple):
    """The step of a schedule to its next tick: the schedule as the plan knows it, and the new columns."""

    schedule_key: int
    revision: int
    last_tick_ms: int | None
    tick_ms: int | None
    new_last_tick_ms: int
    next_tick_ms: int | None
    next_fire_ms: int | None


class Emitted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an emission in one statement; without a report nothing was written."""

    report: EmitReport | None
    expected: bool = True
    """Whether the schedule was as the plan knows it, and not locked."""


class _Facts(msgspec.Struct, frozen=True, array_like=True):
    """The recorded occurrence, if there is one, and the subscriptions that match."""

    known: OccurrenceRow | None
    matches: list[TriggerRow]


class _ApplyAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Whether the schedule was as expected, and the key of a new occurrence."""

    expected: bool
    occurrence_key: int | None


class PostgresOccurrenceRows:
    """The occurrences of one PostgreSQL storage; the contract is `lash.stores.trigger.emit.OccurrenceRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def emit(self, encoded: EncodedOccurrence) -> EmitReport:
        """Emit in two round trips, unless a fact changes between them; then in a transaction."""
        emitted = await emit_alone(self._database, encoded)
        if emitted.report is not None:
            return emitted.report
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


async def emit_alone(database: Database, encoded: EncodedOccurrence, step: ScheduleStep | None = None) -> Emitted:
    """Emit in one guarded statement on facts that were read before, and advance the schedule of a tick with it."""
    request = encoded.request
    facts = await database.read_one(
        _Facts, "emit_facts", encoded.occurrence_id, request.source_type, request.source_key
    )
    if facts is None:
        raise CorruptData("query emit_facts returned no row")
    if facts.known is not None:
        return Emitted(report=encoded.first_report(facts.known) if step is None else None)
    planned = encoded.deliveries(facts.matches)
    report = report_of(encoded.occurrence_id, planned)
    arguments = _apply_arguments(database.seals, encoded, facts.matches, planned, report, step)
    try:
        # A repeated tick would find its own step and be taken for that of another worker.
        answer = await database.write_one(_ApplyAnswer, "emit_apply", *arguments, repeatable=step is None)
    except CorruptData as error:
        if not is_taken_key(error):
            raise
        # A process was registered under the same id at this moment.
        answer = None
    if answer is None:
        return Emitted(report=None)
    return Emitted(report=None if answer.occurrence_key is None else report, expected=answer.expected)


async def emit_in(transaction: Transaction, encoded: EncodedOccurrence) -> EmitReport:
    """Emit inside any transaction; see `OccurrenceStore.emit`.

    The caller calls ``hints.notify()`` after the commit. The transaction locks the occurrence and then the matching
    subscriptions, but no existing process or session. To avoid deadlocks, a caller that emits several occurrences in
    one transaction does so in the order of their ids.
    """
    arguments = _occurrence_values(transaction.seals, encoded)
    for _ in range(_MAX_TRIES):
        recorded = await transaction.one(Number, "emit_occurrence", *arguments)
        if recorded is not None:
            return await _deliver(transaction, encoded, recorded.number)
        known = await transaction.one(OccurrenceRow, "emit_stored", encoded.occurrence_id)
        if known is not None:
            return encoded.first_report(known)
    raise StoreUnavailable(f"trigger occurrence {encoded.occurrence_id!r} was pruned {_MAX_TRIES} times meanwhile")


def _apply_arguments(
    seals: Seals,
    encoded: EncodedOccurrence,
    matches: Sequence[TriggerRow],
    planned: Sequence[Planned],
    report: EmitReport,
    step: ScheduleStep | None,
) -> list[object]:
    """Return the arguments of ``emit_apply`` in their order."""
    request, starts = encoded.request, starts_of(planned)
    return [
        *(*_occurrence_values(seals, encoded), _report_value(seals, report)),
        *(request.source_type, request.source_key),
        *([row.subscription_key for row in matches], [row.revision for row in matches]),
        *columns((process_values(seals, each) for each in starts), _PROCESS_COLUMNS),
        encode_projection(Projection()),
        *columns(grant_columns(starts), _GRANT_COLUMNS),
        *columns((delivery_values(seals, each) for each in planned), _DELIVERY_COLUMNS),
        *((None,) * len(ScheduleStep._fields) if step is None else step),
    ]


def _occurrence_values(seals: Seals, encoded: EncodedOccurrence) -> tuple[str, str, str]:
    body = seals.text(OCCURRENCE, encoded.body, encoded.occurrence_id)
    return encoded.occurrence_id, encoded.request_hash, body


def _report_value(seals: Seals, report: EmitReport) -> str:
    return seals.text(REPORT, encode(report, EmitReport, "report"), report.occurrence_id)


async def _deliver(transaction: Transaction, encoded: EncodedOccurrence, occurrence_key: int) -> EmitReport:
    request = encoded.request
    matches = await transaction.all(TriggerRow, "emit_match", request.source_type, request.source_key)
    planned = await _start(transaction, encoded.deliveries(matches))
    report = report_of(encoded.occurrence_id, planned)
    arrays = columns((delivery_values(transaction.seals, each) for each in planned), _DELIVERY_COLUMNS)
    await transaction.run("emit_deliveries", occurrence_key, _report_value(transaction.seals, report), *arrays)
    return report


async def _start(transaction: Transaction, planned: Sequence[Planned]) -> list[Planned]:
    """Register all processes with their leases and grants; return the deliveries, those with taken ids rejected."""
    taken: dict[str, str] = {}
    waiting = starts_of(planned)
    for _ in range(_MAX_TRIES):
        if not waiting:
            break
        arrays = columns(process_values(transaction.seals, each) for each in waiting)
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
    reason = transaction.seals.text(DELIVERY, delivery.reason, delivery.subscription_id, delivery.process_id)
    attempt = (delivery.subscription_id, delivery.state.value, reason, delivery.attempts)
    await transaction.run("emit_record_attempt", retry.occurrence_key, *attempt)
    return delivery
