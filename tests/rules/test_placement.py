"""Rules of placing nodes: on which segment, at which depth, in which order."""

import dataclasses
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lash.errors import InvalidInput, NodeNotFound
from lash.plan.session.node import (
    EncodedNode,
    NewSegment,
    NodePosition,
    Placement,
    StoredNode,
    place_appended,
    place_replacement,
)
from tests.rules.kit import SESSION, bare, stored


def where(placement: Placement) -> dict[str, tuple[int, int, int]]:
    """Return segment, depth and sequence number of every placed node."""
    return {each.node.node_id: (each.segment, each.depth, each.seq) for each in placement.nodes}


def append(
    *nodes: EncodedNode, known: tuple[StoredNode, ...] = (), segment_count: int = 0, node_seq: int = 0
) -> Placement:
    stored_nodes = {node.node_id: node for node in known}
    return place_appended(SESSION, nodes, stored_nodes, segment_count=segment_count, node_seq=node_seq)


def replaced(*nodes: EncodedNode) -> Placement:
    return place_replacement(SESSION, nodes, segment_count=4, node_seq=10)


def test_a_chain_lies_on_one_segment() -> None:
    """The first node opens a segment and the others follow on it."""
    placement = append(bare("a"), bare("b", "a"), bare("c", "b"))
    assert where(placement) == {"a": (1, 0, 1), "b": (1, 1, 2), "c": (1, 2, 3)}
    assert placement.segments == (NewSegment(1, None, None),)
    assert placement.positions == {
        "a": NodePosition(1, 0, False),
        "b": NodePosition(1, 1, False),
        "c": NodePosition(1, 2, True),
    }


def test_an_append_on_the_end_of_a_segment_stays_on_it() -> None:
    """No new segment is needed below a tip."""
    placement = append(bare("n", "tip"), known=(stored("tip", 3, 7),), segment_count=5, node_seq=40)
    assert where(placement) == {"n": (3, 8, 41)}
    assert placement.segments == ()
    assert placement.positions["tip"] == NodePosition(3, 7, False)


def test_an_append_elsewhere_opens_a_segment() -> None:
    """A branch names its parent's segment and depth."""
    placement = append(bare("n", "mid"), known=(stored("mid", 3, 7, tip=False),), segment_count=5)
    assert where(placement) == {"n": (6, 8, 1)}
    assert placement.segments == (NewSegment(6, 3, 7),)


def test_the_second_child_of_a_tip_opens_a_segment() -> None:
    """Only one child can follow on the segment of its parent."""
    placement = append(bare("x", "tip"), bare("y", "tip"), known=(stored("tip", 1, 0),), segment_count=1)
    assert where(placement) == {"x": (1, 1, 1), "y": (2, 1, 2)}
    assert placement.segments == (NewSegment(2, 1, 0),)
    assert [each.begins_branch for each in placement.nodes] == [False, True]


def test_several_roots_open_a_segment_each() -> None:
    """A node without a parent never follows another one, nor begins a branch."""
    assert not any(each.begins_branch for each in append(bare("a"), bare("b")).nodes)
    assert where(append(bare("a"), bare("b"))) == {"a": (1, 0, 1), "b": (2, 0, 2)}


@pytest.mark.parametrize(
    ("nodes", "known", "missing"),
    [
        ((bare("n", "ghost"),), (), "ghost"),
        ((bare("n", "gone"),), (stored("gone", 1, 0, tombstoned=True),), "gone"),
        ((bare("child", "parent"), bare("parent")), (), "parent"),
        ((bare("n", "n"),), (), "n"),
    ],
    ids=["unknown", "removed", "parent comes later", "own parent"],
)
def test_an_append_needs_a_live_parent_that_comes_first(
    nodes: tuple[EncodedNode, ...], known: tuple[StoredNode, ...], missing: str
) -> None:
    """No node is placed below a missing one."""
    with pytest.raises(NodeNotFound) as caught:
        append(*nodes, known=known)
    assert (caught.value.session_id, caught.value.node_id) == (SESSION, missing)


def test_a_replacement_may_name_children_before_parents() -> None:
    """Nodes are placed parents first, and keep the given order as their sequence."""
    placement = replaced(bare("c", "b"), bare("b", "a"), bare("a"), bare("d", "a"))
    assert where(placement) == {"a": (5, 0, 13), "b": (5, 1, 12), "c": (5, 2, 11), "d": (6, 1, 14)}
    assert placement.segments == (NewSegment(5, None, None), NewSegment(6, 5, 0))


def test_an_orphan_of_a_replacement_begins_a_path_of_its_own() -> None:
    """A child whose parent is not part of the replacement starts at depth zero."""
    assert where(replaced(bare("b", "ghost"), bare("c", "b"))) == {"b": (5, 0, 11), "c": (5, 1, 12)}


@pytest.mark.parametrize(
    "nodes", [(bare("a", "a"),), (bare("a", "b"), bare("b", "a")), (bare("x", "a"), bare("a", "b"), bare("b", "a"))]
)
def test_a_replacement_that_runs_in_a_circle_is_refused(nodes: tuple[EncodedNode, ...]) -> None:
    """A cyclic replacement is refused."""
    with pytest.raises(InvalidInput, match=r"node '[ab]' is its own ancestor"):
        replaced(*nodes)


def test_a_long_chain_named_backwards_is_placed_without_recursion() -> None:
    """Depth is limited only by the number of nodes."""
    nodes = [bare(f"n{number}", f"n{number - 1}" if number else None) for number in range(5_000)]
    placement = replaced(*reversed(nodes))
    assert len(placement.segments) == 1
    assert where(placement)["n4999"] == (5, 4_999, 11)


def test_no_path_is_climbed_twice() -> None:
    """The work of placing a graph grows with its nodes, not with the lengths of their paths."""

    class Counted(str):
        __slots__ = ()
        lookups = 0

        def __hash__(self) -> int:
            Counted.lookups += 1
            return super().__hash__()

    ids = [Counted(f"n{number}") for number in range(200)]
    replaced(bare(ids[0]), *(bare(child, parent) for parent, child in itertools.pairwise(ids)))
    assert Counted.lookups < 200 * 20


@dataclasses.dataclass
class Shelf:
    """What a database would hold: the nodes by position, and where each segment left its parent."""

    at: dict[tuple[int, int], str] = dataclasses.field(default_factory=dict)
    place_of: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    left: dict[int, tuple[int | None, int | None]] = dataclasses.field(default_factory=dict)
    sequences: list[int] = dataclasses.field(default_factory=list)

    def store(self, placement: Placement) -> None:
        for segment, parent_segment, parent_depth in placement.segments:
            assert segment not in self.left
            self.left[segment] = (parent_segment, parent_depth)
        for each in placement.nodes:
            place = (each.segment, each.depth)
            assert place not in self.at
            self.at[place] = each.node.node_id
            self.place_of[each.node.node_id] = place
            self.sequences.append(each.seq)

    def known(self, node_id: str, parent: str | None) -> StoredNode:
        segment, depth = self.place_of[node_id]
        return stored(node_id, segment, depth, parent=parent, tip=(segment, depth + 1) not in self.at)

    def climb(self, node_id: str) -> list[str]:
        """Read a path as a database does: one range per segment, from the leaf's to the root's."""
        path: list[str] = []
        segment: int | None
        depth: int | None
        segment, depth = self.place_of[node_id]
        while segment is not None and depth is not None:
            run = sorted((d for s, d in self.at if s == segment and d <= depth), reverse=True)
            path.extend(self.at[segment, each] for each in run)
            segment, depth = self.left[segment]
        return path[::-1]


def ancestry(parents: dict[str, str | None], node_id: str) -> list[str]:
    """Return the path according to the parents alone."""
    path, current = [node_id], parents[node_id]
    while current is not None:
        path.append(current)
        current = parents[current]
    return path[::-1]


@st.composite
def forests(draw: st.DrawFn) -> dict[str, str | None]:
    """Generate parents of up to 40 nodes, each below an earlier one or none, recent ones more often."""
    parents: dict[str, str | None] = {}
    for number in range(draw(st.integers(1, 40))):
        back = draw(st.sampled_from([1, 1, 1, 1, 2, 3, 7, 100]))
        parents[f"n{number}"] = f"n{number - back}" if number >= back else None
    return parents


def check_shelf(shelf: Shelf, parents: dict[str, str | None]) -> None:
    for node_id in parents:
        path = ancestry(parents, node_id)
        assert shelf.place_of[node_id][1] == len(path) - 1
        assert shelf.climb(node_id) == path
    assert sorted(shelf.sequences) == list(range(1, len(parents) + 1))


@settings(max_examples=60, deadline=None)
@given(parents=forests(), data=st.data())
def test_any_forest_appended_in_any_batches_is_read_back_by_climbing(
    parents: dict[str, str | None], data: st.DataObject
) -> None:
    """Positions are unique, each node is one deeper than its parent, and climbing gives its ancestry."""
    shelf, rest = Shelf(), list(parents)
    while rest:
        size = data.draw(st.integers(1, len(rest)), label="batch")
        batch, rest = rest[:size], rest[size:]
        outside = {parents[each] for each in batch} - {None, *batch}
        known = {each: shelf.known(each, parents[each]) for each in outside if each is not None}
        nodes = [bare(each, parents[each]) for each in batch]
        counts = (len(shelf.left), len(shelf.at))
        shelf.store(place_appended(SESSION, nodes, known, segment_count=counts[0], node_seq=counts[1]))
    check_shelf(shelf, parents)
    assert shelf.sequences == sorted(shelf.sequences)


@settings(max_examples=40, deadline=None)
@given(parents=forests(), seed=st.integers(0, 2**32))
def test_any_forest_given_whole_in_any_order_is_read_back_by_climbing(
    parents: dict[str, str | None], seed: int
) -> None:
    """A replacement has the same guarantees, in any order of its nodes."""
    order = list(parents)
    random.Random(seed).shuffle(order)
    shelf = Shelf()
    shelf.store(place_replacement(SESSION, [bare(each, parents[each]) for each in order], segment_count=0, node_seq=0))
    check_shelf(shelf, parents)
    assert dict(zip(shelf.place_of, shelf.sequences, strict=True)) == {
        each: position for position, each in enumerate(order, start=1)
    }
