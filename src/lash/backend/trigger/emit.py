"""The store of occurrences on every backend."""

from __future__ import annotations

from functools import partial

from lash.base.limits import check_identifier, check_integer, check_limit
from lash.errors import OccurrenceNotFound
from lash.model.trigger.trigger import EmitReport, Occurrence, OccurrenceRequest, PrunedOccurrences, TriggerDelivery
from lash.plan.trigger.emit import check_delivery, decode_delivery, decode_occurrence, encode_occurrence, plan_retry
from lash.stores.hints import Hints
from lash.stores.trigger.emit import OccurrenceRows


class Occurrences:
    """The occurrences of one storage; the contract is `lash.stores.trigger.emit.OccurrenceStore`."""

    def __init__(self, rows: OccurrenceRows, hints: Hints) -> None:
        self._rows = rows
        self._hints = hints

    async def emit(self, request: OccurrenceRequest) -> EmitReport:
        report = await self._rows.emit(encode_occurrence(request))
        for process_id in report.started_process_ids:
            # Also for a repeat: the caller may repeat because the first hint was lost with the answer.
            self._hints.notify(process_id=process_id)
        return report

    async def get(self, occurrence_id: str) -> Occurrence | None:
        row = await self._rows.row(check_identifier("occurrence_id", occurrence_id))
        return None if row is None else decode_occurrence(row)

    async def deliveries(self, occurrence_id: str) -> tuple[TriggerDelivery, ...]:
        rows = await self._rows.deliveries(check_identifier("occurrence_id", occurrence_id))
        if rows is None:
            raise OccurrenceNotFound(occurrence_id)
        return tuple(decode_delivery(row) for row in rows)

    async def retry_delivery(self, occurrence_id: str, subscription_id: str) -> TriggerDelivery:
        names = check_delivery(occurrence_id, subscription_id)
        delivery = await self._rows.retry(names, partial(plan_retry, names))
        self._hints.notify()
        return delivery

    async def prune(self, *, before_ms: int, limit: int = 100) -> PrunedOccurrences:
        return await self._rows.prune(check_integer("before_ms", before_ms), check_limit(limit))
