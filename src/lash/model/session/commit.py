"""Commits: the only way to publish a new head."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import UNSET, UnsetType

from lash.base.compression import BlobRef
from lash.model.lease import LeaseFence
from lash.model.queue import ClaimCompletion
from lash.model.record import RecordChange
from lash.model.session.checkpoint import CheckpointDraft, CheckpointManifest
from lash.model.session.frame import AgentFrame
from lash.model.session.node import Node
from lash.model.session.session import SessionConfig
from lash.model.session.trace import TurnTrace
from lash.model.session.usage import UsageEntry
from lash.model.value import Count, Positive, Value


class Unchanged(Value, frozen=True, kw_only=True, tag=True):
    """No new nodes. The leaf stays, or moves to a live node (None: before the first)."""

    leaf_node_id: str | None | UnsetType = UNSET


class Append(Value, frozen=True, kw_only=True, tag=True):
    """New nodes, parents before children. The leaf becomes the last of them unless another is named."""

    nodes: tuple[Node, ...]
    leaf_node_id: str | None | UnsetType = UNSET


class ReplaceFull(Value, frozen=True, kw_only=True, tag=True):
    """Exactly these nodes, and no others.

    It states how many live nodes the caller saw, so that a partial view of the graph never deletes branches.
    """

    nodes: tuple[Node, ...]
    leaf_node_id: str | None
    replaced_node_count: Count


GraphDelta: TypeAlias = Unchanged | Append | ReplaceFull


class Commit(Value, frozen=True, kw_only=True):
    """Everything that one turn publishes, applied whole or not at all.

    ``turn_id`` makes the commit safe to repeat: the same content under the same id returns the first result.
    ``fence``, if given, must be live. ``release`` frees that lease in the same transaction if it still holds;
    a stale one is ignored. ``completions`` consume claims: each must still hold exactly the batches that it lists.
    ``attachments`` are the ids of the attachments that the turn refers to; each is stamped as committed.
    ``records`` are put and deleted with the commit: those of this session, and those of the storage. If one has another
    version than expected, the commit is refused.
    ``trace`` is kept with the record of the turn. It has no part in the identity of the commit, and is ignored without
    a turn id.
    """

    session_id: str
    expected_revision: Count
    turn_id: str | None = None
    fence: LeaseFence | None = None
    release: LeaseFence | None = None
    config: SessionConfig = SessionConfig()
    frames: tuple[AgentFrame, ...] = ()
    current_frame_id: str | None = None
    graph: GraphDelta = Unchanged()
    checkpoint: CheckpointDraft = CheckpointDraft()
    usage: tuple[UsageEntry, ...] = ()
    completions: tuple[ClaimCompletion, ...] = ()
    attachments: tuple[str, ...] = ()
    records: tuple[RecordChange, ...] = ()
    trace: TurnTrace | None = None


class CommitResult(Value, frozen=True, kw_only=True):
    """The result of a commit; a repeated commit returns that of the first one."""

    revision: Count
    checkpoint_ref: BlobRef
    manifest: CheckpointManifest


class AppendResult(Value, frozen=True, kw_only=True):
    """The result of an append; a repeated append returns that of the first one."""

    revision: Count
    parent_node_id: str | None
    """The leaf before the append, which the first of the nodes follows."""


class CommitBudget(Value, frozen=True, kw_only=True):
    """The largest commit that a storage accepts, checked before its transaction begins."""

    max_bytes: Positive = 64 * 1024 * 1024
    max_rows: Positive = 10_000
