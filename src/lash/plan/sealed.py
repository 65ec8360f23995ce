"""Which columns hold values, and what identifies each value.

Everything else is structure, which queries read: ids, names, kinds, revisions, states, times, counts and hashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lash.base.seal import SealedField

METADATA: Final = SealedField("metadata", ("session_id",))
NODE: Final = SealedField("node", ("node_id",))
FRAME: Final = SealedField("frame", ("frame_id",))
CONFIG: Final = SealedField("config", ("checkpoint_ref",))
"""A fork copies the configuration together with the checkpoint."""
FIRST_USER_MESSAGE: Final = SealedField("first_user_message")
"""An append writes it without knowing whether the session has one, nor the key of the session."""
TURN_STATE: Final = SealedField("turn_state", ("checkpoint_ref",))
TURN_RESULT: Final = SealedField("turn_result", ("commit_hash",))
TURN_TRACE: Final = SealedField("turn_trace", ("commit_hash",))
BYTES: Final = SealedField("bytes", ("hash",))
"""Blobs, artifacts and attachment bytes; the hash is that of the plain bytes, and is verified after unsealing too."""
CONTENT: Final = SealedField("bytes", ("ref",))
"""The same, in rows that call the hash a ref."""
ATTACHMENT: Final = SealedField("bytes", ("attachment_id",))
"""The same, in the table of attachment bytes."""
BATCH: Final = SealedField("batch", ("batch_id",))
DEAD_LETTER: Final = SealedField("dead_letter")
"""The reason and the error of a burial, which all batches of the claim share."""
REGISTRATION: Final = SealedField("registration", ("process_id",))
PROJECTION: Final = SealedField("projection", ("process_id",), readable=("started_by",))
"""The work list reads which worker started a process."""
EVENT: Final = SealedField("event", ("sequence", "payload_hash"))
WAKE: Final = SealedField("wake", ("sequence", "event_type"))
START_EVENT: Final = SealedField(EVENT.name, ("start_sequence", "start_payload_hash"))
END_EVENT: Final = SealedField(EVENT.name, ("end_sequence", "end_payload_hash"))
END_WAKE: Final = SealedField(WAKE.name, ("end_sequence", "end_type"))
"""The same, in the row of a process; queries read them as events."""
ENVELOPE: Final = SealedField("envelope", ("replay_key", "envelope_hash"))
OUTCOME: Final = SealedField("outcome", ("replay_key", "envelope_hash"))
RECORD: Final = SealedField("record", ("key", "hash"))
RESOLUTION: Final = SealedField("resolution", ("key_id",))
QUESTION: Final = SealedField("question", ("key_id",))
TRIGGER: Final = SealedField("trigger", ("subscription_id",))
RECEIPT: Final = SealedField("receipt", ("request_hash",))
OCCURRENCE: Final = SealedField("occurrence", ("occurrence_id",))
REPORT: Final = SealedField("report", ("occurrence_id",))
DELIVERY: Final = SealedField("delivery", ("subscription_id", "process_id"))
SCHEDULE: Final = SealedField("schedule", ("owner_session_id", "key"))
ACTIVITY: Final = SealedField("activity")
"""The database gives activity its position."""
SECRET: Final = SealedField("secret", ("name",))

SEALED_COLUMNS: Final[Mapping[str, Mapping[str, SealedField]]] = {
    "lash_activity": {"body": ACTIVITY},
    "lash_artifacts": {"content": CONTENT},
    "lash_attachment_bytes": {"content": ATTACHMENT},
    "lash_batches": {"payloads": BATCH},
    "lash_blobs": {"content": BYTES},
    "lash_checkpoints": {"turn_state": TURN_STATE},
    "lash_dead_letters": {"payloads": BATCH, "reason": DEAD_LETTER, "error": DEAD_LETTER},
    "lash_effects": {"envelope": ENVELOPE, "outcome": OUTCOME, "error": OUTCOME},
    "lash_frames": {"body": FRAME},
    "lash_nodes": {"body": NODE, "packed": NODE},
    "lash_process_events": {"payload": EVENT, "wake": WAKE},
    "lash_processes": {
        "registration": REGISTRATION,
        "projection": PROJECTION,
        "start_payload": START_EVENT,
        "end_payload": END_EVENT,
        "end_wake": END_WAKE,
    },
    "lash_records": {"content": RECORD},
    "lash_schedules": {"definition": SCHEDULE},
    "lash_secrets": {"secret": SECRET},
    "lash_sessions": {"config": CONFIG, "first_user_message": FIRST_USER_MESSAGE, "metadata": METADATA},
    "lash_trigger_deliveries": {"reason": DELIVERY},
    "lash_trigger_occurrences": {"request": OCCURRENCE, "report": REPORT},
    "lash_trigger_receipts": {"answer": RECEIPT},
    "lash_trigger_subscriptions": {"definition": TRIGGER},
    "lash_turns": {"result": TURN_RESULT, "trace": TURN_TRACE},
    "lash_waits": {"resolution": RESOLUTION, "ask": QUESTION},
}
"""The sealed columns of every table, by table and column."""
