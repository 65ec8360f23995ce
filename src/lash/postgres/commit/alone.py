"""The arguments of ``commit_alone`` and ``commit_alone_leased``, which write one ordinary turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lash.model.lease import LeaseFence
from lash.plan.session.component import Replacement
from lash.plan.session.kind import MESSAGE
from lash.plan.session.node import PlacedNode
from lash.postgres.arguments import columns, fence_proof
from lash.postgres.commit.planned import PlannedCommit


class CommitAlone(NamedTuple):
    """The arguments by name, in the order in which ``commit_alone.sql`` lists and explains them."""

    session_key: int
    assumed_revision: int
    assumed_node_count: int
    assumed_leaf_node_id: str | None
    assumed_keep: int | None
    turn_id: str | None
    commit_hash: str | None
    result: str
    trace: str | None
    scope_id: str | None

    config: str
    current_frame_id: str | None
    checkpoint_ref: str
    leaf_node_id: str | None
    leaf_segment: int | None
    leaf_depth: int | None
    segment_count: int
    node_seq: int
    node_count: int
    first_user_message: str
    user_message_count: int
    agent: str | None

    turn_state: str
    plugin_snapshot_revision: int | None

    run_segment: int | None
    run_depth: int | None
    run_seq: int | None
    run_parent: str | None
    node_ids: list[str]
    user_messages: list[int]
    bodies: list[str]
    packed_bodies: list[bytes | None]
    kinds: list[str]

    usage_sources: list[object]
    usage_models: list[object]
    input_tokens: list[object]
    output_tokens: list[object]
    cached_input_tokens: list[object]
    reasoning_tokens: list[object]

    replaced_hashes: list[object]
    new_hashes: list[object]
    blob_codecs: list[object]
    blob_sizes: list[object]
    blob_contents: list[object]


class LeaseArguments(NamedTuple):
    """The arguments that ``commit_alone_leased`` takes after those."""

    fence: list[str] | None
    release: list[str] | None
    claim_tokens: list[object]
    claim_ids: list[object]
    claimed_batches: list[object]


class _Run(NamedTuple):
    """Nodes that follow each other; the driver inspects every element of an array, so there are few arrays."""

    segment: int | None
    depth: int | None
    seq: int | None
    parent: str | None
    ids: list[str]
    user_messages: list[int]
    bodies: list[str]
    packed: list[bytes | None]
    kinds: list[str]


def arguments_alone(planned: PlannedCommit, replaced: Sequence[Replacement]) -> CommitAlone:
    """Return the arguments for a commit that replaces the bytes of these components."""
    prepared, assumed, head = planned.prepared, planned.decision.assumed, planned.decision.head
    commit, saved = prepared.commit, prepared.checkpoint
    run = _run_of(planned.decision.placement.nodes)
    usage = columns(((row.source, row.model, *row.counters) for row in prepared.usage), 6)
    blobs = columns(((each.replaced, *each.blob) for each in replaced), 5)
    return CommitAlone(
        session_key=head.session_key,
        assumed_revision=assumed.revision,
        assumed_node_count=assumed.node_count,
        assumed_leaf_node_id=assumed.leaf_node_id,
        assumed_keep=assumed.keep,
        turn_id=commit.turn_id,
        commit_hash=prepared.commit_hash,
        result=prepared.stored_result,
        trace=prepared.trace,
        scope_id=prepared.scope_id,
        config=prepared.config,
        current_frame_id=commit.current_frame_id,
        checkpoint_ref=saved.ref,
        leaf_node_id=head.leaf_node_id,
        leaf_segment=head.leaf_segment,
        leaf_depth=head.leaf_depth,
        segment_count=head.segment_count,
        node_seq=head.node_seq,
        node_count=head.node_count,
        first_user_message=head.first_user_message,
        user_message_count=head.user_message_count,
        agent=prepared.agent,
        turn_state=saved.turn_state,
        plugin_snapshot_revision=saved.manifest.plugin_snapshot_revision,
        run_segment=run.segment,
        run_depth=run.depth,
        run_seq=run.seq,
        run_parent=run.parent,
        node_ids=run.ids,
        user_messages=run.user_messages,
        bodies=run.bodies,
        packed_bodies=run.packed,
        kinds=run.kinds,
        usage_sources=usage[0],
        usage_models=usage[1],
        input_tokens=usage[2],
        output_tokens=usage[3],
        cached_input_tokens=usage[4],
        reasoning_tokens=usage[5],
        replaced_hashes=blobs[0],
        new_hashes=blobs[1],
        blob_codecs=blobs[2],
        blob_sizes=blobs[3],
        blob_contents=blobs[4],
    )


def lease_arguments(planned: PlannedCommit) -> LeaseArguments | None:
    """Return the arguments about leases and claims; None if the commit has neither."""
    commit = planned.prepared.commit
    if commit.fence is None and commit.release is None and not commit.completions:
        return None
    claims = columns(planned.claims, 3)
    return LeaseArguments(
        fence=_fence_texts(commit.fence),
        release=_fence_texts(commit.release),
        claim_tokens=claims[0],
        claim_ids=claims[1],
        claimed_batches=claims[2],
    )


def _run_of(nodes: Sequence[PlacedNode]) -> _Run:
    if not nodes:
        return _Run(None, None, None, None, [], [], [], [], [])
    first, encoded = nodes[0], [placed.node for placed in nodes]
    is_packed = any(node.packed is not None for node in encoded)
    kinds = [node.kind for node in encoded]
    return _Run(
        segment=first.segment,
        depth=first.depth - 1,
        seq=first.seq - 1,
        parent=first.node.parent_node_id,
        ids=[node.node_id for node in encoded],
        user_messages=[position for position, node in enumerate(encoded, start=1) if node.user_text is not None],
        bodies=[node.stored_body for node in encoded],
        packed=[node.packed for node in encoded] if is_packed else [],
        kinds=[] if set(kinds) == {MESSAGE} else kinds,
    )


def _fence_texts(fence: LeaseFence | None) -> list[str] | None:
    return None if fence is None else [str(value) for value in fence_proof(fence)]
