"""Planned commits in the form that ``commit_apply`` takes, which writes several at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

import msgspec

from lash.blob import StoredBlob
from lash.codec import encode
from lash.model.commit import CommitResult
from lash.model.lease import LeaseFence
from lash.model.value import BlobRef
from lash.plan.commit import Apply, Checkpoints, PreparedCommit
from lash.plan.frame import FrameRow
from lash.plan.node import NewSegment, PlacedNode
from lash.plan.usage import UsageRow

MAX_TOGETHER: Final = 16
"""How many commits one statement takes; the statement says the same number."""

FenceValues: TypeAlias = tuple[str, str, str, int]
_encoder: Final = msgspec.json.Encoder()


class CommitRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything about one commit but its nodes and blobs, which are handed over as arrays."""

    session_key: int
    assumed_revision: int
    assumed_node_count: int
    turn_id: str | None = None
    commit_hash: str | None = None
    result: str
    scope_id: str | None = None
    fence: FenceValues | None = None
    release: FenceValues | None = None
    config: str
    current_frame_id: str | None = None
    checkpoint_ref: str
    turn_state: str
    plugin_snapshot_revision: int | None = None
    retention_floor: int
    leaf_node_id: str | None
    leaf_segment: int | None
    leaf_depth: int | None
    segment_count: int
    node_seq: int
    node_count: int
    first_user_message: str | None
    user_message_count: int
    segments: tuple[NewSegment, ...] = ()
    refs: frozenset[BlobRef] = frozenset()
    components: dict[str, BlobRef] = {}
    frames: tuple[FrameRow, ...] = ()
    usage: tuple[UsageRow, ...] = ()
    claims: tuple[tuple[str, str, str], ...] = ()
    attachments: tuple[str, ...] = ()


class PlannedCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that is ready to be written, alone or together with others."""

    session_key: int
    record: bytes
    nodes: tuple[PlacedNode, ...]
    blobs: tuple[StoredBlob, ...]
    is_repeatable: bool
    """Whether sending it twice is harmless: the guard refuses a turn that has its commit, and the plan finds that."""
    has_claims: bool
    """Whether it shows a fence, gives back a lease or consumes batches."""
    has_components: bool
    """Whether it has components, or the checkpoint before it may have."""
    has_refs: bool
    has_usage: bool
    has_more: bool
    """Whether it begins a segment, names attachments, or has to do with frames or more than one checkpoint."""


def planned_commit(prepared: PreparedCommit, decision: Apply, before: Checkpoints) -> PlannedCommit:
    """Return what was decided about a commit to a session with these checkpoints: its record, nodes and blobs."""
    commit, head, saved = prepared.commit, decision.head, prepared.checkpoint
    record = CommitRecord(
        session_key=head.session_key,
        assumed_revision=decision.assumed.revision,
        assumed_node_count=decision.assumed.node_count,
        turn_id=commit.turn_id,
        commit_hash=prepared.commit_hash,
        result=encode(prepared.result, CommitResult, "the commit's result"),
        scope_id=prepared.scope_id,
        fence=_fence(commit.fence),
        release=_fence(commit.release),
        config=prepared.config,
        current_frame_id=commit.current_frame_id,
        checkpoint_ref=saved.ref,
        turn_state=saved.turn_state,
        plugin_snapshot_revision=saved.manifest.plugin_snapshot_revision,
        retention_floor=prepared.retention_floor,
        leaf_node_id=head.leaf_node_id,
        leaf_segment=head.leaf_segment,
        leaf_depth=head.leaf_depth,
        segment_count=head.segment_count,
        node_seq=head.node_seq,
        node_count=head.node_count,
        first_user_message=head.first_user_message,
        user_message_count=head.user_message_count,
        segments=decision.placement.segments,
        refs=prepared.required_refs,
        components=prepared.components,
        frames=prepared.frames,
        usage=prepared.usage,
        claims=tuple((each.token, each.claim_id, name) for each in commit.completions for name in each.batch_ids),
        attachments=prepared.attachments,
    )
    return PlannedCommit(
        session_key=head.session_key,
        record=_encoder.encode(record),
        nodes=decision.placement.nodes,
        blobs=prepared.blobs,
        is_repeatable=commit.turn_id is not None,
        has_claims=commit.fence is not None or commit.release is not None or bool(commit.completions),
        has_components=bool(prepared.components) or before is not Checkpoints.BARE,
        has_refs=bool(record.refs),
        has_usage=bool(prepared.usage),
        has_more=bool(record.segments or record.attachments) or Checkpoints.ANY in (before, prepared.leaves),
    )


def statement_for(commits: Sequence[PlannedCommit]) -> tuple[str, list[object]]:
    """Return the shortest form of ``commit_apply`` that writes all of these, and its arguments."""
    claims = any(commit.has_claims for commit in commits)
    if any(commit.has_more for commit in commits):
        return "commit_apply", arguments_of(commits)
    if any(commit.has_components for commit in commits):
        is_short = not claims and not any(commit.has_refs for commit in commits)
        return "commit_apply_state" if is_short else "commit_apply_turns", arguments_of(commits)
    is_short = not claims and not any(commit.has_usage for commit in commits)
    return "commit_apply_nodes" if is_short else "commit_apply_queue", _node_arguments(commits)


def arguments_of(commits: Sequence[PlannedCommit]) -> list[object]:
    """Return the arguments of ``commit_apply`` in their order."""
    return [
        *_node_arguments(commits),
        list(accumulate(len(commit.blobs) for commit in commits)),
        *_columns([blob for commit in commits for blob in commit.blobs], 4),
    ]


def _node_arguments(commits: Sequence[PlannedCommit]) -> list[object]:
    nodes = [
        (
            *(placed.segment, placed.depth, placed.seq, placed.node.node_id, placed.node.parent_node_id),
            *(placed.node.user_text is not None, placed.node.stored_body, placed.node.packed),
        )
        for commit in commits
        for placed in commit.nodes
    ]
    return [
        (b"[" + b",".join(commit.record for commit in commits) + b"]").decode(),
        list(accumulate(len(commit.nodes) for commit in commits)),
        *_columns(nodes, 8),
    ]


def _fence(fence: LeaseFence | None) -> FenceValues | None:
    return None if fence is None else (fence.owner_id, fence.incarnation_id, fence.token, fence.fencing)


def _columns(rows: Iterable[tuple[object, ...]], width: int) -> list[list[object]]:
    """Turn rows into the arrays that ``unnest`` takes."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
