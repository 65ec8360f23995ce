"""Who may see which process."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from lash.base.limits import check_identifier, check_text
from lash.errors import (
    InvalidInput,
)
from lash.model.process.process import (
    Grant,
    GrantEntry,
    Scope,
    SessionDetached,
)
from lash.plan.process.process import ProcessRow, check_process_scope, decode_process


class GrantRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored grant; an empty frame id means the whole session."""

    session_id: str
    frame_id: str
    process_id: str
    kind: str | None
    label: str | None


class GrantEntryRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored grant and the process it shows."""

    session_id: str
    frame_id: str
    granted_process_id: str
    kind: str | None
    label: str | None
    process_key: int
    process_id: str
    registration_hash: str
    registration: str
    projection: str
    wake_session_id: str | None
    last_sequence: int
    created_at_ms: int
    updated_at_ms: int


class DetachedRow(msgspec.Struct, frozen=True, array_like=True):
    """A running process that lost a grant, and whether another grant shows it still."""

    process_id: str
    still_granted: bool


def check_process_ids(process_ids: object) -> tuple[str, ...]:
    """Return the ids if they are a collection of different ones."""
    if isinstance(process_ids, str | bytes) or not isinstance(process_ids, Collection):
        raise InvalidInput(f"process_ids must be a collection of ids, not {type(process_ids).__name__}")
    ids = tuple(check_identifier("process_id", each) for each in process_ids)
    if len(set(ids)) != len(ids):
        raise InvalidInput("process_ids names a process twice")
    return ids


def check_grant(grant: object) -> Grant:
    """Return the grant if it can be stored."""
    if not isinstance(grant, Grant):
        raise InvalidInput(f"a Grant is needed, not {type(grant).__name__}")
    check_process_scope("grant.scope", grant.scope)
    check_identifier("grant.process_id", grant.process_id)
    for name in ("kind", "label"):
        text = getattr(grant, name)
        if text is not None:
            check_text(f"grant.{name}", text, limit=255)
    return grant


def frame_of(scope: Scope) -> str:
    """Return the frame of a scope as stored."""
    return "" if scope.agent_frame_id is None else scope.agent_frame_id


def decode_grant(row: GrantRow) -> Grant:
    """Return the grant that the row means."""
    scope = Scope(session_id=row.session_id, agent_frame_id=row.frame_id or None)
    return Grant(scope=scope, process_id=row.process_id, kind=row.kind, label=row.label)


def decode_grant_entry(row: GrantEntryRow) -> GrantEntry:
    """Return the grant and the process that the row means."""
    grant = GrantRow(row.session_id, row.frame_id, row.granted_process_id, row.kind, row.label)
    process = ProcessRow(
        row.process_key,
        row.process_id,
        row.registration_hash,
        row.registration,
        row.projection,
        row.wake_session_id,
        row.last_sequence,
        row.created_at_ms,
        row.updated_at_ms,
    )
    return GrantEntry(grant=decode_grant(grant), record=decode_process(process))


def detached(session_id: str, rows: Iterable[DetachedRow], *, revoked: int, cleared: int) -> SessionDetached:
    """Return the report of cutting a session off its processes."""
    running = sorted(rows, key=lambda row: row.process_id)
    return SessionDetached(
        session_id=session_id,
        revoked_grant_count=revoked,
        cleared_wake_target_count=cleared,
        orphaned_process_ids=tuple(row.process_id for row in running if not row.still_granted),
        preserved_process_ids=tuple(row.process_id for row in running if row.still_granted),
    )
