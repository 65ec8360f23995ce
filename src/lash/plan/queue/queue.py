"""Rules of batches: how work is encoded, stored and enqueued."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from lash.base.codec import canonical, content_hash, decode, encode
from lash.base.limits import check_identifier, check_integer
from lash.errors import CorruptData, InvalidInput, SourceKeyConflict
from lash.model.queue import (
    MAX_PRIORITY,
    PARKED_AT_MS,
    Batch,
    BatchDraft,
    BatchState,
    Delivery,
    Enqueued,
    Payload,
    SessionCommand,
    Slot,
    TurnInput,
)
from lash.model.session.checkpoint import AGENT_OPTION
from lash.model.session.commit import CommitBudget
from lash.model.value import Value
from lash.plan.agent import fitting_agent
from lash.plan.sealed import BATCH

COMMAND_LANE: Final = "command"
"""The lane of session commands, which precede all later turn work."""
EARLY_LANE: Final = "early"
"""The lane of turn work that a running turn may take at a checkpoint."""
LATE_LANE: Final = "late"
"""The lane of turn work that waits for a turn of its own."""


class _Payloads(Value, frozen=True, kw_only=True):
    payloads: tuple[Payload, ...]


_PAYLOADS: Final = frozenset(Payload.__args__)


class EncodedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A draft ready to be written."""

    draft: BatchDraft
    lane: str
    payloads: str
    content_hash: str
    agent: str | None
    """The agent that the input names."""


class BatchRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored batch with its payloads."""

    seq: int
    batch_id: str
    source_key: str | None
    delivery: str
    slot: str
    merge_key: str | None
    available_at_ms: int
    enqueued_at_ms: int
    claim_count: int
    failure_count: int
    priority: int
    payloads: Annotated[str, BATCH]


class SourceKeyRow(msgspec.Struct, frozen=True, array_like=True):
    """A reserved source key, and the state of the batch that reserved it."""

    batch_id: str
    content_hash: str
    state: str


class KnownKey(msgspec.Struct, frozen=True, kw_only=True):
    """A source key that was reserved before, and its batch if it is still queued."""

    key: SourceKeyRow
    batch: BatchRow | None


def encode_batch(draft: BatchDraft) -> EncodedBatch:
    """Check a draft and return its stored form."""
    if not isinstance(draft, BatchDraft):
        raise InvalidInput(f"expected a BatchDraft, got {type(draft).__name__}")
    check_identifier("session_id", draft.session_id)
    if check_integer("available_at_ms", draft.available_at_ms, at_least=0) == PARKED_AT_MS:
        raise InvalidInput(f"available_at_ms must be below {PARKED_AT_MS}")
    texts = ("source_key", draft.source_key), ("merge_key", draft.merge_key), ("wake_session_id", draft.wake_session_id)
    for what, text in texts:
        if text is not None:
            check_identifier(what, text)
    if check_integer("priority", draft.priority, at_least=0) > MAX_PRIORITY:
        raise InvalidInput(f"expected a priority from 0 to {MAX_PRIORITY}, got {draft.priority}")
    kinds = _kinds(draft.payloads)
    body = encode(_Payloads(payloads=tuple(draft.payloads)), _Payloads, "payloads")
    is_command = kinds == {SessionCommand}
    early = draft.delivery == Delivery.EARLIEST_SAFE_BOUNDARY
    return EncodedBatch(
        draft=draft,
        lane=COMMAND_LANE if is_command else EARLY_LANE if early else LATE_LANE,
        payloads=body,
        content_hash=_hash(draft, tuple(map(_without_agent, draft.payloads))),
        agent=_agent_of(draft),
    )


def _agent_of(draft: BatchDraft) -> str | None:
    inputs = (each for each in draft.payloads if isinstance(each, TurnInput))
    named = (fitting_agent(each.protocol_turn_options) for each in inputs)
    return next((agent for agent in named if agent is not None), None)


def _hash(draft: BatchDraft, payloads: tuple[Payload, ...]) -> str:
    content = {
        "payloads": tuple(map(_without_trace, payloads)),
        "delivery": _label(Delivery, "delivery", draft.delivery),
        "slot": _label(Slot, "slot", draft.slot),
        "merge_key": draft.merge_key,
    }
    return content_hash(b"lash.batch.v1\0" + canonical(content))


def _is_same(encoded: EncodedBatch, stored_hash: str) -> bool:
    """Return whether a key was reserved for this content; earlier versions hashed the name of the agent with it."""
    return stored_hash == encoded.content_hash or stored_hash == _hash(encoded.draft, tuple(encoded.draft.payloads))


def _without_agent(payload: Payload) -> Payload:
    """Return the content of a payload: which agent is to answer it is not part of what was said."""
    if not isinstance(payload, TurnInput) or AGENT_OPTION not in payload.protocol_turn_options:
        return payload
    options = {name: value for name, value in payload.protocol_turn_options.items() if name != AGENT_OPTION}
    return msgspec.structs.replace(payload, protocol_turn_options=options)


def _without_trace(payload: Payload) -> Payload:
    """Return the content of a payload: a retry of its sender belongs to another trace, and sends the same."""
    if not isinstance(payload, TurnInput) or payload.traceparent is None:
        return payload
    return msgspec.structs.replace(payload, traceparent=None)


def check_size(encoded: EncodedBatch, budget: CommitBudget) -> None:
    """Raise InvalidInput if a batch is too large for the commit that is to consume it.

    It may take half of the budget: the commit also holds what the turn adds.
    """
    text, most = encoded.payloads, budget.max_bytes // 2
    size = len(text) if text.isascii() else len(text.encode())
    if size > most:
        raise InvalidInput(
            f"the message holds {size:,} bytes; this storage accepts at most {most:,}, half of a commit; "
            "send large content as an attachment"
        )


def decode_batch(row: BatchRow, session_id: str) -> Batch:
    """Return the batch that a row stores."""
    what = f"batch {row.batch_id!r}"
    try:
        delivery, slot = Delivery(row.delivery), Slot(row.slot)
    except ValueError as error:
        raise CorruptData(f"{what} cannot be read: {error}") from None
    return Batch(
        session_id=session_id,
        batch_id=row.batch_id,
        seq=row.seq,
        payloads=decode(row.payloads, _Payloads, what).payloads,
        source_key=row.source_key,
        delivery=delivery,
        slot=slot,
        merge_key=row.merge_key,
        available_at_ms=row.available_at_ms,
        enqueued_at_ms=row.enqueued_at_ms,
        attempts=row.claim_count,
        failures=row.failure_count,
        priority=row.priority,
    )


def ready_session(batch: Batch | None) -> str | None:
    """Return the session of a batch that can be claimed now; None if the batch is delayed or gone."""
    return None if batch is None or batch.available_at_ms else batch.session_id


def decode_enqueued(encoded: EncodedBatch, written: BatchRow | KnownKey) -> Enqueued:
    """Return the answer to an enqueue: the batch that was written, or the state of the one with its source key.

    Raises SourceKeyConflict if the key was reserved for other content.
    """
    session_id, source_key = encoded.draft.session_id, encoded.draft.source_key or ""
    if isinstance(written, BatchRow):
        return Enqueued(batch_id=written.batch_id, created=True, batch=decode_batch(written, session_id))
    key, stored = written.key, written.batch
    if not _is_same(encoded, key.content_hash):
        raise SourceKeyConflict(session_id, source_key)
    state = BatchState(key.state)
    return Enqueued(
        batch_id=key.batch_id,
        created=False,
        # A key is pending until its batch is consumed or cancelled. A pending key without a batch is a dead letter.
        state=BatchState.DEAD if state is BatchState.PENDING and stored is None else state,
        batch=None if stored is None else decode_batch(stored, session_id),
    )


def _kinds(payloads: object) -> set[type]:
    if not isinstance(payloads, list | tuple) or not payloads:
        raise InvalidInput("payloads must be a tuple of at least one payload")
    kinds = {type(payload) for payload in payloads}
    if not kinds <= _PAYLOADS:
        foreign = min(kind.__name__ for kind in kinds - _PAYLOADS)
        raise InvalidInput(f"expected payloads, got a {foreign}")
    if len(kinds) > 1:
        raise InvalidInput(f"a batch holds one kind of payload, got {len(kinds)}; enqueue each kind separately")
    return kinds


def _label(kind: type[Delivery | Slot], what: str, value: object) -> str:
    if not isinstance(value, kind):
        raise InvalidInput(f"{what} must be a {kind.__name__}, not {value!r:.80}")
    return value.value
