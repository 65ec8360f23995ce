"""The store of trigger subscriptions on every backend."""

from __future__ import annotations

from functools import partial

from lash.base.ids import new_id
from lash.base.limits import check_identifier, check_integer, check_limit
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
from lash.plan.trigger.list import check_trigger_filter, decode_trigger_cursor, decode_trigger_page
from lash.plan.trigger.receipt import plan_operation
from lash.plan.trigger.trigger import (
    TriggerRow,
    check_name,
    check_revision,
    decode_subscription,
    default_source_key,
    deleted_trigger,
    encode_draft,
    plan_delete,
    plan_register,
    plan_switch,
    plan_update,
)
from lash.stores.trigger.trigger import TriggerRows


class Triggers:
    """The subscriptions of one storage; the contract is `lash.stores.trigger.trigger.TriggerStore`."""

    def __init__(self, rows: TriggerRows) -> None:
        self._rows = rows

    def source_key(self, source_type: str, source: JSON = None) -> str:
        return default_source_key(source_type, source)

    async def register(self, draft: TriggerDraft, *, operation_id: str | None = None) -> RegisteredTrigger:
        encoded = encode_draft(draft)
        operation = plan_operation(
            "register", encoded.name, RegisteredTrigger, operation_id=operation_id, fingerprint=encoded.fingerprint
        )
        decide = partial(plan_register, encoded, subscription_id=new_id())
        return await self._rows.register(operation, encoded, decide, _registered)

    async def update(
        self, draft: TriggerDraft, *, revision: int, operation_id: str | None = None
    ) -> TriggerSubscription:
        encoded = encode_draft(draft)
        operation = plan_operation(
            *("update", encoded.name, TriggerSubscription),
            operation_id=operation_id,
            fingerprint=encoded.fingerprint,
            revision=check_revision(revision),
        )
        return await self._rows.change(
            operation,
            lambda row, now_ms: plan_update(encoded, row, revision=revision, now_ms=now_ms),
            decode_subscription,
        )

    async def enable(
        self, owner: TriggerOwner, key: str, *, revision: int, operation_id: str | None = None
    ) -> TriggerSubscription:
        return await self._switch(owner, key, revision, operation_id, enabled=True)

    async def disable(
        self, owner: TriggerOwner, key: str, *, revision: int, operation_id: str | None = None
    ) -> TriggerSubscription:
        return await self._switch(owner, key, revision, operation_id, enabled=False)

    async def delete(
        self, owner: TriggerOwner, key: str, *, revision: int, operation_id: str | None = None
    ) -> DeletedTrigger:
        name = check_name(owner, key)
        check_revision(revision)
        operation = plan_operation("delete", name, DeletedTrigger, operation_id=operation_id, revision=revision)
        return await self._rows.change(
            operation, lambda row, _now_ms: plan_delete(name, row, revision=revision), deleted_trigger
        )

    async def delete_session(self, session_id: str) -> int:
        return await self._rows.delete_session(check_identifier("session_id", session_id))

    async def get(self, owner: TriggerOwner, key: str) -> TriggerSubscription | None:
        row = await self._rows.row(check_name(owner, key))
        return None if row is None else decode_subscription(row)

    async def list(
        self, wanted: TriggerFilter = EVERY_TRIGGER, *, limit: int = 100, cursor: str | None = None
    ) -> TriggerPage:
        columns, size = check_trigger_filter(wanted), check_limit(limit)
        return decode_trigger_page(await self._rows.page(columns, decode_trigger_cursor(cursor), size + 1), size)

    async def prune_receipts(self, *, before_ms: int, limit: int = 100) -> int:
        return await self._rows.prune_receipts(check_integer("before_ms", before_ms), check_limit(limit))

    async def _switch(
        self, owner: TriggerOwner, key: str, revision: int, operation_id: str | None, *, enabled: bool
    ) -> TriggerSubscription:
        name = check_name(owner, key)
        check_revision(revision)
        act = "enable" if enabled else "disable"
        operation = plan_operation(act, name, TriggerSubscription, operation_id=operation_id, revision=revision)
        return await self._rows.change(
            operation,
            lambda row, now_ms: plan_switch(name, row, revision=revision, enabled=enabled, now_ms=now_ms),
            decode_subscription,
        )


def _registered(row: TriggerRow, created: bool) -> RegisteredTrigger:  # noqa: FBT001 (part of the answer)
    return RegisteredTrigger(subscription=decode_subscription(row), created=created)
