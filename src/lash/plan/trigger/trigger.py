"""Rules of trigger subscriptions: how a row is read, made, changed and removed."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from lash.base.codec import canonical, content_hash, decode, encode
from lash.base.limits import check_identifier, check_integer, check_text
from lash.errors import CorruptData, InvalidInput, TriggerConflict, TriggerNotFound
from lash.model.causal import TriggerOccurrenceCause
from lash.model.process.process import (
    EngineInput,
    HostOriginator,
    ProcessIdentity,
    Provenance,
    Registration,
    SessionOriginator,
)
from lash.model.trigger.trigger import (
    DeletedTrigger,
    EventPointer,
    FixedInput,
    TriggerDraft,
    TriggerSubscription,
)
from lash.model.value import JSON, JSONObject
from lash.plan.process.process import (
    EncodedRegistration,
    check_agent_scope,
    definition_hash,
    encode_registration,
)
from lash.plan.process.schema import check_schema
from lash.plan.sealed import TRIGGER
from lash.plan.trigger.selector import check_pointer

HOST_OWNER: Final = ""
"""The owner column of subscriptions of the host; no session can have this id."""
MAX_SOURCE_TYPE_LENGTH: Final = 128
"""Keeps the default key of a source, which contains the type, within the length of a key."""
MAX_TRIGGER_LENGTH: Final = 262_144
"""The most characters of a definition or an occurrence: both are copied into every process that they start."""


class SourceBox(msgspec.Struct, frozen=True):
    """A struct around the bare description of a source, so that the codec can check it."""

    source: JSON


class TriggerRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored subscription; the owner is empty for the host."""

    subscription_key: int
    subscription_id: str
    owner_session_id: str
    key: str
    revision: int
    fingerprint: str
    definition: Annotated[str, TRIGGER]
    enabled: bool
    created_at_ms: int
    updated_at_ms: int


class TriggerName(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a subscription: its owner, empty for the host, and its key."""

    owner_session_id: str
    key: str

    @property
    def required_session_id(self) -> str | None:
        """The session that must exist, None if the host is the owner."""
        return None if self.owner_session_id == HOST_OWNER else self.owner_session_id


class EncodedDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A definition ready to be written, with the columns that matching and lists use."""

    draft: TriggerDraft
    body: str
    fingerprint: str
    name: TriggerName
    definition_hash: str | None


class InsertTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """Write a new subscription under this id, at its first revision."""

    draft: EncodedDraft
    subscription_id: str
    revision: int

    def row(self, subscription_key: int, now_ms: int) -> TriggerRow:
        """Return the row that was written."""
        return TriggerRow(
            subscription_key=subscription_key,
            subscription_id=self.subscription_id,
            owner_session_id=self.draft.name.owner_session_id,
            key=self.draft.name.key,
            revision=self.revision,
            fingerprint=self.draft.fingerprint,
            definition=self.draft.body,
            enabled=True,
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )


class ChangeTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """Write the next revision of a subscription: a definition, or without one only whether it is enabled."""

    row: TriggerRow
    draft: EncodedDraft | None = None


class DropTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """Remove a subscription and leave a tombstone."""

    row: TriggerRow


class KeepTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """Write nothing: the subscription is already as requested."""

    row: TriggerRow


RegisterDecision: TypeAlias = InsertTrigger | KeepTrigger
ChangeDecision: TypeAlias = ChangeTrigger | KeepTrigger
TriggerDecision: TypeAlias = ChangeDecision | DropTrigger


def default_source_key(source_type: str, source: JSON = None) -> str:
    """Return the default key of a source, a function of its type and its description."""
    check_source_type(source_type)
    described = {} if source is None else source
    encode(SourceBox(described), SourceBox, "the description")
    digest = content_hash(b"lash.trigger.source.v1\0" + canonical([source_type, described]))
    return f"source:{source_type}:v1:{digest}"


def check_source_type(source_type: object) -> str:
    """Return the type of a source, or raise InvalidInput."""
    check_identifier("source_type", source_type)
    return check_text("source_type", source_type, limit=MAX_SOURCE_TYPE_LENGTH)


def encode_draft(draft: TriggerDraft) -> EncodedDraft:
    """Check a definition, including the processes that it would start, and return its stored form."""
    if not isinstance(draft, TriggerDraft):
        raise InvalidInput(f"expected a TriggerDraft, got {type(draft).__name__}")
    what = f"trigger subscription {check_identifier('key', draft.key)!r}"
    owner_session_id = owner_column(draft.owner)
    if not isinstance(draft.target, EngineInput):
        raise InvalidInput(f"{what}: expected an EngineInput as target, got {type(draft.target).__name__}")
    # Decode again, so that the checks see enum members where the caller gave their text.
    plain = decode(encode(draft, TriggerDraft, what), TriggerDraft, what)
    _check_parts(what, plain)
    identity = _identity(what, plain)
    complete = msgspec.structs.replace(plain, identity=identity, label=None)
    _check_startable(what, complete)
    body = encode(complete, TriggerDraft, what)
    if len(body) > MAX_TRIGGER_LENGTH:
        raise InvalidInput(f"{what} has {len(body):,} characters of JSON; at most {MAX_TRIGGER_LENGTH:,} are allowed")
    return EncodedDraft(
        draft=complete,
        body=body,
        fingerprint=_fingerprint(complete),
        name=TriggerName(owner_session_id=owner_session_id, key=complete.key),
        definition_hash=definition_hash(identity.definition),
    )


def registration_of(
    draft: TriggerDraft, *, process_id: str, occurrence_id: str, inputs: JSONObject
) -> EncodedRegistration:
    """Return the process that a subscription starts, or raise InvalidInput if it cannot be registered."""
    assert isinstance(draft.target.payload, dict)
    target = msgspec.structs.replace(draft.target, payload={**draft.target.payload, "args": inputs})
    return encode_registration(
        Registration(
            process_id=process_id,
            input=target,
            recovery=draft.recovery,
            identity=draft.identity,
            event_types=draft.event_types,
            provenance=Provenance(
                originator=draft.owner, caused_by=TriggerOccurrenceCause(occurrence_id=occurrence_id)
            ),
            environment_ref=draft.environment_ref,
            wake_session_id=draft.wake_session_id,
        )
    )


def owner_column(owner: object) -> str:
    """Return the column that identifies an owner: the id of its session, empty for the host."""
    if isinstance(owner, SessionOriginator):
        return check_agent_scope("owner", owner.scope).session_id
    if isinstance(owner, HostOriginator):
        return HOST_OWNER
    raise InvalidInput(f"expected a HostOriginator or a SessionOriginator as owner, got {type(owner).__name__}")


def owner_text(owner_session_id: str) -> str:
    """Return the name of an owner for error messages."""
    return "the host" if owner_session_id == HOST_OWNER else f"session {owner_session_id!r}"


def decode_subscription(row: TriggerRow) -> TriggerSubscription:
    """Return the subscription of a row, or raise CorruptData."""
    what = f"trigger subscription {row.key!r} ({row.subscription_id}) of {owner_text(row.owner_session_id)}"
    return TriggerSubscription(
        subscription_id=row.subscription_id,
        definition=decode(row.definition, TriggerDraft, what),
        fingerprint=row.fingerprint,
        revision=row.revision,
        enabled=row.enabled,
        created_at_ms=row.created_at_ms,
        updated_at_ms=row.updated_at_ms,
    )


def plan_register(
    encoded: EncodedDraft, row: TriggerRow | None, buried_revision: int | None, *, subscription_id: str
) -> RegisterDecision:
    """Decide on a registration: an equal definition is the same subscription, another one raises TriggerConflict."""
    if row is None:
        return InsertTrigger(draft=encoded, subscription_id=subscription_id, revision=(buried_revision or 0) + 1)
    if row.fingerprint != encoded.fingerprint:
        raise TriggerConflict(
            owner_text(row.owner_session_id),
            row.key,
            f"has another definition, at revision {row.revision}; change it with update(...)",
        )
    return KeepTrigger(row=row)


def plan_update(encoded: EncodedDraft, row: TriggerRow | None, *, revision: int, now_ms: int) -> ChangeDecision:
    """Decide on a new definition. An unreadable definition is replaced even by an equal one."""
    found = _at_revision(encoded.name, row, revision)
    if found.fingerprint == encoded.fingerprint and _is_readable(found):
        return KeepTrigger(row=found)
    return ChangeTrigger(
        row=msgspec.structs.replace(
            found,
            revision=found.revision + 1,
            fingerprint=encoded.fingerprint,
            definition=encoded.body,
            updated_at_ms=now_ms,
        ),
        draft=encoded,
    )


def plan_switch(
    name: TriggerName, row: TriggerRow | None, *, revision: int, enabled: bool, now_ms: int
) -> ChangeDecision:
    """Decide on enabling or disabling; a subscription in the requested state is kept."""
    found = _at_revision(name, row, revision)
    if found.enabled == enabled:
        return KeepTrigger(row=found)
    changed = msgspec.structs.replace(found, revision=found.revision + 1, enabled=enabled, updated_at_ms=now_ms)
    return ChangeTrigger(row=changed)


def plan_delete(name: TriggerName, row: TriggerRow | None, *, revision: int) -> DropTrigger:
    """Decide on a deletion; the definition need not be readable."""
    return DropTrigger(row=_at_revision(name, row, revision))


def deleted_trigger(row: TriggerRow) -> DeletedTrigger:
    """Return the answer to a deletion."""
    return DeletedTrigger(subscription_id=row.subscription_id, revision=row.revision)


def check_name(owner: object, key: object) -> TriggerName:
    """Return the name of the subscription, or raise InvalidInput."""
    return TriggerName(owner_session_id=owner_column(owner), key=check_identifier("key", key))


def check_revision(revision: object) -> int:
    """Return the revision, or raise InvalidInput unless it is a positive integer."""
    return check_integer("revision", revision, at_least=1)


def _check_parts(what: str, draft: TriggerDraft) -> None:
    try:
        check_source_type(draft.source_type)
        check_identifier("source_key", draft.source_key)
        check_schema("payload_schema", draft.payload_schema)
        for name, binding in draft.input_template.items():
            check_identifier("the name of an input", name)
            if isinstance(binding, EventPointer):
                check_pointer(binding.path)
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}") from None
    if not isinstance(draft.target.payload, dict):
        kind = type(draft.target.payload).__name__
        raise InvalidInput(f"{what}: expected an object as the payload of the target, got {kind}")


def _identity(what: str, draft: TriggerDraft) -> ProcessIdentity:
    """Return the identity of the processes, with the given label."""
    identity = draft.identity or ProcessIdentity(kind=draft.target.kind)
    if draft.label is None:
        return identity
    if identity.label not in (None, draft.label):
        raise InvalidInput(f"{what}: expected label {identity.label!r} as in identity.label, got {draft.label!r}")
    return msgspec.structs.replace(identity, label=draft.label)


def _check_startable(what: str, draft: TriggerDraft) -> None:
    template = draft.input_template.items()
    inputs: JSONObject = {name: each.value if isinstance(each, FixedInput) else None for name, each in template}
    try:
        registration_of(draft, process_id=draft.key, occurrence_id="trigger:none", inputs=inputs)
    except InvalidInput as error:
        raise InvalidInput(f"{what} cannot start a process: {error}") from None


def _fingerprint(draft: TriggerDraft) -> str:
    """Return the hash that identifies a definition. The frame of its owner is not part of it."""
    owner = owner_column(draft.owner)
    parts = msgspec.to_builtins(draft)
    return content_hash(b"lash.trigger.definition.v1\0" + canonical(parts | {"owner": owner}))


def _at_revision(name: TriggerName, row: TriggerRow | None, revision: int) -> TriggerRow:
    if row is None:
        raise TriggerNotFound(owner_text(name.owner_session_id), name.key)
    if row.revision != revision:
        raise TriggerConflict(
            owner_text(name.owner_session_id),
            name.key,
            f"is at revision {row.revision}, the caller expected {revision}; read it and decide again",
        )
    return row


def _is_readable(row: TriggerRow) -> bool:
    try:
        decode_subscription(row)
    except CorruptData:
        return False
    return True
