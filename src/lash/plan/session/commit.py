"""Rules of commits: the rows of a commit, and whether it may be written.

``prepare_commit`` turns a commit into rows, without reading the database. ``plan_commit`` decides on the facts that the
database holds, in the order of checks that callers rely on: existence, turn replay, fence, revision, claims, graph,
bytes, attachments, records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from lash.base.codec import encode, to_text
from lash.base.compression import BlobRef, Compression, StoredBlob
from lash.base.limits import MAX_INTEGER, check_digest, check_identifier, check_integer
from lash.errors import (
    AttachmentNotFound,
    BlobNotFound,
    CommitTooLarge,
    GraphConflict,
    GraphShared,
    InvalidInput,
    LeaseLost,
    NodeNotFound,
    RevisionConflict,
    SessionBindingMismatch,
)
from lash.model.lease import LeaseFence, ResourceKind, session_resource
from lash.model.scope import turn_scope_id
from lash.model.session.checkpoint import TurnState
from lash.model.session.commit import Append, Commit, CommitBudget, CommitResult, GraphDelta, ReplaceFull, Unchanged
from lash.model.session.session import Retention, SessionConfig
from lash.plan.agent import fitting_agent
from lash.plan.lease import NEVER_HELD, LeaseRow, check_fence, require_fence
from lash.plan.queue.claim import check_completions, require_completion
from lash.plan.record import (
    EncodedChange,
    RecordName,
    check_changes,
    expected_versions,
    require_versions,
)
from lash.plan.session.checkpoint import EncodedCheckpoint, encode_checkpoint
from lash.plan.session.frame import FrameRow, encode_frames
from lash.plan.session.meta import kept_of
from lash.plan.session.node import (
    EncodedNode,
    NodePosition,
    Placement,
    StoredNode,
    encode_nodes,
    new_nodes,
    place_appended,
    place_replacement,
)
from lash.plan.session.session import HeadRow
from lash.plan.session.trace import encode_trace
from lash.plan.session.turn import TurnRow, commit_hash, replay
from lash.plan.session.usage import UsageRow, encode_usage, merge_usage, require_room

_BRIEF_ROWS: Final = 64
"""Commits of up to this many rows may be written on the event loop; see the next limit."""
_BRIEF_BYTES: Final = 262_144
"""Commits of up to this many bytes may be written on the event loop: they block it for less than a millisecond."""

_LISTS: Final = ("frames", "usage", "completions", "attachments", "records")


class CommitRules(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a storage that apply to every commit."""

    compression: Compression = Compression.BALANCED
    budget: CommitBudget = CommitBudget()
    retention: Retention = Retention()


class PreparedCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit as rows: everything that can be computed without the database."""

    commit: Commit
    commit_hash: str | None
    scope_id: str | None
    """The scope of the turn's effects, which ends with its commit."""
    config: str
    agent: str | None
    """The agent that the turn state names; the session keeps its agent if it names none."""
    frames: tuple[FrameRow, ...]
    nodes: tuple[EncodedNode, ...]
    checkpoint: EncodedCheckpoint
    components: dict[str, BlobRef]
    blobs: tuple[StoredBlob, ...]
    required_refs: frozenset[BlobRef]
    usage: tuple[UsageRow, ...]
    usage_totals: tuple[UsageRow, ...]
    result: CommitResult
    stored_result: str
    """The result as its turn's row keeps it; empty without a turn."""
    trace: str | None
    """The trace as its turn's row keeps it."""
    attachments: tuple[str, ...]
    """The attachments to stamp, once each."""
    records: tuple[EncodedChange, ...]
    """The records to put and delete."""
    retention_floor: int
    """Checkpoints of lower revisions are dropped by this commit."""
    rows: int
    """How many rows it writes, not counting the few that every commit writes."""
    size: int
    """How many bytes it brings, before compression."""

    @property
    def revision(self) -> int:
        return self.commit.expected_revision + 1

    @property
    def leaves_one_checkpoint(self) -> bool:
        """Whether the session has one checkpoint, that of its head and without frames, once this commit is written."""
        return not self.frames and self.retention_floor == self.revision

    @property
    def is_brief(self) -> bool:
        """Whether it is small enough to be written on the event loop: no import, and no replaced graph."""
        return is_small(self.rows, self.size) and not isinstance(self.commit.graph, ReplaceFull)

    @property
    def named_nodes(self) -> tuple[str, ...]:
        """The ids of all nodes whose position, if they are stored, the plan must know; in a fixed order."""
        if isinstance(self.commit.graph, ReplaceFull):
            return ()
        leaf = self.commit.graph.leaf_node_id
        ids: dict[str | None, None] = {}
        for each in self.nodes:
            ids[each.node_id] = ids[each.parent_node_id] = None
        if isinstance(leaf, str):
            ids[leaf] = None
        return tuple([node_id for node_id in ids if node_id is not None])


class CommitFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The stored facts that a commit depends on."""

    head: HeadRow
    turn: TurnRow | None
    lease: LeaseRow
    held_batches: dict[str, frozenset[str]]
    """The batches that each token among the completions holds, under the claim id that the completion names."""
    stored_nodes: dict[str, StoredNode]
    missing_refs: frozenset[BlobRef]
    missing_attachments: frozenset[str]
    now_ms: int
    record_versions: Mapping[RecordName, int]
    """The versions of the records that the commit changes; absent ones have 0 or none."""
    is_inherited: bool = False
    """Whether a fork inherits nodes of this session."""


class Apply(msgspec.Struct, frozen=True, kw_only=True):
    """Write the prepared rows, at these positions, and this head. ``assumed`` is the head that the plan is based on."""

    assumed: HeadRow
    head: HeadRow
    placement: Placement
    replace: bool


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The turn was committed before: return its first result, and only release the lease."""

    result: CommitResult


CommitDecision: TypeAlias = Apply | Replay


def encode_result(commit: Commit, result: CommitResult) -> str:
    """Return the result of a commit as the row of its turn keeps it; empty without a turn."""
    # Its parts were checked: the turn state was encoded, and names of components are ids.
    return "" if commit.turn_id is None else to_text(result)


def prepare_commit(
    commit: Commit, session_id: str, rules: CommitRules, records: tuple[EncodedChange, ...] = ()
) -> PreparedCommit:
    """Check a commit and turn it into rows, or raise InvalidInput. Does not read the database.

    ``records`` are the commit's, with their values encoded.
    """
    _check_commit(commit, session_id)
    _check_records(commit, records)
    frames = encode_frames(commit.frames, commit.current_frame_id, rules.compression)
    saved = encode_checkpoint(commit.checkpoint, rules.compression)
    components = saved.manifest.components | frames.components
    blobs = tuple((saved.blobs | frames.blobs).values())
    nodes = encode_new_nodes(commit.graph, rules.compression)
    if commit.graph.leaf_node_id not in (None, UNSET):
        check_identifier("leaf_node_id", commit.graph.leaf_node_id)
    rows = encode_usage(commit.usage)
    config = encode(commit.config, SessionConfig, "config")
    attachments = tuple(dict.fromkeys(commit.attachments))
    revision = commit.expected_revision + 1
    result = CommitResult(revision=revision, checkpoint_ref=saved.ref, manifest=saved.manifest)
    prepared = PreparedCommit(
        commit=commit,
        commit_hash=None if commit.turn_id is None else commit_hash(commit, components, records),
        scope_id=None if commit.turn_id is None else turn_scope_id(commit.session_id, commit.turn_id),
        config=config,
        agent=agent_of(commit.checkpoint.turn_state),
        frames=frames.rows,
        nodes=nodes,
        checkpoint=saved,
        components=components,
        blobs=blobs,
        required_refs=(saved.required_refs | frames.required_refs) - {blob.ref for blob in blobs},
        usage=rows,
        usage_totals=merge_usage(rows),
        result=result,
        stored_result=encode_result(commit, result),
        trace=None if commit.trace is None else encode_trace(commit.trace),
        attachments=attachments,
        records=records,
        retention_floor=0 if rules.retention.keep is None else revision - rules.retention.keep + 1,
        rows=len(nodes) + len(frames.rows) + len(components) + len(rows) + len(attachments) + len(records),
        size=_byte_count(nodes, frames.rows, blobs, config, saved.turn_state) + sum(each.size for each in records),
    )
    require_room(prepared.usage_totals)
    check_budget(prepared.rows, prepared.size, rules.budget)
    return prepared


def retained(prepared: PreparedCommit, keep: int | None) -> PreparedCommit:
    """Return the commit with the retention of its session, if that has one of its own."""
    if keep is None:
        return prepared
    count = kept_of(keep, Retention())
    floor = 0 if count is None else prepared.revision - count + 1
    return msgspec.structs.replace(prepared, retention_floor=floor)


def agent_of(state: TurnState) -> str | None:
    """Return the agent of the turn, if the state names one that fits an index."""
    return fitting_agent(state.protocol_turn_options)


def encode_new_nodes(delta: GraphDelta, compression: Compression) -> tuple[EncodedNode, ...]:
    """Return the nodes of the delta, ready to be placed."""
    match delta:
        case Unchanged():
            return ()
        case Append() | ReplaceFull() if isinstance(delta.nodes, list | tuple):
            return encode_nodes(delta.nodes, compression)
        case _:
            raise InvalidInput("graph must be Unchanged, Append or ReplaceFull, with a tuple of nodes")


def plan_commit(prepared: PreparedCommit, facts: CommitFacts) -> CommitDecision:
    """Decide about a commit to an existing session, or raise the error of the first check that fails."""
    commit = prepared.commit
    if facts.turn is not None and commit.turn_id is not None and prepared.commit_hash is not None:
        result = replay(commit.session_id, commit.turn_id, facts.turn, prepared.commit_hash, CommitResult)
        return Replay(result=result)
    if commit.fence is not None:
        resource = session_resource(commit.session_id)
        if commit.fence.resource != resource:
            raise LeaseLost(resource, f"the fence is for {commit.fence.resource}")
        require_fence(facts.lease, commit.fence, facts.now_ms)
    if facts.head.revision != commit.expected_revision:
        raise RevisionConflict(commit.session_id, commit.expected_revision, facts.head.revision)
    for completion in commit.completions:
        held = facts.held_batches.get(completion.token, frozenset())
        require_completion(commit.session_id, completion, held)
    placement = _place(prepared, facts)
    head = _next_head(prepared, facts, placement)
    for ref in sorted(facts.missing_refs):
        raise BlobNotFound(commit.session_id, ref)
    for attachment_id in sorted(facts.missing_attachments):
        raise AttachmentNotFound(commit.session_id, attachment_id)
    require_versions(prepared.records, facts.record_versions)
    return Apply(
        assumed=facts.head,
        head=head,
        placement=placement,
        replace=isinstance(commit.graph, ReplaceFull),
    )


def assume_nodes(prepared: PreparedCommit, head: HeadRow) -> dict[str, StoredNode] | None:
    """Return the stored nodes that a commit needs, if they follow from the head; None if they do not.

    The caller must then ensure that no new node id is taken, neither by its own nodes nor by inherited ones.
    """
    leaf = head.leaf_as_stored_node()
    known = {} if leaf is None else {leaf.node_id: leaf}
    new = {each.node_id for each in prepared.nodes}
    if new & known.keys() or set(prepared.named_nodes) - new - known.keys():
        return None
    return known


def assume_facts(prepared: PreparedCommit, head: HeadRow) -> CommitFacts | None:
    """Return the facts under which the commit succeeds, if they follow from a head that was seen before.

    None when the head is of another revision, or when the commit needs more nodes than its leaf. The statement that
    writes on these facts must guard them: no turn row, the fence holds, no new node id is taken, every ref resolves.
    """
    commit, known = prepared.commit, assume_nodes(prepared, head)
    if known is None or isinstance(commit.graph, ReplaceFull) or head.revision != commit.expected_revision:
        return None
    if commit.fence is not None and commit.fence.resource.id != commit.session_id:
        return None
    return CommitFacts(
        head=head,
        turn=None,
        lease=_lease_as_shown(commit.fence),
        held_batches={each.token: frozenset(each.batch_ids) for each in commit.completions},
        stored_nodes=known,
        missing_refs=frozenset(),
        missing_attachments=frozenset(),
        record_versions=expected_versions(prepared.records),
        now_ms=0,
    )


def _lease_as_shown(fence: LeaseFence | None) -> LeaseRow:
    if fence is None:
        return NEVER_HELD
    return LeaseRow(fence.fencing, fence.owner_id, fence.incarnation_id, None, fence.token, 0, 1)


def _check_commit(commit: object, session_id: str) -> None:
    if not isinstance(commit, Commit):
        raise InvalidInput(f"expected a Commit, got {type(commit).__name__}")
    if check_identifier("session_id", commit.session_id) != session_id:
        raise SessionBindingMismatch(session_id, commit.session_id)
    if check_integer("expected_revision", commit.expected_revision, at_least=0) == MAX_INTEGER:
        raise InvalidInput("the revision counter of this session is exhausted")
    if commit.turn_id is not None:
        check_identifier("turn_id", commit.turn_id)
    if commit.current_frame_id is not None:
        check_identifier("current_frame_id", commit.current_frame_id)
    if commit.fence is not None:
        check_fence("fence", commit.fence, ResourceKind.SESSION)
    if commit.release is not None:
        if commit.release is not commit.fence:
            check_fence("release", commit.release, ResourceKind.SESSION)
        if commit.release.resource.id != session_id:
            raise SessionBindingMismatch(session_id, commit.release.resource.id)
    lists = (commit.frames, commit.usage, commit.completions, commit.attachments, commit.records)
    for what, items in zip(_LISTS, lists, strict=True):
        if type(items) is not tuple and not isinstance(items, list | tuple):
            raise InvalidInput(f"{what} must be a tuple, not {type(items).__name__}")
    check_completions(commit.completions)
    for attachment_id in commit.attachments:
        check_digest("attachments", attachment_id)
    if isinstance(commit.graph, ReplaceFull):
        check_integer("replaced_node_count", commit.graph.replaced_node_count, at_least=0)


def _check_records(commit: Commit, records: Sequence[EncodedChange]) -> None:
    """Raise an error if a record is of another session, or is changed twice."""
    assert len(records) == len(commit.records)
    for each in records:
        owner = each.name.session_id
        if owner is not None and owner != commit.session_id:
            raise SessionBindingMismatch(commit.session_id, owner)
    check_changes(records)


def check_budget(rows: int, size: int, budget: CommitBudget) -> None:
    """Raise CommitTooLarge if so many rows, or so many bytes, are more than a storage accepts at once."""
    if rows > budget.max_rows:
        raise CommitTooLarge("rows", rows, budget.max_rows)
    if size > budget.max_bytes:
        raise CommitTooLarge("bytes", size, budget.max_bytes)


def is_small(rows: int, size: int) -> bool:
    """Return whether so many rows of so many bytes may be written on the event loop."""
    return rows <= _BRIEF_ROWS and size <= _BRIEF_BYTES


def _byte_count(
    nodes: tuple[EncodedNode, ...], frames: tuple[FrameRow, ...], blobs: tuple[StoredBlob, ...], *texts: str
) -> int:
    sizes = [each.size for each in nodes]
    sizes += [blob.size for blob in blobs]
    sizes += [_byte_length(row.body) for row in frames]
    return sum(sizes, start=sum(map(_byte_length, texts)))


def _byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _place(prepared: PreparedCommit, facts: CommitFacts) -> Placement:
    session_id, head, delta = prepared.commit.session_id, facts.head, prepared.commit.graph
    if isinstance(delta, ReplaceFull):
        if delta.replaced_node_count != head.node_count:
            raise GraphConflict(session_id, delta.replaced_node_count, head.node_count)
        if facts.is_inherited:
            raise GraphShared(session_id)
        return place_replacement(session_id, prepared.nodes, segment_count=head.segment_count, node_seq=head.node_seq)
    fresh = new_nodes(session_id, prepared.nodes, facts.stored_nodes)
    return place_appended(
        session_id, fresh, facts.stored_nodes, segment_count=head.segment_count, node_seq=head.node_seq
    )


def _next_head(prepared: PreparedCommit, facts: CommitFacts, placement: Placement) -> HeadRow:
    before, delta = facts.head, prepared.commit.graph
    replace = isinstance(delta, ReplaceFull)
    leaf_id = _leaf_id(delta, before)
    position = None
    if leaf_id is not None:
        position = placement.positions.get(leaf_id) or (None if replace else before.leaf_position(leaf_id))
        if position is None:
            raise NodeNotFound(prepared.commit.session_id, leaf_id)
    return head_after(before, placement, leaf_id, position, replace=replace)


def head_after(
    before: HeadRow, placement: Placement, leaf_id: str | None, position: NodePosition | None, *, replace: bool = False
) -> HeadRow:
    """Return the head of the next revision, with these nodes besides those before it or in their place."""
    texts = [each.node.user_text for each in sorted(placement.nodes, key=lambda each: each.seq)]
    said = [text for text in texts if text is not None]
    has_first = before.user_message_count > 0 and not replace
    return HeadRow(
        session_key=before.session_key,
        revision=before.revision + 1,
        committed=True,
        leaf_node_id=leaf_id,
        leaf_segment=None if position is None else position.segment,
        leaf_depth=None if position is None else position.depth,
        leaf_is_tip=position is not None and position.is_tip,
        segment_count=before.segment_count + len(placement.segments),
        node_seq=before.node_seq + len(placement.nodes),
        node_count=len(placement.nodes) + (0 if replace else before.node_count),
        first_user_message=before.first_user_message if has_first else next(iter(said), ""),
        user_message_count=len(said) + (0 if replace else before.user_message_count),
        keep=before.keep,
    )


def _leaf_id(delta: GraphDelta, before: HeadRow) -> str | None:
    if not isinstance(delta.leaf_node_id, UnsetType):
        return delta.leaf_node_id
    nodes = () if isinstance(delta, Unchanged) else delta.nodes
    return nodes[-1].node_id if nodes else before.leaf_node_id
