"""One planned commit in the form that ``commit_alone_nodes`` and its longer forms take."""

from __future__ import annotations

from collections.abc import Sequence

from lash.base.codec import encode
from lash.model.lease import LeaseFence
from lash.model.session.commit import CommitResult
from lash.plan.session.node import PlacedNode
from lash.postgres.rows.session.commit_plan import PlannedCommit, columns, fence_values, replacement_columns


def statement_alone(planned: PlannedCommit) -> tuple[str, list[object]] | None:
    """Return the shortest statement that writes this commit and no other, and its arguments, if it has one."""
    if planned.has_more or not planned.may_go_alone:
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
        *_run_arguments(planned.decision.placement.nodes),
    ]


def _run_arguments(nodes: Sequence[PlacedNode]) -> list[object]:
    """Return what tells nodes apart that follow each other; the driver looks at every element of an array."""
    if not nodes:
        return [None, None, None, None, [], [], [], []]
    first, encoded = nodes[0], [placed.node for placed in nodes]
    is_packed = any(node.packed is not None for node in encoded)
    return [
        *(first.segment, first.depth - 1, first.seq - 1, first.node.parent_node_id),
        [node.node_id for node in encoded],
        [place for place, node in enumerate(encoded, start=1) if node.user_text is not None],
        [node.stored_body for node in encoded],
        [node.packed for node in encoded] if is_packed else [],
    ]


def _state_arguments(planned: PlannedCommit) -> list[object]:
    usage = [(row.source, row.model, *row.counters) for row in planned.prepared.usage]
    return [*columns(usage, 6), *replacement_columns([planned])]


def _claim_arguments(planned: PlannedCommit) -> list[object]:
    commit = planned.prepared.commit
    return [_fence_texts(commit.fence), _fence_texts(commit.release), *columns(planned.claims, 3)]


def _fence_texts(fence: LeaseFence | None) -> list[str] | None:
    values = fence_values(fence)
    return None if values is None else [str(value) for value in values]
