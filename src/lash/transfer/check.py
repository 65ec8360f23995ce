"""Checks each line of a file as the storage will, so that an error names the line and the field."""

from __future__ import annotations

from typing import Final

import msgspec

from lash.backend.record import RecordValues
from lash.base.codec import encode
from lash.base.compression import Compression
from lash.base.limits import check_digest, check_identifier, check_integer
from lash.errors import InvalidInput
from lash.model.session.checkpoint import TurnState
from lash.model.session.session import SessionConfig, SessionMeta
from lash.plan.attachment import prepare_put
from lash.plan.queue.queue import encode_batch
from lash.plan.session.checkpoint import check_component_key, check_ref
from lash.plan.session.frame import encode_frames
from lash.plan.session.meta import encode_meta
from lash.plan.session.node import encode_nodes
from lash.plan.session.usage import encode_usage
from lash.transfer.lines import (
    AttachmentLine,
    BatchLine,
    BlobLine,
    CheckpointLine,
    FrameLine,
    HeaderLine,
    HeadLine,
    Line,
    MetaLine,
    NodeLine,
    RecordLine,
    UsageLine,
)
from lash.transfer.record import put_of
from lash.transfer.snapshot import draft_of

_ANY: Final = "any"
"""Stands for the id of the new session, which is checked elsewhere."""


def check_line(line: Line) -> None:
    """Raise InvalidInput, with the name of the field, if no session can have what the line says."""
    match line:
        case HeaderLine():
            check_identifier("session_id", line.session_id)
            check_integer("created_at_ms", line.created_at_ms)
        case MetaLine():
            encode_meta(meta_of(line, _ANY), _ANY)
        case HeadLine():
            _check_head(line)
        case FrameLine():
            encode_frames((line.frame,), None, Compression.LOW_LATENCY)
        case NodeLine():
            encode_nodes((line.node,), Compression.LOW_LATENCY)
        case CheckpointLine():
            _check_checkpoint(line)
        case BlobLine():
            check_ref("ref", line.ref)
        case UsageLine():
            encode_usage((line.entry,))
        case RecordLine():
            RecordValues(Compression.LOW_LATENCY).encode_changes((put_of(line, _ANY),))
        case AttachmentLine():
            check_attachment(_ANY, line)
        case BatchLine():
            encode_batch(draft_of(line, _ANY))


def meta_of(line: MetaLine, session_id: str) -> SessionMeta:
    """Return the metadata of a line for a session of this id."""
    return SessionMeta(
        session_id=session_id,
        name=line.name,
        created_at_ms=line.created_at_ms,
        model=line.model,
        cwd=line.cwd,
        relation=line.relation,
        owner=line.owner,
        labels=line.labels,
        metadata=line.metadata,
        expires_at_ms=line.expires_at_ms,
    )


def check_attachment(session_id: str, line: AttachmentLine) -> None:
    """Check a description as a put would, and that it is stored unchanged."""
    ref = line.ref
    check_digest("ref.id", ref.id)
    check_integer("ref.byte_len", ref.byte_len, at_least=0)
    intent = prepare_put(
        session_id, b"", ref.media_type, owner=line.owner, width=ref.width, height=ref.height, label=ref.label
    )
    if msgspec.structs.replace(intent.ref, id=ref.id, byte_len=ref.byte_len) != ref:
        raise InvalidInput(f"attachment {ref.id}: its media_type would be stored differently")


def _check_head(line: HeadLine) -> None:
    encode(line.config, SessionConfig, "config")
    for what, value in (("current_frame_id", line.current_frame_id), ("leaf_node_id", line.leaf_node_id)):
        if value is not None:
            check_identifier(what, value)


def _check_checkpoint(line: CheckpointLine) -> None:
    check_ref("ref", line.ref)
    encode(line.turn_state, TurnState, "turn_state")
    for key, ref in line.components.items():
        check_ref(f"components[{check_component_key(key)!r}]", ref)
    if line.plugin_snapshot_revision is not None:
        check_integer("plugin_snapshot_revision", line.plugin_snapshot_revision, at_least=0)
