"""The arguments of ``commit_alone`` and ``commit_alone_leased``, which write one ordinary turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from lash.model.lease import LeaseFence
from lash.plan.session.component import Replacement
from lash.plan.session.kind import MESSAGE
from lash.plan.session.node import PlacedNode
from lash.plan.session.usage import UsageRow
from lash.postgres.arguments import fence_proof, joined
from lash.postgres.commit.planned import PlannedCommit


class _Head(NamedTuple):
    """The session, what the plan saw of it, the turn, the new head and the checkpoint."""

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


class _Run(NamedTuple):
    """Nodes that follow each other."""

    run_segment: int | None
    run_depth: int | None
    run_seq: int | None
    run_parent: str | None
    node_ids: str | None
    user_messages: str
    bodies: str | None
    packed_bodies: list[bytes | None] | None
    kinds: str | None


class _Ledger(NamedTuple):
    """Rows of the ledger."""

    usage_sources: str | None
    usage_models: str | None
    input_tokens: str | None
    output_tokens: str | None
    cached_input_tokens: str | None
    reasoning_tokens: str | None


class _Bytes(NamedTuple):
    """Components that get new bytes."""

    replaced_hashes: str | None
    new_hashes: str | None
    blob_codecs: str | None
    blob_sizes: str | None
    blob_contents: list[bytes] | None


ALONE: Final = (*_Head._fields, *_Run._fields, *_Ledger._fields, *_Bytes._fields)
"""The names of the arguments, in the order in which ``commit_alone.sql`` lists and explains them."""
_NO_NODES: Final = _Run(None, None, None, None, None, "", None, None, None)
_NO_USAGE: Final = _Ledger(None, None, None, None, None, None)
_NO_BYTES: Final = _Bytes(None, None, None, None, None)


class LeaseArguments(NamedTuple):
    """The arguments that ``commit_alone_leased`` takes after those."""

    fence_owner: str | None
    fence_incarnation: str | None
    fence_token: str | None
    fence_number: int | None
    release_owner: str | None
    release_incarnation: str | None
    release_token: str | None
    release_number: int | None
    claim_tokens: str | None
    claim_ids: str | None
    claimed_batches: str | None


def arguments_alone(planned: PlannedCommit, replaced: Sequence[Replacement]) -> tuple[object, ...]:
    """Return the arguments for a commit that replaces the bytes of these components.

    Raises `NotSeparable` if a text contains the separator.
    """
    run, ledger = _run_of(planned.decision.placement.nodes), _ledger_of(planned.prepared.usage)
    return (*_head_of(planned), *run, *ledger, *_bytes_of(replaced))


def lease_arguments(planned: PlannedCommit) -> LeaseArguments | None:
    """Return the arguments about leases and claims; None if the commit has neither.

    Raises `NotSeparable` if a text contains the separator.
    """
    commit = planned.prepared.commit
    if commit.fence is None and commit.release is None and not commit.completions:
        return None
    claims = planned.claims
    return LeaseArguments(
        *_fence_of(commit.fence),
        *_fence_of(commit.release),
        joined([token for token, _, _ in claims]),
        joined([claim_id for _, claim_id, _ in claims]),
        joined([batch_id for _, _, batch_id in claims]),
    )


def _head_of(planned: PlannedCommit) -> _Head:
    prepared, assumed, head = planned.prepared, planned.decision.assumed, planned.decision.head
    commit, saved = prepared.commit, prepared.checkpoint
    return _Head(
        head.session_key,
        assumed.revision,
        assumed.node_count,
        assumed.leaf_node_id,
        assumed.keep,
        commit.turn_id,
        prepared.commit_hash,
        prepared.stored_result,
        prepared.trace,
        prepared.scope_id,
        prepared.config,
        commit.current_frame_id,
        saved.ref,
        head.leaf_node_id,
        head.leaf_segment,
        head.leaf_depth,
        head.segment_count,
        head.node_seq,
        head.node_count,
        head.first_user_message,
        head.user_message_count,
        prepared.agent,
        saved.turn_state,
        saved.manifest.plugin_snapshot_revision,
    )


def _fence_of(fence: LeaseFence | None) -> tuple[str | None, str | None, str | None, int | None]:
    return (None, None, None, None) if fence is None else fence_proof(fence)


def _run_of(nodes: Sequence[PlacedNode]) -> _Run:
    if not nodes:
        return _NO_NODES
    first, encoded = nodes[0], [placed.node for placed in nodes]
    packed, kinds = [node.packed for node in encoded], [node.kind for node in encoded]
    return _Run(
        *(first.segment, first.depth - 1, first.seq - 1, first.node.parent_node_id),
        joined([node.node_id for node in encoded]),
        "".join(["-" if node.user_text is None else "u" for node in encoded]),
        joined([node.stored_body for node in encoded]),
        None if packed.count(None) == len(packed) else packed,
        None if kinds.count(MESSAGE) == len(kinds) else joined(kinds),
    )


def _ledger_of(rows: Sequence[UsageRow]) -> _Ledger:
    if not rows:
        return _NO_USAGE
    first, second, third, fourth = zip(*(map(str, row.counters) for row in rows), strict=True)
    names = joined([row.source for row in rows]), joined([row.model for row in rows])
    return _Ledger(*names, joined(first), joined(second), joined(third), joined(fourth))


def _bytes_of(replaced: Sequence[Replacement]) -> _Bytes:
    if not replaced:
        return _NO_BYTES
    blobs = [each.blob for each in replaced]
    return _Bytes(
        joined([each.replaced for each in replaced]),
        joined([blob.ref for blob in blobs]),
        joined([blob.codec for blob in blobs]),
        joined([str(blob.size) for blob in blobs]),
        [blob.content for blob in blobs],
    )
