"""Receipts make a change of a trigger subscription idempotent under its operation id."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

import msgspec

from lash.base.codec import canonical, content_hash, decode, encode
from lash.base.limits import check_identifier
from lash.errors import TriggerConflict
from lash.plan.sealed import RECEIPT
from lash.plan.trigger.trigger import TriggerName, owner_text

T = TypeVar("T")


class ReceiptRow(msgspec.Struct, frozen=True, array_like=True):
    """The request under an operation id, and its answer."""

    request_hash: str
    answer: Annotated[str, RECEIPT]


class Operation(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A change whose answer has the given shape. With an operation id the caller may repeat it."""

    operation_id: str | None
    request_hash: str
    trigger: TriggerName
    shape: type[T]

    def replay(self, row: ReceiptRow) -> T:
        """Return the first answer to the same request, or raise TriggerConflict."""
        if row.request_hash != self.request_hash:
            raise TriggerConflict(
                owner_text(self.trigger.owner_session_id),
                self.trigger.key,
                f"was not changed: operation id {self.operation_id!r} was used for another request",
            )
        return decode(row.answer, self.shape, f"the receipt of operation {self.operation_id!r}")

    def receipt(self, answer: T) -> str:
        """Return the stored form of an answer."""
        return encode(answer, self.shape, "the answer")


def plan_operation(
    act: str,
    trigger: TriggerName,
    shape: type[T],
    *,
    operation_id: object,
    fingerprint: str | None = None,
    revision: int | None = None,
) -> Operation[T]:
    """Return the operation; its hash identifies the act, the subscription and the requested state."""
    request = [act, trigger.owner_session_id, trigger.key, fingerprint, revision]
    return Operation(
        operation_id=None if operation_id is None else check_identifier("operation_id", operation_id),
        request_hash=content_hash(b"lash.trigger.operation.v1\0" + canonical(request)),
        trigger=trigger,
        shape=shape,
    )
