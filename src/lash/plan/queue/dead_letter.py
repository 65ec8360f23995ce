"""Which claims may be buried, and the stored form of a dead letter."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import msgspec

from lash.base.codec import decode, encode
from lash.base.limits import check_integer, check_text
from lash.errors import ClaimLost, InvalidInput
from lash.model.queue import Claim, DeadLetter
from lash.model.value import JSON, Value
from lash.plan.queue.claim import check_work_claim
from lash.plan.queue.queue import BatchRow, decode_batch
from lash.plan.sealed import BATCH, DEAD_LETTER
from lash.plan.session.page import IdRange


class _ErrorDocument(Value, frozen=True, kw_only=True):
    error: JSON = None


class Burial(msgspec.Struct, frozen=True, kw_only=True):
    """A claim to bury, ready to be written."""

    claim: Claim
    reason: str
    error: str

    @property
    def batch_ids(self) -> list[str]:
        """The batches that the claim was made for."""
        return list(self.claim.completion.batch_ids)


class DeadLetterRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored dead letter with its batch."""

    place: int
    session_id: str
    seq: int
    batch_id: str
    source_key: str | None
    delivery: str
    slot: str
    merge_key: str | None
    enqueued_at_ms: int
    claim_count: int
    failure_count: int
    priority: int
    payloads: Annotated[str, BATCH]
    reason: Annotated[str, DEAD_LETTER]
    error: Annotated[str, DEAD_LETTER]
    died_at_ms: int


class RemovedRow(msgspec.Struct, frozen=True, array_like=True):
    """The source key of a dead letter that was deleted."""

    source_key: str | None


def prepare_burial(claim: object, *, reason: object, error: object) -> Burial:
    """Check a claim to bury and the reason."""
    text = check_text("reason", reason)
    if not text.strip():
        raise InvalidInput("reason is blank")
    value = {"error": error}
    return Burial(claim=check_work_claim(claim), reason=text, error=encode(value, dict[str, JSON], "error"))


def plan_burial(burial: Burial, held: Collection[str], buried: Collection[str]) -> bool:
    """Return True to bury the claim, False if it was buried before; raise ClaimLost if it holds other batches.

    ``held`` are the batches that the claim holds now, ``buried`` the batches that died under it.
    """
    wanted = set(burial.batch_ids)
    if set(held) == wanted:
        return True
    if not held and set(buried) == wanted:
        return False
    raise ClaimLost(burial.claim.session_id, burial.claim.claim_id)


def decode_dead_letter(row: DeadLetterRow) -> DeadLetter:
    """Return the dead letter that a row stores."""
    batch = BatchRow(
        row.seq,
        row.batch_id,
        row.source_key,
        row.delivery,
        row.slot,
        row.merge_key,
        0,
        row.enqueued_at_ms,
        row.claim_count,
        row.failure_count,
        row.priority,
        row.payloads,
    )
    return DeadLetter(
        position=row.place,
        batch=decode_batch(batch, row.session_id),
        reason=row.reason,
        error=decode(row.error, _ErrorDocument, f"the error of dead letter {row.batch_id!r}").error,
        died_at_ms=row.died_at_ms,
    )


def check_after(after: object) -> int:
    """Return the position after which a page starts; None is the first page."""
    return 0 if after is None else check_integer("after", after, at_least=0)


def check_one_choice(session_id: str | None, ids: IdRange | None) -> IdRange | None:
    """Return the ids; raise InvalidInput if a session is named beside them."""
    if session_id is not None and ids is not None:
        raise InvalidInput("expected session_id or prefix, got both; leave one out")
    return ids
