"""The metadata of sessions: checks, and the stored form."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

from lash.base.codec import canonical, decode, encode
from lash.base.limits import MAX_IDENTIFIER_LENGTH, check_identifier, check_integer, check_text
from lash.errors import InvalidInput, SessionBindingMismatch
from lash.model.session.session import Retention, RootRelation, SessionMeta, SessionRelation
from lash.model.value import JSONObject, Value
from lash.plan.sealed import FIRST_USER_MESSAGE, METADATA

MAX_LABELS: Final = 32
"""Labels are for finding sessions: each is a row in an index."""
MAX_METADATA_BYTES: Final = 65_536
"""Metadata is read with every list of sessions."""
OWNER_TERM: Final = ""
"""The key under which the owner of a session is indexed; no label has it."""


class MetaRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The metadata of a session, and the columns that a list shows."""

    session_key: int
    session_id: str
    name: str
    created_at_ms: int
    model: str
    cwd: str | None
    relation: str
    revision: int
    first_user_message: Annotated[str, FIRST_USER_MESSAGE]
    user_message_count: int
    updated_at_ms: int
    owner: str | None
    labels: str
    metadata: Annotated[str, METADATA]
    expires_at_ms: int | None
    agent: str | None
    keep_checkpoints: int | None
    """How many checkpoints it keeps: None as the storage says, 0 all."""


class GivenMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller says about a new session, unchecked."""

    name: str | None = None
    model: str = ""
    cwd: str | None = None
    relation: SessionRelation = RootRelation()
    owner: str | None = None
    labels: dict[str, str] | None = None
    metadata: JSONObject | None = None
    expires_at_ms: int | None = None
    retention: Retention | None = None


class EncodedMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The checked metadata of a session, with its JSON as stored."""

    meta: SessionMeta
    relation: str
    labels: str
    metadata: str
    keep: int | None = None

    @property
    def terms(self) -> dict[str, str]:
        """The rows by which lists find the session: its labels, and its owner under the empty key."""
        return label_terms(self.meta.owner, self.meta.labels)


class MetaChange(msgspec.Struct, frozen=True, kw_only=True):
    """A checked change of a session's metadata. A part that is None stays, as does one whose ``set`` flag is False."""

    session_id: str
    name: str | None = None
    created_at_ms: int | None = None
    model: str | None = None
    relation: str | None = None
    labels: str | None = None
    metadata: str | None = None
    set_cwd: bool = False
    cwd: str | None = None
    set_owner: bool = False
    owner: str | None = None
    set_expiry: bool = False
    expires_at_ms: int | None = None
    set_keep: bool = False
    keep: int | None = None
    terms: dict[str, str] = msgspec.field(default_factory=dict)
    """The rows to find the session by, of the owner and of the labels, whichever changes."""


class _Relation(Value, frozen=True, kw_only=True):
    relation: SessionRelation


class _Metadata(Value, frozen=True, kw_only=True):
    metadata: JSONObject = msgspec.field(default_factory=dict)


_LABELS: Final = dict[str, str]
_ROOT: Final = RootRelation()
_ROOT_TEXT: Final = encode(_Relation(relation=_ROOT), _Relation, "relation")
_EMPTY: Final = "{}"
_ALL: Final = 0
"""Stored for a session that keeps all its checkpoints."""


def new_meta(session_id: str, given: GivenMeta) -> SessionMeta:
    """Return the metadata with which a session is created; the database adds the time."""
    check_identifier("session_id", session_id)
    return SessionMeta(
        session_id=session_id,
        name=session_id if given.name is None else given.name,
        created_at_ms=0,
        model=given.model,
        cwd=given.cwd,
        relation=given.relation,
        owner=given.owner,
        labels={} if given.labels is None else given.labels,
        metadata={} if given.metadata is None else given.metadata,
        expires_at_ms=given.expires_at_ms,
        retention=given.retention,
    )


def encode_meta(meta: SessionMeta, session_id: str) -> EncodedMeta:
    """Check the metadata of this session and return it with its JSON as stored."""
    if not isinstance(meta, SessionMeta):
        raise InvalidInput(f"expected a SessionMeta, got {type(meta).__name__}")
    if check_identifier("session_id", meta.session_id) != session_id:
        raise SessionBindingMismatch(session_id, meta.session_id)
    check_text("name", meta.name)
    check_text("model", meta.model, limit=255)
    check_integer("created_at_ms", meta.created_at_ms)
    if meta.cwd is not None:
        check_text("cwd", meta.cwd)
    _check_owner(meta.owner)
    _check_expiry(meta.expires_at_ms)
    return EncodedMeta(
        meta=meta,
        relation=encode_relation(meta.relation),
        labels=encode_labels(meta.labels),
        metadata=encode_metadata(meta.metadata),
        keep=encode_retention(meta.retention),
    )


def save_change(encoded: EncodedMeta) -> MetaChange:
    """Return the change that overwrites all metadata."""
    meta = encoded.meta
    return MetaChange(
        session_id=meta.session_id,
        name=meta.name,
        created_at_ms=meta.created_at_ms,
        model=meta.model,
        relation=encoded.relation,
        labels=encoded.labels,
        metadata=encoded.metadata,
        set_cwd=True,
        cwd=meta.cwd,
        set_owner=True,
        owner=meta.owner,
        set_expiry=True,
        expires_at_ms=meta.expires_at_ms,
        set_keep=True,
        keep=encoded.keep,
        terms=encoded.terms,
    )


def edit_change(
    session_id: str,
    *,
    name: str | UnsetType,
    owner: str | None | UnsetType,
    labels: dict[str, str] | UnsetType,
    metadata: JSONObject | UnsetType,
    expires_at_ms: int | None | UnsetType,
    retention: Retention | None | UnsetType = UNSET,
) -> MetaChange:
    """Check the parts of the metadata that are given, and return the change of them."""
    new_owner = None if owner is UNSET else _check_owner(owner)
    return MetaChange(
        session_id=session_id,
        name=None if name is UNSET else check_text("name", name),
        labels=None if labels is UNSET else encode_labels(labels),
        metadata=None if metadata is UNSET else encode_metadata(metadata),
        set_owner=owner is not UNSET,
        owner=new_owner,
        set_expiry=expires_at_ms is not UNSET,
        expires_at_ms=None if expires_at_ms is UNSET else _check_expiry(expires_at_ms),
        set_keep=retention is not UNSET,
        keep=None if retention is UNSET else encode_retention(retention),
        terms=label_terms(new_owner, {} if labels is UNSET else labels),
    )


def encode_retention(retention: object) -> int | None:
    """Return how many checkpoints are kept, as stored: None as the storage says, 0 all. Raises InvalidInput."""
    if retention is None:
        return None
    if not isinstance(retention, Retention):
        raise InvalidInput(f"expected a Retention as retention, got {type(retention).__name__}; use Retention.last(3)")
    return _ALL if retention.keep is None else check_integer("retention.keep", retention.keep, at_least=1)


def decode_retention(keep: int | None) -> Retention | None:
    """Return the retention of a session; None if it has none of its own."""
    return None if keep is None else Retention.all() if keep == _ALL else Retention.last(keep)


def kept_of(keep: int | None, storage: Retention) -> int | None:
    """Return how many checkpoints are kept, None for all: as the session says (``keep``), or else the storage."""
    if keep is None:
        return storage.keep
    return None if keep == _ALL else keep


def encode_relation(relation: SessionRelation) -> str:
    return encode(_Relation(relation=relation), _Relation, "relation")


def encode_labels(labels: object) -> str:
    """Check the labels and return them as stored: a JSON object with sorted keys."""
    return canonical(check_labels(labels)).decode()


def check_labels(labels: object) -> dict[str, str]:
    """Return the labels, or raise InvalidInput."""
    if not isinstance(labels, dict):
        raise InvalidInput(f"expected labels as a dict of texts, got {type(labels).__name__}")
    if len(labels) > MAX_LABELS:
        raise InvalidInput(f"a session can have at most {MAX_LABELS} labels, not {len(labels)}; use metadata for more")
    for key, value in labels.items():
        check_identifier("a label", key)
        check_text(f"label {key!r}", value, limit=MAX_IDENTIFIER_LENGTH)
    return labels


def label_terms(owner: str | None, labels: dict[str, str]) -> dict[str, str]:
    """Return the rows that lists find a session by: its labels, and its owner under the empty key."""
    return labels if owner is None else {OWNER_TERM: owner, **labels}


def encode_metadata(metadata: object) -> str:
    """Check the metadata of an application and return it as stored."""
    if not isinstance(metadata, dict):
        raise InvalidInput(f"expected metadata as a dict, got {type(metadata).__name__}")
    text = encode(_Metadata(metadata=metadata), _Metadata, "metadata")
    if len(text.encode()) > MAX_METADATA_BYTES:
        raise InvalidInput(f"metadata is larger than {MAX_METADATA_BYTES:,} bytes; keep what is larger in the state")
    return text


def decode_meta(row: MetaRow) -> SessionMeta:
    what = f"session {row.session_id!r}"
    return SessionMeta(
        session_id=row.session_id,
        name=row.name,
        created_at_ms=row.created_at_ms,
        model=row.model,
        cwd=row.cwd,
        # Most sessions of a long list have no relation, labels or metadata to decode.
        relation=_ROOT if row.relation == _ROOT_TEXT else _decode_relation(row.relation, what),
        owner=row.owner,
        labels={} if row.labels == _EMPTY else decode(row.labels, _LABELS, f"the labels of {what}"),
        metadata={} if row.metadata == _EMPTY else decode(row.metadata, _Metadata, f"the metadata of {what}").metadata,
        expires_at_ms=row.expires_at_ms,
        retention=decode_retention(row.keep_checkpoints),
    )


def _decode_relation(text: str, what: str) -> SessionRelation:
    return decode(text, _Relation, f"the relation of {what}").relation


def _check_owner(owner: object) -> str | None:
    return None if owner is None else check_identifier("owner", owner)


def _check_expiry(expires_at_ms: object) -> int | None:
    return None if expires_at_ms is None else check_integer("expires_at_ms", expires_at_ms, at_least=0)
