"""Which scope may see which process."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import msgspec

from lash.base.limits import check_identifier, check_identifiers, check_text
from lash.errors import InvalidInput
from lash.model.process.process import AgentScope, Grant, GrantEntry, SessionDetached
from lash.plan.process.process import ProcessRow, check_agent_scope, decode_process
from lash.plan.sealed import PROJECTION, REGISTRATION


class GrantRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored grant; an empty frame id means the whole session."""

    session_id: str
    frame_id: str
    process_id: str
    kind: str | None
    label: str | None


class GrantEntryRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored grant and its process."""

    session_id: str
    frame_id: str
    granted_process_id: str
    kind: str | None
    label: str | None
    process_key: int
    process_id: str
    registration_hash: str
    registration: Annotated[str, REGISTRATION]
    projection: Annotated[str, PROJECTION]
    wake_session_id: str | None
    last_sequence: int
    created_at_ms: int
    updated_at_ms: int


class DetachedRow(msgspec.Struct, frozen=True, array_like=True):
    """A running process that lost a grant, and whether another scope still has a grant of it."""

    process_id: str
    still_granted: bool


class DetachAnswer(msgspec.Struct, frozen=True, array_like=True):
    """How many grants were revoked and wake targets cleared, and which running processes lost a grant."""

    revoked: int
    cleared: int
    processes: list[DetachedRow]


def check_process_ids(process_ids: Collection[str]) -> tuple[str, ...]:
    """Return the ids, or raise InvalidInput unless they are a collection of distinct ids."""
    ids = check_identifiers("process_ids", process_ids)
    if len(ids) != len(process_ids):
        raise InvalidInput("process_ids names a process twice")
    return ids


def check_grant(grant: object) -> Grant:
    """Return the grant, or raise InvalidInput if it cannot be stored."""
    if not isinstance(grant, Grant):
        raise InvalidInput(f"expected a Grant, got {type(grant).__name__}")
    check_agent_scope("grant.scope", grant.scope)
    check_identifier("grant.process_id", grant.process_id)
    for name in ("kind", "label"):
        text = getattr(grant, name)
        if text is not None:
            check_text(f"grant.{name}", text, limit=255)
    return grant


def frame_of(scope: AgentScope) -> str:
    """Return the frame of a scope as it is stored."""
    return "" if scope.agent_frame_id is None else scope.agent_frame_id


def decode_grant(row: GrantRow) -> Grant:
    """Return the grant of a row."""
    scope = AgentScope(session_id=row.session_id, agent_frame_id=row.frame_id or None)
    return Grant(scope=scope, process_id=row.process_id, kind=row.kind, label=row.label)


def decode_grant_entry(row: GrantEntryRow) -> GrantEntry:
    """Return the grant and the process of a row."""
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


def decode_detach(session_id: str, answer: DetachAnswer) -> SessionDetached:
    """Return the report of detaching a session from its processes."""
    running = sorted(answer.processes, key=lambda row: row.process_id)
    return SessionDetached(
        session_id=session_id,
        revoked_grant_count=answer.revoked,
        cleared_wake_target_count=answer.cleared,
        orphaned_process_ids=tuple(row.process_id for row in running if not row.still_granted),
        preserved_process_ids=tuple(row.process_id for row in running if row.still_granted),
    )
