"""Rules of an append: what it is made of, when it is refused or replayed, and the head that it publishes."""

from __future__ import annotations

import json

import msgspec
import pytest

from lash.base.compression import Compression
from lash.errors import CommitTooLarge, CorruptData, InvalidInput, NodeConflict, TurnConflict
from lash.model.session.commit import AppendResult, CommitBudget
from lash.model.session.message import Role
from lash.model.session.node import Node
from lash.plan.session.append import (
    AppendFacts,
    ApplyAppend,
    PreparedAppend,
    ReplayAppend,
    first_head,
    plan_append,
    prepare_append,
)
from lash.plan.session.node import NewSegment, StoredNode
from lash.plan.session.session import HeadRow
from lash.plan.session.turn import TurnRow, check_result, check_turn_choice, revision_of
from tests.rules.kit import EMPTY_HEAD, SESSION, noted, rules, said, sha256, stored

# Five nodes on three segments; the leaf "e" ends segment 2.
HEAD = HeadRow(7, 4, True, "e", 2, 3, True, 3, 11, 5, "hi", 2, None)


def prepared(*nodes: Node, turn_id: str | None = None, **options: object) -> PreparedAppend:
    return prepare_append(nodes, SESSION, turn_id, rules(**options))  # type: ignore[arg-type]


def known(head: HeadRow = HEAD, *nodes: StoredNode, turn: TurnRow | None = None) -> AppendFacts:
    return AppendFacts(head=head, turn=turn, stored_nodes={node.node_id: node for node in nodes})


def applied(append: PreparedAppend, facts: AppendFacts) -> ApplyAppend:
    decision = plan_append(append, facts)
    assert isinstance(decision, ApplyAppend)
    assert decision.before == facts.head
    return decision


def test_nodes_continue_the_segment_of_the_leaf() -> None:
    """They follow each other and the leaf, at the next depths and numbers."""
    decision = applied(prepared(said("x", role=Role.ASSISTANT), said("y", text="more")), known())
    assert [(n.segment, n.depth, n.seq, n.node.node_id, n.node.parent_node_id) for n in decision.placement.nodes] == [
        (2, 4, 12, "x", "e"),
        (2, 5, 13, "y", "x"),
    ]
    assert decision.placement.segments == ()
    assert decision.head == HeadRow(7, 5, True, "y", 2, 5, True, 3, 13, 7, "hi", 3, None)
    assert decision.result == AppendResult(revision=5, parent_node_id="e")


def test_nodes_behind_an_inner_leaf_open_a_segment() -> None:
    """If another node follows the leaf, they are a new branch."""
    inner = msgspec.structs.replace(HEAD, leaf_is_tip=False)
    decision = applied(prepared(noted("x")), known(inner))
    assert decision.placement.segments == (NewSegment(4, 2, 3),)
    assert decision.head == HeadRow(7, 5, True, "x", 4, 4, True, 4, 12, 6, "hi", 2, None)


def test_the_first_nodes_open_the_first_segment() -> None:
    """A session without nodes gets its root, its first user message and its first revision."""
    decision = applied(prepared(said("x", text="first"), said("y", text="second")), known(EMPTY_HEAD))
    assert decision.placement.segments == (NewSegment(1, None, None),)
    assert decision.head == HeadRow(1, 1, True, "y", 1, 1, True, 1, 2, 2, "first", 2, None)
    assert decision.result == AppendResult(revision=1, parent_node_id=None)


def test_a_taken_id_is_a_conflict() -> None:
    """Whatever the stored node holds, an append never reuses its id."""
    with pytest.raises(NodeConflict, match="'x' of session 'session-1' exists already"):
        plan_append(prepared(said("w"), said("x")), known(HEAD, stored("x", 1, 1, parent="a")))


def test_a_known_turn_is_replayed() -> None:
    """The first result is returned if the content is the same, before any other check."""
    append = prepared(said("x"), turn_id="t")
    again = prepared(said("other"), turn_id="t")
    first = AppendResult(revision=3, parent_node_id="b")
    row = TurnRow(append.append_hash or "", msgspec.json.encode(first).decode())
    assert again.append_hash == append.append_hash
    assert plan_append(again, known(HEAD, stored("other", 1, 1), turn=row)) == ReplayAppend(result=first)
    for other in (said("x", text="else"), said("x", role=Role.ASSISTANT)):
        with pytest.raises(TurnConflict):
            plan_append(prepared(other, turn_id="t"), known(turn=row))


def test_a_new_turn_is_applied() -> None:
    """A turn id that no append has used changes nothing."""
    append = prepared(said("x"), turn_id="t")
    assert applied(append, known()).result == AppendResult(revision=5, parent_node_id="e")


def test_texts_that_are_often_read_are_stored_plain() -> None:
    """Only if the caller says so, and not in its identity, so that a repeat is recognised."""
    nodes, balanced = [said("x", text="word " * 400)], rules(compression=Compression.BALANCED)
    plain = prepare_append(nodes, SESSION, "t", balanced, often_read=True)
    packed = prepare_append(nodes, SESSION, "t", balanced)
    assert plain.nodes[0].packed is None
    assert packed.nodes[0].packed is not None
    assert plain.append_hash == packed.append_hash


def test_the_identity_of_an_append_is_fixed() -> None:
    """It is the hash of its nodes' content in order, so that later releases recognise a repeat."""
    entry = {"kind": "plugin", "plugin_type": "note", "body": 1}
    content = [{"agent_frame_id": None, "caused_by": None, "entry": dict(sorted(entry.items()))}]
    text = json.dumps(content, separators=(",", ":"), sort_keys=True)
    assert prepared(noted("x", body=1), turn_id="t").append_hash == sha256(b"lash.turn-append.v1\0" + text.encode())
    assert prepared(noted("x", body=1)).append_hash is None


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((), "at least one Node"),
        ("x", "at least one Node"),
        ([said("x", "y")], r"nodes\[0\].parent_node_id must be None"),
        ([said("x"), said("y", "x")], r"nodes\[1\].parent_node_id must be None"),
        ([said("x"), said("x")], "occurs twice"),
    ],
)
def test_invalid_nodes(nodes: list[Node], message: str) -> None:
    """Nodes are a list or tuple, not empty, without parents, each once."""
    with pytest.raises(InvalidInput, match=message):
        prepare_append(nodes, SESSION, None, rules())


def test_an_invalid_turn_id() -> None:
    """A turn id is an identifier."""
    with pytest.raises(InvalidInput, match="turn_id"):
        prepared(said("x"), turn_id="")


def test_the_budget() -> None:
    """Rows and bytes are limited as those of a commit are."""
    assert len(prepared(said("x"), said("y"), budget=CommitBudget(max_rows=2)).nodes) == 2
    with pytest.raises(CommitTooLarge):
        prepared(said("x"), said("y"), budget=CommitBudget(max_rows=1))
    size = prepared(said("x"), said("y")).size
    assert prepared(said("x"), said("y"), budget=CommitBudget(max_bytes=size)).size == size
    with pytest.raises(CommitTooLarge):
        prepared(said("x"), said("y"), budget=CommitBudget(max_bytes=size - 1))


def test_what_is_written_on_the_event_loop() -> None:
    """Up to 64 nodes of together 256 KiB."""
    assert prepared(*(noted(f"n{number}") for number in range(64))).is_brief
    assert not prepared(*(noted(f"n{number}") for number in range(65))).is_brief
    assert not prepared(noted("x", body="x" * 262_144)).is_brief


def test_the_first_head_is_that_of_an_empty_commit() -> None:
    """Configuration and checkpoint have no fields that differ from their defaults."""
    head = first_head()
    assert (head.config, head.checkpoint.turn_state) == ("{}", "{}")
    assert head.checkpoint.ref == sha256(b"lash.checkpoint.v1\0{}")
    assert prepared(said("x"), keep=3).keep == 3


def test_stored_results() -> None:
    """A stored result is that of a commit or of an append; anything else is damaged."""
    check_result('{"revision":1,"parent_node_id":null}')
    check_result('{"revision":1,"checkpoint_ref":"r","manifest":{}}')
    with pytest.raises(CorruptData):
        check_result('{"revision":1}')


def test_a_result_names_its_revision() -> None:
    """The revision of a turn is in the result of its commit or its append."""
    assert revision_of("t", TurnRow("h", '{"revision":3,"parent_node_id":null}')) == 3
    assert revision_of("t", TurnRow("h", '{"revision":4,"checkpoint_ref":"r","manifest":{}}')) == 4
    with pytest.raises(CorruptData, match="the result of turn 't'"):
        revision_of("t", TurnRow("h", "{}"))


def test_a_revision_is_named_in_one_way() -> None:
    """A revision or a turn, and each must be possible."""
    check_turn_choice(None, None)
    check_turn_choice(0, None)
    check_turn_choice(None, "t")
    with pytest.raises(InvalidInput, match="expected revision or turn_id, got both; leave one out"):
        check_turn_choice(1, "t")
    with pytest.raises(InvalidInput, match="revision"):
        check_turn_choice(-1, None)
    with pytest.raises(InvalidInput, match="turn_id is blank"):
        check_turn_choice(None, " ")
