"""Positions of nodes, and decoding of graphs.

Nodes lie on *segments*, linear runs within one session. A node's position is (segment, depth), and a segment records
the position where it left its parent segment. An append to the end of a segment stays on it; any other append opens a
new one. A path is therefore a climb over few segments and a range on each.

A fork inherits a path of other sessions. The fork sees those nodes on its own segment 0, which continues them, so this
module needs no other session.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec

from lash.base.codec import decode, encode, encode_to_bytes
from lash.base.compression import (
    Compression,
    has_bytes,
    pack_text,
    pack_with_bytes,
    unpack_text,
    unpack_with_bytes,
)
from lash.base.limits import check_content, check_identifier
from lash.base.seal import refuse_sealed
from lash.errors import CorruptData, InvalidInput, NodeConflict, NodeNotFound
from lash.model.causal import CausalRef
from lash.model.session.message import PartKind, Role
from lash.model.session.node import BytesEntry, Entry, MessageEntry, Node, RawNode
from lash.model.value import Timestamp, Value
from lash.plan.sealed import NODE
from lash.plan.session.kind import MESSAGE, stored_kind

T = TypeVar("T")
PICKER_LENGTH: Final = 500
"""How many characters of the first user message are kept for the session list."""
WHOLE_PATH: Final = 2**62
"""More nodes than any path has: the limit that reads a whole path."""
FEW_NODES: Final = 200
"""So many nodes are read and decoded on the event loop at most: it takes about two milliseconds."""
FEW_RAW_NODES: Final = 500
"""So many nodes are read on the event loop at most if they are not decoded: it takes about a millisecond."""


class NodeBody(Value, frozen=True, kw_only=True, gc=False):
    """The part of a node that is stored as one text."""

    timestamp: Timestamp
    entry: Entry
    agent_frame_id: str | None = None
    caused_by: CausalRef | None = None


class EncodedNode(NamedTuple):
    """A node ready to be placed."""

    node_id: str
    parent_node_id: str | None
    body: str
    user_text: str | None
    size: int
    """The length of the body in bytes."""
    packed: bytes | None = None
    """The body compressed, if it is long."""
    kind: str = MESSAGE
    """The kind of the entry, as it is stored."""

    @property
    def stored_body(self) -> str:
        """The body as it is stored: empty if ``packed`` holds it."""
        return self.body if self.packed is None else ""


class PathRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A stored node, as read for a graph."""

    node_id: str
    parent_node_id: str | None
    depth: int
    tombstoned: bool
    body: Annotated[str, NODE]
    packed: Annotated[bytes | None, NODE] = None
    erased: bool = False
    """Whether a path leaves it out; only read for paths."""


class TailRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A stored node, as read for the end of a path."""

    node_id: str
    parent_node_id: str | None
    body: Annotated[str, NODE]
    packed: Annotated[bytes | None, NODE]
    is_live: bool
    """Whether it is neither removed nor erased."""


class StoredNode(msgspec.Struct, frozen=True, array_like=True):
    """A stored node, as a commit needs it. ``is_tip``: nothing follows it on its segment, nor ever did."""

    node_id: str
    parent_node_id: str | None
    segment: int
    depth: int
    is_tip: bool
    tombstoned: bool
    body: Annotated[str, NODE]
    packed: Annotated[bytes | None, NODE] = None


class NewSegment(NamedTuple):
    segment: int
    parent_segment: int | None
    parent_depth: int | None


class PlacedNode(NamedTuple):
    segment: int
    depth: int
    seq: int
    node: EncodedNode
    begins_branch: bool
    """Whether it opens a segment below its parent."""


class NodePosition(NamedTuple):
    """The position of a node, and whether the next node can follow it on the same segment."""

    segment: int
    depth: int
    is_tip: bool


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The positions of the new nodes, and then of all nodes that the commit names."""

    segments: tuple[NewSegment, ...]
    nodes: tuple[PlacedNode, ...]
    positions: dict[str, NodePosition]


def encode_nodes(
    nodes: Sequence[Node], compression: Compression, *, often_read: bool = False
) -> tuple[EncodedNode, ...]:
    """Encode nodes for writing. Raises InvalidInput if two have the same id."""
    encoded = tuple([_encode_node(index, node, compression, often_read) for index, node in enumerate(nodes)])
    seen: set[str] = set()
    for node in encoded:
        if node.node_id in seen:
            raise InvalidInput(f"node {node.node_id!r} occurs twice in one commit")
        seen.add(node.node_id)
    return encoded


def decode_node(row: PathRow | StoredNode) -> Node:
    """Return the node of a row, or raise CorruptData."""
    body = _decode_body(row)
    return Node(
        node_id=row.node_id,
        parent_node_id=row.parent_node_id,
        timestamp=body.timestamp,
        entry=body.entry,
        agent_frame_id=body.agent_frame_id,
        caused_by=body.caused_by,
    )


def kind_of(row: PathRow) -> str:
    """Return the kind of a stored node, as its column holds it."""
    return stored_kind(decode_node(row).kind)


def new_nodes(session_id: str, nodes: Sequence[EncodedNode], stored: Mapping[str, StoredNode]) -> list[EncodedNode]:
    """Return the nodes that are not stored yet; raise NodeConflict for one that is stored with other content."""
    fresh = []
    for node in nodes:
        existing = stored.get(node.node_id)
        if existing is None:
            fresh.append(node)
        elif existing.tombstoned:
            raise NodeConflict(session_id, node.node_id, "was removed; its id cannot be used again")
        elif existing.parent_node_id != node.parent_node_id or not _same_body(existing, node):
            raise NodeConflict(session_id, node.node_id, "exists with other content")
    return fresh


def place_appended(
    session_id: str,
    nodes: Iterable[EncodedNode],
    stored: Mapping[str, StoredNode],
    *,
    segment_count: int,
    node_seq: int,
) -> Placement:
    """Place new nodes below stored ones or below each other; every parent must be live and come first."""
    positions = {
        node.node_id: NodePosition(node.segment, node.depth, node.is_tip)
        for node in stored.values()
        if not node.tombstoned
    }
    return _place(session_id, nodes, positions, segment_count, node_seq, orphans_allowed=False)


def place_replacement(session_id: str, nodes: Sequence[EncodedNode], *, segment_count: int, node_seq: int) -> Placement:
    """Place a whole graph. A node whose parent is not part of it starts a path of its own."""
    ordered = _parents_first(nodes)
    placement = _place(session_id, ordered, {}, segment_count, node_seq, orphans_allowed=True)
    seq = {node.node_id: node_seq + offset for offset, node in enumerate(nodes, start=1)}
    placed = tuple(each._replace(seq=seq[each.node.node_id]) for each in placement.nodes)
    return msgspec.structs.replace(placement, nodes=placed)


def path_nodes(rows: list[PathRow]) -> tuple[Node, ...]:
    """Return the path that ends with the last row, without erased nodes; takes rows off the list.

    It is cut where an ancestor is missing or removed; rows are left over then.
    """
    return _path(rows, decode_node)


def raw_path_nodes(rows: list[PathRow]) -> tuple[RawNode, ...]:
    """Return the same path without decoding its nodes."""
    return _path(rows, _raw_node)


def raw_tail(pieces: Sequence[Sequence[RawNode]], last: int) -> tuple[RawNode, ...] | None:
    """Return the last nodes of a path from pieces of it, which begin with the end; None if they are too few."""
    if not pieces or not all(pieces):
        return None
    for below, above in itertools.pairwise(pieces):
        if below[0].parent_node_id != above[-1].node_id:
            return None
    if sum(map(len, pieces)) < last and pieces[-1][0].parent_node_id is not None:
        return None
    return tuple(itertools.chain.from_iterable(reversed(pieces)))


def raw_piece(rows: Sequence[TailRow]) -> tuple[RawNode, ...]:
    """Return a piece of a path, in the order of depths, without decoding its nodes; empty if it has gaps.

    A node that is removed or erased is a gap.
    """
    nodes: list[RawNode] = []
    above = rows[0].parent_node_id if rows else None
    for row in rows:
        node_id, parent_node_id, body = row.node_id, row.parent_node_id, row.body
        if parent_node_id != above or not row.is_live:
            return ()
        if body[:1] == "{":
            nodes.append(RawNode(node_id=node_id, parent_node_id=parent_node_id, body=body.encode()))
        else:
            nodes.append(_raw_node(row))
        above = node_id
    return tuple(nodes)


def _path(rows: list[PathRow], read: Callable[[PathRow], T]) -> tuple[T, ...]:
    path: list[T] = []
    below: PathRow | None = None
    while rows:
        # Each row is freed soon after: freeing very many at once would stop all threads for that time.
        row = rows.pop()
        if row.tombstoned or (below is not None and row.depth != below.depth - 1):
            break
        if below is not None and below.parent_node_id != row.node_id:
            raise CorruptData(f"node {below.node_id!r} does not lie below its parent")
        if not row.erased:
            path.append(read(row))
        below = row
    path.reverse()
    return tuple(path)


def graph_nodes(rows: list[PathRow]) -> tuple[Node, ...]:
    """Return the nodes of the rows, in their order; empties the list."""
    rows.reverse()
    return tuple(decode_node(rows.pop()) for _ in range(len(rows)))


_ATTACHED: Final = {PartKind.IMAGE: "[Image attached]", PartKind.FILE: "[File attached]"}
"""What a list shows for a part that has no text of its own."""


def user_text(node: Node) -> str | None:
    """Return the user's text in this node, shortened for a list; None if it is not a user message."""
    entry = node.entry
    if not isinstance(entry, MessageEntry) or entry.message.role != Role.USER:
        return None
    texts = [
        _ATTACHED.get(part.kind, part.content)
        for part in entry.message.parts
        if part.kind not in (PartKind.TOOL_CALL, PartKind.TOOL_RESULT)
    ]
    # A text column of PostgreSQL cannot hold NUL.
    text = "\n\n".join(text for text in texts if text.strip()).replace("\0", " ").strip()
    return text[:PICKER_LENGTH]


def first_user_text(row: PathRow | None) -> str:
    """Return the text of the first user message as a list of sessions shows it; empty if there is none."""
    return "" if row is None else user_text(decode_node(row)) or ""


def _encode_node(index: int, node: object, compression: Compression, often_read: bool) -> EncodedNode:  # noqa: FBT001
    if not isinstance(node, Node):
        raise InvalidInput(f"nodes[{index}] must be a Node, not {type(node).__name__}")
    what = f"nodes[{index}]"
    check_identifier(f"{what}.node_id", node.node_id)
    if node.parent_node_id is not None:
        check_identifier(f"{what}.parent_node_id", node.parent_node_id)
    entry, content = _without_bytes(node.entry, what)
    body = NodeBody(timestamp=node.timestamp, entry=entry, agent_frame_id=node.agent_frame_id, caused_by=node.caused_by)
    text = encode_to_bytes(body, NodeBody, what)
    if content is None:
        packed, size = pack_text(text, compression, often_read=often_read), len(text)
    else:
        packed, size = pack_with_bytes(text, content, compression), len(text) + len(content)
    kind = stored_kind(node.kind)
    return EncodedNode(node.node_id, node.parent_node_id, text.decode(), user_text(node), size, packed, kind)


def _without_bytes(entry: Entry, what: str) -> tuple[Entry, bytes | None]:
    """Return the entry as it is stored in JSON, and the bytes that are stored beside it."""
    if not isinstance(entry, BytesEntry):
        return entry, None
    return msgspec.structs.replace(entry, content=b""), check_content(f"{what}.entry.content", entry.content)


def encode_body(timestamp: datetime, entry: Entry) -> str:
    """Return the text of a short body."""
    return encode(NodeBody(timestamp=timestamp, entry=entry), NodeBody, "the body of a node")


def _raw_node(row: PathRow | TailRow) -> RawNode:
    text, content = _unpack(row)
    body = text.encode() if isinstance(text, str) else text
    if not body.startswith(b"{"):
        refuse_sealed(body)
    return RawNode(node_id=row.node_id, parent_node_id=row.parent_node_id, body=body, content=content)


def _unpack(row: PathRow | TailRow | StoredNode | EncodedNode) -> tuple[str | bytes, bytes | None]:
    """Return the JSON text of a body, and the bytes that are stored beside it."""
    if row.packed is None:
        return row.body, None
    what = f"node {row.node_id!r}"
    return unpack_with_bytes(row.packed, what) if has_bytes(row.packed) else (unpack_text(row.packed, what), None)


def _decode_body(row: PathRow | StoredNode | EncodedNode) -> NodeBody:
    text, content = _unpack(row)
    body = decode(text, NodeBody, f"node {row.node_id!r}")
    if content is None:
        return body
    if not isinstance(body.entry, BytesEntry):
        raise CorruptData(f"node {row.node_id!r} has bytes, but its entry has none")
    return msgspec.structs.replace(body, entry=msgspec.structs.replace(body.entry, content=content))


def _same_body(stored: StoredNode, node: EncodedNode) -> bool:
    # A body without text is packed.
    return (stored.body == node.body and node.packed is None) or _decode_body(stored) == _decode_body(node)


def _place(
    session_id: str,
    nodes: Iterable[EncodedNode],
    positions: dict[str, NodePosition],
    segment_count: int,
    node_seq: int,
    *,
    orphans_allowed: bool,
) -> Placement:
    segments: list[NewSegment] = []
    placed: list[PlacedNode] = []
    for node in nodes:
        parent_id = node.parent_node_id
        parent = None if parent_id is None else positions.get(parent_id)
        if parent is None and parent_id is not None and not orphans_allowed:
            raise NodeNotFound(session_id, parent_id)
        if parent is not None and parent_id is not None and parent.is_tip:
            positions[parent_id] = NodePosition(parent.segment, parent.depth, is_tip=False)
            segment, depth, begins_branch = parent.segment, parent.depth + 1, False
        else:
            begins_branch = parent is not None
            segment = segment_count + len(segments) + 1
            depth = 0 if parent is None else parent.depth + 1
            left = (None, None) if parent is None else (parent.segment, parent.depth)
            segments.append(NewSegment(segment, *left))
        positions[node.node_id] = NodePosition(segment, depth, is_tip=True)
        placed.append(PlacedNode(segment, depth, node_seq + len(placed) + 1, node, begins_branch))
    return Placement(segments=tuple(segments), nodes=tuple(placed), positions=positions)


def _parents_first(nodes: Sequence[EncodedNode]) -> list[EncodedNode]:
    """Order the nodes so that a parent comes before its children; keep the given order apart from that."""
    by_id = {node.node_id: node for node in nodes}
    ordered: dict[str, EncodedNode] = {}
    for node in nodes:
        chain: dict[str, EncodedNode] = {}
        current: EncodedNode | None = node
        while current is not None and current.node_id not in ordered:
            if current.node_id in chain:
                raise InvalidInput(f"node {current.node_id!r} is its own ancestor")
            chain[current.node_id] = current
            current = by_id.get(current.parent_node_id) if current.parent_node_id is not None else None
        ordered.update(reversed(chain.items()))
    return list(ordered.values())
