"""The contract of triggers: who wants to know what, what happened, and what was started for it."""

from __future__ import annotations

from typing import Protocol

from lash.model.trigger.trigger import (
    EVERY_TRIGGER,
    DeletedTrigger,
    EmitReport,
    Occurrence,
    OccurrenceRequest,
    PrunedOccurrences,
    RegisteredTrigger,
    TriggerDelivery,
    TriggerDraft,
    TriggerFilter,
    TriggerOwner,
    TriggerPage,
    TriggerSubscription,
)
from lash.model.value import JSON


class TriggerStore(Protocol):
    """Standing requests, by owner and key, to start a process whenever something happens.

    Every change takes an optional ``operation_id``, under which it is safe to repeat: the first answer is kept and
    returned again, whatever was changed since, until receipts are pruned. Another request under the same id raises
    TriggerConflict. A change that was refused leaves no receipt.
    """

    def source_key(self, source_type: str, source: JSON = None) -> str:
        """Return the default key of a source: the same for the same type and description, everywhere and always."""
        ...

    async def register(self, draft: TriggerDraft, *, operation_id: str | None = None) -> RegisteredTrigger:
        """Make a subscription, enabled, or return the one that has the same definition, as it stands.

        Raises TriggerConflict if there is one with another definition, and SessionNotFound or SessionDeleted if the
        owner is a session that is not there. A subscription made after another of its name was deleted has an id of
        its own and starts above the last revision of that one.
        """
        ...

    async def update(
        self, draft: TriggerDraft, *, revision: int, operation_id: str | None = None
    ) -> TriggerSubscription:
        """Replace the definition, if the subscription is at this revision; an equal one changes nothing.

        Raises TriggerConflict naming both revisions, or TriggerNotFound. Whether it is enabled stays as it is.
        """
        ...

    async def enable(
        self, owner: TriggerOwner, key: str, *, revision: int, operation_id: str | None = None
    ) -> TriggerSubscription:
        """Let occurrences start processes, if the subscription is at this revision; see `update`."""
        ...

    async def disable(
        self, owner: TriggerOwner, key: str, *, revision: int, operation_id: str | None = None
    ) -> TriggerSubscription:
        """Let occurrences start nothing more, if the subscription is at this revision; what runs goes on."""
        ...

    async def delete(
        self, owner: TriggerOwner, key: str, *, revision: int, operation_id: str | None = None
    ) -> DeletedTrigger:
        """Remove the subscription, if it is at this revision; what runs goes on, and its deliveries stay recorded."""
        ...

    async def delete_session(self, session_id: str) -> int:
        """Remove all subscriptions of a session, and return how many there were.

        Deleting the session does the same, in its own transaction.
        """
        ...

    async def get(self, owner: TriggerOwner, key: str) -> TriggerSubscription | None:
        """Return a subscription. One that cannot be read raises CorruptData; it can be updated and deleted."""
        ...

    async def list(
        self, wanted: TriggerFilter = EVERY_TRIGGER, *, limit: int = 100, cursor: str | None = None
    ) -> TriggerPage:
        """Return some subscriptions, the newest first. Those that cannot be read are told by id and hide no others."""
        ...

    async def prune_receipts(self, *, before_ms: int, limit: int = 100) -> int:
        """Forget the oldest answers and deletions from before a moment, and return how many were forgotten.

        At most ``limit`` of each kind: call again until it returns 0. From then on a repeat under such an operation id
        is decided anew, and a name that was deleted starts again at revision 1.
        """
        ...


class OccurrenceStore(Protocol):
    """What happened, and what was started for it."""

    async def emit(self, request: OccurrenceRequest) -> EmitReport:
        """Record that something happened and start a process for every subscription that matches; one transaction.

        It matches the enabled subscriptions whose source type and key are equal, and registers for each the process
        whose id follows from occurrence and subscription, with a grant for the session that it wakes. What cannot be
        started is a rejected delivery with a reason and keeps no other from starting. Deliveries come in the order in
        which the subscriptions were made.

        The same request again, from anywhere and at any time, returns the first report and does nothing: later
        subscriptions are not matched. Other content under the same idempotency key of the source raises
        OccurrenceConflict.
        """
        ...

    async def get(self, occurrence_id: str) -> Occurrence | None:
        """Return an occurrence."""
        ...

    async def deliveries(self, occurrence_id: str) -> tuple[TriggerDelivery, ...]:
        """Return the deliveries as they are now, in the order of the report, or raise OccurrenceNotFound."""
        ...

    async def retry_delivery(self, occurrence_id: str, subscription_id: str) -> TriggerDelivery:
        """Try a rejected delivery once more, with the subscription as it is now; a started one is returned as it is.

        Raises TriggerNotFound if the subscription is gone, TriggerConflict if it is disabled or watches another source
        by now, and OccurrenceNotFound if there is no such delivery.
        """
        ...

    async def prune(self, *, before_ms: int, limit: int = 100) -> PrunedOccurrences:
        """Forget the oldest occurrences from before a moment, but for those of which a process still runs.

        As long as an occurrence is kept, no process of it is started a second time, even if it was pruned. Emitting
        one that was forgotten is a new occurrence.
        """
        ...
