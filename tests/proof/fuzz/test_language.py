"""What holds for every program and every text."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lash.errors import CorruptData
from lash.lang.codec.program import decode_program, encode_program
from lash.lang.diagnostic import ProgramError
from lash.lang.host.assumed import assumed_environment
from lash.lang.host.environment import Abilities, HostEnvironment
from lash.lang.link import link
from lash.lang.module.artifact import ModuleArtifact, decode_artifact, encode_artifact
from lash.lang.parse import parse
from lash.lang.printing.program import format_source, program_text
from lash.lang.syntax.program import Program
from tests.lang.strategies import programs
from tests.proof.fuzz.kit import fuzzed

PIECES = (
    *("if", "else", "for", "in", "await", "process", "type", "finish", "start", "sleep", "let", "x", "Type", "@label"),
    *("{", "}", "(", ")", "[", "]", "?", ":", ",", ".", "=", "==", "-", "->", "!", "&&", "&", "|", "@", "%"),
    *("1", "1.5", '"s"', "'", '"""', "r'", "\\", "#", "//", "\n", " ", "\0", "\ud800", "é", "\U0001f600", "9" * 400),
)


@fuzzed
@given(programs)
def test_programs_are_read_as_they_were_written(program: Program) -> None:
    """Parsing what the printer wrote, and decoding what the codec wrote, return the program."""
    assert decode_program(encode_program(program)) == program
    text = program_text(program)
    try:
        assert parse(text) == program
    except ProgramError as error:
        # Parentheses of the printer may exceed the limit of nesting.
        if error.kind != "too-deep":
            raise


@fuzzed
@given(st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join) | st.text(max_size=60))
@example("(" * 5_000)
@example("-" * 5_000)
@example("x = " + "[" * 39 + "]" * 39)
@example("if a {} else " * 2_000)
@example("a" + ".b" * 5_000)
@example("await " * 3_000 + "x")
@example("type A = " + "list[" * 3_000)
def test_any_text_is_a_program_or_has_a_diagnostic(source: str) -> None:
    """No text makes the parser, the linker or the formatter raise anything but ProgramError."""
    try:
        program = parse(source)
    except ProgramError:
        return
    with contextlib.suppress(ProgramError):
        link(program, assumed_environment(program), source=source)
    try:
        assert parse(format_source(source)) == program
    except ProgramError as error:
        if error.kind != "too-deep":
            raise


@fuzzed
@given(programs, st.data())
def test_damaged_artifacts_are_refused(program: Program, data: st.DataObject) -> None:
    """Changing any byte of an artifact makes it unreadable, or leaves the artifact equal except for local names."""
    artifact = ModuleArtifact.of(program, HostEnvironment(abilities=Abilities(processes=True)))
    content = bytearray(encode_artifact(artifact))
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    try:
        found = decode_artifact(bytes(content))
    except CorruptData:
        return
    assert (found.module_ref, found.exports) == (artifact.module_ref, artifact.exports)


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b"{}", b'{"module_ref": 1}', b"\xff", b"[" * 100_000])
def test_other_bytes_are_refused(content: bytes) -> None:
    """Bytes that are not an artifact are CorruptData, whatever they are."""
    with pytest.raises(CorruptData):
        decode_artifact(content)
