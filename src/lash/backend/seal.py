"""Seals encoded values before a backend writes them. Rows are unsealed by the engine that reads them."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from lash.base.compression import StoredBlob
from lash.base.seal import Seals
from lash.plan.effect.effect import EncodedEffect, StoredOutcome
from lash.plan.process.event import InsertEvent
from lash.plan.record import EncodedChange
from lash.plan.sealed import (
    BATCH,
    BYTES,
    CONFIG,
    DELIVERY,
    ENVELOPE,
    EVENT,
    FIRST_USER_MESSAGE,
    FRAME,
    NODE,
    OUTCOME,
    PROJECTION,
    RECORD,
    REGISTRATION,
    TURN_RESULT,
    TURN_STATE,
    TURN_TRACE,
    WAKE,
)
from lash.plan.session.commit import Apply, PreparedCommit
from lash.plan.session.node import EncodedNode, Placement
from lash.plan.session.session import HeadRow
from lash.plan.trigger.emit import Planned, StartDelivery, delivery_columns, process_columns


class SealedEvent(NamedTuple):
    """An event and the projection after it, as they are written."""

    payload: str
    wake: str | None
    projection: str


def seal_commit(seals: Seals, prepared: PreparedCommit, decision: Apply) -> tuple[PreparedCommit, Apply]:
    """Return a commit with its values as they are written."""
    if not seals.is_active:
        return prepared, decision
    saved = prepared.checkpoint
    turn_state = seals.text(TURN_STATE, saved.turn_state, saved.ref)
    frames = [msgspec.structs.replace(row, body=seals.text(FRAME, row.body, row.frame_id)) for row in prepared.frames]
    return msgspec.structs.replace(
        prepared,
        config=seals.text(CONFIG, prepared.config, saved.ref),
        frames=tuple(frames),
        checkpoint=msgspec.structs.replace(saved, turn_state=turn_state),
        blobs=tuple(seal_blob(seals, blob) for blob in prepared.blobs),
        records=tuple(seal_record(seals, change) for change in prepared.records),
        stored_result=seals.text(TURN_RESULT, prepared.stored_result, prepared.commit_hash),
        trace=seals.text(TURN_TRACE, prepared.trace, prepared.commit_hash),
    ), msgspec.structs.replace(
        decision,
        head=seal_head(seals, decision.head),
        placement=seal_placement(seals, decision.placement),
    )


def seal_head(seals: Seals, head: HeadRow) -> HeadRow:
    """Return a head as it is written."""
    if not seals.is_active:
        return head
    return msgspec.structs.replace(head, first_user_message=seals.text(FIRST_USER_MESSAGE, head.first_user_message))


def seal_placement(seals: Seals, placement: Placement) -> Placement:
    """Return the new nodes of a session as they are written."""
    if not seals.is_active:
        return placement
    nodes = [placed._replace(node=seal_node(seals, placed.node)) for placed in placement.nodes]
    return msgspec.structs.replace(placement, nodes=tuple(nodes))


def seal_node(seals: Seals, node: EncodedNode) -> EncodedNode:
    """Return a node as it is written."""
    if not seals.is_active:
        return node
    return node._replace(
        body=seals.text(NODE, node.stored_body, node.node_id), packed=seals.content(NODE, node.packed, node.node_id)
    )


def seal_record(seals: Seals, change: EncodedChange) -> EncodedChange:
    """Return a change of a record with its value as it is written."""
    if change.put is None or not seals.is_active:
        return change
    replace, value = msgspec.structs.replace, change.put.value
    content = seals.content(RECORD, value.blob.content, change.name.key, value.blob.ref)
    sealed = replace(value, blob=value.blob._replace(content=content))
    return replace(change, put=replace(change.put, value=sealed))


def seal_blob(seals: Seals, blob: StoredBlob) -> StoredBlob:
    """Return compressed bytes as they are written."""
    return blob._replace(content=seals.content(BYTES, blob.content, blob.ref)) if seals.is_active else blob


def seal_batch(seals: Seals, payloads: str, batch_id: str) -> str:
    """Return the payloads of a batch as they are written."""
    return seals.text(BATCH, payloads, batch_id)


def seal_event(seals: Seals, decision: InsertEvent, projection: str) -> SealedEvent:
    """Return an event and the projection after it as they are written."""
    event = decision.event
    return SealedEvent(
        payload=seals.text(EVENT, decision.payload, event.sequence, decision.payload_hash),
        wake=seals.text(WAKE, decision.wake, event.sequence, event.event_type),
        projection=seals.text(PROJECTION, projection, event.process_id),
    )


def seal_effect(seals: Seals, effect: EncodedEffect) -> str:
    """Return the envelope of an effect as it is written."""
    return seals.text(ENVELOPE, effect.text, effect.replay_key, effect.hash)


def seal_outcome(seals: Seals, stored: StoredOutcome, replay_key: str, envelope_hash: str) -> StoredOutcome:
    """Return the outcome of an effect as it is written."""
    if not seals.is_active:
        return stored
    return msgspec.structs.replace(
        stored,
        outcome=seals.text(OUTCOME, stored.outcome, replay_key, envelope_hash),
        error=seals.text(OUTCOME, stored.error, replay_key, envelope_hash),
    )


def process_values(seals: Seals, start: StartDelivery) -> tuple[str | None, ...]:
    """Return the columns of `process_columns` as they are written."""
    process_id, registration_hash, body, *others = process_columns(start)
    return (process_id, registration_hash, seals.text(REGISTRATION, body, process_id), *others)


def delivery_values(seals: Seals, planned: Planned) -> tuple[str | None, ...]:
    """Return the columns of `delivery_columns` as they are written."""
    *others, reason = delivery_columns(planned)
    return (*others, seals.text(DELIVERY, reason, planned.subscription.subscription_id, planned.process_id))
