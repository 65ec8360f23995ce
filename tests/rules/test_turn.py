"""The identity of a turn's commit: what it ignores, what changes it, and its exact value."""

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from lash.base.compression import BlobRef
from lash.errors import CorruptData, TurnConflict
from lash.model.causal import TurnCause
from lash.model.lease import LeaseFence, session_resource
from lash.model.queue import ClaimCompletion
from lash.model.session.checkpoint import CheckpointDraft, CheckpointManifest, TurnState
from lash.model.session.commit import Append, Commit, CommitResult, GraphDelta, ReplaceFull, Unchanged
from lash.model.session.frame import AgentFrame, AgentFrameAssignment, FrameStatus, ModelLimits, ModelSpec
from lash.model.session.message import Message, Part, PartKind, Role
from lash.model.session.node import MessageEntry, Node, ProtocolEntry
from lash.model.session.session import SessionConfig
from lash.model.session.usage import TokenUsage, UsageEntry
from lash.plan.session.commit import prepare_commit
from lash.plan.session.turn import TurnRow, commit_hash, replay
from tests.rules.kit import NOON, SESSION, canonical_json, rules, said, sha256

replace = msgspec.structs.replace

FENCE = LeaseFence(
    resource=session_resource(SESSION), owner_id="worker", incarnation_id="boot", token="token", fencing=4
)

COMMIT = Commit(
    session_id=SESSION,
    expected_revision=7,
    turn_id="turn-1",
    config=SessionConfig(provider_id="openai", model=ModelSpec(id="large")),
    frames=(AgentFrame(frame_id="frame-1", created_at=NOON, execution_state=b"running"),),
    current_frame_id="frame-1",
    graph=Append(
        nodes=(
            Node(
                node_id="n-1",
                parent_node_id="n-0",
                timestamp=NOON,
                entry=MessageEntry(message=Message.of_text("m-1", Role.USER, "Grüße")),
                agent_frame_id="frame-1",
            ),
            Node(
                node_id="n-2",
                parent_node_id="n-1",
                timestamp=NOON,
                entry=ProtocolEntry(plugin_id="chat", payload={"b": [1, 2.5], "a": None}),
                caused_by=TurnCause(session_id=SESSION, turn_id="turn-1"),
            ),
        )
    ),
    checkpoint=CheckpointDraft(
        turn_state=TurnState(turn_index=3),
        plugin_snapshot_revision=2,
        components={"tool_state": b"tools", "plugin_snapshot": b"plugins"},
    ),
    usage=(UsageEntry(source="turn", model="large", usage=TokenUsage(input_tokens=5, output_tokens=6)),),
)

# Written by hand; the three hashes are those of b"plugins", b"tools", b"running".
PROJECTION = (
    '{"components":{"plugin_snapshot":"92cd10e6b8b068a931196d1d73a032543d5ca1a5bf445e27a1af74258254517c",'
    '"tool_state":"f9d35d43770d39092a663e665e82ae1d84a9e0da3d0d10c407acada6a40cd281"},'
    '"config":{"model":{"id":"large"},"provider_id":"openai"},'
    '"current_frame":"frame-1",'
    '"frames":[{"assignment":{},"caused_by":null,'
    '"execution_state":"c071cf5f5ed6f884cc70155b6f05f755fd46a302d05e4261b7e92ce878bbfed8","frame_id":"frame-1",'
    '"previous_frame_id":null,"protocol_turn_options":{},"reason":"initial","status":"active"}],'
    '"graph":{"delta":"append","leaf":1,"nodes":['
    '{"agent_frame_id":"frame-1","caused_by":null,"entry":{"kind":"message","message":'
    '{"id":"","parts":[{"content":"Grüße","id":"","kind":"text"}],"role":"user"}},"parent":"earlier"},'
    '{"agent_frame_id":null,"caused_by":{"session_id":"session-1","turn_id":"turn-1","type":"turn"},'
    '"entry":{"kind":"protocol","payload":{"a":null,"b":[1,2.5]},"plugin_id":"chat"},"parent":0}]},'
    '"plugin_snapshot_revision":2,'
    '"turn_state":{"turn_index":3},'
    '"usage":[{"model":"large","source":"turn","usage":{"input_tokens":5,"output_tokens":6}}]}'
)

# Checked in so that no later version of lash gives an old commit another identity.
GOLDEN = "a03e48930e4e849857d7ee2d59885a7eb2bc06d5ed5769e88b0fa12fccdef089"
EMPTY_GOLDEN = "a6892dbad399b811ebc5a434dadc5572089e67d3f78e2c49af430691efbf0a90"
EMPTY_PROJECTION = (
    b'{"components":{},"config":{},"current_frame":null,"frames":[],"graph":{"delta":"unchanged"},'
    b'"plugin_snapshot_revision":null,"turn_state":{},"usage":[]}'
)


def identity(commit: Commit) -> str | None:
    return prepare_commit(commit, commit.session_id, rules()).commit_hash


def with_nodes(commit: Commit, change: Callable[[Node], Node]) -> Commit:
    """Return the commit with every node changed and everything else unchanged."""
    assert isinstance(commit.graph, Append)
    return replace(commit, graph=replace(commit.graph, nodes=tuple(change(node) for node in commit.graph.nodes)))


def with_message(commit: Commit, change: Callable[[Message], Message]) -> Commit:
    def changed(node: Node) -> Node:
        if not isinstance(node.entry, MessageEntry):
            return node
        return replace(node, entry=MessageEntry(message=change(node.entry.message)))

    return with_nodes(commit, changed)


def renamed(node: Node) -> Node:
    return replace(node, node_id=f"x{node.node_id}", parent_node_id=f"x{node.parent_node_id}")


def with_frame(commit: Commit, **fields: object) -> Commit:
    return replace(commit, frames=(replace(commit.frames[0], **fields),))


def with_state(commit: Commit, **fields: object) -> Commit:
    return replace(commit, checkpoint=replace(commit.checkpoint, **fields))


def test_the_golden_vectors_are_the_hashes_of_the_written_projections() -> None:
    """The checked-in identities are SHA-256 over a version prefix and the projection written by hand."""
    prefix = b"lash.turn-commit.v1\0"
    assert hashlib.sha256(prefix + PROJECTION.encode()).hexdigest() == GOLDEN
    assert hashlib.sha256(prefix + EMPTY_PROJECTION).hexdigest() == EMPTY_GOLDEN


def test_a_full_commit_has_its_golden_identity() -> None:
    """The identity of a commit with every part is the checked-in one."""
    components = {
        "tool_state": BlobRef(sha256(b"tools")),
        "plugin_snapshot": BlobRef(sha256(b"plugins")),
        "frame:frame-1": BlobRef(sha256(b"running")),
    }
    assert commit_hash(COMMIT, components) == GOLDEN
    assert identity(COMMIT) == GOLDEN


def test_the_empty_commit_has_its_golden_identity() -> None:
    """The identity of an empty commit is the checked-in one."""
    assert commit_hash(Commit(session_id="any", expected_revision=0), {}) == EMPTY_GOLDEN


def test_a_commit_without_a_turn_has_no_identity() -> None:
    """Only a commit with a turn can be repeated."""
    assert identity(replace(COMMIT, turn_id=None)) is None


LATER = NOON + timedelta(days=1)
IGNORED = {
    "node and parent ids": with_nodes(COMMIT, renamed),
    "a leaf named by its id": replace(COMMIT, graph=replace(with_nodes(COMMIT, renamed).graph, leaf_node_id="xn-2")),
    "node timestamps": with_nodes(COMMIT, lambda node: replace(node, timestamp=LATER)),
    "message ids": with_message(COMMIT, lambda message: replace(message, id="other")),
    "part ids": with_message(
        COMMIT, lambda message: replace(message, parts=tuple(replace(part, id="other") for part in message.parts))
    ),
    "expected revision": replace(COMMIT, expected_revision=8),
    "turn id": replace(COMMIT, turn_id="turn-2"),
    "fence": replace(COMMIT, fence=FENCE),
    "release": replace(COMMIT, release=FENCE),
    "when a frame was created": with_frame(COMMIT, created_at=LATER),
    "a frame's state given as a ref": with_frame(
        COMMIT, execution_state=None, execution_state_ref=BlobRef(sha256(b"running"))
    ),
    "components given as refs": with_state(
        COMMIT, components={"tool_state": BlobRef(sha256(b"tools")), "plugin_snapshot": b"plugins"}
    ),
    "the order of components": with_state(COMMIT, components={"plugin_snapshot": b"plugins", "tool_state": b"tools"}),
}


@pytest.mark.parametrize("name", IGNORED)
def test_what_a_retry_may_do_differently_does_not_change_the_identity(name: str) -> None:
    """Ids, clocks, fences and the expected revision are not part of the identity."""
    assert IGNORED[name] != COMMIT or name == "the order of components"
    assert identity(IGNORED[name]) == GOLDEN


def with_parent(commit: Commit, position: int, parent: str | None) -> Commit:
    assert isinstance(commit.graph, Append)
    nodes = list(commit.graph.nodes)
    nodes[position] = replace(nodes[position], parent_node_id=parent)
    return replace(commit, graph=replace(commit.graph, nodes=tuple(nodes)))


def with_second_frame(commit: Commit) -> Commit:
    return replace(commit, frames=(*commit.frames, AgentFrame(frame_id="frame-2", created_at=NOON)))


def with_more_parts(message: Message) -> Message:
    return replace(message, parts=(*message.parts, Part(id="p", kind=PartKind.CODE, content="1")))


CHANGING = {
    "turn index": with_state(COMMIT, turn_state=TurnState(turn_index=4)),
    "turn options": with_state(COMMIT, turn_state=TurnState(turn_index=3, protocol_turn_options={"a": 1})),
    "plugin snapshot revision": with_state(COMMIT, plugin_snapshot_revision=None),
    "a component's bytes": with_state(COMMIT, components={"tool_state": b"tools", "plugin_snapshot": b"other"}),
    "a component left out": with_state(COMMIT, components={"tool_state": b"tools"}),
    "a component's key": with_state(COMMIT, components={"tool_state": b"tools", "other": b"plugins"}),
    "usage": replace(COMMIT, usage=()),
    "a usage counter": replace(
        COMMIT, usage=(replace(COMMIT.usage[0], usage=TokenUsage(input_tokens=5, output_tokens=7)),)
    ),
    "provider": replace(COMMIT, config=replace(COMMIT.config, provider_id="other")),
    "model": replace(COMMIT, config=replace(COMMIT.config, model=ModelSpec(id="small"))),
    "current frame": replace(COMMIT, current_frame_id=None),
    "another frame": with_second_frame(COMMIT),
    "frame reason": with_frame(COMMIT, reason="compaction"),
    "frame status": with_frame(COMMIT, status=FrameStatus.SUPERSEDED),
    "frame assignment": with_frame(COMMIT, assignment=AgentFrameAssignment(usage_source="child")),
    "frame state": with_frame(COMMIT, execution_state=b"other"),
    "no frame state": with_frame(COMMIT, execution_state=None),
    "a node's parent": with_parent(COMMIT, 1, "n-0"),
    "a node without a parent": with_parent(COMMIT, 0, None),
    "the leaf's position": replace(COMMIT, graph=replace(COMMIT.graph, leaf_node_id="n-1")),
    "an earlier leaf": replace(COMMIT, graph=replace(COMMIT.graph, leaf_node_id="n-0")),
    "no leaf": replace(COMMIT, graph=replace(COMMIT.graph, leaf_node_id=None)),
    "no nodes": replace(COMMIT, graph=Unchanged()),
    "a replacement": replace(
        COMMIT,
        graph=ReplaceFull(
            nodes=COMMIT.graph.nodes if isinstance(COMMIT.graph, Append) else (),
            leaf_node_id="n-2",
            replaced_node_count=0,
        ),
    ),
    "message text": with_message(COMMIT, lambda message: Message.of_text("m-1", message.role, "Other")),
    "message role": with_message(COMMIT, lambda message: replace(message, role=Role.SYSTEM)),
    "message parts": with_message(COMMIT, with_more_parts),
    "a node's frame": with_nodes(COMMIT, lambda node: replace(node, agent_frame_id="frame-2")),
    "a node's cause": with_nodes(COMMIT, lambda node: replace(node, caused_by=None)),
}


@pytest.mark.parametrize("name", CHANGING)
def test_other_content_has_another_identity(name: str) -> None:
    """Everything that the turn publishes is part of the identity."""
    changed = identity(CHANGING[name])
    assert changed is not None
    assert changed != GOLDEN


def test_every_change_of_content_gives_an_identity_of_its_own() -> None:
    """All changed commits have different identities."""
    assert len({identity(commit) for commit in CHANGING.values()}) == len(CHANGING)


def test_the_topology_counts_by_position_not_by_name() -> None:
    """Two siblings below a new node differ from a chain, whatever the ids are."""
    first, second = said("a"), said("b", "a")
    chain = (first, second, said("c", "b"))
    fork = (first, second, said("c", "a"))
    of = {
        nodes: identity(Commit(session_id="s", expected_revision=0, turn_id="t", graph=Append(nodes=nodes)))
        for nodes in (chain, fork)
    }
    assert of[chain] != of[fork]


RESULT = CommitResult(
    revision=8, checkpoint_ref=BlobRef("c" * 64), manifest=CheckpointManifest(components={"a": BlobRef("d" * 64)})
)
RESULT_TEXT = '{"revision":8,"checkpoint_ref":"' + "c" * 64 + '","manifest":{"components":{"a":"' + "d" * 64 + '"}}}'


def test_a_repeated_commit_gets_the_first_result() -> None:
    """The same content under the same turn returns the stored result."""
    assert replay(SESSION, "turn-1", TurnRow("hash", RESULT_TEXT), "hash", CommitResult) == RESULT


def test_other_content_under_the_same_turn_is_a_conflict() -> None:
    """A turn is committed with one content only; the error names session and turn."""
    with pytest.raises(TurnConflict) as caught:
        replay(SESSION, "turn-1", TurnRow("hash", RESULT_TEXT), "other", CommitResult)
    assert (caught.value.session_id, caught.value.turn_id) == (SESSION, "turn-1")


def test_an_unreadable_result_is_corrupt_data() -> None:
    """An unreadable stored result is damage, never absence."""
    with pytest.raises(CorruptData, match="the result of turn 'turn-1'"):
        replay(SESSION, "turn-1", TurnRow("hash", '{"revision":"eight"}'), "hash", CommitResult)


@pytest.mark.parametrize(
    ("spelt_out", "left_out"),
    [
        ({"config": SessionConfig(model=ModelSpec(limits=ModelLimits()))}, {"config": SessionConfig()}),
        (
            {"checkpoint": CheckpointDraft(turn_state=TurnState(token_usage=TokenUsage()))},
            {"checkpoint": CheckpointDraft()},
        ),
    ],
)
def test_a_default_spelt_out_is_the_default(spelt_out: dict[str, Any], left_out: dict[str, Any]) -> None:
    """Equal commits have one identity, however their defaults were written."""
    first = Commit(session_id="s", expected_revision=0, **spelt_out)
    second = Commit(session_id="s", expected_revision=0, **left_out)
    assert first == second
    assert commit_hash(first, {}) == commit_hash(second, {})


def test_a_moved_leaf_is_another_commit() -> None:
    """Whether the leaf stays, moves to a node or before all nodes is content; the node's id is not."""
    hashes = [
        commit_hash(Commit(session_id="s", expected_revision=0, graph=graph), {})
        for graph in (
            Unchanged(),
            Unchanged(leaf_node_id="a"),
            Unchanged(leaf_node_id="b"),
            Unchanged(leaf_node_id=None),
        )
    ]
    assert len(set(hashes)) == 3
    assert hashes[1] == hashes[2]


def projected(**parts: object) -> str:
    """Return the identity of a commit with only these parts, written by hand."""
    content = {**json.loads(EMPTY_PROJECTION), **parts}
    return sha256(b"lash.turn-commit.v1\0" + canonical_json(content))


SAID = (said("a", "n-0"), said("b", "a"))
SAID_TEXT = [
    {
        "agent_frame_id": None,
        "caused_by": None,
        "entry": {
            "kind": "message",
            "message": {"id": "", "parts": [{"content": "hello", "id": "", "kind": "text"}], "role": "user"},
        },
        "parent": parent,
    }
    for parent in ("earlier", 0)
]


@pytest.mark.parametrize(
    ("graph", "written"),
    [
        (Unchanged(leaf_node_id="n-0"), {"delta": "unchanged", "leaf": "earlier"}),
        (Unchanged(leaf_node_id=None), {"delta": "unchanged", "leaf": None}),
        (Append(nodes=SAID), {"delta": "append", "leaf": 1, "nodes": SAID_TEXT}),
        (Append(nodes=SAID, leaf_node_id="a"), {"delta": "append", "leaf": 0, "nodes": SAID_TEXT}),
        (Append(nodes=SAID, leaf_node_id="n-0"), {"delta": "append", "leaf": "earlier", "nodes": SAID_TEXT}),
        (Append(nodes=SAID, leaf_node_id=None), {"delta": "append", "leaf": None, "nodes": SAID_TEXT}),
        (
            ReplaceFull(nodes=SAID, leaf_node_id="b", replaced_node_count=7),
            {"delta": "replace_full", "leaf": 1, "nodes": SAID_TEXT},
        ),
    ],
    ids=["leaf moved", "no leaf", "append", "leaf by id", "leaf before", "append, no leaf", "replacement"],
)
def test_the_identity_of_each_change_of_the_graph_is_written_down(graph: GraphDelta, written: object) -> None:
    """A turn committed by an older lash is recognised by a newer one, for every change of the graph."""
    assert commit_hash(Commit(session_id="s", expected_revision=0, graph=graph), {}) == projected(graph=written)


def test_the_identity_of_attachments_is_written_down() -> None:
    """Attachments have their own field, sorted and without duplicates."""
    given = Commit(session_id="s", expected_revision=0, attachments=("b" * 64, "a" * 64, "b" * 64))
    assert commit_hash(given, {}) == projected(attachments=["a" * 64, "b" * 64])


CONSUMING = replace(
    COMMIT,
    completions=(
        ClaimCompletion(claim_id="c2", token="t2", batch_ids=("b3", "b1")),
        ClaimCompletion(claim_id="c1", token="t1", batch_ids=("b2",)),
    ),
)
CONSUMING_GOLDEN = "8e567a1eb46c6a83d2112752d97d2ac55eb7ebd024b15d05752473f90ea81e4b"


def test_what_is_consumed_is_part_of_the_identity() -> None:
    """The batches count, in sorted order; their claims do not."""
    consumed = PROJECTION.replace('"current_frame"', '"consumed":["b1","b2","b3"],"current_frame"', 1)
    assert hashlib.sha256(b"lash.turn-commit.v1\0" + consumed.encode()).hexdigest() == CONSUMING_GOLDEN
    assert identity(CONSUMING) == CONSUMING_GOLDEN
    again = ClaimCompletion(claim_id="c3", token="t3", batch_ids=("b1", "b2", "b3"))
    assert identity(replace(COMMIT, completions=(again,))) == CONSUMING_GOLDEN
    assert identity(replace(COMMIT, completions=(replace(again, batch_ids=("b1", "b2")),))) != CONSUMING_GOLDEN


def test_attachments_are_content_in_no_order() -> None:
    """The set of attachments is part of the identity; order and repetition are not."""
    none, one, both, turned = (
        commit_hash(Commit(session_id="s", expected_revision=0, attachments=ids), {})
        for ids in ((), ("a" * 64,), ("a" * 64, "b" * 64), ("b" * 64, "a" * 64, "b" * 64))
    )
    assert len({none, one, both}) == 3
    assert both == turned
