"""Rules of processes: their rows, registrations and lists."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import msgspec

from lash.base.codec import canonical, content_hash, decode, encode
from lash.base.limits import check_identifier, check_integer, check_text
from lash.errors import (
    InvalidInput,
    ProcessNotFound,
    ProcessPruned,
    RegistrationConflict,
)
from lash.model.process.event import EventType, Selector
from lash.model.process.process import (
    AgentScope,
    EngineInput,
    ExternalInput,
    ProcessFilter,
    ProcessIdentity,
    ProcessInput,
    ProcessPage,
    ProcessRecord,
    ProcessStatus,
    ProcessVersion,
    Projection,
    Provenance,
    Recovery,
    Registration,
    SessionOriginator,
    SessionTurnInput,
    ToolCallInput,
)
from lash.model.value import JSON
from lash.plan.process.event import CORE_NAMES, encode_projection
from lash.plan.process.schema import check_schema
from lash.plan.process.state import process_state
from lash.plan.sealed import PROJECTION, REGISTRATION
from lash.plan.trigger.selector import check_selector
from lash.plan.work import is_runnable, parent_of

NO_DEFINITION: Final = "none"
"""Stands for the hash of a missing definition; it matches no process."""


class ProcessRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored process. Everything except the wake target changes only together with ``last_sequence``."""

    process_key: int
    process_id: str
    registration_hash: str
    registration: Annotated[str, REGISTRATION]
    projection: Annotated[str, PROJECTION]
    wake_session_id: str | None
    last_sequence: int
    created_at_ms: int
    updated_at_ms: int


class ListedProcessRow(ProcessRow, frozen=True, array_like=True):
    """A process of a list; ``state`` is JSON of `lash.plan.process.state.StateFacts`, None if it was not asked for."""

    state: str | None


class VersionRow(msgspec.Struct, frozen=True, array_like=True):
    """How many processes have one definition, and one of them."""

    process_id: str
    registration: Annotated[str, REGISTRATION]
    count: int
    continued: int
    oldest_at_ms: int


class PrunableProcessRow(msgspec.Struct, frozen=True, array_like=True):
    """A process that can be pruned."""

    process_key: int
    process_id: str
    status: str
    fencing: int


class EncodedRegistration(msgspec.Struct, frozen=True, kw_only=True):
    """A registration as it is written, with the columns that lists filter by."""

    registration: Registration
    body: str
    registration_hash: str
    kind: str
    label: str | None
    definition_hash: str | None
    originator_session_id: str | None
    parent_process_id: str | None
    runnable: bool


class RegisteredRow(msgspec.Struct, frozen=True, kw_only=True):
    """The stored row after a registration, and whether the registration inserted it."""

    row: ProcessRow
    created: bool


class ProcessPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list: the named query of its leading filter, and the parameters of that."""

    query: str
    filter: ProcessFilter
    with_state: bool
    definition_hash: str | None
    before: int | None
    limit: int


NEW_PROJECTION: Final = encode_projection(Projection())
"""The projection of an empty log, as it is stored."""


def encode_registration(registration: Registration) -> EncodedRegistration:
    """Return the registration as it is written, or raise InvalidInput."""
    if not isinstance(registration, Registration):
        raise InvalidInput(f"expected a Registration, got {type(registration).__name__}")
    what = f"process {check_identifier('process_id', registration.process_id)!r}"
    # Decoded again, so that the checks see the declared types: enum members where the caller gave their text.
    plain = decode(encode(registration, Registration, what), Registration, what)
    _check_environment(what, plain)
    _check_event_types(what, plain.event_types)
    if plain.wake_session_id is not None:
        check_identifier(f"{what}: wake_session_id", plain.wake_session_id)
    identity = plain.identity or _identity_of(plain.input)
    complete = msgspec.structs.replace(plain, identity=identity, recovery=_recovery(what, plain))
    parent = parent_of(plain)
    return EncodedRegistration(
        registration=complete,
        body=encode(complete, Registration, what),
        registration_hash=content_hash(b"lash.registration.v1\0" + canonical(_without_trace(complete))),
        kind=check_identifier(f"{what}: identity.kind", identity.kind),
        label=None if identity.label is None else check_text(f"{what}: identity.label", identity.label, limit=255),
        definition_hash=definition_hash(identity.definition),
        originator_session_id=_originator_session(what, plain.provenance),
        parent_process_id=None if parent is None else check_identifier(f"{what}: caused_by.process_id", parent),
        runnable=is_runnable(complete),
    )


def _without_trace(registration: Registration) -> Registration:
    """Return what identifies a registration: a retry of its sender belongs to another trace, and starts the same."""
    if registration.provenance.traceparent is None:
        return registration
    provenance = msgspec.structs.replace(registration.provenance, traceparent=None)
    return msgspec.structs.replace(registration, provenance=provenance)


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


def decode_versions(rows: Sequence[VersionRow]) -> tuple[ProcessVersion, ...]:
    """Return what the rows count, by name and version."""
    found = [
        ProcessVersion(
            identity=decode(row.registration, Registration, f"process {row.process_id!r}").identity,
            count=row.count,
            continued=row.continued,
            oldest_at_ms=row.oldest_at_ms,
        )
        for row in rows
    ]
    return tuple(sorted(found, key=lambda each: (each.name, each.version or "", each.oldest_at_ms)))


def row_after(row: ProcessRow, projection: str, now_ms: int) -> ProcessRow:
    """Return the row after one more event, which led to this projection."""
    return msgspec.structs.replace(
        row, projection=projection, last_sequence=row.last_sequence + 1, updated_at_ms=now_ms
    )


def record_after(record: ProcessRecord, projection: str, now_ms: int) -> ProcessRecord:
    """Return the record after one more event, which led to this projection; the registration is not decoded again."""
    return msgspec.structs.replace(
        record,
        projection=decode(projection, Projection, f"process {record.process_id!r}"),
        last_sequence=record.last_sequence + 1,
        updated_at_ms=now_ms,
    )


def missing_process(process_id: str, *, pruned: bool) -> ProcessNotFound | ProcessPruned:
    """Return the error for a process that has no row."""
    return ProcessPruned(process_id) if pruned else ProcessNotFound(process_id)


def definition_hash(definition: JSON) -> str | None:
    """Return the hash of a definition, by which lists find it."""
    return None if definition is None else content_hash(canonical(definition))


def check_agent_scope(what: str, scope: object) -> AgentScope:
    """Return the scope, or raise InvalidInput."""
    if not isinstance(scope, AgentScope):
        raise InvalidInput(f"{what} must be an AgentScope, not {type(scope).__name__}")
    check_identifier(f"{what}.session_id", scope.session_id)
    if scope.agent_frame_id is not None:
        check_identifier(f"{what}.agent_frame_id", scope.agent_frame_id)
    return scope


def check_filter(wanted: object) -> ProcessFilter:
    """Return the filter with all that follows from it, or raise InvalidInput."""
    if not isinstance(wanted, ProcessFilter):
        raise InvalidInput(f"expected a ProcessFilter, got {type(wanted).__name__}")
    if wanted.status is not None and not isinstance(wanted.status, ProcessStatus):
        raise InvalidInput(f"status must be one of {', '.join(ProcessStatus)}, not {wanted.status!r:.80}")
    for name in ("waiting", "parked"):
        flag = getattr(wanted, name)
        if flag is not None and not isinstance(flag, bool):
            raise InvalidInput(f"{name} must be true, false or None, not {flag!r:.80}")
    if wanted.process_id is not None:
        check_identifier("process_id", wanted.process_id)
    for name in ("kind", "label", "originator_session_id", "wake_session_id", "parent_process_id"):
        text = getattr(wanted, name)
        if text is not None:
            check_text(name, text, limit=255)
    for name in ("created_after_ms", "created_before_ms"):
        moment = getattr(wanted, name)
        if moment is not None:
            check_integer(name, moment)
    encode(wanted, ProcessFilter, "filter")
    if wanted.parked and wanted.status is None:
        # What has ended is not parked, and running processes have an index.
        return msgspec.structs.replace(wanted, status=ProcessStatus.RUNNING)
    return wanted


def leading_filter(wanted: ProcessFilter) -> str:
    """Return the most selective part of a filter, whose index the list is read by; ``all`` if the filter is empty."""
    leading = (
        ("id", wanted.process_id is not None),
        ("definition", not isinstance(wanted.definition, msgspec.UnsetType)),
        ("parent", wanted.parent_process_id is not None),
        ("wake", wanted.wake_session_id is not None),
        ("originator", wanted.originator_session_id is not None),
        ("label", wanted.label is not None),
        ("kind", wanted.kind is not None),
        ("waiting", wanted.waiting is True),
        ("status", wanted.status is not None),
    )
    return next((name for name, given in leading if given), "all")


def wanted_definition(wanted: ProcessFilter) -> str | None:
    """Return the hash of the definition that a filter names; ``NO_DEFINITION`` if it asks for processes without one."""
    if isinstance(wanted.definition, msgspec.UnsetType):
        return None
    return definition_hash(wanted.definition) or NO_DEFINITION


def decode_process_page(rows: Sequence[ListedProcessRow], limit: int) -> ProcessPage:
    """Return the page; one row more than the limit means that there is a next page."""
    shown = rows[:limit]
    more = len(rows) > limit
    return ProcessPage(
        processes=tuple(_decode_listed(row) for row in shown),
        next_cursor=encode_process_cursor(shown[-1].process_key) if more else None,
    )


def _decode_listed(row: ListedProcessRow) -> ProcessRecord:
    record = decode_process(row)
    if row.state is None:
        return record
    return msgspec.structs.replace(record, state=process_state(row.state, record))


def encode_process_cursor(process_key: int) -> str:
    """Return a position in the list of processes as an opaque cursor."""
    return base64.urlsafe_b64encode(b"p1:%d" % process_key).decode()


def decode_process_cursor(cursor: str | None) -> int | None:
    """Return the position that a cursor means, or raise InvalidInput."""
    if cursor is None:
        return None
    try:
        version, _, digits = base64.urlsafe_b64decode(check_identifier("cursor", cursor)).partition(b":")
        if version == b"p1":
            return check_integer("cursor", int(digits), at_least=0)
    except (binascii.Error, ValueError):
        pass
    raise InvalidInput(f"expected a cursor of a list of processes, got {cursor!r:.80}")


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
            raise InvalidInput(f"{what}: event type {name!r} is a core type, which every process has")
        if name in seen:
            raise InvalidInput(f"{what} declares event type {name!r} twice")
        seen.add(name)
        _check_semantics(f"{what}: event type {name!r}", event_type)


def _check_semantics(what: str, event_type: EventType) -> None:
    check_schema(f"{what}: payload_schema", event_type.payload_schema)
    terminal, wake = event_type.semantics.terminal, event_type.semantics.wake
    if terminal is not None and terminal.await_output is None and terminal.state.value != ProcessStatus.COMPLETED:
        raise InvalidInput(f"{what} ends the process without success and must select an await_output")
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
    """Return the recovery contract: external exactly if the input is."""
    external = isinstance(registration.input, ExternalInput)
    if external and registration.recovery is Recovery.OWNER_BOUND:
        raise InvalidInput(f"{what} is external and cannot be bound to an owner")
    if not external and registration.recovery is Recovery.EXTERNAL:
        raise InvalidInput(f"{what} is run by workers and cannot be external")
    return Recovery.EXTERNAL if external else registration.recovery


def _identity_of(process_input: ProcessInput) -> ProcessIdentity:
    match process_input:
        case ToolCallInput():
            return ProcessIdentity(kind="tool", label=process_input.tool_name)
        case EngineInput():
            return ProcessIdentity(kind=process_input.kind)
        case SessionTurnInput():
            return ProcessIdentity(kind="session_turn", label=process_input.label)
    return ProcessIdentity(kind="external", label=_external_label(process_input))


def _external_label(external: ExternalInput) -> str | None:
    """Return the value of the first of three keys that exists, if it is text."""
    label = next((external.metadata[key] for key in ("label", "name", "title") if key in external.metadata), None)
    return label if isinstance(label, str) else None


def _originator_session(what: str, provenance: Provenance) -> str | None:
    if not isinstance(provenance.originator, SessionOriginator):
        return None
    return check_agent_scope(f"{what}: originator", provenance.originator.scope).session_id
