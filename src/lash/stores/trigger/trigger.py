"""The contract of trigger subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from lash.model.trigger.trigger import (
    EVERY_TRIGGER,
    DeletedTrigger,
    RegisteredTrigger,
    TriggerDraft,
    TriggerFilter,
    TriggerOwner,
    TriggerPage,
    TriggerSubscription,
)
from lash.model.value import JSON

if TYPE_CHECKING:
    from lash.plan.trigger.list import TriggerColumns
    from lash.plan.trigger.receipt import Operation
    from lash.plan.trigger.trigger import EncodedDraft, RegisterDecision, TriggerDecision, TriggerName, TriggerRow

T = TypeVar("T")


class TriggerStore(Protocol):
    """Standing requests, by owner and key, to start a process for every matching occurrence.

    Every change takes an optional ``operation_id``, which makes it idempotent: a repetition returns the first answer,
    even after later changes, until receipts are pruned. Another request under the same id raises TriggerConflict. A
    change that raises leaves no receipt.
    """

    def source_key(self, source_type: str, source: JSON = None) -> str:
        """Return the default key of a source, the same on every machine for the same type and description."""
        ...

    async def register(self, draft: TriggerDraft, *, operation_id: str | None = None) -> RegisteredTrigger:
        """Create an enabled subscription, or return the existing one if it has the same definition.

        Raises TriggerConflict if the existing one has another definition, and SessionNotFound or SessionDeleted if the
        owner is a session that does not exist. A subscription created after another of its name was deleted has an id
        of its own and starts above the last revision of the deleted one.
        """
        ...

    async def update(
        self, draft: TriggerDraft, *, revision: int, operation_id: str | None = None
    ) -> TriggerSubscription:
        """Replace the definition if the subscription is at this revision; an equal one changes nothing.

        Raises TriggerConflict, which names both revisions, or TriggerNotFound. ``enabled`` does not change.
        """
        ...

    async def enable(
        self, owner: TriggerOwner, key: str, *, revision: int, operation_id: str | None = None
    ) -> TriggerSubscription:
        """Let occurrences start processes if the subscription is at this revision; see `update`."""
        ...

    async def disable(
        self, owner: TriggerOwner, key: str, *, revision: int, operation_id: str | None = None
    ) -> TriggerSubscription:
        """Stop occurrences from starting processes if the subscription is at this revision; running ones go on."""
        ...

    async def delete(
        self, owner: TriggerOwner, key: str, *, revision: int, operation_id: str | None = None
    ) -> DeletedTrigger:
        """Remove the subscription if it is at this revision; its processes go on and its deliveries stay recorded."""
        ...

    async def delete_session(self, session_id: str) -> int:
        """Remove all subscriptions of a session and return their number.

        Deleting the session does the same, in its own transaction.
        """
        ...

    async def get(self, owner: TriggerOwner, key: str) -> TriggerSubscription | None:
        """Return a subscription, or None. An unreadable one raises CorruptData; it can be updated and deleted."""
        ...

    async def list(
        self, wanted: TriggerFilter = EVERY_TRIGGER, *, limit: int = 100, cursor: str | None = None
    ) -> TriggerPage:
        """Return a page of subscriptions, newest first; unreadable ones are listed by id in ``damaged``.

        A page without a filter costs the same however many subscriptions exist; a filtered one may read all of them.
        """
        ...

    async def prune_receipts(self, *, before_ms: int, limit: int = 100) -> int:
        """Remove the oldest receipts and tombstones from before a moment, and return how many were removed.

        At most ``limit`` of each kind: call again until it returns 0. A later request under such an operation id is a
        new request, and a deleted name starts again at revision 1.
        """
        ...


class TriggerRows(Protocol):
    """The rows of subscriptions in one database; `lash.backend.trigger.trigger.Triggers` makes the store of them.

    A change reads the row, decides, writes and computes its answer in one transaction. Under an operation id the same
    transaction keeps the answer as a receipt, and a repetition returns ``operation.replay`` of it instead.
    """

    async def register(
        self,
        operation: Operation[T],
        encoded: EncodedDraft,
        decide: Callable[[TriggerRow | None, int | None], RegisterDecision],
        answer: Callable[[TriggerRow, bool], T],
    ) -> T:
        """Decide on the row and the revision in its tombstone, insert, and answer with the row and whether it is new.

        Raises SessionNotFound or SessionDeleted if the owner is a session that does not exist.
        """
        ...

    async def change(
        self,
        operation: Operation[T],
        decide: Callable[[TriggerRow | None, int], TriggerDecision],
        answer: Callable[[TriggerRow], T],
    ) -> T:
        """Decide on the row and the time, write, and answer with the row of the decision."""
        ...

    async def row(self, name: TriggerName) -> TriggerRow | None: ...

    async def page(self, columns: TriggerColumns, before: int | None, limit: int) -> list[TriggerRow]:
        """Return subscriptions with keys below ``before``, the highest first."""
        ...

    async def delete_session(self, session_id: str) -> int: ...

    async def prune_receipts(self, before_ms: int, limit: int) -> int: ...
