"""What a trigger subscription's row means, and how it is made, changed and removed."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from lash.base.codec import canonical, content_hash, decode, encode
from lash.base.limits import check_identifier, check_integer, check_text
from lash.errors import CorruptData, InvalidInput, TriggerConflict, TriggerNotFound
from lash.model.causal import TriggerOccurrenceCause
from lash.model.process.process import (
    EngineInput,
    HostOriginator,
    Identity,
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
    check_process_scope,
    definition_hash,
    encode_registration,
)
from lash.plan.process.schema import check_schema
from lash.plan.trigger.selector import check_pointer

HOST_OWNER: Final = ""
"""Stands for the host where a session id would tell the owner; no session can have it."""
MAX_SOURCE_TYPE_LENGTH: Final = 128
"""So that the default key of a source, which has the type in it, is never too long for a key."""
MAX_TRIGGER_LENGTH: Final = 262_144
"""How long a definition, or what an occurrence carries, may be: each is copied into every process that it starts."""


class SourceBox(msgspec.Struct, frozen=True):
    """Makes the bare description of a source something that can be checked."""

    source: JSON


class TriggerRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored subscription; the owner is empty for the host."""

    subscription_key: int
    subscription_id: str
    owner_session_id: str
    key: str
    revision: int
    fingerprint: str
    definition: str
    enabled: bool
    created_at_ms: int
    updated_at_ms: int


class TriggerName(msgspec.Struct, frozen=True, kw_only=True):
    """The subscription that a caller means."""

    owner_session_id: str
    key: str


class EncodedDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A definition ready to be written, with the columns that matching and lists go by."""

    draft: TriggerDraft
    body: str
    fingerprint: str
    name: TriggerName
    definition_hash: str | None


class InsertTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """Write a new subscription, the first revision of its life."""

    revision: int


class ChangeTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """Write the next revision of a subscription."""

    row: TriggerRow


class KeepTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """The subscription is already as it should be."""

    row: TriggerRow


RegisterDecision: TypeAlias = InsertTrigger | KeepTrigger
ChangeDecision: TypeAlias = ChangeTrigger | KeepTrigger


def default_source_key(source_type: str, source: JSON = None) -> str:
    """Return the key of a source that has no better one: a function of its type and its description."""
    check_source_type(source_type)
    described = {} if source is None else source
    encode(SourceBox(described), SourceBox, "the description")
    digest = content_hash(b"lash.trigger.source.v1\0" + canonical([source_type, described]))
    return f"source:{source_type}:v1:{digest}"


def check_source_type(source_type: object) -> str:
    """Return the type if a source can have it."""
    check_identifier("source_type", source_type)
    return check_text("source_type", source_type, limit=MAX_SOURCE_TYPE_LENGTH)


def encode_draft(draft: TriggerDraft) -> EncodedDraft:
    """Check a definition whole, down to the processes that it would start, and turn it into what is written."""
    if not isinstance(draft, TriggerDraft):
        raise InvalidInput(f"a TriggerDraft is needed, not {type(draft).__name__}")
    what = f"trigger subscription {check_identifier('key', draft.key)!r}"
    owner_session_id = owner_column(draft.owner)
    if not isinstance(draft.target, EngineInput):
        raise InvalidInput(f"{what}: the target must be an EngineInput, not {type(draft.target).__name__}")
    # Read back, so that the checks see the declared kinds: members of enums where the caller gave their text.
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
    """Return the process that a subscription starts, checked, or raise InvalidInput."""
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
    """Return what tells an owner apart: the id of its session, or nothing for the host."""
    if isinstance(owner, SessionOriginator):
        return check_process_scope("owner", owner.scope).session_id
    if isinstance(owner, HostOriginator):
        return HOST_OWNER
    raise InvalidInput(f"an owner is a HostOriginator or a SessionOriginator, not {type(owner).__name__}")


def owner_text(owner_session_id: str) -> str:
    """Return how messages name an owner."""
    return "the host" if owner_session_id == HOST_OWNER else f"session {owner_session_id!r}"


def decode_subscription(row: TriggerRow) -> TriggerSubscription:
    """Return the subscription that the row means."""
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


def plan_register(encoded: EncodedDraft, row: TriggerRow | None, buried_revision: int | None) -> RegisterDecision:
    """Decide about a registration: the same definition is the same subscription, another one a conflict."""
    if row is None:
        return InsertTrigger(revision=(buried_revision or 0) + 1)
    if row.fingerprint != encoded.fingerprint:
        raise TriggerConflict(
            owner_text(row.owner_session_id),
            row.key,
            f"has another definition, at revision {row.revision}; change it with update(...)",
        )
    return KeepTrigger(row=row)


def new_row(
    encoded: EncodedDraft, decision: InsertTrigger, *, subscription_key: int, subscription_id: str, now_ms: int
) -> TriggerRow:
    """Return the row of a subscription whose life begins."""
    return TriggerRow(
        subscription_key=subscription_key,
        subscription_id=subscription_id,
        owner_session_id=encoded.name.owner_session_id,
        key=encoded.name.key,
        revision=decision.revision,
        fingerprint=encoded.fingerprint,
        definition=encoded.body,
        enabled=True,
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
    )


def plan_update(encoded: EncodedDraft, row: TriggerRow | None, *, revision: int, now_ms: int) -> ChangeDecision:
    """Decide about another definition. One that cannot be read is replaced even by its equal."""
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
        )
    )


def plan_switch(
    name: TriggerName, row: TriggerRow | None, *, revision: int, enabled: bool, now_ms: int
) -> ChangeDecision:
    """Decide about enabling or disabling; what is already so stays as it is."""
    found = _at_revision(name, row, revision)
    if found.enabled == enabled:
        return KeepTrigger(row=found)
    changed = msgspec.structs.replace(found, revision=found.revision + 1, enabled=enabled, updated_at_ms=now_ms)
    return ChangeTrigger(row=changed)


def plan_delete(name: TriggerName, row: TriggerRow | None, *, revision: int) -> DeletedTrigger:
    """Decide about a deletion; it does not ask whether the definition can be read."""
    found = _at_revision(name, row, revision)
    return DeletedTrigger(subscription_id=found.subscription_id, revision=found.revision)


def check_name(owner: object, key: object) -> TriggerName:
    """Return whom a caller means."""
    return TriggerName(owner_session_id=owner_column(owner), key=check_identifier("key", key))


def check_revision(revision: object) -> int:
    """Return the revision if it is one that a subscription can have."""
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
        raise InvalidInput(f"{what}: the payload of the target must be an object, not {kind}")


def _identity(what: str, draft: TriggerDraft) -> Identity:
    """Return the identity of the processes, with the one label that was given."""
    identity = draft.identity or Identity(kind=draft.target.kind)
    if draft.label is None:
        return identity
    if identity.label not in (None, draft.label):
        raise InvalidInput(f"{what}: label must match identity.label, {draft.label!r} is not {identity.label!r}")
    return msgspec.structs.replace(identity, label=draft.label)


def _check_startable(what: str, draft: TriggerDraft) -> None:
    template = draft.input_template.items()
    inputs: JSONObject = {name: each.value if isinstance(each, FixedInput) else None for name, each in template}
    try:
        registration_of(draft, process_id=draft.key, occurrence_id="trigger:none", inputs=inputs)
    except InvalidInput as error:
        raise InvalidInput(f"{what} cannot start a process: {error}") from None


def _fingerprint(draft: TriggerDraft) -> str:
    """Return the identity of a definition. The frame of its owner is no part of it."""
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
            f"is at revision {row.revision}, the caller expected {revision}; look and decide again",
        )
    return row


def _is_readable(row: TriggerRow) -> bool:
    try:
        decode_subscription(row)
    except CorruptData:
        return False
    return True
