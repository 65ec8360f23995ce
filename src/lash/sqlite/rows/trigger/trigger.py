"""The rows of trigger subscriptions on SQLite."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from lash.errors import CorruptData
from lash.plan.sealed import RECEIPT, TRIGGER
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
from lash.sqlite.engine.database import Database, Reader, SQLiteValue, Transaction
from lash.sqlite.rows.session.lookup import find_meta
from lash.sqlkit.rows import Number

T = TypeVar("T")


class SQLiteTriggerRows:
    """The subscriptions of one SQLite storage; the contract is `lash.stores.trigger.trigger.TriggerRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(
        self,
        operation: Operation[T],
        encoded: EncodedDraft,
        decide: Callable[[TriggerRow | None, int | None], RegisterDecision],
        answer: Callable[[TriggerRow, bool], T],
    ) -> T:
        def apply(transaction: Transaction) -> T:
            name = encoded.name
            if name.required_session_id is not None:
                find_meta(transaction, name.required_session_id)
            buried = transaction.one(Number, "trigger_buried", owner_session_id=name.owner_session_id, key=name.key)
            decision = decide(_find(transaction, name), None if buried is None else buried.number)
            if isinstance(decision, InsertTrigger):
                return answer(_insert(transaction, decision), True)
            return answer(decision.row, False)

        return await self._write(operation, apply)

    async def change(
        self,
        operation: Operation[T],
        decide: Callable[[TriggerRow | None, int], TriggerDecision],
        answer: Callable[[TriggerRow], T],
    ) -> T:
        def apply(transaction: Transaction) -> T:
            decision = decide(_find(transaction, operation.trigger), transaction.now_ms)
            if isinstance(decision, ChangeTrigger):
                _change(transaction, decision)
            elif isinstance(decision, DropTrigger):
                key = decision.row.subscription_key
                transaction.run("trigger_bury", subscription_key=key, now_ms=transaction.now_ms)
                transaction.run("trigger_delete", subscription_key=key)
            return answer(decision.row)

        return await self._write(operation, apply)

    async def row(self, name: TriggerName) -> TriggerRow | None:
        return self._database.read(lambda reader: _find(reader, name))

    async def page(self, columns: TriggerColumns, before: int | None, limit: int) -> list[TriggerRow]:
        parameters = msgspec.structs.asdict(columns)
        return await self._database.read_in_thread(
            lambda reader: reader.all(TriggerRow, "trigger_page", before=before, limit=limit, **parameters)
        )

    async def delete_session(self, session_id: str) -> int:
        return await self._database.write(lambda transaction: delete_subscriptions(transaction, session_id))

    async def prune_receipts(self, before_ms: int, limit: int) -> int:
        def body(transaction: Transaction) -> int:
            receipts = transaction.run("trigger_prune_receipts", before_ms=before_ms, limit=limit)
            return receipts + transaction.run("trigger_prune_tombstones", before_ms=before_ms, limit=limit)

        return await self._database.write(body)

    async def _write(self, operation: Operation[T], apply: Callable[[Transaction], T]) -> T:
        """Apply the operation, or replay its receipt."""
        operation_id = operation.operation_id
        if operation_id is None:
            return await self._database.write(apply)

        def body(transaction: Transaction) -> T:
            request = {"operation_id": operation_id, "request_hash": operation.request_hash}
            if transaction.run("trigger_open_receipt", now_ms=transaction.now_ms, **request):
                answer = apply(transaction)
                receipt = transaction.seals.text(RECEIPT, operation.receipt(answer), operation.request_hash)
                transaction.run("trigger_keep_receipt", operation_id=operation_id, answer=receipt)
                return answer
            kept = transaction.one(ReceiptRow, "trigger_receipt", operation_id=operation_id)
            if kept is None:
                raise CorruptData(
                    f"the receipt of operation {operation_id!r} exists and cannot be read (index and table disagree)"
                )
            return operation.replay(kept)

        return await self._database.write(body)


def delete_subscriptions(transaction: Transaction, session_id: str) -> int:
    """Remove all subscriptions of a session inside any write transaction, and return their number."""
    transaction.run("trigger_bury_session", session_id=session_id, now_ms=transaction.now_ms)
    return transaction.run("trigger_delete_session", session_id=session_id)


def _find(reader: Reader, name: TriggerName) -> TriggerRow | None:
    return reader.one(TriggerRow, "trigger_row", owner_session_id=name.owner_session_id, key=name.key)


def _insert(transaction: Transaction, decision: InsertTrigger) -> TriggerRow:
    name, now_ms = decision.draft.name, transaction.now_ms
    inserted = transaction.one(
        Number,
        "trigger_insert",
        subscription_id=decision.subscription_id,
        owner_session_id=name.owner_session_id,
        key=name.key,
        revision=decision.revision,
        now_ms=now_ms,
        **_columns(transaction, decision.draft, decision.subscription_id),
    )
    if inserted is None:
        raise CorruptData(f"trigger subscription {name.key!r} was not stored")
    transaction.run("trigger_forget_tombstone", owner_session_id=name.owner_session_id, key=name.key)
    return decision.row(inserted.number, now_ms)


def _change(transaction: Transaction, decision: ChangeTrigger) -> None:
    row = decision.row
    version = {"subscription_key": row.subscription_key, "revision": row.revision, "now_ms": transaction.now_ms}
    if decision.draft is None:
        transaction.run("trigger_switch", enabled=row.enabled, **version)
    else:
        transaction.run("trigger_define", **version, **_columns(transaction, decision.draft, row.subscription_id))


def _columns(transaction: Transaction, encoded: EncodedDraft, subscription_id: str) -> dict[str, SQLiteValue]:
    return {
        "fingerprint": encoded.fingerprint,
        "definition": transaction.seals.text(TRIGGER, encoded.body, subscription_id),
        "source_type": encoded.draft.source_type,
        "source_key": encoded.draft.source_key,
        "definition_hash": encoded.definition_hash,
        "environment_ref": encoded.draft.environment_ref,
    }
