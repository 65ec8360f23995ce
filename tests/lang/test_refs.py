"""Refs: the vectors of the specification, and what changes a ref and what does not."""

from __future__ import annotations

import hashlib

import pytest

from lash.lang.host.environment import Abilities, HostEnvironment, full_environment
from lash.lang.module.hashing import AtomStream, add_process, add_requirements
from lash.lang.module.names import bound_names
from lash.lang.parse import parse
from tests.lang.hosts import ALL, HOST, catalogue, linked

SEED = "process scan(root: str) { finish root }"
MODULE, REQUIREMENTS = "lashlang:v1:sha256:", "lashlang-host-requirements:v1:sha256:"

VECTORS = [
    (
        SEED,
        "b7de58dee5ff4fc9ec52ab3f75befc20765f61f334c81fbdb50320f505557296",
        "2890eae94d062dbe7d7ddfcdf8ea67ef839ce1ba73f6baaa788ca12fcb776704",
        "3aee527c43ab71740bca1cb778d7561b14dd625a38aee41aec6ff7b412444ff3",
    ),
    (
        "process scan(root: str) { v = root finish v }",
        "b7de58dee5ff4fc9ec52ab3f75befc20765f61f334c81fbdb50320f505557296",
        "52789fcdc9b0d1f068d3581bd1e56ea98d07fe81bdadea0af891f79d03c46ca2",
        "44759bf77cd8dadfd6cccb27c5ff3539127445104fd7a166fb736c19d7b209c8",
    ),
    (
        "submit 1",
        "d31dab2679f8b7b753e2da085f8ba42cd2825135c964329e7fe458b1efdcfc75",
        None,
        "0f13339d04219c29bc4059f7583047171fc1bd528384a6d7957fd5f5f6762ed0",
    ),
]
"""Source, hash of its requirements, of its process, and of the module (specification, 4.3)."""


@pytest.mark.parametrize(("source", "requirements", "component", "module"), VECTORS)
def test_vectors(source: str, requirements: str, component: str | None, module: str) -> None:
    """The refs of these programs are those of the specification."""
    found = linked(source, ALL)
    assert found.artifact.requirements_ref == REQUIREMENTS + requirements
    assert found.module_ref == MODULE + module
    reference = found.process_ref("scan")
    assert (None if reference is None else str(reference)) == (None if component is None else f"{component}:0")


def test_streams_of_the_seed() -> None:
    """The hashed bytes are those of the specification."""
    requirements = AtomStream("lashlang-semantic-v2")
    add_requirements(requirements, HostEnvironment(abilities=Abilities(processes=True)))
    assert requirements.content() == (
        b"20:lashlang-semantic-v2;17:host-requirements;9:abilities;4:true;5:false;5:false;5:false;9:resources;"
        b"7:modules;1:0;1:0;16:named-data-types;1:0;12:constructors;1:0;15:trigger-sources;1:0;"
    )
    process = AtomStream("lashlang-semantic-v2")
    process.add("process")
    add_process(process, parse(SEED).processes[0])
    expected = (
        b"20:lashlang-semantic-v2;7:process;12:process-decl;4:scan;1:1;4:root;8:type:str;7:signals;1:0;9:no-return;"
        b"5:block;1:1;6:finish;4:some;8:variable;8:abi:root;"
    )
    assert process.content() == expected
    assert process.digest() == hashlib.sha256(expected).hexdigest()


LONG = """
process p(limit: int) {
  total = 0
  for item in range(limit) { if item % 2 == 0 { total = total + item } }
  kept = [each for each in range(total) if each > 3]
  finish { total: total, kept: kept }
}
"""


@pytest.mark.parametrize(
    "other",
    [
        LONG.replace("\n", " ").replace("  ", " "),
        LONG.replace("total = 0", "# from zero\n let total = 0; // now"),
        LONG.replace("item", "element"),
        LONG.replace("each", "e").replace("kept =", "k =").replace("kept: kept", "kept: k"),
        LONG.replace("%", " % ").replace("range(limit)", "((range((limit))))"),
    ],
    ids=["layout", "comments", "loop variable", "locals", "parentheses"],
)
def test_formatting_and_renaming_keep_the_ref(other: str) -> None:
    """Layout, comments, superfluous parentheses and names of local variables are not in the hash."""
    assert linked(other).module_ref == linked(LONG).module_ref


@pytest.mark.parametrize(
    "other",
    [
        LONG.replace("limit", "most"),
        LONG.replace("process p", "process q"),
        LONG.replace("% 2", "% 3"),
        LONG.replace("limit: int", "limit: float"),
        LONG.replace("total: total", "sum: total"),
        LONG.replace("{\n  total", "-> dict {\n  total"),
        LONG.replace("process p", "@label(title: 'P') process p"),
        LONG + "submit 1",
        LONG + "type T = str",
        LONG.replace("total + item", "item + total"),
    ],
)
def test_meaning_changes_the_ref(other: str) -> None:
    """Interfaces, constants, labels and the order of operands are in the hash."""
    assert linked(other).module_ref != linked(LONG).module_ref


def test_label_text_changes_the_ref() -> None:
    """A label does not change what a program does, and is part of its identity."""
    one, two = (linked(f"@label(title: '{title}') submit 1").module_ref for title in ("one", "two"))
    assert one != two


def test_unused_tools_change_nothing() -> None:
    """A module requires what it uses; another tool of the host does not change its ref."""
    source = "submit await web.fetch({ url: 'x' })?"
    larger = full_environment(catalogue().with_operation("new", "op", "tool-9").with_operation("web", "post", "t"))
    assert linked(source).module_ref == linked(source, larger).module_ref


def test_the_tool_behind_an_operation_is_part_of_the_ref() -> None:
    """The same source against another binding is another module."""
    source = "submit await new.op()"
    one, two = (full_environment(catalogue().with_operation("new", "op", tool)) for tool in ("t1", "t2"))
    assert linked(source, one).module_ref != linked(source, two).module_ref


def test_signals_and_triggers_have_a_version_of_their_own() -> None:
    """Modules whose requirements the reference does not record hash under another version."""
    plain = linked("process p(a: any) { finish a }")
    with_signals = linked("process p(a: any) signals { s: str } { finish a }")
    assert with_signals.artifact.requirements.abilities.process_signals
    stream = AtomStream("lashlang-semantic-v2-py1")
    add_requirements(stream, with_signals.artifact.requirements)
    assert with_signals.artifact.requirements_ref == REQUIREMENTS + stream.digest()
    assert plain.process_ref("p") != with_signals.process_ref("p")


def test_locals_are_numbered_in_the_order_of_binding() -> None:
    """An assignment binds before its value is visited, a loop after its sequence."""
    source = "a[b] = [x for x in c] for i in [y for y in d] { z = 1 }"
    assert bound_names(parse(source).main) == ["a", "x", "y", "i", "z"]


def test_positions_count_processes_only() -> None:
    """Types between processes do not count."""
    module = linked("process a() {} type T = str process b() {}", HOST)
    assert [module.artifact.exports[name].position for name in ("a", "b")] == [0, 1]


@pytest.mark.parametrize(("one", "two"), [("0", "0.0"), ("1", "1.0"), ("0.5", "0.50")])
def test_numbers_hash_by_value(one: str, two: str) -> None:
    """A number is its double, not its digits."""
    assert linked(f"submit {one}").module_ref == linked(f"submit {two}").module_ref
