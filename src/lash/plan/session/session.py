"""Decoding of session rows, and the rules for reading and trimming sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal, NamedTuple, Protocol

import msgspec

from lash.base.codec import decode, encode
from lash.base.compression import BlobRef
from lash.base.limits import check_identifier, check_integer
from lash.errors import CorruptData, InvalidInput, SessionDeleted, SessionNotFound
from lash.model.session.node import Graph, RawNode
from lash.model.session.session import (
    ActivePath,
    FullGraph,
    ReadScope,
    SessionConfig,
    SessionHead,
    SessionRead,
)
from lash.plan.sealed import CONFIG, FIRST_USER_MESSAGE
from lash.plan.session.checkpoint import CheckpointRow, ComponentRow, decode_checkpoint
from lash.plan.session.frame import FrameRow, decode_frames
from lash.plan.session.meta import MetaRow
from lash.plan.session.node import NodePosition, PathRow, StoredNode, graph_nodes, path_nodes, raw_path_nodes
from lash.plan.session.usage import UsageRow, decode_usage

_HOLDERS: Final = {
    "path": "lies on the active path of",
    "source": "belongs to the source of",
    "fork": "is inherited by a fork of",
}

_DEFAULTS: Final = SessionConfig()
_DEFAULTS_TEXT: Final = encode(_DEFAULTS, SessionConfig, "config")
_WIDER: Final = 4
"""How many times as many nodes of a path are read if too many of the last ones are erased."""


class HeadRow(msgspec.Struct, frozen=True, array_like=True):
    """The columns of a session that a commit needs. They change only with the revision or the node count.

    ``keep`` is the exception: editing the metadata changes it.
    """

    session_key: int
    revision: int
    committed: bool
    leaf_node_id: str | None
    leaf_segment: int | None
    leaf_depth: int | None
    leaf_is_tip: bool
    segment_count: int
    node_seq: int
    node_count: int
    first_user_message: Annotated[str, FIRST_USER_MESSAGE]
    user_message_count: int
    keep: int | None
    """How many checkpoints the session keeps: None as the storage says, 0 all."""

    def leaf_position(self, node_id: str) -> NodePosition | None:
        """Return the position of the node if it is the leaf."""
        if self.leaf_segment is None or self.leaf_depth is None or node_id != self.leaf_node_id:
            return None
        return NodePosition(self.leaf_segment, self.leaf_depth, self.leaf_is_tip)

    def leaf_as_stored_node(self) -> StoredNode | None:
        """Return the leaf as a node below which others can be placed; without its parent and body."""
        if self.leaf_node_id is None or self.leaf_segment is None or self.leaf_depth is None:
            return None
        return StoredNode(
            self.leaf_node_id, None, self.leaf_segment, self.leaf_depth, self.leaf_is_tip, tombstoned=False, body=""
        )


class HeadColumns(Protocol):
    """A row that has the columns of a session's head."""

    @property
    def session_id(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def config(self) -> str | None: ...
    @property
    def current_frame_id(self) -> str | None: ...
    @property
    def leaf_node_id(self) -> str | None: ...
    @property
    def checkpoint_ref(self) -> str | None: ...
    @property
    def node_count(self) -> int: ...
    @property
    def updated_at_ms(self) -> int: ...


class ReadRow(msgspec.Struct, frozen=True, array_like=True):
    """The columns of a session's head that readers need."""

    session_key: int
    session_id: str
    revision: int
    config: Annotated[str | None, CONFIG]
    current_frame_id: str | None
    leaf_node_id: str | None
    checkpoint_ref: str | None
    node_count: int
    updated_at_ms: int

    @property
    def is_committed(self) -> bool:
        """Whether the session has a commit."""
        return self.config is not None and self.checkpoint_ref is not None


class RevisionRows(msgspec.Struct, frozen=True, array_like=True):
    """The rows of one revision. ``inherited`` nodes are listed apart only when the whole graph is read."""

    read: ReadRow
    inherited: list[PathRow]
    nodes: list[PathRow]
    frames: list[FrameRow]
    checkpoint: CheckpointRow | None
    components: list[ComponentRow]
    totals: list[UsageRow]


class HeldNode(msgspec.Struct, frozen=True, array_like=True):
    """A node that cannot be removed, and the reason."""

    node_id: str
    holder: Literal["path", "source", "fork"]


class Floors(msgspec.Struct, frozen=True, array_like=True):
    """The numbers from which a new session starts."""

    revision: int
    fencing: int


def new_head(row: MetaRow) -> HeadRow:
    """Return the head of a session that was just created."""
    return empty_head(row.session_key, row.revision, row.keep_checkpoints)


def empty_head(session_key: int, revision: int, keep: int | None = None) -> HeadRow:
    """Return the head of a session that has no commit."""
    return HeadRow(session_key, revision, False, None, None, None, False, 0, 0, 0, "", 0, keep)


def uncommitted(row: ReadRow) -> RevisionRows:
    """Return the rows of a session that has no commit yet."""
    return RevisionRows(row, [], [], [], None, [], [])


def missing_session(session_id: str, *, deleted: bool) -> SessionNotFound | SessionDeleted:
    """Return the error for a session that has no row."""
    return SessionDeleted(session_id) if deleted else SessionNotFound(session_id)


def decode_head(row: HeadColumns) -> SessionHead | None:
    """Return the head, or None before the first commit."""
    if row.config is None or row.checkpoint_ref is None:
        return None
    return SessionHead(
        session_id=row.session_id,
        revision=row.revision,
        config=_DEFAULTS
        if row.config == _DEFAULTS_TEXT
        else decode(row.config, SessionConfig, f"the configuration of session {row.session_id!r}"),
        current_frame_id=row.current_frame_id,
        leaf_node_id=row.leaf_node_id,
        checkpoint_ref=BlobRef(row.checkpoint_ref),
        node_count=row.node_count,
        updated_at_ms=row.updated_at_ms,
    )


def decode_read(rows: RevisionRows, scope: ReadScope) -> SessionRead | None:
    """Return the revision of the rows, or None before the first commit."""
    head = decode_head(rows.read)
    if head is None:
        return None
    if rows.checkpoint is None:
        raise CorruptData(f"session {head.session_id!r} has no checkpoint for its revision {head.revision}")
    return SessionRead(
        head=head,
        frames=decode_frames(rows.frames),
        graph=_decode_graph(head, scope, rows.inherited, rows.nodes),
        checkpoint=decode_checkpoint(rows.checkpoint, rows.components),
        usage=decode_usage(rows.totals),
    )


class ShortPath(NamedTuple):
    """Too many of the nodes that were read are erased: read the end of the path again, this many nodes."""

    last: int


def decode_path(rows: RevisionRows, scope: ReadScope, reach: int | None) -> SessionRead | ShortPath | None:
    """Return the revision of the rows, whose path was read up to so many nodes; None before the first commit."""
    is_full = reach is not None and len(rows.nodes) == reach
    read = decode_read(rows, scope)
    if reach is None or read is None or not isinstance(scope, ActivePath) or scope.last is None:
        return read
    # Rows are left over if the path ends here: an ancestor is missing or removed.
    is_short = is_full and not rows.nodes and len(read.graph.nodes) < scope.last
    return ShortPath(reach * _WIDER) if is_short else read


def decode_raw_path(rows: list[PathRow], last: int | None, reach: int | None) -> tuple[RawNode, ...] | ShortPath:
    """Return the last nodes of a path that was read up to so many nodes, without decoding them."""
    is_full = len(rows) == reach
    nodes = raw_path_nodes(rows)
    if last is None or reach is None or len(nodes) >= last:
        return nodes if last is None else nodes[-last:]
    # Rows are left over if the path ends here: an ancestor is missing or removed.
    return ShortPath(reach * _WIDER) if is_full and not rows else nodes


def check_scope(scope: object) -> ReadScope:
    """Return the scope, or raise InvalidInput."""
    if isinstance(scope, FullGraph):
        return scope
    if not isinstance(scope, ActivePath):
        raise InvalidInput(f"scope must be FullGraph or ActivePath, not {type(scope).__name__}")
    check_path(scope.leaf_node_id, scope.last)
    return scope


def check_path(leaf_node_id: str | None, last: int | None) -> ActivePath:
    """Return the path to read, or raise InvalidInput."""
    if leaf_node_id is not None:
        check_identifier("leaf_node_id", leaf_node_id)
    if last is not None:
        check_integer("last", last, at_least=1)
    return ActivePath(leaf_node_id=leaf_node_id, last=last)


def require_removable(session_id: str, held: Iterable[HeldNode]) -> None:
    """Raise InvalidInput if one of the nodes to remove is in use."""
    for node in held:
        raise InvalidInput(
            f"node {node.node_id!r} {_HOLDERS[node.holder]} session {session_id!r} and cannot be removed"
        )


def _decode_graph(head: SessionHead, scope: ReadScope, inherited: list[PathRow], rows: list[PathRow]) -> Graph:
    if isinstance(scope, FullGraph):
        return Graph(nodes=path_nodes(inherited) + graph_nodes(rows), leaf_node_id=head.leaf_node_id)
    leaf = scope.leaf_node_id if scope.leaf_node_id is not None else head.leaf_node_id
    nodes = path_nodes(rows)
    return Graph(nodes=nodes if scope.last is None else nodes[-scope.last :], leaf_node_id=leaf)
