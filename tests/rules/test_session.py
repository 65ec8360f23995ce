"""Rules of a session's row: heads, metadata, scopes, pages and cursors."""

import msgspec
import pytest

from lash.base.compression import BlobRef, Compression, pack_text
from lash.errors import CannotUnseal, CorruptData, InvalidInput, SessionDeleted, SessionNotFound
from lash.model.session.checkpoint import CheckpointManifest, TurnState
from lash.model.session.frame import ModelSpec
from lash.model.session.node import RawNode
from lash.model.session.session import (
    ActivePath,
    FullGraph,
    ReadScope,
    SessionConfig,
    SessionHead,
    SessionRead,
)
from lash.model.session.usage import TokenUsage, UsageEntry
from lash.plan.session.checkpoint import CheckpointRow, ComponentRow
from lash.plan.session.frame import FrameRow
from lash.plan.session.meta import MetaRow
from lash.plan.session.node import NodePosition, PathRow, StoredNode, TailRow, raw_piece, raw_tail
from lash.plan.session.session import (
    HeadRow,
    HeldNode,
    ReadRow,
    RevisionRows,
    ShortPath,
    check_scope,
    decode_head,
    decode_path,
    decode_raw_path,
    decode_read,
    missing_session,
    new_head,
    require_removable,
    uncommitted,
)
from lash.plan.session.usage import UsageRow
from tests.rules.kit import EMPTY_HEAD, SESSION, sha256

replace = msgspec.structs.replace

HEAD_ROW = msgspec.structs.replace(EMPTY_HEAD, leaf_node_id="e", leaf_segment=2, leaf_depth=3, leaf_is_tip=True)
READ_ROW = ReadRow(7, SESSION, 4, '{"provider_id":"p","model":{"id":"large"}}', "f", "c", "d" * 64, 3, 99)
HEAD = SessionHead(
    session_id=SESSION,
    revision=4,
    config=SessionConfig(provider_id="p", model=ModelSpec(id="large")),
    current_frame_id="f",
    leaf_node_id="c",
    checkpoint_ref=BlobRef("d" * 64),
    node_count=3,
    updated_at_ms=99,
)
META_ROW = MetaRow(
    *(7, SESSION, "A chat", 50, "large", "/tmp", '{"relation":{"kind":"root"}}', 4, "hello", 2, 99),
    *(None, "{}", "{}", None, None, 5),
)


def test_the_leaf_is_found_by_its_id_only() -> None:
    """The head has the position of its own leaf and of no other node."""
    assert HEAD_ROW.leaf_position("e") == NodePosition(2, 3, is_tip=True)
    assert HEAD_ROW.leaf_position("x") is None
    assert EMPTY_HEAD.leaf_position("e") is None
    assert replace(HEAD_ROW, leaf_depth=None).leaf_position("e") is None


def test_the_leaf_can_be_built_on() -> None:
    """A head with a leaf has a live node at its position; one without has none."""
    assert HEAD_ROW.leaf_as_stored_node() == StoredNode("e", None, 2, 3, True, False, "")
    assert EMPTY_HEAD.leaf_as_stored_node() is None
    assert replace(HEAD_ROW, leaf_segment=None).leaf_as_stored_node() is None


def test_a_session_begins_without_nodes_at_the_revision_it_was_given() -> None:
    """A session recreated after its deletion starts above its old revision."""
    assert new_head(META_ROW) == HeadRow(7, 4, False, None, None, None, False, 0, 0, 0, "", 0, 5)


def test_a_missing_session_was_deleted_or_never_there() -> None:
    """A deleted session and an unknown one raise different errors, which name it."""
    gone, never = missing_session(SESSION, deleted=True), missing_session(SESSION, deleted=False)
    assert (type(gone), gone.session_id) == (SessionDeleted, SESSION)
    assert (type(never), never.session_id) == (SessionNotFound, SESSION)


def test_a_committed_row_is_a_head() -> None:
    """Every column is decoded to its field."""
    assert decode_head(READ_ROW) == HEAD


@pytest.mark.parametrize("missing", [{"config": None}, {"checkpoint_ref": None}])
def test_a_row_without_a_commit_is_no_head(missing: dict[str, None]) -> None:
    """A session that was created and never committed to has no head."""
    assert decode_head(replace(READ_ROW, **missing)) is None


@pytest.mark.parametrize("missing", [{"config": None}, {"checkpoint_ref": None}])
def test_a_session_without_a_commit_has_no_revision(missing: dict[str, None]) -> None:
    """Its head is its only row, and loading it returns None."""
    row = replace(READ_ROW, **missing)
    assert READ_ROW.is_committed
    assert not row.is_committed
    assert decode_read(uncommitted(row), ActivePath()) is None


def test_an_unreadable_configuration_is_corrupt() -> None:
    """An unknown option is never dropped silently."""
    with pytest.raises(CorruptData, match="the configuration of session 'session-1'"):
        decode_head(replace(READ_ROW, config='{"provider":"p"}'))


NODE_TEXT = '{"timestamp":"2025-06-01T12:00:00Z","entry":{"kind":"plugin","plugin_type":"note","body":1}}'
NODES = [
    PathRow("a", None, 0, False, NODE_TEXT),
    PathRow("b", "a", 1, False, NODE_TEXT),
    PathRow("c", "b", 2, False, NODE_TEXT),
]
CHECKPOINT_REF = sha256(
    b'lash.checkpoint.v1\0{"turn_state":{"turn_index":1},"components":{"t":"' + sha256(b"tools").encode() + b'"}}'
)
CHECKPOINT = CheckpointRow(4, CHECKPOINT_REF, '{"turn_index":1}', None)
COMPONENTS = [ComponentRow("t", sha256(b"tools"), "plain", 5, b"tools")]


def revision_rows(
    nodes: list[PathRow], checkpoint: CheckpointRow | None = CHECKPOINT, inherited: tuple[PathRow, ...] = ()
) -> RevisionRows:
    return RevisionRows(
        read=READ_ROW,
        inherited=list(inherited),
        nodes=list(nodes),
        frames=[FrameRow("f", 0, '{"frame_id":"f","created_at":"2025-06-01T12:00:00Z"}')],
        checkpoint=checkpoint,
        components=COMPONENTS,
        totals=[UsageRow("turn", "large", 1, 0, 0, 0)],
    )


def read(
    scope: ReadScope,
    nodes: list[PathRow],
    checkpoint: CheckpointRow | None = CHECKPOINT,
    inherited: tuple[PathRow, ...] = (),
) -> SessionRead:
    result = decode_read(revision_rows(nodes, checkpoint, inherited), scope)
    assert result is not None
    return result


def shown(result: SessionRead) -> tuple[list[str], str | None]:
    return [node.node_id for node in result.graph.nodes], result.graph.leaf_node_id


def test_one_revision_is_put_together_from_its_rows() -> None:
    """Head, frames, checkpoint and ledger are complete, whatever part of the graph was requested."""
    result = read(ActivePath(), NODES)
    assert result.head == HEAD
    assert [frame.frame_id for frame in result.frames] == ["f"]
    assert result.checkpoint.components == {"t": b"tools"}
    assert result.checkpoint.manifest == CheckpointManifest(
        turn_state=TurnState(turn_index=1), components={"t": BlobRef(sha256(b"tools"))}
    )
    assert result.usage == (UsageEntry(source="turn", model="large", usage=TokenUsage(input_tokens=1)),)


def test_the_active_path_ends_with_the_leaf_that_is_meant() -> None:
    """The path ends with the head's leaf or the named one, limited to the last nodes if requested."""
    assert shown(read(ActivePath(), NODES)) == (["a", "b", "c"], "c")
    assert shown(read(ActivePath(leaf_node_id="b"), NODES[:2])) == (["a", "b"], "b")
    assert shown(read(ActivePath(last=2), NODES)) == (["b", "c"], "c")
    assert shown(read(ActivePath(last=9), NODES[1:])) == (["b", "c"], "c")


def test_a_path_is_read_again_if_too_many_of_its_nodes_are_erased() -> None:
    """Only where it has room to grow: not if all of it was read, and not above a removed node."""
    gone = [NODES[0], replace(NODES[1], erased=True), NODES[2]]
    scope = ActivePath(last=2)
    assert decode_path(revision_rows(gone[1:]), scope, 2) == ShortPath(8)
    whole = decode_path(revision_rows(gone), scope, 8)
    assert isinstance(whole, SessionRead)
    assert shown(whole) == (["a", "c"], "c")
    last = decode_path(revision_rows(gone[2:]), ActivePath(last=1), 1)
    assert isinstance(last, SessionRead)
    assert shown(last) == (["c"], "c")
    cut = decode_path(revision_rows([NODES[0], replace(NODES[1], tombstoned=True), NODES[2]]), ActivePath(last=3), 3)
    assert isinstance(cut, SessionRead)
    assert shown(cut) == (["c"], "c")
    assert isinstance(decode_path(revision_rows(gone), FullGraph(), None), SessionRead)
    assert isinstance(decode_path(revision_rows(gone), ActivePath(), None), SessionRead)
    assert decode_path(uncommitted(replace(READ_ROW, config=None)), scope, 2) is None


def test_the_end_of_a_raw_path_is_read_again_too() -> None:
    """The same rule holds for nodes that are not decoded; they keep their bodies as they are stored."""
    gone = [NODES[0], replace(NODES[1], erased=True), NODES[2]]
    first = RawNode(node_id="a", parent_node_id=None, body=NODE_TEXT.encode())
    last = RawNode(node_id="c", parent_node_id="b", body=NODE_TEXT.encode())
    assert decode_raw_path(gone[1:], 2, 2) == ShortPath(8)
    assert decode_raw_path(gone.copy(), 2, 8) == (first, last)
    assert decode_raw_path(gone.copy(), 1, 8) == (last,)
    assert decode_raw_path(gone.copy(), None, None) == (first, last)
    cut = [NODES[0], replace(NODES[1], tombstoned=True), NODES[2]]
    assert decode_raw_path(cut, 3, 3) == (last,)
    packed = pack_text(NODE_TEXT.encode() * 20, Compression.BALANCED)
    assert decode_raw_path([PathRow("a", None, 0, False, "", packed)], 1, 1) == (
        replace(first, body=NODE_TEXT.encode() * 20),
    )


def test_a_raw_path_has_no_sealed_nodes() -> None:
    """A node that is sealed, and was read without a sealer, is an error and not the raw text of a node."""
    with pytest.raises(CannotUnseal):
        decode_raw_path([PathRow("a", None, 0, False, "~lash1~AAAA")], 1, 1)


def test_a_piece_of_a_path_has_no_gaps() -> None:
    """A removed or erased node and a row that is not the next node make it empty."""
    text = NODE_TEXT.encode()
    rows = [TailRow(each, above, NODE_TEXT, None, True) for above, each in zip((None, "a", "b"), "abc", strict=True)]
    nodes = tuple(RawNode(node_id=row.node_id, parent_node_id=row.parent_node_id, body=text) for row in rows)
    assert raw_piece(rows) == nodes
    assert raw_piece(rows[1:]) == nodes[1:]
    for wanting in ([], [rows[0], rows[2]], [rows[0], replace(rows[1], is_live=False)]):
        assert raw_piece(wanting) == ()
    packed = pack_text(text * 20, Compression.BALANCED)
    assert raw_piece([TailRow("a", None, "", packed, True)]) == (replace(nodes[0], body=text * 20),)
    with pytest.raises(CannotUnseal):
        raw_piece([TailRow("a", None, "~lash1~AAAA", None, True)])


def test_a_tail_is_enough_if_it_has_all_nodes_or_the_root() -> None:
    """Too few nodes, a piece with a gap and one that does not end above the piece before need a climb."""
    a, b, c = (
        RawNode(node_id=each, parent_node_id=above, body=b"{}")
        for above, each in zip((None, "a", "b"), "abc", strict=True)
    )
    for pieces in ([(a, b, c)], [(b, c), (a,)], [(c,), (a, b)], [(c,), (b,), (a,)]):
        assert raw_tail(pieces, 3) == raw_tail(pieces, 20) == (a, b, c)
    assert raw_tail([(b, c)], 2) == raw_tail([(c,), (b,)], 2) == (b, c)
    for wanting in ([], [()], [(b, c)], [(c,), (b,)], [(c,), (a,)], [(c,), (), (b,)], [(c,), (b,), ()]):
        assert raw_tail(wanting, 3) is None


def test_the_full_graph_keeps_the_order_of_its_rows() -> None:
    """Branches are not cut, and depth does not matter."""
    rows = [NODES[0], NODES[2], NODES[1]]
    assert shown(read(FullGraph(), rows)) == (["a", "c", "b"], "c")


def test_a_head_without_its_checkpoint_is_corrupt() -> None:
    """A missing checkpoint is damage, never an empty one."""
    with pytest.raises(CorruptData, match="session 'session-1' has no checkpoint for its revision 4"):
        read(FullGraph(), NODES, checkpoint=None)


@pytest.mark.parametrize(
    "scope", [FullGraph(), ActivePath(), ActivePath(leaf_node_id="n"), ActivePath(last=1), ActivePath(last=2**63 - 1)]
)
def test_a_scope_is_returned_as_it_is(scope: ReadScope) -> None:
    """A valid scope is returned unchanged."""
    assert check_scope(scope) is scope


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("full", "scope must be FullGraph or ActivePath, not str"),
        (FullGraph, "scope must be FullGraph or ActivePath, not StructMeta"),
        (ActivePath(leaf_node_id=""), "leaf_node_id is blank"),
        (ActivePath(last=0), "last must lie between 1"),
        (ActivePath(last=1.0), "last must be an integer"),  # type: ignore[arg-type]
        (ActivePath(last=2**63), "last must lie between 1"),
    ],
)
def test_what_is_no_scope_is_refused(wrong: object, message: str) -> None:
    """The error names the argument."""
    with pytest.raises(InvalidInput, match=message):
        check_scope(wrong)


def test_a_whole_graph_begins_with_what_is_inherited() -> None:
    """A fork has the inherited path, then its own nodes; the rows of a path already have both."""
    inherited = (NODES[0], NODES[1])
    assert shown(read(FullGraph(), [NODES[2]], inherited=inherited)) == (["a", "b", "c"], HEAD.leaf_node_id)
    with pytest.raises(CorruptData):
        read(FullGraph(), [], inherited=(NODES[0], PathRow("b", "other", 1, False, NODE_TEXT)))


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (HeldNode("a", "path"), "node 'a' lies on the active path of session 'session-1' and cannot be removed"),
        (HeldNode("a", "source"), "node 'a' belongs to the source of session 'session-1' and cannot be removed"),
        (HeldNode("a", "fork"), "node 'a' is inherited by a fork of session 'session-1' and cannot be removed"),
    ],
)
def test_a_node_that_is_needed_cannot_be_removed(held: HeldNode, message: str) -> None:
    """The first node that cannot be removed is reported, with the reason."""
    require_removable(SESSION, [])
    with pytest.raises(InvalidInput) as caught:
        require_removable(SESSION, [held, HeldNode("z", "path")])
    assert str(caught.value) == message
