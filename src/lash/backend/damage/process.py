"""What the rows of processes, effects and waits must be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lash.backend.damage.row import Columns, require_same, shaped, text
from lash.base.codec import decode
from lash.errors import CorruptData
from lash.model.effect import EffectError, EffectStatus, Envelope, ProcessScope
from lash.model.process.event import STARTED, ProcessEvent
from lash.model.process.process import ChangeKind, ProcessRecord, ProcessStatus
from lash.model.scope import scope_id, scope_session_id
from lash.plan.effect.effect import decode_outcome, encode_envelope
from lash.plan.process.event import EventRow, decode_event, payload_hash, refold
from lash.plan.process.process import ProcessRow, decode_process, encode_registration
from lash.plan.wait import SECRET_BYTES, SessionLife, WaitRow, decode_wait, generation_of, sign_key


def check_process(row: Columns) -> ProcessRecord:
    """Return the record of a process; raise CorruptData if it cannot be read or its columns contradict it."""
    record = decode_process(shaped(ProcessRow, row))
    encoded = encode_registration(record.registration)
    registration, projection = encoded.registration, record.projection
    expected = {
        "process_id": registration.process_id,
        "registration_hash": encoded.registration_hash,
        "recovery": registration.recovery.value,
        "kind": encoded.kind,
        "label": encoded.label,
        "definition_hash": encoded.definition_hash,
        "originator_session_id": encoded.originator_session_id,
        "parent_process_id": encoded.parent_process_id,
        "environment_ref": registration.environment_ref,
        "status": projection.status.value,
        "waiting": int(projection.wait is not None),
    }
    for column, value in expected.items():
        require_same(column, row[column], value)
    return record


def check_log(record: ProcessRecord, events: Iterable[ProcessEvent]) -> None:
    """Raise CorruptData if the events of a process do not lead to its state."""
    in_order = sorted(events, key=lambda event: event.sequence)
    if refold(record.registration, in_order) != record.projection:
        raise CorruptData("its state is not the one to which its events lead")


def check_event(row: Columns, process_id: str) -> ProcessEvent:
    """Return an event; raise CorruptData if it cannot be read or has another hash."""
    event = decode_event(shaped(EventRow, row), process_id)
    require_same("payload_hash", row["payload_hash"], payload_hash(event.event_type, event.payload))
    if row["status"] is not None:
        _check_status(row)
    return event


def inline_events(row: Columns) -> list[Columns]:
    """Return the events in the row of a process, by the names of the columns of events."""
    found: list[Columns] = []
    if row["start_seq"] is not None:
        constant: Columns = {"event_type": STARTED, "wake": None, "status": ProcessStatus.RUNNING.value}
        found.append({**_inline(row, "start"), **constant, "occurred_at_ms": row["created_at_ms"]})
    if row["end_seq"] is not None:
        own: Columns = {"event_type": row["end_type"], "wake": row["end_wake"], "status": row["status"]}
        found.append({**_inline(row, "end"), **own, "occurred_at_ms": row["ended_at_ms"]})
    return found


def _inline(row: Columns, prefix: str) -> Columns:
    return {name: row[f"{prefix}_{name}"] for name in ("sequence", "replay_key", "payload_hash", "payload")}


def check_change(row: Columns) -> None:
    """Raise CorruptData if a change cannot be read."""
    try:
        ChangeKind(text(row, "kind"))
    except ValueError as error:
        raise CorruptData(f"it cannot be read: {error}") from None
    if row["status"] is not None:
        _check_status(row)


def _check_status(row: Columns) -> None:
    try:
        ProcessStatus(text(row, "status"))
    except ValueError as error:
        raise CorruptData(f"it cannot be read: {error}") from None


def check_effect(row: Columns) -> None:
    """Raise CorruptData if an effect cannot be read, or is not the one under whose key it is stored."""
    envelope = decode(text(row, "envelope"), Envelope, "its envelope")
    encoded = encode_envelope(envelope)
    for column, value in (
        ("scope_id", encoded.scope_id),
        ("replay_key", encoded.replay_key),
        ("group_key", encoded.group_key),
        ("envelope_hash", encoded.hash),
    ):
        require_same(column, row[column], value)
    status = EffectStatus.IN_PROGRESS
    if row["outcome"] is not None:
        decode_outcome(text(row, "outcome"), "it")
        status = EffectStatus.COMPLETED
    if row["error"] is not None:
        decode(text(row, "error"), EffectError, "its error")
        status = EffectStatus.FAILED
    require_same("status", row["status"], status.value)
    require_same("once", row["once"], int(bool(row["once"])))


def check_wait(row: Columns, revocations: Mapping[int, int]) -> None:
    """Raise CorruptData if a wait cannot be read, or its id is not that of its scope and its name.

    ``revocations`` has the number of each session whose keys were revoked.
    """
    wait = decode_wait(shaped(WaitRow, row))
    require_same("scope_id", row["scope_id"], scope_id(wait.scope))
    session_key, process_key = row["session_key"], row["process_key"]
    if scope_session_id(wait.scope) is not None and isinstance(session_key, int):
        generation = generation_of(SessionLife(session_key, revocations.get(session_key, 0)))
    elif isinstance(wait.scope, ProcessScope) and isinstance(process_key, int):
        generation = generation_of(process_key)
    else:
        generation = generation_of(None)
    require_same("key_id", row["key_id"], sign_key(b"", wait.scope, wait.identity, generation).key_id)


def check_secret(row: Columns) -> None:
    """Raise CorruptData if a secret that signs keys has the wrong length."""
    secret = row["secret"]
    if row["name"] == "waits" and (not isinstance(secret, bytes) or len(secret) != SECRET_BYTES):
        raise CorruptData(f"expected {SECRET_BYTES} bytes")
