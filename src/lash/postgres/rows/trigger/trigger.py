"""Trigger subscriptions on PostgreSQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from lash.base.ids import new_id
from lash.base.limits import check_identifier, check_integer
from lash.errors import CorruptData, StoreUnavailable
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
from lash.plan.session.session import check_limit, missing_session
from lash.plan.trigger.list import (
    check_trigger_filter,
    decode_trigger_cursor,
    decode_trigger_page,
    leading_trigger_filter,
    wanted_owner,
    wanted_trigger_definition,
)
from lash.plan.trigger.receipt import Operation, ReceiptRow, encode_answer, plan_operation, replay
from lash.plan.trigger.trigger import (
    HOST_OWNER,
    ChangeTrigger,
    EncodedDraft,
    InsertTrigger,
    TriggerName,
    TriggerRow,
    check_name,
    check_revision,
    decode_subscription,
    default_source_key,
    encode_draft,
    new_row,
    plan_delete,
    plan_register,
    plan_switch,
    plan_update,
)
from lash.postgres.engine.database import Database, Transaction
from lash.sqlkit.rows import Flag, Number

T = TypeVar("T")

_PAGES: Final = {
    "all": "trigger_page_all",
    "key": "trigger_page_key",
    "definition": "trigger_page_definition",
    "source": "trigger_page_source",
    "owner": "trigger_page_owner",
    "type": "trigger_page_type",
    "disabled": "trigger_page_disabled",
}
"""The query that reads a list by the index of its leading filter."""
_MAX_PLANS: Final = 10


class PostgresTriggerStore:
    """The subscriptions of one PostgreSQL storage; the contract is `lash.stores.trigger.trigger.TriggerStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def source_key(self, source_type: str, source: JSON = None) -> str:
        return default_source_key(source_type, source)

    async def register(self, draft: TriggerDraft, *, operation_id: str | None = None) -> RegisteredTrigger:
        encoded = encode_draft(draft)
        operation = plan_operation("register", encoded.name, operation_id=operation_id, fingerprint=encoded.fingerprint)
        return await self._change(operation, RegisteredTrigger, lambda transaction: _register(transaction, encoded))

    async def update(
        self, draft: TriggerDraft, *, revision: int, operation_id: str | None = None
    ) -> TriggerSubscription:
        encoded = encode_draft(draft)
        check_revision(revision)
        operation = plan_operation(
            "update", encoded.name, operation_id=operation_id, fingerprint=encoded.fingerprint, revision=revision
        )

        async def apply(transaction: Transaction) -> TriggerSubscription:
            row = await _lock(transaction, encoded.name)
            decision = plan_update(encoded, row, revision=revision, now_ms=await _now(transaction))
            if isinstance(decision, ChangeTrigger):
                changed = decision.row
                arguments = (changed.subscription_key, changed.revision, changed.updated_at_ms)
                await transaction.run("trigger_define", *arguments, *_columns(encoded))
            return decode_subscription(decision.row)

        return await self._change(operation, TriggerSubscription, apply)

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
        operation = plan_operation("delete", name, operation_id=operation_id, revision=revision)

        async def apply(transaction: Transaction) -> DeletedTrigger:
            row = await _lock(transaction, name)
            answer = plan_delete(name, row, revision=revision)
            if row is not None:
                await transaction.run("trigger_delete", row.subscription_key, await _now(transaction))
            return answer

        return await self._change(operation, DeletedTrigger, apply)

    async def delete_session(self, session_id: str) -> int:
        check_identifier("session_id", session_id)
        # A repeat after a success would find nothing, and say so.
        removed = await self._database.write_one(Number, "trigger_delete_session", session_id, repeatable=False)
        return 0 if removed is None else removed.number

    async def get(self, owner: TriggerOwner, key: str) -> TriggerSubscription | None:
        name = check_name(owner, key)
        row = await self._database.read_one(TriggerRow, "trigger_row", name.owner_session_id, name.key)
        return None if row is None else decode_subscription(row)

    async def list(
        self, wanted: TriggerFilter = EVERY_TRIGGER, *, limit: int = 100, cursor: str | None = None
    ) -> TriggerPage:
        check_trigger_filter(wanted)
        size = check_limit(limit)
        rows = await self._database.read_all(
            TriggerRow,
            _PAGES[leading_trigger_filter(wanted)],
            *(decode_trigger_cursor(cursor), size + 1),
            *(wanted_trigger_definition(wanted), wanted_owner(wanted), wanted.key),
            *(wanted.source_type, wanted.source_key, wanted.enabled),
        )
        return decode_trigger_page(rows, size)

    async def prune_receipts(self, *, before_ms: int, limit: int = 100) -> int:
        check_integer("before_ms", before_ms)
        size = check_limit(limit)
        pruned = await self._database.write_one(Number, "trigger_prune_receipts", before_ms, size, repeatable=True)
        return 0 if pruned is None else pruned.number

    async def _switch(
        self, owner: TriggerOwner, key: str, revision: int, operation_id: str | None, *, enabled: bool
    ) -> TriggerSubscription:
        name = check_name(owner, key)
        check_revision(revision)
        act = "enable" if enabled else "disable"
        operation = plan_operation(act, name, operation_id=operation_id, revision=revision)

        async def apply(transaction: Transaction) -> TriggerSubscription:
            row = await _lock(transaction, name)
            decision = plan_switch(name, row, revision=revision, enabled=enabled, now_ms=await _now(transaction))
            if isinstance(decision, ChangeTrigger):
                changed = decision.row
                arguments = (changed.subscription_key, changed.revision, changed.updated_at_ms, enabled)
                await transaction.run("trigger_switch", *arguments)
            return decode_subscription(decision.row)

        return await self._change(operation, TriggerSubscription, apply)

    async def _change(self, operation: Operation, shape: type[T], apply: Callable[[Transaction], Awaitable[T]]) -> T:
        """Carry a change out, or return the answer that was given to it before."""
        operation_id = operation.operation_id
        async with self._database.transaction() as transaction:
            if operation_id is None:
                return await apply(transaction)
            for _ in range(_MAX_PLANS):
                if await transaction.run("trigger_open_receipt", operation_id, operation.request_hash):
                    answer = await apply(transaction)
                    await transaction.run("trigger_keep_receipt", operation_id, encode_answer(answer, shape))
                    return answer
                row = await transaction.one(ReceiptRow, "trigger_receipt", operation_id)
                if row is not None:
                    return replay(operation, row, shape)
        raise StoreUnavailable(f"the receipt of operation {operation_id!r} was pruned again and again")


async def delete_subscriptions(transaction: Transaction, session_id: str) -> None:
    """Remove all subscriptions of a session that is being deleted; nobody may make another one meanwhile."""
    await transaction.run("trigger_delete_session", session_id)


async def _lock(transaction: Transaction, name: TriggerName) -> TriggerRow | None:
    return await transaction.one(TriggerRow, "trigger_lock", name.owner_session_id, name.key)


async def _now(transaction: Transaction) -> int:
    now = await transaction.one(Number, "trigger_now")
    if now is None:
        raise CorruptData("the server did not tell the time")
    return now.number


async def _register(transaction: Transaction, encoded: EncodedDraft) -> RegisteredTrigger:
    name = encoded.name
    if name.owner_session_id != HOST_OWNER:
        await _enter_session(transaction, name.owner_session_id)
    for _ in range(_MAX_PLANS):
        row = await _lock(transaction, name)
        # After the lock: whoever just deleted it has left its tombstone by then.
        buried = await transaction.one(Number, "trigger_buried", name.owner_session_id, name.key)
        decision = plan_register(encoded, row, None if buried is None else buried.number)
        if not isinstance(decision, InsertTrigger):
            return RegisteredTrigger(subscription=decode_subscription(decision.row), created=False)
        made = await _insert(transaction, encoded, decision)
        if made is not None:
            return RegisteredTrigger(subscription=decode_subscription(made), created=True)
    raise StoreUnavailable(f"trigger subscription {name.key!r} was made and deleted {_MAX_PLANS} times meanwhile")


async def _enter_session(transaction: Transaction, session_id: str) -> None:
    exists = await transaction.one(Flag, "trigger_enter_session", session_id)
    if exists is None or not exists.value:
        raise missing_session(session_id, deleted=exists is not None)


async def _insert(transaction: Transaction, encoded: EncodedDraft, decision: InsertTrigger) -> TriggerRow | None:
    """Make the subscription; None if somebody else was faster."""
    name, subscription_id, now_ms = encoded.name, new_id(), await _now(transaction)
    arguments = (subscription_id, name.owner_session_id, name.key, decision.revision, now_ms)
    place = await transaction.one(Number, "trigger_insert", *arguments, *_columns(encoded))
    if place is None:
        return None
    await transaction.run("trigger_forget_tombstone", name.owner_session_id, name.key)
    return new_row(encoded, decision, subscription_key=place.number, subscription_id=subscription_id, now_ms=now_ms)


def _columns(encoded: EncodedDraft) -> tuple[str | None, ...]:
    draft = encoded.draft
    return (
        *(encoded.fingerprint, encoded.body, draft.source_type, draft.source_key),
        *(encoded.definition_hash, draft.environment_ref),
    )
