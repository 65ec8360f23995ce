"""Rows that cannot be read or do not have their hash: the check of each table, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from lash.backend.damage import other, process, remedy, session
from lash.backend.damage.row import Columns

_PUT: Final = "put the same bytes again, or restore a backup"


class Body(NamedTuple):
    """How the rows of one table are checked. ``where`` is a template of the columns of a row, and of its session."""

    where: str
    check: Callable[[Columns], object]
    remedy: str


BODIES: Final[Mapping[str, Body]] = {
    "lash_sessions": Body("session {session_id!r}", session.check_session, remedy.SESSION),
    "lash_session_leases": Body("lease of session {session}", other.check_lease, remedy.SESSION),
    "lash_nodes": Body("node {node_id!r} of session {session}", session.check_node, remedy.SESSION),
    "lash_frames": Body("frame {frame_id!r} of session {session}", session.check_frame, remedy.SESSION),
    "lash_blobs": Body("bytes {hash} of session {session}", session.check_blob, remedy.SESSION),
    "lash_turns": Body(
        "turn {turn_id!r} of session {session}",
        session.check_turn,
        "lash db prune --only turns removes old records of turns; the conversation is whole",
    ),
    "lash_batches": Body("batch {batch_id!r}", session.check_batch, remedy.QUEUE),
    "lash_dead_letters": Body("dead letter {batch_id!r}", session.check_dead_letter, remedy.QUEUE),
    "lash_source_keys": Body("source key {source_key!r}", session.check_source_key, remedy.QUEUE),
    "lash_attachments": Body("attachment {attachment_id!r}", other.check_attachment, _PUT),
    "lash_attachment_fences": Body("byte guard {attachment_id!r}", other.check_byte_guard, _PUT),
    "lash_attachment_bytes": Body("bytes of attachment {attachment_id!r}", session.check_attachment_bytes, _PUT),
    "lash_artifacts": Body("artifact {ref} of {namespace!r}", other.check_artifact, _PUT),
    "lash_process_changes": Body(
        "change {seq} of process {process_id!r}",
        process.check_change,
        remedy.FEED,
    ),
    "lash_process_leases": Body("lease of process number {process_key}", other.check_lease, remedy.PROCESS),
    "lash_effects": Body(
        "effect {replay_key!r} of {scope_id}",
        process.check_effect,
        remedy.EFFECTS,
    ),
    "lash_records": Body("record {key!r} in collection {collection!r}", other.check_record, remedy.RECORD),
    "lash_secrets": Body("secret {name!r}", process.check_secret, remedy.SIGNING_KEYS),
    "lash_trigger_subscriptions": Body("trigger {key!r}", other.check_subscription, remedy.TRIGGER),
    "lash_trigger_receipts": Body(
        "receipt {operation_id!r}", other.check_receipt, "repeat the change of the trigger under a new operation id"
    ),
    "lash_schedules": Body("schedule {key!r}", other.check_schedule, remedy.TRIGGER),
}
"""The tables whose rows are checked one by one; others have no content, or are checked with their owner."""
