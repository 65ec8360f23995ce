"""Rules of forks: where one begins, and when an existing session is the same fork."""

from __future__ import annotations

import pytest

from lash.errors import InvalidInput, NodeNotFound, SessionExists
from lash.model.session.session import ChildRelation, ForkRelation, RootRelation, SessionRelation
from lash.plan.session.fork import (
    InheritedRun,
    PreparedFork,
    SourceRow,
    StoredRun,
    existing_fork,
    fork_point,
    prepare_fork,
)
from lash.plan.session.meta import GivenMeta, MetaRow, encode_relation

SOURCE = SourceRow(3, True, "leaf")


def prepare(
    source: str = "s", new: str = "t", *, node_id: str | None = None, name: str | None = None, model: str = ""
) -> PreparedFork:
    return prepare_fork(source, new, GivenMeta(name=name, model=model), node_id=node_id)


def row(relation: SessionRelation) -> MetaRow:
    return MetaRow(9, "t", "t", 5, "", None, encode_relation(relation), 4, "", 0, 6, None, "{}", "{}", None, None, None)


def test_a_fork_is_named_like_its_id_unless_told() -> None:
    """The metadata is the given one, without any of the source's."""
    assert prepare(node_id="n").meta.relation == ForkRelation(source_session_id="s", node_id="n")
    assert prepare().meta.name == "t"
    named = prepare(name="branch", model="m", node_id="n")
    assert (named.meta.name, named.meta.model, named.node_id, named.source_session_id) == ("branch", "m", "n", "s")


@pytest.mark.parametrize(
    ("source", "new", "node_id", "what"),
    [
        ("", "t", None, "source_session_id"),
        ("s", " ", None, "new_session_id"),
        ("s", "s", None, "itself"),
        ("s", "t", "", "node_id"),
        ("s", "t", "x" * 256, "node_id"),
    ],
)
def test_bad_ids_are_refused(source: str, new: str, node_id: str | None, what: str) -> None:
    """Invalid ids are refused by name before any read."""
    with pytest.raises(InvalidInput, match=what):
        prepare(source, new, node_id=node_id)


def test_bad_metadata_is_refused() -> None:
    """An invalid name is refused before any read."""
    with pytest.raises(InvalidInput, match="name"):
        prepare(name="a\0b")


@pytest.mark.parametrize(("asked", "found"), [(None, "n"), ("n", "n"), (None, None)])
def test_the_same_fork_is_recognised(asked: str | None, found: str | None) -> None:
    """The source must be the same, and the node too if one was named."""
    existing = existing_fork(prepare(node_id=asked), row(ForkRelation(source_session_id="s", node_id=found)))
    assert (existing.created, existing.revision, existing.meta.session_id) == (False, 4, "t")


@pytest.mark.parametrize(
    ("asked", "relation"),
    [
        (None, RootRelation()),
        (None, ChildRelation(parent_session_id="s")),
        (None, ForkRelation(source_session_id="other", node_id="n")),
        ("n", ForkRelation(source_session_id="s", node_id="m")),
        ("n", ForkRelation(source_session_id="s")),
    ],
)
def test_another_session_is_not_taken_for_the_fork(asked: str | None, relation: SessionRelation) -> None:
    """Any other session with the id is a conflict."""
    with pytest.raises(SessionExists) as caught:
        existing_fork(prepare(node_id=asked), row(relation))
    assert caught.value.session_id == "t"


def test_a_fork_begins_after_the_leaf_or_the_named_node() -> None:
    """The leaf is the default; a source without one is forked before its first node."""
    assert prepare().start_node(SOURCE) == "leaf"
    assert prepare(node_id="n").start_node(SOURCE) == "n"
    assert prepare().start_node(SourceRow(3, False, None)) is None


def test_the_leaf_of_a_fork_lies_on_segment_0() -> None:
    """The leaf is at the depth of the last inherited node, whatever segment that node is on."""
    runs = [InheritedRun(1, 4, -1, 2), InheritedRun(3, 1, 2, 7)]
    point = fork_point(prepare(), SOURCE, runs, [])
    assert (point.source_key, point.committed, point.node_id) == (3, True, "leaf")
    assert (point.shared_run, point.new_runs) == (None, tuple(runs))
    assert (point.leaf_segment, point.leaf_depth) == (0, 7)
    assert point.encoded.meta.relation == ForkRelation(source_session_id="s", node_id="leaf")
    assert point.encoded.relation == encode_relation(point.encoded.meta.relation)


def test_a_fork_without_nodes_has_no_leaf() -> None:
    """Without nodes there is nothing to inherit on segment 0."""
    point = fork_point(prepare(), SourceRow(3, False, None), [], [])
    assert (point.leaf_segment, point.leaf_depth, point.node_id, point.committed) == (None, None, None, False)


def test_a_node_without_a_path_is_not_live() -> None:
    """The node is unknown, removed, or not visible."""
    with pytest.raises(NodeNotFound) as caught:
        fork_point(prepare(node_id="n"), SOURCE, [], [StoredRun(1, 1, 4, -1, 2)])
    assert (caught.value.session_id, caught.value.node_id) == ("s", "n")


FIRST, SECOND = StoredRun(11, 1, 4, -1, 2), StoredRun(12, 2, 0, 2, 5)
"""What the source inherits: nodes of sessions 1 and 2."""


@pytest.mark.parametrize(
    ("runs", "shared", "new"),
    [
        ([(1, 4, -1, 2), (2, 0, 2, 5), (3, 0, 5, 9)], 12, 1),
        ([(1, 4, -1, 2), (2, 0, 2, 5)], 12, 0),
        ([(1, 4, -1, 2), (2, 0, 2, 3)], 11, 1),
        ([(1, 4, -1, 1), (3, 1, 1, 4)], None, 2),
        ([(3, 0, 6, 9)], None, 1),
    ],
    ids=["own node", "last inherited node", "earlier inherited node", "branch off the first run", "cut path"],
)
def test_a_fork_shares_the_runs_of_its_source(
    runs: list[tuple[int, int, int, int]], shared: int | None, new: int
) -> None:
    """It continues the list where the paths part; a run that is cut short is another one."""
    path = [InheritedRun(*run) for run in runs]
    point = fork_point(prepare(node_id="n"), SOURCE, path, [FIRST, SECOND])
    assert (point.shared_run, list(point.new_runs)) == (shared, path[len(path) - new :])
    assert point.leaf_depth == path[-1].ceiling
