"""Rules of a commit: whether it may be written, given the facts, and the head that it publishes."""

import msgspec
import pytest

from lash.base.compression import BlobRef
from lash.errors import (
    AttachmentNotFound,
    BlobNotFound,
    ClaimLost,
    GraphConflict,
    GraphShared,
    LeaseLost,
    NodeConflict,
    NodeNotFound,
    RevisionConflict,
    TurnConflict,
)
from lash.model.lease import LeaseFence, session_resource
from lash.model.queue import ClaimCompletion
from lash.model.session.commit import Append, Commit, CommitResult, GraphDelta, ReplaceFull, Unchanged
from lash.model.session.message import Role
from lash.model.session.node import Node
from lash.plan.lease import LeaseRow
from lash.plan.session.commit import Apply, CommitFacts, Replay, assume_facts, plan_commit, prepare_commit
from lash.plan.session.node import NewSegment, StoredNode
from lash.plan.session.session import HeadRow
from lash.plan.session.turn import TurnRow
from tests.rules.kit import EMPTY_HEAD, SESSION, appending, facts, noted, rules, said, stored

replace = msgspec.structs.replace

FENCE = LeaseFence(
    resource=session_resource(SESSION), owner_id="worker", incarnation_id="first", token="token", fencing=5
)
LIVE = LeaseRow(5, "worker", "first", None, "token", 0, 2_000)

# A session of five nodes on three segments; the leaf "e" ends segment 2.
HEAD = HeadRow(7, 4, True, "e", 2, 3, True, 3, 11, 5, "hi", 2, None)
LEAF = stored("e", 2, 3, parent="d")
INNER = stored("b", 1, 1, parent="a", tip=False)


def changing(graph: GraphDelta, **fields: object) -> Commit:
    return replace(Commit(session_id=SESSION, expected_revision=4, graph=graph), **fields)


def decide(commit: Commit, known: CommitFacts) -> Apply | Replay:
    return plan_commit(prepare_commit(commit, SESSION, rules()), known)


def applied(graph: GraphDelta, *stored_nodes: StoredNode, head: HeadRow = HEAD) -> Apply:
    commit = changing(graph, expected_revision=head.revision)
    decision = decide(commit, facts(head, *stored_nodes))
    assert isinstance(decision, Apply)
    assert decision.assumed == head
    return decision


def leaf_of(decision: Apply) -> tuple[str | None, int | None, int | None, bool]:
    head = decision.head
    return (head.leaf_node_id, head.leaf_segment, head.leaf_depth, head.leaf_is_tip)


def test_the_first_commit_publishes_the_first_head() -> None:
    """Counters start at zero and count the placed nodes."""
    decision = applied(
        Append(nodes=(said("a"), said("b", "a", "bye", Role.ASSISTANT), said("c", "b", "more"))), head=EMPTY_HEAD
    )
    assert decision.head == HeadRow(1, 1, True, "c", 1, 2, True, 1, 3, 3, "hello", 2, None)
    assert decision.replace is False


def test_an_append_on_the_leaf_moves_the_head() -> None:
    """Revision, leaf and counters move; the first user message stays the first."""
    decision = applied(Append(nodes=(said("f", "e", "later"),)), LEAF)
    assert decision.head == HeadRow(7, 5, True, "f", 2, 4, True, 3, 12, 6, "hi", 3, None)
    assert decision.placement.segments == ()


def test_an_append_elsewhere_opens_a_segment() -> None:
    """A branch becomes the active path with its new segment."""
    decision = applied(Append(nodes=(noted("f", "b"),)), INNER)
    assert decision.head == HeadRow(7, 5, True, "f", 4, 2, True, 4, 12, 6, "hi", 2, None)
    assert decision.placement.segments == (NewSegment(4, 1, 1),)


def test_the_first_user_message_is_found_when_it_comes_later() -> None:
    """A session that began without a user message gets its line from the first one, in the given order."""
    silent = replace(HEAD, first_user_message="", user_message_count=0)
    decision = applied(Append(nodes=(noted("f", "e"), said("g", "f", "one"), said("h", "g", "two"))), LEAF, head=silent)
    assert (decision.head.first_user_message, decision.head.user_message_count) == ("one", 2)


def test_a_first_user_message_without_text_stays_the_first() -> None:
    """Its line for the list is empty; a later message does not replace it."""
    wordless = replace(HEAD, first_user_message="", user_message_count=1)
    decision = applied(Append(nodes=(said("f", "e", "later"),)), LEAF, head=wordless)
    assert (decision.head.first_user_message, decision.head.user_message_count) == ("", 2)


def test_without_nodes_and_without_a_leaf_the_leaf_stays() -> None:
    """Unchanged, and an append of nothing, keep the position of the leaf."""
    expected = ("e", 2, 3, True)
    assert leaf_of(applied(Unchanged())) == expected
    assert leaf_of(applied(Append(nodes=()))) == expected
    assert leaf_of(applied(Unchanged(), head=EMPTY_HEAD)) == (None, None, None, False)


def test_the_leaf_can_be_moved() -> None:
    """A live node or none can be named; nothing is placed."""
    decision = applied(Unchanged(leaf_node_id="b"), INNER)
    assert leaf_of(decision) == ("b", 1, 1, False)
    assert (decision.head.node_count, decision.head.node_seq, decision.placement.nodes) == (5, 11, ())
    assert leaf_of(applied(Unchanged(leaf_node_id=None))) == (None, None, None, False)


def test_an_append_can_leave_the_leaf_behind() -> None:
    """A named leaf that gets a child on its segment is no longer a tip."""
    decision = applied(Append(nodes=(noted("f", "e"),), leaf_node_id="e"), LEAF)
    assert leaf_of(decision) == ("e", 2, 3, False)


def test_appending_what_is_stored_writes_no_node() -> None:
    """The leaf becomes the last named node, new or not; only new nodes are counted."""
    body = '{"timestamp":"2025-06-01T12:00:00Z","entry":{"kind":"plugin","plugin_type":"note","body":null}}'
    known = replace(LEAF, body=body)
    decision = applied(Append(nodes=(noted("e", "d"),)), known, stored("d", 2, 2, tip=False))
    assert decision.placement.nodes == ()
    assert leaf_of(decision) == ("e", 2, 3, True)
    assert (decision.head.node_count, decision.head.node_seq) == (5, 11)


def test_a_replacement_counts_anew_and_numbers_on() -> None:
    """Segments and sequence numbers are never reused; counts and the first message are the new ones."""
    graph = ReplaceFull(nodes=(said("x", None, "new"), noted("y", "x")), leaf_node_id="x", replaced_node_count=5)
    decision = applied(graph)
    assert decision.head == HeadRow(7, 5, True, "x", 4, 0, False, 4, 13, 2, "new", 1, None)
    assert decision.replace is True


def test_the_first_message_of_a_replacement_goes_by_the_order_given() -> None:
    """Children listed before their parents do not change which message is first."""
    nodes = (said("y", "x", "second in the tree"), said("x", None, "first in the tree"))
    decision = applied(ReplaceFull(nodes=nodes, leaf_node_id="y", replaced_node_count=5))
    assert decision.head.first_user_message == "second in the tree"


def test_a_replacement_by_nothing_empties_the_session() -> None:
    """No node, no leaf, no line for the list."""
    decision = applied(ReplaceFull(nodes=(), leaf_node_id=None, replaced_node_count=5))
    assert decision.head == HeadRow(7, 5, True, None, None, None, False, 3, 11, 0, "", 0, None)


@pytest.mark.parametrize("nodes", [(), (noted("x"),)])
def test_a_replacement_cannot_keep_a_leaf_that_it_removes(nodes: tuple[Node, ...]) -> None:
    """The leaf of a replacement is one of its own nodes, not one that it replaces."""
    with pytest.raises(NodeNotFound) as caught:
        applied(ReplaceFull(nodes=nodes, leaf_node_id="e", replaced_node_count=5), LEAF)
    assert caught.value.node_id == "e"


@pytest.mark.parametrize("seen", [0, 4, 6])
def test_a_replacement_of_a_partial_view_is_a_conflict(seen: int) -> None:
    """A caller that did not see every node cannot delete any."""
    with pytest.raises(GraphConflict) as caught:
        applied(ReplaceFull(nodes=(), leaf_node_id=None, replaced_node_count=seen))
    assert (caught.value.expected, caught.value.actual) == (seen, 5)


def test_a_graph_that_a_fork_inherits_is_not_replaced() -> None:
    """It is refused with all nodes seen and with a partial view; appending is allowed."""
    inherited = msgspec.structs.replace(facts(HEAD), is_inherited=True)
    with pytest.raises(GraphShared) as caught:
        decide(changing(ReplaceFull(nodes=(), leaf_node_id=None, replaced_node_count=5)), inherited)
    assert caught.value.session_id == SESSION
    with pytest.raises(GraphConflict):
        decide(changing(ReplaceFull(nodes=(), leaf_node_id=None, replaced_node_count=4)), inherited)
    assert isinstance(decide(changing(Unchanged()), inherited), Apply)


@pytest.mark.parametrize(
    ("graph", "known"),
    [
        (Unchanged(leaf_node_id="ghost"), ()),
        (Append(nodes=(noted("f", "e"),), leaf_node_id="ghost"), (LEAF,)),
        (Unchanged(leaf_node_id="ghost"), (stored("ghost", 1, 0, tombstoned=True),)),
        (Append(nodes=(noted("f", "ghost"),)), (LEAF,)),
    ],
)
def test_a_node_that_is_not_live_cannot_be_built_on(graph: GraphDelta, known: tuple[StoredNode, ...]) -> None:
    """A node that is not live can be neither a leaf nor a parent."""
    with pytest.raises(NodeNotFound) as caught:
        applied(graph, *known)
    assert (caught.value.session_id, caught.value.node_id) == (SESSION, "ghost")


def test_a_taken_node_id_is_a_conflict() -> None:
    """The whole commit is refused."""
    with pytest.raises(NodeConflict):
        applied(Append(nodes=(noted("e", "d"),)), replace(LEAF, tombstoned=True))


@pytest.mark.parametrize("actual", [3, 5])
def test_another_revision_is_a_conflict(actual: int) -> None:
    """A head at another revision, higher or lower, is not written to."""
    with pytest.raises(RevisionConflict) as caught:
        decide(changing(Unchanged()), facts(replace(HEAD, revision=actual)))
    assert (caught.value.session_id, caught.value.expected, caught.value.actual) == (SESSION, 4, actual)


def test_a_live_fence_lets_the_commit_pass() -> None:
    """A commit without a fence passes too, whichever owner holds the lease."""
    for fence in (FENCE, None):
        decision = decide(changing(Unchanged(), fence=fence), facts(HEAD, lease=LIVE, now_ms=1_999))
        assert isinstance(decision, Apply)


@pytest.mark.parametrize(
    ("fence", "now_ms", "reason"),
    [
        (FENCE, 2_000, "it expired"),
        (replace(FENCE, fencing=4), 0, "held under fencing number 5"),
        (replace(FENCE, resource=session_resource("other")), 0, "the fence is for session 'other'"),
    ],
)
def test_a_fence_that_does_not_hold_stops_the_commit(fence: LeaseFence, now_ms: int, reason: str) -> None:
    """A worker that lost its lease cannot commit."""
    with pytest.raises(LeaseLost, match=reason) as caught:
        decide(changing(Unchanged(), fence=fence), facts(HEAD, lease=LIVE, now_ms=now_ms))
    assert caught.value.resource == session_resource(SESSION)


def test_a_stale_release_stops_nothing() -> None:
    """A release is optional; only a fence is a condition."""
    stale = replace(FENCE, token="old")
    assert isinstance(decide(changing(Unchanged(), release=stale), facts(HEAD, lease=LIVE)), Apply)


def test_a_ref_that_does_not_resolve_is_named() -> None:
    """Of several missing refs the first in order is reported, so the answer is always the same."""
    missing = frozenset({BlobRef("b" * 64), BlobRef("a" * 64)})
    with pytest.raises(BlobNotFound) as caught:
        decide(changing(Unchanged()), replace(facts(HEAD), missing_refs=missing))
    assert (caught.value.session_id, caught.value.ref) == (SESSION, "a" * 64)


RESULT_TEXT = '{"revision":2,"checkpoint_ref":"c","manifest":{}}'


def with_turn(commit: Commit, known: CommitFacts, *, same: bool = True) -> CommitFacts:
    own = prepare_commit(commit, SESSION, rules()).commit_hash
    assert own is not None
    return replace(known, turn=TurnRow(own if same else "0" * 64, RESULT_TEXT))


# Everything except its turn is wrong with this commit: no lease, an old revision, an unknown parent, a missing ref.
HOPELESS = changing(Append(nodes=(noted("f", "ghost"),)), turn_id="turn", fence=FENCE, expected_revision=1)
HOPELESS_FACTS = replace(facts(HEAD), missing_refs=frozenset({BlobRef("a" * 64)}))


def test_a_repeated_turn_is_answered_before_anything_else_is_asked() -> None:
    """The first result is returned without a lease and long after the head moved."""
    decision = decide(HOPELESS, with_turn(HOPELESS, HOPELESS_FACTS))
    assert isinstance(decision, Replay)
    assert isinstance(decision.result, CommitResult)
    assert (decision.result.revision, decision.result.checkpoint_ref) == (2, "c")


def test_other_content_under_a_known_turn_is_a_conflict_before_anything_else() -> None:
    """The turn is reported, not the lease or the revision."""
    with pytest.raises(TurnConflict):
        decide(HOPELESS, with_turn(HOPELESS, HOPELESS_FACTS, same=False))


def test_failures_are_told_in_a_fixed_order() -> None:
    """Fence, revision, graph, bytes: as each is fixed, the next failure is reported."""
    with pytest.raises(LeaseLost):
        decide(HOPELESS, HOPELESS_FACTS)
    fenced = replace(HOPELESS_FACTS, lease=LIVE)
    with pytest.raises(RevisionConflict):
        decide(HOPELESS, fenced)
    current = replace(HOPELESS, expected_revision=4)
    with pytest.raises(NodeNotFound):
        decide(current, fenced)
    rooted = replace(fenced, stored_nodes={"ghost": stored("ghost", 1, 0)})
    with pytest.raises(BlobNotFound):
        decide(current, rooted)
    assert isinstance(decide(current, replace(rooted, missing_refs=frozenset())), Apply)


def assumed(graph: GraphDelta, head: HeadRow = HEAD, fence: LeaseFence | None = None) -> CommitFacts | None:
    return assume_facts(prepare_commit(changing(graph, fence=fence), SESSION, rules()), head)


@pytest.mark.parametrize("fence", [FENCE, None])
def test_an_append_on_the_known_leaf_needs_no_reading(fence: LeaseFence | None) -> None:
    """A plan made on the assumed facts is the plan made on the real ones."""
    commit = changing(Append(nodes=(said("f", "e"), noted("g", "f"))), fence=fence)
    guess = assume_facts(prepare_commit(commit, SESSION, rules()), HEAD)
    assert guess is not None
    assert guess.turn is None
    assert decide(commit, guess) == decide(commit, facts(HEAD, LEAF, lease=LIVE))


@pytest.mark.parametrize("graph", [Unchanged(), Unchanged(leaf_node_id=None), Append(nodes=(noted("root"),))])
def test_a_commit_that_names_no_stored_node_needs_no_reading(graph: GraphDelta) -> None:
    """This holds with or without a leaf in the head."""
    assert assumed(graph) is not None
    assert assumed(graph, replace(EMPTY_HEAD, revision=4)) is not None


@pytest.mark.parametrize(
    ("graph", "head", "fence"),
    [
        (Unchanged(), replace(HEAD, revision=5), None),
        (ReplaceFull(nodes=(), leaf_node_id=None, replaced_node_count=5), HEAD, None),
        (Append(nodes=(noted("f", "b"),)), HEAD, None),
        (Append(nodes=(noted("e", "d"),)), HEAD, None),
        (Append(nodes=(noted("e"),)), HEAD, None),
        (Unchanged(leaf_node_id="b"), HEAD, None),
        (Append(nodes=(noted("f", "e"),)), replace(HEAD, leaf_segment=None), None),
        (Unchanged(), HEAD, replace(FENCE, resource=session_resource("other"))),
    ],
    ids=[
        "revision",
        "replacement",
        "other parent",
        "the leaf again",
        "the leaf as a root",
        "other leaf",
        "unknown position",
        "foreign fence",
    ],
)
def test_nothing_is_assumed_that_the_head_does_not_tell(
    graph: GraphDelta, head: HeadRow, fence: LeaseFence | None
) -> None:
    """If a commit needs more than the leaf, the database is read."""
    assert assumed(graph, head, fence) is None


def test_the_first_commit_of_a_session_can_be_assumed() -> None:
    """A new session's head has all that its first commit needs."""
    guess = assume_facts(prepare_commit(appending(said("a")), SESSION, rules()), EMPTY_HEAD)
    assert guess is not None
    assert guess.stored_nodes == {}


DONE = (
    ClaimCompletion(claim_id="c1", token="t1", batch_ids=("b1", "b2")),
    ClaimCompletion(claim_id="c2", token="t2", batch_ids=("b3",)),
)
HELD = {"t1": frozenset({"b1", "b2"}), "t2": frozenset({"b3"})}


def test_a_commit_consumes_claims_that_hold() -> None:
    """Each token must hold exactly the batches that its completion lists."""
    assert isinstance(decide(changing(Unchanged(), completions=DONE), replace(facts(HEAD), held_batches=HELD)), Apply)


@pytest.mark.parametrize(
    ("held", "lost"),
    [
        ({}, "c1"),
        ({"t1": frozenset({"b1", "b2"})}, "c2"),
        ({"t1": frozenset({"b1"}), "t2": frozenset({"b3"})}, "c1"),
        ({"t1": frozenset({"b1", "b2", "b4"}), "t2": frozenset({"b3"})}, "c1"),
        ({"t1": frozenset({"b1", "b2"}), "t2": frozenset({"b4"})}, "c2"),
    ],
)
def test_a_commit_whose_claim_is_lost_is_refused(held: dict[str, frozenset[str]], lost: str) -> None:
    """The first claim that holds fewer, more or other batches is named."""
    with pytest.raises(ClaimLost) as refused:
        decide(changing(Unchanged(), completions=DONE), replace(facts(HEAD), held_batches=held))
    assert (refused.value.session_id, refused.value.claim_id) == (SESSION, lost)


def test_claims_are_checked_behind_the_revision_and_before_the_graph() -> None:
    """A stale head is reported first, and a lost claim before a missing parent."""
    orphan = Append(nodes=(noted("f", "nowhere"),))
    with pytest.raises(RevisionConflict):
        decide(changing(orphan, completions=DONE, expected_revision=3), facts(HEAD))
    with pytest.raises(ClaimLost):
        decide(changing(orphan, completions=DONE), facts(HEAD))


def test_claims_can_be_assumed_to_hold() -> None:
    """A plan made before any read assumes that each claim holds."""
    prepared = prepare_commit(changing(Unchanged(), completions=DONE), SESSION, rules())
    assumed = assume_facts(prepared, HEAD)
    assert assumed is not None
    assert assumed.held_batches == HELD


def test_an_attachment_that_was_never_put_refuses_the_commit() -> None:
    """Every attachment that a commit names must have been announced by the session."""
    ready = prepare_commit(Commit(session_id=SESSION, expected_revision=0, attachments=("a" * 64,)), SESSION, rules())
    with pytest.raises(AttachmentNotFound, match="a" * 64):
        plan_commit(ready, replace(facts(), missing_attachments=frozenset({"a" * 64})))
