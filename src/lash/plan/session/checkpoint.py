"""Encoding and decoding of checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, cast

import msgspec

from lash.base import compression as blobs
from lash.base.codec import canonical, content_hash, decode, encode
from lash.base.compression import BlobRef, Compression, StoredBlob
from lash.base.limits import check_identifier, check_integer
from lash.errors import CorruptData, InvalidInput
from lash.model.session.checkpoint import FRAME_PREFIX, Checkpoint, CheckpointDraft, CheckpointManifest, TurnState
from lash.plan.sealed import BYTES, TURN_STATE

_REF_LENGTH: Final = 64
"""The length of a SHA-256 in hex digits."""


class CheckpointRow(msgspec.Struct, frozen=True, array_like=True):
    """The checkpoint of one revision, without its components."""

    revision: int
    checkpoint_ref: str
    turn_state: Annotated[str, TURN_STATE]
    plugin_snapshot_revision: int | None


class ComponentRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One component with its stored bytes; without them when the blob is missing."""

    key: str
    hash: str
    codec: str | None
    size: int | None
    content: Annotated[bytes | None, BYTES]


class CurrentComponent(msgspec.Struct, frozen=True, array_like=True):
    """A component that the head uses."""

    key: str
    hash: str


class ReplacedComponent(msgspec.Struct, frozen=True):
    """A component whose bytes a commit changes and of which it keeps no earlier ones."""

    key: str
    hash: BlobRef
    replaced: str


class ComponentChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The components that a commit ends, begins and replaces."""

    ended: tuple[str, ...]
    begun: tuple[CurrentComponent, ...]
    replaced: tuple[ReplacedComponent, ...] = ()


class EncodedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint ready to be written: bytes to store, refs that must resolve, and the manifest of both."""

    ref: BlobRef
    manifest: CheckpointManifest
    turn_state: str
    blobs: dict[BlobRef, StoredBlob]
    required_refs: frozenset[BlobRef]


def encode_checkpoint(draft: CheckpointDraft, compression: Compression) -> EncodedCheckpoint:
    """Return the encoded draft. It is the same whether a component was given as bytes or as a ref."""
    _check_draft(draft)
    if draft.plugin_snapshot_revision is not None:
        check_integer("plugin_snapshot_revision", draft.plugin_snapshot_revision, at_least=0)
    stored: dict[BlobRef, StoredBlob] = {}
    required: set[BlobRef] = set()
    components: dict[str, BlobRef] = {}
    for key, component in draft.components.items():
        ref = add_component(component, f"component {key!r}", compression, stored, required)
        components[check_component_key(key)] = ref
    manifest = CheckpointManifest(
        turn_state=draft.turn_state,
        plugin_snapshot_revision=draft.plugin_snapshot_revision,
        components=dict(sorted(components.items())),
    )
    turn_state = encode(draft.turn_state, TurnState, "turn_state")
    return EncodedCheckpoint(
        ref=manifest_ref(manifest),
        manifest=manifest,
        turn_state=turn_state,
        blobs=stored,
        required_refs=frozenset(required - stored.keys()),
    )


def _check_draft(draft: object) -> None:
    if not isinstance(draft, CheckpointDraft) or not isinstance(draft.components, Mapping):
        raise InvalidInput("checkpoint must be a CheckpointDraft whose components are a mapping")


def add_component(
    component: object,
    what: str,
    compression: Compression,
    stored: dict[BlobRef, StoredBlob],
    required: set[BlobRef],
) -> BlobRef:
    """Add the bytes to store, or the ref that must resolve; return the ref."""
    if isinstance(component, bytes):
        packed = blobs.pack(component, compression)
        stored[packed.ref] = packed
        return packed.ref
    ref = check_ref(what, component)
    required.add(ref)
    return ref


def change_components(
    current: Iterable[CurrentComponent], wanted: Mapping[str, BlobRef], *, keep_ended: bool
) -> ComponentChanges:
    """Compare the components of the head with those of the next one; equal ones are not written.

    A component that changes ends and begins, or, unless ``keep_ended``, is replaced.
    """
    before = {component.key: component.hash for component in current}
    changed = {key: ref for key, ref in wanted.items() if before.get(key) != ref}
    replaced = () if keep_ended else tuple(key for key in changed if key in before)
    return ComponentChanges(
        ended=tuple(key for key, ref in before.items() if wanted.get(key) != ref and key not in replaced),
        begun=tuple(CurrentComponent(key, ref) for key, ref in changed.items() if key not in replaced),
        replaced=tuple(ReplacedComponent(key, changed[key], before[key]) for key in replaced),
    )


def check_ref(what: str, value: object) -> BlobRef:
    """Return the value if it is the ref of some bytes: 64 lowercase hex digits."""
    if not isinstance(value, str) or len(value) != _REF_LENGTH or not set(value) <= set("0123456789abcdef"):
        raise InvalidInput(f"{what} must be bytes or a ref of 64 lowercase hex digits, not {value!r:.80}")
    return BlobRef(value)


def check_component_key(key: object) -> str:
    """Return the key if a checkpoint may use it."""
    text = check_identifier("component key", key)
    if text.startswith(FRAME_PREFIX):
        raise InvalidInput(f"component key {text!r} is reserved: keys must not start with {FRAME_PREFIX!r}")
    return text


def manifest_ref(manifest: CheckpointManifest) -> BlobRef:
    """Return the ref of a checkpoint: the hash of its manifest, the same for the same state."""
    return BlobRef(content_hash(b"lash.checkpoint.v1\0" + canonical(manifest)))


def decode_checkpoint(row: CheckpointRow, components: Sequence[ComponentRow]) -> Checkpoint:
    """Return a stored checkpoint, or raise CorruptData if a part is missing or damaged."""
    payloads = {component.key: decode_component(component) for component in components}
    manifest = decode_manifest(row, components)
    return Checkpoint(ref=BlobRef(row.checkpoint_ref), revision=row.revision, manifest=manifest, components=payloads)


def decode_manifest(row: CheckpointRow, components: Sequence[CurrentComponent | ComponentRow]) -> CheckpointManifest:
    """Return the manifest of a stored checkpoint, or raise CorruptData if it is not the one that was committed."""
    manifest = CheckpointManifest(
        turn_state=decode(row.turn_state, TurnState, f"the turn state of revision {row.revision}"),
        plugin_snapshot_revision=row.plugin_snapshot_revision,
        components=cast("dict[str, BlobRef]", dict(sorted([(each.key, each.hash) for each in components]))),
    )
    if manifest_ref(manifest) != row.checkpoint_ref:
        raise CorruptData(f"the checkpoint of revision {row.revision} is not the one that was committed")
    return manifest


def decode_component(row: ComponentRow) -> bytes:
    """Return the bytes of a component, or raise CorruptData."""
    if row.codec is None or row.size is None or row.content is None:
        raise CorruptData(f"component {row.key!r} names the bytes {row.hash}, which are missing")
    return blobs.unpack_stored(row.hash, row.codec, row.size, row.content)
