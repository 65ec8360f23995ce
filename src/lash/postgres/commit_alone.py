"""One planned commit in the form that ``commit_alone_nodes`` and its longer forms take."""

from __future__ import annotations

from lash.codec import encode
from lash.model.commit import CommitResult
from lash.model.lease import LeaseFence
from lash.postgres.commit_plan import PlannedCommit, columns, fence_values, node_columns


def statement_alone(planned: PlannedCommit) -> tuple[str, list[object]] | None:
    """Return the shortest statement that writes this commit and no other, and its arguments, if it has one."""
    if planned.replacements is None:
        return None
    if planned.has_claims:
        return "commit_alone_turns", [*_node_arguments(planned), *_state_arguments(planned), *_claim_arguments(planned)]
    if planned.replacements or planned.prepared.usage:
        return "commit_alone_state", [*_node_arguments(planned), *_state_arguments(planned)]
    return "commit_alone_nodes", _node_arguments(planned)


def _node_arguments(planned: PlannedCommit) -> list[object]:
    prepared, assumed, head = planned.prepared, planned.decision.assumed, planned.decision.head
    commit, saved = prepared.commit, prepared.checkpoint
    return [
        *(head.session_key, assumed.revision, assumed.node_count),
        *(commit.turn_id, prepared.commit_hash, encode(prepared.result, CommitResult, "the commit's result")),
        *(prepared.scope_id, prepared.config, commit.current_frame_id, saved.ref),
        *(head.leaf_node_id, head.leaf_segment, head.leaf_depth, head.segment_count, head.node_seq, head.node_count),
        *(head.first_user_message, head.user_message_count),
        *(saved.turn_state, saved.manifest.plugin_snapshot_revision),
        *node_columns(planned.decision.placement.nodes),
    ]


def _state_arguments(planned: PlannedCommit) -> list[object]:
    usage = [(row.source, row.model, *row.counters) for row in planned.prepared.usage]
    replaced = [(each.key, each.replaced, *each.blob) for each in planned.replacements or ()]
    return [*columns(usage, 6), *columns(replaced, 6)]


def _claim_arguments(planned: PlannedCommit) -> list[object]:
    commit = planned.prepared.commit
    return [_fence_texts(commit.fence), _fence_texts(commit.release), *columns(planned.claims, 3)]


def _fence_texts(fence: LeaseFence | None) -> list[str] | None:
    values = fence_values(fence)
    return None if values is None else [str(value) for value in values]
