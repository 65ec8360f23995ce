"""The static graph: which effects a run can come to, and in which order."""

from __future__ import annotations

import pytest

from lash.lang.graph import GraphNode, ModuleGraph, module_graph
from tests.lang.hosts import linked
from tests.lang.test_codec import EVERYTHING


def graph_of(source: str) -> ModuleGraph:
    return module_graph(linked(source).artifact)


def edges_of(graph: ModuleGraph) -> list[str]:
    """Return edges as texts, with the first word of each node."""
    words = {node.id: node.text for node in graph.nodes}
    return [f"{words[edge.source]} -> {words[edge.target]} {edge.when or ''}".strip() for edge in graph.edges]


def test_the_seed() -> None:
    """The only node of the seed has the id of the specification."""
    graph = graph_of("process scan(root: str) { finish root }")
    entry = "2890eae94d062dbe7d7ddfcdf8ea67ef839ce1ba73f6baaa788ca12fcb776704:0"
    only = GraphNode("terminal:f7c3b7a9c64ff4afa0b9540b", entry, "0", "terminal", "finish root")
    assert graph.nodes == (only,)
    assert [(each.name, each.first) for each in graph.entries] == [("scan", (only.id,))]
    assert graph.edges == ()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("sleep for 1 sleep for 2", ["sleep for 1 -> sleep for 2"]),
        (
            "if a { sleep for 1 } else { sleep for 2 } sleep for 3",
            [
                "if a -> sleep for 1 yes",
                "if a -> sleep for 2 no",
                "sleep for 1 -> sleep for 3",
                "sleep for 2 -> sleep for 3",
            ],
        ),
        ("if a { submit 1 } submit 2", ["if a -> submit 1 yes", "if a -> submit 2 no"]),
        (
            "for x in y { sleep for 1 sleep for 2 } sleep for 3",
            ["sleep for 1 -> sleep for 2", "sleep for 2 -> sleep for 1 repeat", "sleep for 2 -> sleep for 3"],
        ),
        (
            "while true { sleep for 1 if a { break } sleep for 2 } sleep for 3",
            [
                "sleep for 1 -> if a",
                "if a -> sleep for 2 no",
                "sleep for 2 -> sleep for 1 repeat",
                "sleep for 2 -> sleep for 3",
                "if a -> sleep for 3 yes",
            ],
        ),
        (
            "for x in y { if a { continue } sleep for 1 }",
            ["if a -> sleep for 1 no", "sleep for 1 -> if a repeat", "if a -> if a repeat"],
        ),
        (
            "x = (sleep for 1) or (sleep for 2) sleep for 3",
            ["sleep for 1 -> sleep for 2", "sleep for 1 -> sleep for 3", "sleep for 2 -> sleep for 3"],
        ),
    ],
)
def test_edges(source: str, expected: list[str]) -> None:
    """Edges follow branches, loops, breaks and short circuits."""
    assert edges_of(graph_of(source)) == expected


def test_a_batch_has_the_paths_of_its_leaves() -> None:
    """An operation of a batch with `?` has the path of the `?`; outside of a batch it has its own."""
    graph = graph_of("x = await [web.fetch({ url: 'a' })?, disk.read('b')] y = await disk.read('c')?")
    assert [(node.kind, node.path) for node in graph.nodes] == [
        ("resource_operation", "0.0.0.0"),
        ("resource_operation", "0.0.0.1"),
        ("resource_operation", "1.0.0.0"),
    ]


def test_waiting_for_handles_is_an_effect() -> None:
    """An await of something else than operations is a node of its own."""
    graph = graph_of("process p() {} h = start p() await { a: h }")
    assert [node.kind for node in graph.nodes] == ["child_process", "wait"]


def test_labels() -> None:
    """A label names the effect of its statement; other statements become steps."""
    graph = graph_of(
        "@label(title: 'Read', description: 'All') x = await disk.read('a')?\n"
        "@label(title: 'Count') n = len(x)\n"
        "@label(title: 'Choose') if n { submit 1 }"
    )
    assert [(node.kind, node.title, node.description) for node in graph.nodes] == [
        ("resource_operation", "Read", "All"),
        ("step", "Count", None),
        ("branch", "Choose", None),
        ("terminal", None, None),
    ]


def test_every_program_has_a_graph() -> None:
    """Ids are unique, and edges join nodes of one entry."""
    graph = graph_of(EVERYTHING)
    entries = {node.id: node.entry for node in graph.nodes}
    assert len(entries) == len(graph.nodes)
    assert all(entries[edge.source] == entries[edge.target] for edge in graph.edges)
    assert [entry.name for entry in graph.entries] == ["main", "p"]
    assert graph.entries[1].title == "Do"
