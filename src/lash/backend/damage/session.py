"""What the rows of sessions and their queues must be."""

from __future__ import annotations

from collections.abc import Iterable

from lash.backend.damage.row import Columns, require_same, shaped, text
from lash.base.codec import decode
from lash.base.compression import BlobRef, unpack_stored
from lash.base.limits import check_digest
from lash.errors import CorruptData
from lash.model.queue import Batch, BatchDraft
from lash.model.session.checkpoint import FRAME_PREFIX, CheckpointManifest, TurnState
from lash.model.session.session import SessionConfig
from lash.plan.queue.dead_letter import DeadLetterRow, decode_dead_letter
from lash.plan.queue.queue import BatchRow, decode_batch, encode_batch
from lash.plan.session.checkpoint import manifest_ref
from lash.plan.session.frame import FrameRow, decode_frames
from lash.plan.session.kind import stored_kind
from lash.plan.session.meta import MetaRow, decode_meta
from lash.plan.session.node import PathRow, decode_node, user_text
from lash.plan.session.trace import decode_trace
from lash.plan.session.turn import check_result

_ANY: str = "any"
"""Stands for the session of a batch, which its row names by a number."""


def check_session(row: Columns) -> None:
    """Raise CorruptData if the relation or the configuration of a session cannot be read."""
    meta = decode_meta(shaped(MetaRow, row))
    if row["config"] is not None:
        decode(text(row, "config"), SessionConfig, f"the configuration of session {meta.session_id!r}")


def check_node(row: Columns) -> None:
    """Raise CorruptData if a node cannot be read, has another kind, or is marked wrongly as a user message."""
    node = decode_node(shaped(PathRow, row, tombstoned=row["tombstoned_at_ms"] is not None))
    require_same("the mark of a user message", bool(row["user_message"]), user_text(node) is not None)
    require_same("kind", row["kind"], stored_kind(node.kind))


def check_frame(row: Columns) -> None:
    """Raise CorruptData if a frame cannot be read or is another one."""
    (frame,) = decode_frames([shaped(FrameRow, row)])
    require_same("frame_id", row["frame_id"], frame.frame_id)


def check_checkpoint(row: Columns, components: Iterable[Columns]) -> None:
    """Raise CorruptData if the checkpoint of a revision is not the one that was committed."""
    revision, snapshot = row["revision"], row["plugin_snapshot_revision"]
    assert isinstance(revision, int)
    refs = {
        text(each, "key"): BlobRef(text(each, "hash"))
        for each in components
        if _contains(each, revision) and not text(each, "key").startswith(FRAME_PREFIX)
    }
    manifest = CheckpointManifest(
        turn_state=decode(text(row, "turn_state"), TurnState, "its turn state"),
        plugin_snapshot_revision=snapshot if isinstance(snapshot, int) else None,
        components=dict(sorted(refs.items())),
    )
    if manifest_ref(manifest) != row["checkpoint_ref"]:
        raise CorruptData("it is not the one that was committed")


def _contains(component: Columns, revision: int) -> bool:
    first, last = component["first_revision"], component["last_revision"]
    return isinstance(first, int) and first <= revision and (not isinstance(last, int) or revision <= last)


def check_blob(row: Columns) -> None:
    """Raise CorruptData if bytes do not have the hash under which they are stored."""
    _unpack(row, "hash")


def check_attachment_bytes(row: Columns) -> None:
    """Raise CorruptData if the bytes of an attachment are not those of its id."""
    _unpack(row, "attachment_id")


def _unpack(row: Columns, name: str) -> bytes:
    size, content = row["size"], row["content"]
    if not isinstance(size, int) or not isinstance(content, bytes):
        raise CorruptData("size or content cannot be read")
    return unpack_stored(text(row, name), text(row, "codec"), size, content)


def check_turn(row: Columns) -> None:
    """Raise CorruptData if the result or the trace of a turn cannot be read."""
    check_result(text(row, "result"))
    check_digest("commit_hash", row["commit_hash"])
    if row["trace"] is not None:
        decode_trace(text(row, "trace"), "its trace")


def check_batch(row: Columns) -> None:
    """Raise CorruptData if queued work cannot be read, or waits in the wrong lane."""
    _require_lane(row, decode_batch(shaped(BatchRow, row), _ANY))


def check_dead_letter(row: Columns) -> None:
    """Raise CorruptData if a dead letter cannot be read, or would return into the wrong lane."""
    _require_lane(row, decode_dead_letter(shaped(DeadLetterRow, row, session_id=_ANY)).batch)


def _require_lane(row: Columns, batch: Batch) -> None:
    draft = BatchDraft(
        session_id=_ANY,
        payloads=batch.payloads,
        delivery=batch.delivery,
        slot=batch.slot,
        merge_key=batch.merge_key,
    )
    require_same("lane", row["lane"], encode_batch(draft).lane)


def check_source_key(row: Columns) -> None:
    """Raise InvalidInput if the hash of a source key's content is not one."""
    check_digest("content_hash", row["content_hash"])
