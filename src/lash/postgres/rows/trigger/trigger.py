"""The rows of trigger subscriptions on PostgreSQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from lash.base.backoff import MAX_PLANS
from lash.errors import CorruptData, StoreUnavailable
from lash.plan.sealed import RECEIPT, TRIGGER
from lash.plan.session.session import missing_session
from lash.plan.trigger.list import TriggerColumns
from lash.plan.trigger.receipt import Operation, ReceiptRow
from lash.plan.trigger.trigger import (
    ChangeTrigger,
    DropTrigger,
    EncodedDraft,
    InsertTrigger,
    RegisterDecision,
    TriggerDecision,
    TriggerName,
    TriggerRow,
)
from lash.postgres.engine.database import Database, Transaction
from lash.sqlkit.rows import Flag, Number

T = TypeVar("T")


class PostgresTriggerRows:
    """The subscriptions of one PostgreSQL storage; the contract is `lash.stores.trigger.trigger.TriggerRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(
        self,
        operation: Operation[T],
        encoded: EncodedDraft,
        decide: Callable[[TriggerRow | None, int | None], RegisterDecision],
        answer: Callable[[TriggerRow, bool], T],
    ) -> T:
        async def apply(transaction: Transaction) -> T:
            await _enter_session(transaction, encoded.name.required_session_id)
            for _ in range(MAX_PLANS):
                decision = decide(*await _facts(transaction, encoded.name))
                if not isinstance(decision, InsertTrigger):
                    return answer(decision.row, False)
                made = await _insert(transaction, decision)
                if made is not None:
                    return answer(made, True)
            key = encoded.name.key
            raise StoreUnavailable(f"trigger subscription {key!r} was made and deleted {MAX_PLANS} times meanwhile")

        return await self._write(operation, apply)

    async def change(
        self,
        operation: Operation[T],
        decide: Callable[[TriggerRow | None, int], TriggerDecision],
        answer: Callable[[TriggerRow], T],
    ) -> T:
        async def apply(transaction: Transaction) -> T:
            row, now_ms = await _lock(transaction, operation.trigger), await _now(transaction)
            decision = decide(row, now_ms)
            if isinstance(decision, ChangeTrigger):
                await _change(transaction, decision)
            elif isinstance(decision, DropTrigger):
                await transaction.run("trigger_delete", decision.row.subscription_key, now_ms)
            return answer(decision.row)

        return await self._write(operation, apply)

    async def row(self, name: TriggerName) -> TriggerRow | None:
        return await self._database.read_one(TriggerRow, "trigger_row", name.owner_session_id, name.key)

    async def page(self, columns: TriggerColumns, before: int | None, limit: int) -> list[TriggerRow]:
        filters = msgspec.structs.astuple(columns)
        return await self._database.read_all(TriggerRow, "trigger_page", before, limit, *filters)

    async def delete_session(self, session_id: str) -> int:
        # A repetition after a success would find and count nothing.
        removed = await self._database.write_one(Number, "trigger_delete_session", session_id, repeatable=False)
        return 0 if removed is None else removed.number

    async def prune_receipts(self, before_ms: int, limit: int) -> int:
        pruned = await self._database.write_one(Number, "trigger_prune_receipts", before_ms, limit, repeatable=True)
        return 0 if pruned is None else pruned.number

    async def _write(self, operation: Operation[T], apply: Callable[[Transaction], Awaitable[T]]) -> T:
        """Apply the operation, or replay its receipt."""
        async with self._database.transaction() as transaction:
            if operation.operation_id is None:
                return await apply(transaction)
            for _ in range(MAX_PLANS):
                if await transaction.run("trigger_open_receipt", operation.operation_id, operation.request_hash):
                    result = await apply(transaction)
                    receipt = transaction.seals.text(RECEIPT, operation.receipt(result), operation.request_hash)
                    await transaction.run("trigger_keep_receipt", operation.operation_id, receipt)
                    return result
                kept = await transaction.one(ReceiptRow, "trigger_receipt", operation.operation_id)
                if kept is not None:
                    return operation.replay(kept)
        raise StoreUnavailable(
            f"the receipt of operation {operation.operation_id!r} was pruned {MAX_PLANS} times meanwhile"
        )


async def delete_subscriptions(transaction: Transaction, session_id: str) -> None:
    """Remove all subscriptions of a session that is being deleted; the caller has locked the session."""
    await transaction.run("trigger_delete_session", session_id)


async def _lock(transaction: Transaction, name: TriggerName) -> TriggerRow | None:
    return await transaction.one(TriggerRow, "trigger_lock", name.owner_session_id, name.key)


async def _facts(transaction: Transaction, name: TriggerName) -> tuple[TriggerRow | None, int | None]:
    """Return the row, locked, and the revision in the tombstone of the name."""
    row = await _lock(transaction, name)
    # After the lock, which waits for a concurrent deletion to leave its tombstone.
    buried = await transaction.one(Number, "trigger_buried", name.owner_session_id, name.key)
    return row, None if buried is None else buried.number


async def _now(transaction: Transaction) -> int:
    now = await transaction.one(Number, "trigger_now")
    if now is None:
        raise CorruptData("query trigger_now returned no row")
    return now.number


async def _enter_session(transaction: Transaction, session_id: str | None) -> None:
    if session_id is None:
        return
    exists = await transaction.one(Flag, "trigger_enter_session", session_id)
    if exists is None or not exists.value:
        raise missing_session(session_id, deleted=exists is not None)


async def _insert(transaction: Transaction, decision: InsertTrigger) -> TriggerRow | None:
    """Write the subscription; None if another transaction wrote one first."""
    name, now_ms = decision.draft.name, await _now(transaction)
    arguments = (decision.subscription_id, name.owner_session_id, name.key, decision.revision, now_ms)
    written = await transaction.one(
        Number, "trigger_insert", *arguments, *_columns(transaction, decision.draft, decision.subscription_id)
    )
    if written is None:
        return None
    await transaction.run("trigger_forget_tombstone", name.owner_session_id, name.key)
    return decision.row(written.number, now_ms)


async def _change(transaction: Transaction, decision: ChangeTrigger) -> None:
    row = decision.row
    arguments = (row.subscription_key, row.revision, row.updated_at_ms)
    if decision.draft is None:
        await transaction.run("trigger_switch", *arguments, row.enabled)
    else:
        await transaction.run("trigger_define", *arguments, *_columns(transaction, decision.draft, row.subscription_id))


def _columns(transaction: Transaction, encoded: EncodedDraft, subscription_id: str) -> tuple[str | None, ...]:
    draft, body = encoded.draft, transaction.seals.text(TRIGGER, encoded.body, subscription_id)
    return (
        *(encoded.fingerprint, body, draft.source_type, draft.source_key),
        *(encoded.definition_hash, draft.environment_ref),
    )
