"""Receipts: what makes a change of a trigger subscription safe to repeat under its operation id."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from lash.base.codec import canonical, content_hash, decode, encode
from lash.base.limits import check_identifier
from lash.errors import TriggerConflict
from lash.plan.trigger.trigger import TriggerName, owner_text

T = TypeVar("T")


class ReceiptRow(msgspec.Struct, frozen=True, array_like=True):
    """What was asked for under an operation id, and what was answered."""

    request_hash: str
    answer: str


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """A change that a caller may repeat, if it gave an operation id."""

    operation_id: str | None
    request_hash: str
    trigger: TriggerName


def plan_operation(
    name: str,
    trigger: TriggerName,
    *,
    operation_id: object,
    fingerprint: str | None = None,
    revision: int | None = None,
) -> Operation:
    """Return what identifies a change: its name, whom it means, and what it wants."""
    request = [name, trigger.owner_session_id, trigger.key, fingerprint, revision]
    return Operation(
        operation_id=None if operation_id is None else check_identifier("operation_id", operation_id),
        request_hash=content_hash(b"lash.trigger.operation.v1\0" + canonical(request)),
        trigger=trigger,
    )


def replay(operation: Operation, row: ReceiptRow, shape: type[T]) -> T:
    """Return the first answer to the same request, or raise TriggerConflict."""
    if row.request_hash != operation.request_hash:
        raise TriggerConflict(
            owner_text(operation.trigger.owner_session_id),
            operation.trigger.key,
            f"was not changed: operation id {operation.operation_id!r} was used for another request",
        )
    return decode(row.answer, shape, f"the receipt of operation {operation.operation_id!r}")


def encode_answer(answer: T, shape: type[T]) -> str:
    """Return an answer in the form in which it is kept."""
    return encode(answer, shape, "the answer")
