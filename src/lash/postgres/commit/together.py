"""The arguments of ``commit_turns`` and ``commit_apply``, which write several commits at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Final, NamedTuple, TypeAlias

import msgspec

from lash.base.compression import BlobRef, StoredBlob
from lash.plan.session.component import Replacement
from lash.plan.session.frame import FrameRow
from lash.plan.session.node import NewSegment
from lash.plan.session.usage import UsageRow
from lash.postgres.arguments import columns, fence_proof
from lash.postgres.commit.planned import PlannedCommit

MAX_TOGETHER: Final = 16
"""How many commits one statement takes at most: with more, one locked session would hold up too many others."""

FenceValues: TypeAlias = tuple[str, str, str, int]
_encoder: Final = msgspec.json.Encoder()


class CommitTogether(NamedTuple):
    """The arguments by name, in the order in which ``commit_apply.sql`` lists and explains them, twice."""

    commits: str
    max_together: int

    node_ends: list[int]
    segments: list[int]
    depths: list[int]
    seqs: list[int]
    node_ids: list[str]
    parent_ids: list[str | None]
    user_messages: list[bool]
    bodies: list[str]
    packed_bodies: list[bytes | None]
    kinds: list[str]
    branches: list[bool]

    blob_ends: list[int]
    blob_hashes: list[object]
    blob_codecs: list[object]
    blob_sizes: list[object]
    blob_contents: list[object]


class CommitRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything about one commit but its nodes and blobs, which are passed as arrays."""

    session_key: int
    assumed_revision: int
    assumed_node_count: int
    assumed_leaf_node_id: str | None
    assumed_keep: int | None = None
    turn_id: str | None = None
    commit_hash: str | None = None
    result: str
    trace: str | None = None
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
    first_user_message: str
    user_message_count: int
    agent: str | None = None
    segments: tuple[NewSegment, ...] = ()
    refs: frozenset[BlobRef] = frozenset()
    components: dict[str, BlobRef] = {}
    frames: tuple[FrameRow, ...] = ()
    usage: tuple[UsageRow, ...] = ()
    claims: tuple[tuple[str, str, str], ...] = ()
    attachments: tuple[str, ...] = ()
    replaced: tuple[BlobRef, ...] = ()


def arguments_together(commits: Sequence[PlannedCommit]) -> CommitTogether:
    """Return the arguments of ``commit_apply`` for commits of different sessions, at most ``MAX_TOGETHER``."""
    return _arguments(commits, map(_record_of, commits), [commit.prepared.blobs for commit in commits])


def arguments_in_place(commits: Sequence[PlannedCommit], replaced: Sequence[tuple[Replacement, ...]]) -> CommitTogether:
    """Return the arguments of ``commit_turns`` for such commits, each with the bytes that it replaces."""
    records = [_record_of(commit, each) for commit, each in zip(commits, replaced, strict=True)]
    return _arguments(commits, records, [[one.blob for one in each] for each in replaced])


def arguments_of_first(planned: PlannedCommit) -> tuple[object, ...]:
    """Return the last arguments of ``session_create_committed``: the record of the commit, its nodes and blobs."""
    several = arguments_together([planned])
    left_out = {"commits", "max_together", "node_ends", "blob_ends"}
    columns_of_one = [values for name, values in several._asdict().items() if name not in left_out]
    return _record_of(planned).decode(), *columns_of_one


def _arguments(
    commits: Sequence[PlannedCommit], records: Iterable[bytes], blobs: Sequence[Sequence[StoredBlob]]
) -> CommitTogether:
    placements = [commit.decision.placement.nodes for commit in commits]
    placed = list(chain.from_iterable(placements))
    nodes = [each.node for each in placed]
    blob_columns = columns(chain.from_iterable(blobs), 4)
    return CommitTogether(
        commits=(b"[" + b",".join(records) + b"]").decode(),
        max_together=MAX_TOGETHER,
        node_ends=list(accumulate(map(len, placements))),
        segments=[each.segment for each in placed],
        depths=[each.depth for each in placed],
        seqs=[each.seq for each in placed],
        node_ids=[node.node_id for node in nodes],
        parent_ids=[node.parent_node_id for node in nodes],
        user_messages=[node.user_text is not None for node in nodes],
        bodies=[node.stored_body for node in nodes],
        packed_bodies=[node.packed for node in nodes],
        kinds=[node.kind for node in nodes],
        branches=[each.begins_branch for each in placed],
        blob_ends=list(accumulate(map(len, blobs))),
        blob_hashes=blob_columns[0],
        blob_codecs=blob_columns[1],
        blob_sizes=blob_columns[2],
        blob_contents=blob_columns[3],
    )


def _record_of(planned: PlannedCommit, replaced: tuple[Replacement, ...] | None = None) -> bytes:
    """Return the record of a commit; without its components if only bytes of theirs are replaced."""
    prepared, decision = planned.prepared, planned.decision
    commit, head, saved = prepared.commit, decision.head, prepared.checkpoint
    return _encoder.encode(
        CommitRecord(
            session_key=head.session_key,
            assumed_revision=decision.assumed.revision,
            assumed_node_count=decision.assumed.node_count,
            assumed_leaf_node_id=decision.assumed.leaf_node_id,
            assumed_keep=decision.assumed.keep,
            turn_id=commit.turn_id,
            commit_hash=prepared.commit_hash,
            result=prepared.stored_result,
            trace=prepared.trace,
            scope_id=prepared.scope_id,
            fence=None if commit.fence is None else fence_proof(commit.fence),
            release=None if commit.release is None else fence_proof(commit.release),
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
            agent=prepared.agent,
            segments=decision.placement.segments,
            refs=prepared.required_refs if replaced is None else frozenset(),
            components=prepared.components if replaced is None else {},
            frames=prepared.frames,
            usage=prepared.usage,
            claims=tuple(planned.claims),
            attachments=prepared.attachments,
            replaced=tuple(each.replaced for each in replaced or ()),
        )
    )
