"""Rules of nodes: how they are encoded, compared with stored ones, and read as paths."""

from datetime import datetime

import msgspec
import pytest

from lash.base.compression import Compression, pack_with_bytes
from lash.errors import CorruptData, InvalidInput, NodeConflict
from lash.model.causal import ProcessCause
from lash.model.session.message import Message, Part, PartKind, Role
from lash.model.session.node import BytesEntry, MessageEntry, Node, PluginEntry, ProtocolEntry
from lash.plan.session.node import (
    PathRow,
    StoredNode,
    decode_node,
    encode_nodes,
    first_user_text,
    new_nodes,
    path_nodes,
    raw_path_nodes,
    user_text,
)
from tests.rules.kit import NOON, SESSION, bare, noted, said, stored

NOTE_TEXT = '{"timestamp":"2025-06-01T12:00:00Z","entry":{"kind":"plugin","plugin_type":"note","body":%s}}'


def row(node_id: str, parent: str | None, depth: int, *, tombstoned: bool = False, body: str = "1") -> PathRow:
    return PathRow(node_id, parent, depth, tombstoned, NOTE_TEXT % body)


def message(*parts: Part, role: Role = Role.USER) -> Node:
    entry = MessageEntry(message=Message(id="m", role=role, parts=parts))
    return Node(node_id="n", timestamp=NOON, entry=entry)


def part(content: str, kind: PartKind = PartKind.TEXT) -> Part:
    return Part(id="p", kind=kind, content=content)


def test_a_node_is_written_as_ids_and_a_body() -> None:
    """Ids have their own columns; the rest is JSON without the fields at their defaults."""
    (encoded,) = encode_nodes([noted("n-1", "n-0", {"a": 1})], Compression.BALANCED)
    text = NOTE_TEXT % '{"a":1}'
    assert encoded == ("n-1", "n-0", text, None, len(text), None, "plugin:note")


def test_a_node_is_read_back_as_it_was_written() -> None:
    """Every field of a node survives, with its type."""
    text = (
        '{"timestamp":"2025-06-01T12:00:00Z","entry":{"kind":"protocol","plugin_id":"chat","payload":[]},'
        '"agent_frame_id":"f","caused_by":{"type":"process","process_id":"p"}}'
    )
    assert decode_node(PathRow("n-1", "n-0", 3, False, text)) == Node(
        node_id="n-1",
        parent_node_id="n-0",
        timestamp=NOON,
        entry=ProtocolEntry(plugin_id="chat", payload=[]),
        agent_frame_id="f",
        caused_by=ProcessCause(process_id="p"),
    )


def test_a_node_is_written_with_its_frame_and_its_cause() -> None:
    """A field without a column that is not at its default is in the body."""
    cause = ProcessCause(process_id="p")
    entry = PluginEntry(plugin_type="note", body=1)
    node = Node(node_id="n", timestamp=NOON, entry=entry, agent_frame_id="f", caused_by=cause)
    (encoded,) = encode_nodes([node], Compression.BALANCED)
    assert encoded.body == (
        (NOTE_TEXT % "1")[:-1] + ',"agent_frame_id":"f","caused_by":{"type":"process","process_id":"p"}}'
    )


@pytest.mark.parametrize("body", ["", "{", '{"timestamp":"2025-06-01T12:00:00Z"}', NOTE_TEXT % "1" + "x"])
def test_an_unreadable_body_is_corrupt_data(body: str) -> None:
    """A damaged body is reported with the id of its node."""
    with pytest.raises(CorruptData, match="node 'n-1' cannot be read"):
        decode_node(stored("n-1", 1, 0, body=body))


def test_a_long_body_is_stored_compressed() -> None:
    """A long body has its own column and decodes unchanged; a short one stays readable text."""
    node = noted("n-1", None, "some words, " * 200)
    (encoded,) = encode_nodes([node], Compression.BALANCED)
    assert encoded.packed is not None
    assert len(encoded.packed) < 300
    assert encoded.stored_body == ""
    assert decode_node(PathRow("n-1", None, 0, False, encoded.stored_body, encoded.packed)) == node
    (plain,) = encode_nodes([node], Compression.LOW_LATENCY)
    assert plain.packed is None
    assert plain.stored_body == NOTE_TEXT % ('"' + "some words, " * 200 + '"')


def test_a_body_that_is_often_read_is_compressed_only_if_it_is_longer() -> None:
    """It is the same node: a repeat that is not said to be read often does not conflict."""
    for words, is_packed in ((200, False), (400, True)):
        node = noted("n-1", None, "some words, " * words)
        (encoded,) = encode_nodes([node], Compression.BALANCED, often_read=True)
        assert (encoded.packed is not None) == is_packed
        known = StoredNode("n-1", None, 1, 0, True, False, encoded.stored_body, encoded.packed)
        assert new_nodes(SESSION, encode_nodes([node], Compression.BALANCED), {"n-1": known}) == []


def test_a_damaged_compressed_body_is_corrupt_data() -> None:
    """The error has the id of the node."""
    with pytest.raises(CorruptData, match="node 'n-1' cannot be decompressed"):
        decode_node(PathRow("n-1", None, 0, False, "", b"no frame"))


def test_a_stored_node_is_the_same_however_it_is_stored() -> None:
    """A compressed body and the same body in plain text do not conflict."""
    node = noted("n-1", None, "some words, " * 200)
    (packed,), (plain,) = (encode_nodes([node], each) for each in (Compression.BALANCED, Compression.LOW_LATENCY))
    for given, other in ((packed, plain), (plain, packed), (packed, packed)):
        known = StoredNode("n-1", None, 1, 0, True, False, other.stored_body, other.packed)
        assert new_nodes(SESSION, [given], {"n-1": known}) == []


def test_an_id_may_occur_once_in_a_commit() -> None:
    """Two new nodes with one id are refused by name."""
    with pytest.raises(InvalidInput, match="node 'n-1' occurs twice"):
        encode_nodes([noted("n-1"), noted("n-2"), noted("n-1")], Compression.BALANCED)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("text", r"nodes\[1\] must be a Node, not str"),
        (noted(""), r"nodes\[1\]\.node_id is blank"),
        (noted("n" * 256), r"nodes\[1\]\.node_id has 256 characters"),
        (noted("n", ""), r"nodes\[1\]\.parent_node_id is blank"),
        (noted("n", "a\0b"), r"nodes\[1\]\.parent_node_id contains a NUL"),
        (noted("n", body={"k": [1, b"x"]}), r"nodes\[1\]\.entry\.body\.k\[1\] is of type bytes"),
        (
            Node(node_id="n", timestamp=datetime(2025, 1, 1), entry=PluginEntry(plugin_type="p", body=1)),  # noqa: DTZ001
            r"nodes\[1\]: .*timezone.*timestamp",
        ),
        (
            Node(node_id="n", timestamp=NOON, entry={"kind": "plugin", "plugin_type": "p", "body": 1}),  # type: ignore[arg-type]
            r"nodes\[1\]\.entry is of type dict and would be read back as",
        ),
    ],
)
def test_a_node_that_cannot_be_stored_is_refused_by_its_path(node: Node, message: str) -> None:
    """The error names the position of the node and the wrong field."""
    with pytest.raises(InvalidInput, match=message):
        encode_nodes([noted("first"), node], Compression.BALANCED)


def test_a_stored_node_of_the_same_content_is_left_out() -> None:
    """Appending a stored node changes nothing, however its stored text is written."""
    spelt_otherwise = (
        '{"entry": {"body": {"b": 1, "a": 2}, "plugin_type": "note", "kind": "plugin"},'
        ' "timestamp": "2025-06-01T14:00:00+02:00"}'
    )
    nodes = [noted("n-1", None, {"a": 2, "b": 1}), noted("n-2", "n-1", 1), noted("n-3", "n-2", 1)]
    given = encode_nodes(nodes, Compression.BALANCED)
    known = {
        "n-1": stored("n-1", 1, 0, body=spelt_otherwise),
        "n-2": stored("n-2", 1, 1, parent="n-1", body=NOTE_TEXT % "1"),
    }
    assert [node.node_id for node in new_nodes(SESSION, given, known)] == ["n-3"]


def test_the_same_text_is_the_same_content() -> None:
    """Equal texts are compared without decoding, even if they are unreadable."""
    assert new_nodes(SESSION, [bare("n-1", body="?")], {"n-1": stored("n-1", 1, 0, body="?")}) == []


@pytest.mark.parametrize(
    ("existing", "reason"),
    [
        (stored("n-1", 1, 0, parent="n-0", body=NOTE_TEXT % "2"), "exists with other content"),
        (stored("n-1", 1, 0, parent="n-9", body=NOTE_TEXT % "1"), "exists with other content"),
        (stored("n-1", 1, 0, parent=None, body=NOTE_TEXT % "1"), "exists with other content"),
        (stored("n-1", 1, 0, parent="n-0", body=NOTE_TEXT % "1", tombstoned=True), "was removed"),
    ],
)
def test_a_taken_id_with_other_content_is_a_conflict(existing: object, reason: str) -> None:
    """Another body, another parent or a removed node is never silently replaced."""
    with pytest.raises(NodeConflict, match=reason) as caught:
        new_nodes(SESSION, [bare("n-1", "n-0", NOTE_TEXT % "1")], {"n-1": existing})  # type: ignore[dict-item]
    assert (caught.value.session_id, caught.value.node_id) == (SESSION, "n-1")


def ids(nodes: tuple[Node, ...]) -> list[str]:
    return [node.node_id for node in nodes]


def test_a_path_is_read_from_its_first_row_to_its_last() -> None:
    """Rows linked by their parents are the path, in order."""
    rows = [row("a", None, 0), row("b", "a", 1), row("c", "b", 2)]
    assert ids(path_nodes(rows)) == ["a", "b", "c"]
    assert path_nodes([]) == ()


def test_a_path_is_cut_at_a_removed_ancestor() -> None:
    """Nodes above a removed node are not part of the path below it."""
    rows = [row("a", None, 0), row("b", "a", 1, tombstoned=True), row("c", "b", 2), row("d", "c", 3)]
    assert ids(path_nodes(rows)) == ["c", "d"]


def test_bytes_are_stored_beside_the_body() -> None:
    """The JSON has an empty text instead; the size counts both."""
    whole = Node(node_id="n", timestamp=NOON, entry=BytesEntry(plugin_type="graph", content=b"\xff" * 5_000))
    (encoded,) = encode_nodes([whole], Compression.LOW_LATENCY)
    text = '{"timestamp":"2025-06-01T12:00:00Z","entry":{"kind":"bytes","plugin_type":"graph","content":""}}'
    assert (encoded.body, encoded.stored_body, encoded.size) == (text, "", len(text) + 5_000)
    assert encoded.packed is not None
    assert encoded.packed.endswith(text.encode() + b"\xff" * 5_000)
    found = PathRow("n", None, 0, False, "", encoded.packed)
    assert decode_node(found) == whole
    (raw,) = raw_path_nodes([found])
    assert (raw.body, raw.content) == (text.encode(), b"\xff" * 5_000)
    known = StoredNode("n", None, 1, 0, True, False, "", encoded.packed)
    assert new_nodes(SESSION, [encoded], {"n": known}) == []
    wrong = pack_with_bytes((NOTE_TEXT % "1").encode(), b"x", Compression.LOW_LATENCY)
    with pytest.raises(CorruptData, match="has bytes"):
        decode_node(PathRow("n", None, 0, False, "", wrong))
    text_entry = BytesEntry(plugin_type="x", content="y")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="must be bytes"):
        encode_nodes([msgspec.structs.replace(whole, entry=text_entry)], Compression.LOW_LATENCY)


def test_a_path_goes_on_above_an_erased_node() -> None:
    """An erased node is left out, and its neighbours must still name each other through it."""
    empty = PathRow("b", "a", 1, False, '{"timestamp":"2025-06-01T12:00:00Z","entry":{"kind":"erased"}}', None, True)
    assert ids(path_nodes([row("a", None, 0), empty, row("c", "b", 2)])) == ["a", "c"]
    with pytest.raises(CorruptData, match="node 'b' does not lie below its parent"):
        path_nodes([row("x", None, 0), empty, row("c", "b", 2)])


def test_a_path_whose_leaf_is_removed_is_empty() -> None:
    """A path that ends in a removed node is empty."""
    assert path_nodes([row("a", None, 0), row("b", "a", 1, tombstoned=True)]) == ()


def test_a_path_is_cut_where_an_ancestor_is_missing() -> None:
    """A gap in depth ends the path; nodes above the gap are not joined to it."""
    rows = [row("a", None, 0), row("c", "b", 2), row("d", "c", 3)]
    assert ids(path_nodes(rows)) == ["c", "d"]


def test_neighbours_in_depth_that_are_not_parent_and_child_are_corrupt() -> None:
    """A path never joins nodes that do not name each other."""
    with pytest.raises(CorruptData, match="node 'b' does not lie below its parent"):
        path_nodes([row("a", None, 0), row("b", "x", 1)])


def test_the_texts_of_a_user_message_are_joined_for_the_list() -> None:
    """Parts are separated by a blank line; blank parts, tool calls and tool results are omitted."""
    node = message(
        part("  one"),
        part(" \n"),
        part("call", PartKind.TOOL_CALL),
        part("result", PartKind.TOOL_RESULT),
        part("bytes", PartKind.IMAGE),
        part("", PartKind.FILE),
        part("two  "),
    )
    assert user_text(node) == "one\n\n[Image attached]\n\n[File attached]\n\ntwo"


def test_the_line_for_the_list_is_cut_at_500_characters_and_has_no_nul() -> None:
    """The line fits a text column of every database."""
    assert user_text(message(part("é" * 501))) == "é" * 500
    assert user_text(message(part("a\0b"))) == "a b"


def test_a_user_message_without_text_still_counts_as_one() -> None:
    """An empty text is still a user message."""
    assert user_text(message()) == ""


def test_only_messages_of_users_have_a_line() -> None:
    """Other roles and other entries have no line."""
    assert user_text(said("n", role=Role.ASSISTANT)) is None
    assert user_text(noted("n")) is None


def test_a_list_shows_the_first_user_message() -> None:
    """The stored text is returned, or nothing if there is no user message."""
    (encoded,) = encode_nodes([message(part("hello"))], Compression.BALANCED)
    assert first_user_text(PathRow("n", None, 0, False, encoded.stored_body, encoded.packed)) == "hello"
    assert first_user_text(row("n", None, 0)) == ""
    assert first_user_text(None) == ""


def test_roles_and_kinds_may_be_given_as_their_text() -> None:
    """A stored user message counts as one, whether its role was given as text or as an enum member."""
    plain = Part(id="p", kind="image", content="")  # type: ignore[arg-type]
    assert user_text(message(plain, role="user")) == "[Image attached]"  # type: ignore[arg-type]
