"""Rules of durable waits: signed keys, stored rows, and the answer to a resolution."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Annotated, Final, NamedTuple

import msgspec

from lash.base.codec import canonical, decode, encode
from lash.base.limits import check_digest, check_identifier, check_integer, check_text
from lash.base.shapes import read_json
from lash.errors import CorruptData, InvalidInput
from lash.model.effect import ExecutionScope, ProcessScope
from lash.model.scope import check_execution_scope, scope_id, scope_session_id
from lash.model.value import Value
from lash.model.wait import (
    Accepted,
    AlreadyResolved,
    Question,
    Rejected,
    Resolution,
    ResolveAnswer,
    Resolved,
    SignalIdentity,
    TimedOut,
    UnknownOrRevoked,
    WaitIdentity,
    WaitKey,
    WaitRecord,
)
from lash.plan.process.schema import check_payload, check_schema
from lash.plan.sealed import QUESTION, RESOLUTION

SECRET_NAME: Final = "waits"  # noqa: S105 (a name)
"""The name of the secret that signs the keys of waits."""
SECRET_BYTES: Final = 32
"""The length of the output of SHA-256; a longer secret adds no strength."""
MAX_KEY_LENGTH: Final = 16_384
"""No key is longer: each of its ids has at most 255 characters, and each of those takes at most eight here."""

MAX_RESOLUTION_LENGTH: Final = 1_048_576
"""The most characters of a resolution as JSON: a query returns those of many waits at once."""

MAX_QUESTION_LENGTH: Final = 65_536
"""The most characters of a question as JSON: a page of open waits returns those of many at once."""

_ID_DOMAIN: Final = b"lash.wait.id.v1\0"
_SIGNATURE_DOMAIN: Final = b"lash.wait.signature.v1\0"
_VERSION: Final = "lw1"
_TEXT: Final = re.compile(r"lw1\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{43})")
_NO_LIFE: Final = "0"
"""The generation of keys of operations, which live as long as the storage."""


class SessionLife(msgspec.Struct, frozen=True, array_like=True):
    """Which life of a session id this is, and how often its keys were revoked."""

    session_key: int
    revocations: int


class WaitRow(msgspec.Struct, frozen=True, array_like=True):
    """A stored wait."""

    key_id: str
    scope: str
    identity: str
    deadline_ms: int | None
    resolution: Annotated[str | None, RESOLUTION]
    created_at_ms: int
    resolved_at_ms: int | None
    ask: Annotated[str | None, QUESTION] = None


class WaitState(msgspec.Struct, frozen=True, array_like=True):
    """The state of a wait; ``due`` is true if it is pending and its deadline has passed."""

    key_id: str
    resolution: Annotated[str | None, RESOLUTION]
    due: bool


class WaitAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a write: the time, whether the owner exists, whether the write was made, and the stored wait."""

    now_ms: int
    lives: bool
    written: bool
    row: WaitRow | None


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A verified key as the columns of its row, and the life of the owner for which it is valid."""

    key_id: str
    scope_id: str
    scope: str
    identity: str
    session_key: int | None = None
    revocations: int | None = None
    process_key: int | None = None


class _ScopeBox(Value, frozen=True, kw_only=True):
    scope: ExecutionScope


class _IdentityBox(Value, frozen=True, kw_only=True):
    identity: WaitIdentity


class _ResolutionBox(Value, frozen=True, kw_only=True):
    resolution: Resolution


class _KeyPayload(NamedTuple):
    """The content of a key, in this order; the id of the key is its hash."""

    scope: ExecutionScope
    identity: WaitIdentity
    generation: str


def check_wait_identity(identity: object) -> WaitIdentity:
    """Return the identity, or raise InvalidInput if it is not one or has a blank part."""
    if not isinstance(identity, WaitIdentity):
        raise InvalidInput(f"expected the identity of a wait, got {type(identity).__name__}")
    for name in identity.__struct_fields__:
        if name != "ordinal":
            check_identifier(f"identity.{name}", getattr(identity, name))
    if isinstance(identity, SignalIdentity):
        check_integer("identity.ordinal", identity.ordinal, at_least=1)
    return identity


def check_key(key: object) -> WaitKey | str:
    """Return the key, or raise InvalidInput unless it has the type of one; its signature is checked by `verify_key`."""
    if not isinstance(key, WaitKey | str):
        raise InvalidInput(f"expected a WaitKey or its text, got {type(key).__name__}")
    return key


def check_timeout(timeout_ms: object) -> int | None:
    """Return the timeout, or raise InvalidInput unless it is None or a number of milliseconds from 0 up."""
    return None if timeout_ms is None else check_integer("timeout_ms", timeout_ms, at_least=0)


def check_after(after: object) -> str:
    """Return the key id after which a page starts; the empty text for the first page."""
    return "" if after is None else check_digest("after", after)


def generation_of(life: SessionLife | int | None) -> str:
    """Return the generation of the keys of a session, of a process by its key, or (None) of an operation."""
    if isinstance(life, SessionLife):
        return f"{life.session_key}.{life.revocations}"
    return _NO_LIFE if life is None else str(life)


def sign_key(secret: bytes, scope: ExecutionScope, identity: WaitIdentity, generation: str) -> WaitKey:
    """Return the key of a wait; equal arguments give equal keys."""
    payload = canonical(_KeyPayload(check_execution_scope(scope), check_wait_identity(identity), generation))
    key_id = _key_id(payload)
    return WaitKey(
        scope=scope,
        identity=identity,
        generation=generation,
        key_id=key_id,
        text=f"{_VERSION}.{_unpadded(payload)}.{_signature(secret, key_id)}",
    )


def verify_key(secret: bytes, key: WaitKey | str) -> StoredKey | None:
    """Return the columns of a genuine key; None for any other, without the reason.

    The text is decoded only after its signature was verified. The fields of a `WaitKey` must match its text.
    """
    text = key if isinstance(key, str) else key.text
    payload = _genuine_payload(secret, text)
    if payload is None:
        return None
    try:
        read = read_json(payload, _KeyPayload)
    except msgspec.DecodeError:
        # Signed by a newer version, which has other kinds of scopes or waits.
        return None
    if isinstance(key, WaitKey) and key != sign_key(secret, read.scope, read.identity, read.generation):
        return None
    return _stored_key(_key_id(payload), read)


def encode_resolution(resolution: object) -> str:
    """Check a resolution and return its stored form."""
    if not isinstance(resolution, Resolution):
        raise InvalidInput(f"expected Resolved, Rejected, TimedOut or Cancelled, got {type(resolution).__name__}")
    if isinstance(resolution, Rejected):
        check_identifier("resolution.code", resolution.code)
    text = encode(_ResolutionBox(resolution=resolution), _ResolutionBox, "resolution")
    if len(text) > MAX_RESOLUTION_LENGTH:
        raise InvalidInput(
            f"resolution has {len(text):,} characters as JSON; at most {MAX_RESOLUTION_LENGTH:,} are allowed: "
            "store large content as an artifact or attachment"
        )
    return text


def encode_question(ask: object) -> str | None:
    """Check the question of a wait and return its stored form; None if there is none."""
    if ask is None:
        return None
    if not isinstance(ask, Question):
        raise InvalidInput(f"expected a Question, got {type(ask).__name__}")
    check_text("ask.text", ask.text)
    text = encode(ask, Question, "ask")
    if len(text) > MAX_QUESTION_LENGTH:
        raise InvalidInput(f"ask has {len(text):,} characters as JSON; at most {MAX_QUESTION_LENGTH:,} are allowed")
    if ask.schema is not None:
        check_schema("ask.schema", ask.schema)
    return text


def is_checked(resolution: Resolution) -> bool:
    """Return whether a resolution can be stored whatever the wait asks: only an answer has to match a schema."""
    return not isinstance(resolution, Resolved)


def must_check(answer: WaitAnswer) -> bool:
    """Return whether a resolution was refused only because the wait asks a question, which the answer must match."""
    row = answer.row
    return answer.lives and not answer.written and row is not None and row.resolution is None and row.ask is not None


def check_answer(answer: WaitAnswer, resolution: Resolution) -> None:
    """Raise InvalidInput if a resolution does not match what the wait asks for."""
    if answer.row is None or not isinstance(resolution, Resolved):
        return
    asked = decode_wait(answer.row).ask
    if asked is not None and asked.schema is not None:
        check_payload(f"the answer to {asked.text!r:.80}: value", asked.schema, resolution.value)


def decode_resolution(text: str) -> Resolution:
    """Return the resolution of a stored text, or raise CorruptData."""
    return decode(text, _ResolutionBox, "the resolution of a wait").resolution


TIMED_OUT: Final = encode_resolution(TimedOut())
"""The stored resolution of a wait whose deadline passed."""


def decode_identity(text: str, what: str) -> WaitIdentity:
    """Return the identity of a stored text, or raise CorruptData."""
    return decode(text, _IdentityBox, what).identity


def decode_wait(row: WaitRow) -> WaitRecord:
    """Return the wait that the row means."""
    what = f"wait {row.key_id}"
    return WaitRecord(
        key_id=row.key_id,
        scope=decode(row.scope, _ScopeBox, what).scope,
        identity=decode_identity(row.identity, what),
        ask=None if row.ask is None else decode(row.ask, Question, what),
        deadline_ms=row.deadline_ms,
        resolution=None if row.resolution is None else decode_resolution(row.resolution),
        created_at_ms=row.created_at_ms,
        resolved_at_ms=row.resolved_at_ms,
    )


def resolve_answer(answer: WaitAnswer) -> ResolveAnswer:
    """Return the answer to an attempt to resolve a wait."""
    if not answer.lives:
        return UnknownOrRevoked()
    if answer.written:
        return Accepted()
    if answer.row is None or answer.row.resolution is None:
        raise CorruptData("a wait refused a resolution but has none stored")
    return AlreadyResolved(terminal=decode_resolution(answer.row.resolution))


def _key_id(payload: bytes) -> str:
    return hashlib.sha256(_ID_DOMAIN + payload).hexdigest()


def _signature(secret: bytes, key_id: str) -> str:
    return _unpadded(hmac.digest(secret, _SIGNATURE_DOMAIN + key_id.encode(), "sha256"))


def _genuine_payload(secret: bytes, text: str) -> bytes | None:
    """Return the payload of a text if this secret signed exactly this text; None otherwise."""
    parts = _TEXT.fullmatch(text) if len(text) <= MAX_KEY_LENGTH else None
    if parts is None:
        return None
    encoded, signature = parts.groups()
    if len(encoded) % 4 == 1:
        return None
    payload = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    # Base64 has several texts for the same bytes; only the canonical one is a key.
    is_canonical = _unpadded(payload) == encoded
    is_signed = hmac.compare_digest(_signature(secret, _key_id(payload)), signature)
    return payload if is_signed and is_canonical else None


def _unpadded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _stored_key(key_id: str, read: _KeyPayload) -> StoredKey:
    columns = StoredKey(
        key_id=key_id,
        scope_id=scope_id(read.scope),
        scope=encode(_ScopeBox(scope=read.scope), _ScopeBox, "scope"),
        identity=encode(_IdentityBox(identity=read.identity), _IdentityBox, "identity"),
    )
    if scope_session_id(read.scope) is not None:
        session_key, _, revocations = read.generation.partition(".")
        return msgspec.structs.replace(columns, session_key=int(session_key), revocations=int(revocations))
    if isinstance(read.scope, ProcessScope):
        return msgspec.structs.replace(columns, process_key=int(read.generation))
    return columns
