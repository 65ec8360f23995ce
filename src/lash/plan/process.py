"""What a process's row means, how it is registered, and who may run it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from lash.codec import canonical, content_hash, decode, encode
from lash.errors import (
    Conflict,
    CorruptData,
    InvalidInput,
    LeaseLost,
    ProcessLeaseLost,
    ProcessNotFound,
    ProcessPruned,
    RegistrationConflict,
)
from lash.limits import check_identifier, check_integer, check_text, saturating_add
from lash.model.event import EventType, Selector
from lash.model.lease import Lease, LeaseFence, LeaseOwner
from lash.model.process import (
    ChangeKind,
    ChangePage,
    EngineInput,
    ExternalInput,
    Grant,
    GrantEntry,
    Identity,
    ProcessChange,
    ProcessFence,
    ProcessFilter,
    ProcessInput,
    ProcessLease,
    ProcessPage,
    ProcessRecord,
    ProcessRefused,
    ProcessStatus,
    Projection,
    Provenance,
    Recovery,
    RefusalReason,
    Registration,
    Scope,
    SessionDetached,
    SessionOriginator,
    SessionTurnInput,
    ToolCallInput,
)
from lash.model.value import JSON
from lash.plan.event import CORE_NAMES
from lash.plan.lease import LeaseRow, require_fence
from lash.plan.schema import check_schema
from lash.plan.selector import check_selector

MAX_PAGE: Final = 1_000
NO_DEFINITION: Final = "none"
"""Stands for the hash of a definition that is not there; it matches nothing."""


class ProcessRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored process. All of it but the wake target changes only with ``last_sequence``."""

    process_key: int
    process_id: str
    registration_hash: str
    registration: str
    projection: str
    wake_session_id: str | None
    last_sequence: int
    created_at_ms: int
    updated_at_ms: int


class ChangeRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored change. The feed is ordered by ``transaction_id``, where there are many writers, and then by ``seq``."""

    seq: int
    process_id: str
    kind: str
    sequence: int | None
    status: str | None
    transaction_id: int = 0


class ChangeCursor(NamedTuple):
    """A place in the feed of changes."""

    transaction_id: int
    seq: int


class PrunableRow(msgspec.Struct, frozen=True, array_like=True):
    """A process that can be pruned."""

    process_key: int
    process_id: str
    status: str
    fencing: int


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


class EncodedRegistration(msgspec.Struct, frozen=True, kw_only=True):
    """A registration ready to be written, with the columns that lists filter by."""

    registration: Registration
    body: str
    registration_hash: str
    kind: str
    label: str | None
    definition_hash: str | None
    originator_session_id: str | None


class DetachedRow(msgspec.Struct, frozen=True, array_like=True):
    """A running process that lost a grant, and whether another grant shows it still."""

    process_id: str
    still_granted: bool


def encode_registration(registration: Registration) -> EncodedRegistration:
    """Check a registration and turn it into what is written."""
    if not isinstance(registration, Registration):
        raise InvalidInput(f"a Registration is needed, not {type(registration).__name__}")
    what = f"process {check_identifier('process_id', registration.process_id)!r}"
    # Read back, so that the checks see the declared kinds: members of enums where the caller gave their text.
    plain = decode(encode(registration, Registration, what), Registration, what)
    _check_environment(what, plain)
    _check_event_types(what, plain.event_types)
    if plain.wake_session_id is not None:
        check_identifier(f"{what}: wake_session_id", plain.wake_session_id)
    identity = plain.identity or _identity_of(plain.input)
    complete = msgspec.structs.replace(plain, identity=identity, recovery=_recovery(what, plain))
    return EncodedRegistration(
        registration=complete,
        body=encode(complete, Registration, what),
        registration_hash=content_hash(b"lash.registration.v1\0" + canonical(complete)),
        kind=check_identifier(f"{what}: identity.kind", identity.kind),
        label=None if identity.label is None else check_text(f"{what}: identity.label", identity.label, limit=255),
        definition_hash=definition_hash(identity.definition),
        originator_session_id=_originator_session(what, plain.provenance),
    )


def same_registration(encoded: EncodedRegistration, row: ProcessRow) -> ProcessRecord:
    """Return the stored record of an equal registration, or raise RegistrationConflict."""
    if row.registration_hash != encoded.registration_hash:
        raise RegistrationConflict(row.process_id, row.registration_hash, encoded.registration_hash)
    return decode_process(row)


def decode_process(row: ProcessRow) -> ProcessRecord:
    """Return the record that the row means."""
    what = f"process {row.process_id!r}"
    return ProcessRecord(
        process_id=row.process_id,
        registration_hash=row.registration_hash,
        registration=decode(row.registration, Registration, what),
        projection=decode(row.projection, Projection, what),
        wake_session_id=row.wake_session_id,
        last_sequence=row.last_sequence,
        created_at_ms=row.created_at_ms,
        updated_at_ms=row.updated_at_ms,
    )


def missing_process(process_id: str, *, pruned: bool) -> ProcessNotFound | ProcessPruned:
    """Return the error for a process that has no row."""
    return ProcessPruned(process_id) if pruned else ProcessNotFound(process_id)


def definition_hash(definition: JSON) -> str | None:
    """Return the identity of a definition, by which lists find it."""
    return None if definition is None else content_hash(canonical(definition))


def refuse_run(record: ProcessRecord, owner: LeaseOwner) -> ProcessRefused | None:
    """Return why this owner may not run the process, whatever its lease says; None if it may ask for the lease."""
    if record.is_terminal:
        return ProcessRefused(reason=RefusalReason.TERMINAL)
    if record.registration.recovery is Recovery.EXTERNAL:
        return ProcessRefused(reason=RefusalReason.EXTERNAL)
    began = record.projection.started_by
    if record.registration.recovery is Recovery.OWNER_BOUND and began is not None and not began.same_holder(owner):
        return ProcessRefused(reason=RefusalReason.OWNER_BOUND)
    return None


def as_process_lease(lease: Lease) -> ProcessLease:
    """Return a lease that was decided upon under the process's id as the process lease that it is."""
    return ProcessLease(
        process_id=lease.session_id,
        owner=lease.owner,
        token=lease.token,
        fencing=lease.fencing,
        claimed_at_ms=lease.claimed_at_ms,
        expires_at_ms=lease.expires_at_ms,
    )


def as_plain_fence(fence: ProcessFence) -> LeaseFence:
    """Return a process's fence in the form in which leases are decided upon."""
    return LeaseFence(
        session_id=fence.process_id,
        owner_id=fence.owner_id,
        incarnation_id=fence.incarnation_id,
        token=fence.token,
        fencing=fence.fencing,
    )


def require_process_fence(row: LeaseRow, fence: ProcessFence, now_ms: int) -> ProcessLease:
    """Return the lease that the fence proves, or raise ProcessLeaseLost."""
    try:
        return as_process_lease(require_fence(row, as_plain_fence(fence), now_ms))
    except LeaseLost as lost:
        raise ProcessLeaseLost(fence.process_id, lost.reason) from None


def check_process_fence(fence: object) -> ProcessFence:
    """Return the fence if its fields are of the right kind."""
    if not isinstance(fence, ProcessFence):
        raise InvalidInput(f"fence must be a ProcessFence, not {type(fence).__name__}")
    for name in ("process_id", "owner_id", "incarnation_id", "token"):
        check_identifier(f"fence.{name}", getattr(fence, name))
    check_integer("fence.fencing", fence.fencing, at_least=0)
    return fence


def check_process_ids(process_ids: object) -> tuple[str, ...]:
    """Return the ids if they are a collection of different ones."""
    if isinstance(process_ids, str | bytes) or not isinstance(process_ids, Collection):
        raise InvalidInput(f"process_ids must be a collection of ids, not {type(process_ids).__name__}")
    ids = tuple(check_identifier("process_id", each) for each in process_ids)
    if len(set(ids)) != len(ids):
        raise InvalidInput("process_ids names a process twice")
    return ids


def check_process_scope(what: str, scope: object) -> Scope:
    """Return the scope if it is one."""
    if not isinstance(scope, Scope):
        raise InvalidInput(f"{what} must be a Scope, not {type(scope).__name__}")
    check_identifier(f"{what}.session_id", scope.session_id)
    if scope.agent_frame_id is not None:
        check_identifier(f"{what}.agent_frame_id", scope.agent_frame_id)
    return scope


def check_filter(wanted: object) -> ProcessFilter:
    """Return the filter if it is one that a list can use."""
    if not isinstance(wanted, ProcessFilter):
        raise InvalidInput(f"a ProcessFilter is needed, not {type(wanted).__name__}")
    if wanted.status is not None and not isinstance(wanted.status, ProcessStatus):
        raise InvalidInput(f"status must be one of {', '.join(ProcessStatus)}, not {wanted.status!r:.80}")
    if wanted.waiting is not None and not isinstance(wanted.waiting, bool):
        raise InvalidInput(f"waiting must be true, false or None, not {wanted.waiting!r:.80}")
    for name in ("kind", "label", "originator_session_id", "wake_session_id"):
        text = getattr(wanted, name)
        if text is not None:
            check_text(name, text, limit=255)
    for name in ("created_after_ms", "created_before_ms"):
        moment = getattr(wanted, name)
        if moment is not None:
            check_integer(name, moment)
    encode(wanted, ProcessFilter, "filter")
    return wanted


def leading_filter(wanted: ProcessFilter) -> str:
    """Return the part of a filter that narrows most, by whose index a list is read; ``all`` if there is none."""
    leading = (
        ("definition", not isinstance(wanted.definition, msgspec.UnsetType)),
        ("wake", wanted.wake_session_id is not None),
        ("originator", wanted.originator_session_id is not None),
        ("label", wanted.label is not None),
        ("kind", wanted.kind is not None),
        ("waiting", wanted.waiting is True),
        ("status", wanted.status is not None),
    )
    return next((name for name, given in leading if given), "all")


def wanted_definition(wanted: ProcessFilter) -> str | None:
    """Return the hash of the definition that a filter asks for; no definition at all is asked for as such."""
    if isinstance(wanted.definition, msgspec.UnsetType):
        return None
    return definition_hash(wanted.definition) or NO_DEFINITION


def frame_of(scope: Scope) -> str:
    """Return the frame of a scope as stored."""
    return "" if scope.agent_frame_id is None else scope.agent_frame_id


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


def decode_process_page(rows: Sequence[ProcessRow], limit: int) -> ProcessPage:
    """Return the page; the rows hold one more than the limit when there is a next page."""
    shown = rows[:limit]
    more = len(rows) > limit
    return ProcessPage(
        processes=tuple(decode_process(row) for row in shown),
        next_cursor=encode_process_cursor(shown[-1].process_key) if more else None,
    )


def require_abandonable(record: ProcessRecord, lease: LeaseRow, now_ms: int) -> None:
    """Raise Conflict unless somebody asked to give the process up and nobody is running it.

    A process that ended is left to the append, which knows whether it ended like this.
    """
    if record.is_terminal:
        return
    if not record.projection.abandon_requested:
        raise Conflict(f"process {record.process_id!r} was not asked to be abandoned; request it first")
    if lease.is_live(now_ms):
        raise Conflict(f"process {record.process_id!r} is being run; its lease must lapse before it is abandoned")


def plan_process_renewal(row: LeaseRow, *, fence: ProcessFence, ttl_ms: int, now_ms: int) -> ProcessLease:
    """Return the renewed lease, or raise ProcessLeaseLost. A renewal never shortens."""
    lease = require_process_fence(row, fence, now_ms)
    expires_at_ms = max(lease.expires_at_ms, saturating_add(now_ms, ttl_ms))
    return msgspec.structs.replace(lease, expires_at_ms=expires_at_ms)


def check_observed_process(observed: object) -> ProcessLease:
    """Return the lease if it is one; it is what a claim answered when it was refused as busy."""
    if not isinstance(observed, ProcessLease):
        raise InvalidInput(f"observed must be the ProcessLease of a refusal, not {type(observed).__name__}")
    check_process_fence(observed.fence)
    return observed


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


def decode_changes(rows: Sequence[ChangeRow], after: ChangeCursor) -> ChangePage:
    """Return a page of the feed and the cursor behind it."""
    last = ChangeCursor(rows[-1].transaction_id, rows[-1].seq) if rows else after
    return ChangePage(
        changes=tuple(_decode_change(row) for row in rows),
        cursor=base64.urlsafe_b64encode(b"c1:%d:%d" % last).decode(),
    )


def decode_change_cursor(cursor: str | None) -> ChangeCursor:
    """Return the place that a cursor means, the beginning for None, or raise InvalidInput."""
    if cursor is None:
        return ChangeCursor(0, 0)
    try:
        version, transaction_id, seq = base64.urlsafe_b64decode(check_identifier("cursor", cursor)).split(b":")
        if version == b"c1":
            return ChangeCursor(
                check_integer("cursor", int(transaction_id), at_least=0), check_integer("cursor", int(seq), at_least=0)
            )
    except (binascii.Error, ValueError):
        pass
    raise InvalidInput(f"{cursor!r:.80} is not a cursor of the change feed")


def encode_process_cursor(process_key: int) -> str:
    """Return the opaque text form of a place in the list of processes."""
    return base64.urlsafe_b64encode(b"p1:%d" % process_key).decode()


def decode_process_cursor(cursor: str | None) -> int | None:
    """Return the place that a cursor means, or raise InvalidInput."""
    if cursor is None:
        return None
    try:
        version, _, digits = base64.urlsafe_b64decode(check_identifier("cursor", cursor)).partition(b":")
        if version == b"p1":
            return check_integer("cursor", int(digits), at_least=0)
    except (binascii.Error, ValueError):
        pass
    raise InvalidInput(f"{cursor!r:.80} is not a cursor of a process list")


def _decode_change(row: ChangeRow) -> ProcessChange:
    try:
        return ProcessChange(
            process_id=row.process_id,
            kind=ChangeKind(row.kind),
            sequence=row.sequence,
            status=None if row.status is None else ProcessStatus(row.status),
        )
    except ValueError as error:
        raise CorruptData(f"change {row.seq} of process {row.process_id!r} cannot be read: {error}") from None


def _check_environment(what: str, registration: Registration) -> None:
    needs = isinstance(registration.input, ToolCallInput | EngineInput)
    if needs and registration.environment_ref is None:
        raise InvalidInput(f"{what} requires a captured execution environment")
    if not needs and registration.environment_ref is not None:
        raise InvalidInput(f"{what} must not capture an execution environment for this kind of input")
    if registration.environment_ref is not None:
        check_identifier(f"{what}: environment_ref", registration.environment_ref)


def _check_event_types(what: str, event_types: Iterable[EventType]) -> None:
    seen: set[str] = set()
    for event_type in event_types:
        name = check_identifier(f"{what}: event type name", event_type.name)
        if name in CORE_NAMES:
            raise InvalidInput(f"{what}: event type {name!r} is one that every process has")
        if name in seen:
            raise InvalidInput(f"{what} declares event type {name!r} twice")
        seen.add(name)
        _check_semantics(f"{what}: event type {name!r}", event_type)


def _check_semantics(what: str, event_type: EventType) -> None:
    check_schema(f"{what}: payload_schema", event_type.payload_schema)
    terminal, wake = event_type.semantics.terminal, event_type.semantics.wake
    if terminal is not None and terminal.await_output is None and terminal.state.value != ProcessStatus.COMPLETED:
        raise InvalidInput(f"{what} ends the process without success and must say what those who wait get")
    selectors = [
        None if terminal is None else terminal.await_output,
        *((None, None, None) if wake is None else (wake.input, wake.when, wake.dedupe_key)),
    ]
    for selector in selectors:
        if selector is not None:
            _check_selector(what, selector)


def _check_selector(what: str, selector: Selector) -> None:
    try:
        check_selector(selector)
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}") from None


def _recovery(what: str, registration: Registration) -> Recovery:
    """Return the recovery contract; what is done elsewhere is external and nothing else is."""
    external = isinstance(registration.input, ExternalInput)
    if external and registration.recovery is Recovery.OWNER_BOUND:
        raise InvalidInput(f"{what} is done elsewhere and cannot be bound to an owner here")
    if not external and registration.recovery is Recovery.EXTERNAL:
        raise InvalidInput(f"{what} is run by workers and cannot be external")
    return Recovery.EXTERNAL if external else registration.recovery


def _identity_of(process_input: ProcessInput) -> Identity:
    match process_input:
        case ToolCallInput():
            return Identity(kind="tool", label=process_input.tool_name)
        case EngineInput():
            return Identity(kind=process_input.kind)
        case SessionTurnInput():
            return Identity(kind="session_turn", label=process_input.label)
    return Identity(kind="external", label=_external_label(process_input))


def _external_label(external: ExternalInput) -> str | None:
    """Return the first of three keys that is there, if it is text."""
    label = next((external.metadata[key] for key in ("label", "name", "title") if key in external.metadata), None)
    return label if isinstance(label, str) else None


def _originator_session(what: str, provenance: Provenance) -> str | None:
    if not isinstance(provenance.originator, SessionOriginator):
        return None
    return check_process_scope(f"{what}: originator", provenance.originator.scope).session_id
