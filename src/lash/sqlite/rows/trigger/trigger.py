"""Trigger subscriptions on SQLite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from lash.base.ids import new_id
from lash.base.limits import check_identifier, check_integer
from lash.errors import CorruptData
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
from lash.plan.session.session import check_limit
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
from lash.sqlite.engine.database import Database, Reader, SQLiteValue, Transaction
from lash.sqlite.rows.session.lookup import find_meta
from lash.sqlkit.rows import Number

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


class SQLiteTriggerStore:
    """The subscriptions of one SQLite storage; the contract is `lash.stores.trigger.trigger.TriggerStore`."""

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

        def apply(transaction: Transaction) -> TriggerSubscription:
            row = _find(transaction, encoded.name)
            decision = plan_update(encoded, row, revision=revision, now_ms=transaction.now_ms)
            if isinstance(decision, ChangeTrigger):
                _define(transaction, encoded, decision.row)
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

        def apply(transaction: Transaction) -> DeletedTrigger:
            row = _find(transaction, name)
            answer = plan_delete(name, row, revision=revision)
            if row is not None:
                transaction.run("trigger_bury", subscription_key=row.subscription_key, now_ms=transaction.now_ms)
                transaction.run("trigger_delete", subscription_key=row.subscription_key)
            return answer

        return await self._change(operation, DeletedTrigger, apply)

    async def delete_session(self, session_id: str) -> int:
        check_identifier("session_id", session_id)
        return await self._database.write(lambda transaction: delete_subscriptions(transaction, session_id))

    async def get(self, owner: TriggerOwner, key: str) -> TriggerSubscription | None:
        name = check_name(owner, key)
        row = self._database.read(lambda reader: _find(reader, name))
        return None if row is None else decode_subscription(row)

    async def list(
        self, wanted: TriggerFilter = EVERY_TRIGGER, *, limit: int = 100, cursor: str | None = None
    ) -> TriggerPage:
        check_trigger_filter(wanted)
        size = check_limit(limit)
        parameters: dict[str, SQLiteValue] = {
            "definition_hash": wanted_trigger_definition(wanted),
            "owner_session_id": wanted_owner(wanted),
            "key": wanted.key,
            "source_type": wanted.source_type,
            "source_key": wanted.source_key,
            "enabled": None if wanted.enabled is None else int(wanted.enabled),
            "before": decode_trigger_cursor(cursor),
            "limit": size + 1,
        }
        query = _PAGES[leading_trigger_filter(wanted)]
        rows = await self._database.read_in_thread(lambda reader: reader.all(TriggerRow, query, **parameters))
        return decode_trigger_page(rows, size)

    async def prune_receipts(self, *, before_ms: int, limit: int = 100) -> int:
        check_integer("before_ms", before_ms)
        size = check_limit(limit)

        def body(transaction: Transaction) -> int:
            receipts = transaction.run("trigger_prune_receipts", before_ms=before_ms, limit=size)
            return receipts + transaction.run("trigger_prune_tombstones", before_ms=before_ms, limit=size)

        return await self._database.write(body)

    async def _switch(
        self, owner: TriggerOwner, key: str, revision: int, operation_id: str | None, *, enabled: bool
    ) -> TriggerSubscription:
        name = check_name(owner, key)
        check_revision(revision)
        act = "enable" if enabled else "disable"
        operation = plan_operation(act, name, operation_id=operation_id, revision=revision)

        def apply(transaction: Transaction) -> TriggerSubscription:
            row = _find(transaction, name)
            decision = plan_switch(name, row, revision=revision, enabled=enabled, now_ms=transaction.now_ms)
            if isinstance(decision, ChangeTrigger):
                transaction.run(
                    "trigger_switch",
                    subscription_key=decision.row.subscription_key,
                    revision=decision.row.revision,
                    enabled=int(enabled),
                    now_ms=transaction.now_ms,
                )
            return decode_subscription(decision.row)

        return await self._change(operation, TriggerSubscription, apply)

    async def _change(self, operation: Operation, shape: type[T], apply: Callable[[Transaction], T]) -> T:
        """Carry a change out, or return the answer that was given to it before."""
        operation_id = operation.operation_id
        if operation_id is None:
            return await self._database.write(apply)

        def body(transaction: Transaction) -> T:
            taken = transaction.run(
                "trigger_open_receipt",
                operation_id=operation_id,
                request_hash=operation.request_hash,
                now_ms=transaction.now_ms,
            )
            if not taken:
                row = transaction.one(ReceiptRow, "trigger_receipt", operation_id=operation_id)
                if row is None:
                    raise CorruptData(f"the receipt of operation {operation_id!r} is there and is not")
                return replay(operation, row, shape)
            answer = apply(transaction)
            transaction.run("trigger_keep_receipt", operation_id=operation_id, answer=encode_answer(answer, shape))
            return answer

        return await self._database.write(body)


def delete_subscriptions(transaction: Transaction, session_id: str) -> int:
    """Remove all subscriptions of a session, inside any write transaction."""
    transaction.run("trigger_bury_session", session_id=session_id, now_ms=transaction.now_ms)
    return transaction.run("trigger_delete_session", session_id=session_id)


def _find(reader: Reader, name: TriggerName) -> TriggerRow | None:
    return reader.one(TriggerRow, "trigger_row", owner_session_id=name.owner_session_id, key=name.key)


def _register(transaction: Transaction, encoded: EncodedDraft) -> RegisteredTrigger:
    name = encoded.name
    if name.owner_session_id != HOST_OWNER:
        find_meta(transaction, name.owner_session_id)
    buried = transaction.one(Number, "trigger_buried", owner_session_id=name.owner_session_id, key=name.key)
    decision = plan_register(encoded, _find(transaction, name), None if buried is None else buried.number)
    if not isinstance(decision, InsertTrigger):
        return RegisteredTrigger(subscription=decode_subscription(decision.row), created=False)
    subscription_id = new_id()
    place = transaction.one(
        Number,
        "trigger_insert",
        subscription_id=subscription_id,
        owner_session_id=name.owner_session_id,
        key=name.key,
        revision=decision.revision,
        now_ms=transaction.now_ms,
        **_columns(encoded),
    )
    if place is None:
        raise CorruptData(f"trigger subscription {name.key!r} was not stored")
    transaction.run("trigger_forget_tombstone", owner_session_id=name.owner_session_id, key=name.key)
    row = new_row(
        encoded,
        decision,
        subscription_key=place.number,
        subscription_id=subscription_id,
        now_ms=transaction.now_ms,
    )
    return RegisteredTrigger(subscription=decode_subscription(row), created=True)


def _define(transaction: Transaction, encoded: EncodedDraft, row: TriggerRow) -> None:
    transaction.run(
        "trigger_define",
        subscription_key=row.subscription_key,
        revision=row.revision,
        now_ms=transaction.now_ms,
        **_columns(encoded),
    )


def _columns(encoded: EncodedDraft) -> dict[str, SQLiteValue]:
    return {
        "fingerprint": encoded.fingerprint,
        "definition": encoded.body,
        "source_type": encoded.draft.source_type,
        "source_key": encoded.draft.source_key,
        "definition_hash": encoded.definition_hash,
        "environment_ref": encoded.draft.environment_ref,
    }
