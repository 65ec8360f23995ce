"""The stored form: its exact JSON, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from lash.errors import CorruptData
from lash.lang.codec.program import decode_program, encode_program
from lash.lang.codec.types import decode_type, encode_type
from lash.lang.module.artifact import ModuleArtifact, decode_artifact, encode_artifact
from lash.lang.parse import parse
from lash.lang.syntax import types
from lash.lang.syntax.program import Program
from tests.lang.hosts import linked

EVERYTHING = """
type T = { a: str?, b: list[int | null], c: enum["x", "y"] }
@label(title: "Do", description: "It does")
process p(m: Mail, t: clock.Tick) signals { go: T } -> any {
  @label(title: "Send")
  sent = await m.send({ text: "x" })?
  all = await [web.fetch({ url: "a" }), { b: web.fetch({ url: "b" })? }]
  all[0].x = -1.5 + 2 * 3
  for i in range(3) { if i == 1 and not false { continue } else { break } }
  while true { sleep for "1s" sleep until 5 }
  v = wait_signal("go")
  yield [k for k in keys(v) if k != "x"]
  wake null
  if v.a { fail "no" }
  finish
}
h = start p(m: mail.work, t: null)
signal_run(h, "go", { a: "x" })
cancel h
s = Type { z: T }
d = clock.Every({ cron: "x" })
r = await triggers.register({ source: d, target: p, inputs: { m: mail.home, t: trigger.event } })?
print s
submit h ? 1 : 2
"""


def test_the_json_of_the_seed() -> None:
    """The stored form of the seed is that of the specification."""
    assert encode_program(parse("process scan(root: str) { finish root }")) == {
        "declarations": [
            {
                "Process": {
                    "name": "scan",
                    "params": [{"name": "root", "ty": "Str"}],
                    "body": {"Block": [{"Finish": {"Variable": "root"}}]},
                }
            }
        ],
        "main": {"Block": []},
    }


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("submit", {"Submit": None}),
        ("null", "Null"),
        ("a[1].b = true", {"Assign": {
            "target": {"root": "a", "steps": [{"Index": {"Number": 1.0}}, {"Field": "b"}]}, "expr": {"Bool": True}}}),
        ("a = 'x'", {"Assign": {"target": {"root": "a"}, "expr": {"String": "x"}}}),
        ("[a for b in c if d]", {"ListComprehension": {"element": {"Variable": "a"}, "clauses": [
            {"For": {"binding": "b", "iterable": {"Variable": "c"}}}, {"If": {"condition": {"Variable": "d"}}}]}}),
        ("a.b(1)?", {"ResultUnwrap": {"ReceiverCall": {
            "receiver": {"Variable": "a"}, "operation": "b", "args": [{"Number": 1.0}]}}}),
        ("a >= -b", {"Binary": {"left": {"Variable": "a"}, "op": "GreaterEqual", "right": {
            "Unary": {"op": "Negate", "expr": {"Variable": "b"}}}}}),
        ("{ a: 1 }", {"Record": [["a", {"Number": 1.0}]]}),
        ("Type { a: str? }", {"TypeLiteral": {"Object": [{"name": "a", "ty": "Str", "optional": True}]}}),
        ("@label(title: 'x') a", {"LabelAnnotated": {"label": {"title": "x"}, "expr": {"Variable": "a"}}}),
        ("start p(a: 1)", {"StartProcess": {"process": "p", "args": [["a", {"Number": 1.0}]]}}),
    ],
)  # fmt: skip
def test_the_json_of_nodes(source: str, expected: object) -> None:
    """Tags and fields are those of the specification, so rows could be shared."""
    program: Any = encode_program(parse(source))
    assert program["main"]["Block"] == [expected]


def test_everything_comes_back() -> None:
    """A program with every node, and its requirements, are read as they were written."""
    artifact = linked(EVERYTHING).artifact
    found = decode_artifact(encode_artifact(artifact))
    assert found == artifact
    assert encode_artifact(found) == encode_artifact(artifact)


def _damaged(value: Any, path: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], Any]]:  # noqa: ANN401
    """Yield every place of a JSON value with a value that does not belong there."""
    yield path, [[]] if not isinstance(value, list) else {}
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from _damaged(child, (*path, key))


def _replaced(value: Any, path: tuple[Any, ...], new: object) -> Any:  # noqa: ANN401
    if not path:
        return new
    copied = copy.copy(value)
    copied[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copied


def test_damage_at_every_place_is_refused() -> None:
    """A value of another kind at any place of an artifact is CorruptData, never another error."""
    content: Any = msgspec.json.decode(encode_artifact(linked(EVERYTHING).artifact))
    places = list(_damaged(content))
    assert len(places) > 400
    for path, new in places:
        with pytest.raises(CorruptData):
            decode_artifact(msgspec.json.encode(_replaced(content, path, new)))


@pytest.mark.parametrize(
    ("path", "new"),
    [
        (("module_ref",), "lashlang:v1:sha256:" + "0" * 64),
        (("host_requirements_ref",), "lashlang-host-requirements:v1:sha256:" + "0" * 64),
        (("exports", "processes", "p", "component"), "0" * 64),
        (("exports", "processes", "p", "pos"), 1),
        (("exports", "processes"), {}),
        (("host_requirements", "abilities", "sleep"), False),
        (("dependencies",), ["x"]),
    ],
)
def test_other_refs_are_refused(path: tuple[str, ...], new: object) -> None:
    """An artifact whose refs are not the hashes of its content is refused."""
    content: Any = msgspec.json.decode(encode_artifact(linked(EVERYTHING).artifact))
    with pytest.raises(CorruptData):
        decode_artifact(msgspec.json.encode(_replaced({"dependencies": [], **content}, path, new)))


def test_unknown_fields_are_refused() -> None:
    """An artifact has the known fields only."""
    content: Any = msgspec.json.decode(encode_artifact(linked("submit 1").artifact))
    with pytest.raises(CorruptData):
        decode_artifact(msgspec.json.encode({**content, "unknown": 1}))


def test_a_wrong_artifact_is_not_written() -> None:
    """An artifact is verified before it is encoded."""
    right = linked("submit 1").artifact
    wrong = ModuleArtifact(
        right.module_ref, right.requirements_ref, right.requirements, right.exports, parse("submit 2")
    )
    with pytest.raises(CorruptData, match="module_ref"):
        encode_artifact(wrong)


@pytest.mark.parametrize("number", [-1, 1e400, True, "1", 10**400, None])
def test_numbers_that_no_program_contains_are_refused(number: object) -> None:
    """Stored numbers are finite doubles that are not negative."""
    with pytest.raises(CorruptData):
        decode_program({"main": {"Block": [{"Number": number}]}})


def test_deep_json_is_refused() -> None:
    """Reading does not recurse without limit."""
    value: Any = {"Variable": "x"}
    for _ in range(500):
        value = {"Await": value}
    with pytest.raises(CorruptData, match="levels"):
        decode_program({"main": {"Block": [value]}})


def test_the_deepest_trees_are_stored() -> None:
    """The deepest tree that the parser makes is hashed, written and read."""
    for source in ("x = a" + " + a" * 97, "x = a" + ".b" * 97, "if a {} " + "else if a {} " * 96):
        artifact = linked(source).artifact
        assert decode_artifact(encode_artifact(artifact)) == artifact


@pytest.mark.parametrize("tag", ["Str", "Int", "Any", "Float", "Bool", "Dict", "Null"])
def test_scalar_types(tag: str) -> None:
    """Scalar types are bare tags."""
    assert encode_type(decode_type(tag)) == tag
    with pytest.raises(CorruptData):
        decode_type({tag: None})


def test_spans_are_not_stored() -> None:
    """A program that was read has no places, and equals the one that was written."""
    program = parse("a = 1")
    found = decode_program(encode_program(program))
    assert isinstance(found, Program)
    assert found.main.statements[0].span is None
    assert found == program
    assert types.ScalarType("int") == types.INT
