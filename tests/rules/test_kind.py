"""Rules of kinds of nodes, and of pages of nodes."""

from __future__ import annotations

import hashlib

import pytest

from lash.errors import InvalidInput
from lash.model.session.node import BytesEntry, Node, PluginEntry, ProtocolEntry
from lash.plan.session.kind import NodePage, check_kind, check_page, stored_kind
from lash.plan.session.node import PathRow, kind_of
from tests.factories.session import MOMENT, node


def test_each_entry_has_a_kind() -> None:
    """Entries of plugins and protocols have a kind for each plugin."""
    entries = (
        PluginEntry(plugin_type="note", body=1),
        ProtocolEntry(plugin_id="mcp", payload=1),
        BytesEntry(plugin_type="graph", content=b"x"),
    )
    nodes = (node("a"), *(Node(node_id="b", timestamp=MOMENT, entry=entry) for entry in entries))
    assert [each.kind for each in nodes] == ["message", "plugin:note", "protocol:mcp", "bytes:graph"]


def test_a_kind_is_stored_as_it_is_if_the_column_can_hold_it() -> None:
    """A hash of the name replaces one that is too long or contains NUL; different names stay different."""
    assert stored_kind("plugin:" + "x" * 248) == "plugin:" + "x" * 248
    for name in ("x" * 249, "a\0b"):
        assert stored_kind(f"plugin:{name}") == "plugin:" + hashlib.sha256(name.encode()).hexdigest()


def test_a_list_takes_known_kinds() -> None:
    """The kind of any node can be listed, and nothing else."""
    assert check_kind("message") == "message"
    assert check_kind("protocol:x") == "protocol:x"
    assert check_kind("plugin:a\0b") == stored_kind("plugin:a\0b")
    for kind in (None, "", "note", "plugin", "protocol", "plugin:\ud800"):
        with pytest.raises(InvalidInput):
            check_kind(kind)


def test_a_page_has_a_limit_and_may_have_a_beginning() -> None:
    """The node before the page is an id, and the limit that of any page."""
    assert check_page(None, 5) == NodePage(None, 5, newest_first=False)
    assert check_page("a", 1_000, newest_first=True) == NodePage("a", 1_000, newest_first=True)
    for after, limit in (("", 1), (1, 1), (None, 0), (None, 1_001)):
        with pytest.raises(InvalidInput):
            check_page(after, limit)


def test_the_kind_of_a_stored_node_is_read_from_its_body() -> None:
    """Nodes that were stored without a kind get it from their body."""
    body = '{"timestamp":"2025-06-01T12:00:00Z","entry":{"kind":"plugin","plugin_type":"note","body":"old"}}'
    assert kind_of(PathRow("a", None, 0, False, body)) == "plugin:note"
