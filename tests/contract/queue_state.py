"""Shared by the contracts of queued work: drafts, claims, and the visible state of a queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypedDict, Unpack

import msgspec

from lash.model.lease import LeaseFence
from lash.model.queue import (
    Batch,
    BatchDraft,
    Claim,
    ClaimOutcome,
    Delivery,
    EmptyReason,
    NothingClaimed,
    SessionCommand,
    Slot,
    TextItem,
    TurnInput,
)
from lash.model.session.commit import Commit
from lash.stores.storage import Storage
from tests.contract.state import Observed, observe
from tests.factories.session import acquired, owner

TTL: Final = 1_000
"""How long a claim lasts, in milliseconds."""
LONG: Final = 60_000
"""How long a lease lasts, in milliseconds."""


class DraftFields(TypedDict, total=False):
    """The optional fields of a draft."""

    source_key: str | None
    delivery: Delivery
    slot: Slot
    merge_key: str | None
    available_at_ms: int
    priority: int


def late(text: str, *, session_id: str = "s", **fields: Unpack[DraftFields]) -> BatchDraft:
    """Return an input that waits for a turn of its own."""
    return BatchDraft(session_id=session_id, payloads=(TurnInput.of_text(text),), **fields)


def early(text: str, *, session_id: str = "s", **fields: Unpack[DraftFields]) -> BatchDraft:
    """Return an input that may reach a running turn."""
    fields["delivery"] = Delivery.EARLIEST_SAFE_BOUNDARY
    return late(text, session_id=session_id, **fields)


def joining(text: str, group: str | None = "g", *, session_id: str = "s", **fields: Unpack[DraftFields]) -> BatchDraft:
    """Return an early input that shares a claim with neighbours of the same merge key."""
    fields["slot"], fields["merge_key"] = Slot.JOIN, group
    return early(text, session_id=session_id, **fields)


def command(label: str, *, session_id: str = "s", **fields: Unpack[DraftFields]) -> BatchDraft:
    """Return a command to the session."""
    return BatchDraft(session_id=session_id, payloads=(SessionCommand(command=label),), **fields)


async def queued(storage: Storage, *drafts: BatchDraft) -> list[Batch]:
    """Enqueue the drafts one after another and return their batches."""
    batches: list[Batch] = []
    for draft in drafts:
        batch = (await storage.queue.enqueue(draft)).batch
        assert batch is not None
        batches.append(batch)
    return batches


async def leased(storage: Storage, who: str = "w", *, session_id: str = "s", ttl_ms: int = LONG) -> LeaseFence:
    """Take the lease of a session."""
    return acquired(await storage.leases.claim(session_id, owner(who), ttl_ms=ttl_ms)).fence


def claimed(outcome: ClaimOutcome) -> Claim:
    """Return the claim; fail the test if nothing was claimed."""
    assert isinstance(outcome, Claim), outcome
    return outcome


def nothing(outcome: ClaimOutcome) -> EmptyReason:
    """Return why nothing was claimed; fail the test if something was."""
    assert isinstance(outcome, NothingClaimed), outcome
    return outcome.reason


def texts(batches: Iterable[Batch]) -> list[str]:
    """Return the texts of the batches, in order."""
    return [_text(batch) for batch in batches]


def _text(batch: Batch) -> str:
    (payload,) = batch.payloads
    if isinstance(payload, SessionCommand):
        return payload.command
    assert isinstance(payload, TurnInput)
    (item,) = payload.items
    assert isinstance(item, TextItem)
    return item.text


def consuming(commit: Commit, *claims: Claim) -> Commit:
    """Return the commit with the completions of these claims."""
    return msgspec.structs.replace(commit, completions=tuple(claim.completion for claim in claims))


class QueueObserved(NamedTuple):
    """Everything that the public API shows of one session and its queue."""

    session: Observed
    queue: tuple[Batch, ...]
    pending: tuple[Batch, ...]
    ready: tuple[str, ...]


async def observe_queue(storage: Storage, session_id: str = "s") -> QueueObserved:
    """Read a session and its queue through the public API."""
    return QueueObserved(
        session=await observe(storage, session_id),
        queue=await storage.queue.list(session_id),
        pending=await storage.queue.list_pending(session_id),
        ready=await storage.queue.ready_sessions(),
    )
