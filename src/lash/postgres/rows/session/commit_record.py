"""Planned commits in the form that ``commit_apply`` takes, which writes several at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Final, TypeAlias

import msgspec

from lash.base.codec import encode
from lash.base.compression import BlobRef
from lash.model.session.commit import CommitResult
from lash.plan.session.frame import FrameRow
from lash.plan.session.node import NewSegment
from lash.plan.session.usage import UsageRow
from lash.postgres.rows.session.commit_alone import statement_alone
from lash.postgres.rows.session.commit_plan import (
    PlannedCommit,
    columns,
    fence_values,
    node_columns,
    replacement_columns,
)

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


def record_of(planned: PlannedCommit) -> bytes:
    """Return everything about a commit but its nodes and blobs."""
    prepared, decision = planned.prepared, planned.decision
    commit, head, saved = prepared.commit, decision.head, prepared.checkpoint
    return _encoder.encode(
        CommitRecord(
            session_key=head.session_key,
            assumed_revision=decision.assumed.revision,
            assumed_node_count=decision.assumed.node_count,
            turn_id=commit.turn_id,
            commit_hash=prepared.commit_hash,
            result=encode(prepared.result, CommitResult, "the commit's result"),
            scope_id=prepared.scope_id,
            fence=fence_values(commit.fence),
            release=fence_values(commit.release),
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
            claims=tuple(planned.claims),
            attachments=prepared.attachments,
        )
    )


def statement_for(commits: Sequence[PlannedCommit]) -> tuple[str, list[object]]:
    """Return the shortest statement that writes all of these, and its arguments."""
    if len(commits) == 1:
        alone = statement_alone(commits[0])
        if alone is not None:
            return alone
    return _statement_together(commits)


def _statement_together(commits: Sequence[PlannedCommit]) -> tuple[str, list[object]]:
    if any(commit.has_more for commit in commits):
        return "commit_apply", arguments_of(commits)
    claims = any(commit.has_claims for commit in commits)
    if any(commit.replacements for commit in commits):
        return "commit_apply_turns" if claims else "commit_apply_state", renewal_arguments_of(commits)
    is_short = not claims and not any(commit.prepared.usage for commit in commits)
    return "commit_apply_nodes" if is_short else "commit_apply_queue", _node_arguments(commits)


def arguments_of(commits: Sequence[PlannedCommit]) -> list[object]:
    """Return the arguments of ``commit_apply`` in their order."""
    return [
        *_node_arguments(commits),
        list(accumulate(len(commit.prepared.blobs) for commit in commits)),
        *columns((blob for commit in commits for blob in commit.prepared.blobs), 4),
    ]


def renewal_arguments_of(commits: Sequence[PlannedCommit]) -> list[object]:
    """Return the arguments of ``commit_apply_turns`` in their order."""
    return [
        *_node_arguments(commits),
        list(accumulate(len(commit.replacements or ()) for commit in commits)),
        *replacement_columns(commits),
    ]


def _node_arguments(commits: Sequence[PlannedCommit]) -> list[object]:
    placements = [commit.decision.placement.nodes for commit in commits]
    return [
        (b"[" + b",".join(map(record_of, commits)) + b"]").decode(),
        list(accumulate(map(len, placements))),
        *node_columns(chain.from_iterable(placements)),
    ]
