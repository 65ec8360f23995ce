"""The contract of occurrences: events that start a process for every matching subscription."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from lash.model.trigger.trigger import EmitReport, Occurrence, OccurrenceRequest, PrunedOccurrences, TriggerDelivery

if TYPE_CHECKING:
    from lash.plan.trigger.emit import DeliveryRetry, DeliveryRow, EncodedOccurrence, OccurrenceRow, RetryFacts


class OccurrenceStore(Protocol):
    """Recorded occurrences and their deliveries."""

    async def emit(self, request: OccurrenceRequest) -> EmitReport:
        """Record an occurrence and start a process for every subscription that matches, in one transaction.

        It matches the enabled subscriptions with the same source type and key. Each gets a process, whose id follows
        from occurrence and subscription, with a grant for the session that it wakes. A process that cannot be started
        is a rejected delivery with a reason; the others start. Deliveries are in the order in which the subscriptions
        were created.

        Idempotent: the same request, from any machine at any time, returns the first report and writes nothing. Later
        subscriptions are not matched. Other content under the same idempotency key of the source raises
        OccurrenceConflict.
        """
        ...

    async def get(self, occurrence_id: str) -> Occurrence | None:
        """Return an occurrence, or None."""
        ...

    async def deliveries(self, occurrence_id: str) -> tuple[TriggerDelivery, ...]:
        """Return the current deliveries in the order of the report, or raise OccurrenceNotFound."""
        ...

    async def retry_delivery(self, occurrence_id: str, subscription_id: str) -> TriggerDelivery:
        """Try a rejected delivery again, with the current subscription; return a started one unchanged.

        Raises TriggerNotFound if the subscription is gone, TriggerConflict if it is disabled or has another source,
        and OccurrenceNotFound if the delivery is unknown.
        """
        ...

    async def prune(self, *, before_ms: int, limit: int = 100) -> PrunedOccurrences:
        """Remove the oldest occurrences from before a moment, at most ``limit``, except those with a running process.

        While an occurrence is kept, none of its processes is started a second time, even after it was pruned. Emitting
        a removed occurrence is a new occurrence.
        """
        ...


class OccurrenceRows(Protocol):
    """The rows of occurrences in one database; `lash.backend.trigger.emit.Occurrences` makes the store of them."""

    async def emit(self, encoded: EncodedOccurrence) -> EmitReport:
        """Record the occurrence and start ``encoded.deliveries`` of the matches, or return ``encoded.first_report``."""
        ...

    async def row(self, occurrence_id: str) -> OccurrenceRow | None: ...

    async def deliveries(self, occurrence_id: str) -> list[DeliveryRow] | None:
        """Return the deliveries in the order of the report; None if the occurrence is unknown."""
        ...

    async def retry(
        self, names: tuple[str, str], decide: Callable[[RetryFacts], DeliveryRetry | TriggerDelivery]
    ) -> TriggerDelivery:
        """Read the facts, decide, start the process and record the attempt, in one transaction."""
        ...

    async def prune(self, before_ms: int, limit: int) -> PrunedOccurrences: ...
