"""The reference of the language is current, and its programs are correct."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lash.lang.host.assumed import assumed_environment
from lash.lang.link import link
from lash.lang.parse import parse
from lash.lang.printing.program import format_source
from tests.docs.pages import blocks_of, markdown_files, page_id
from tools.repository import Repository
from tools.write_language_page import NAME, PAGE, language_page_is_current

PROGRAMS = [
    (f"{page_id(path)}:{block.line}", block.body)
    for path in markdown_files()
    for block in blocks_of(path.read_text(encoding="utf-8"))
    if block.language == "lash"
]


@pytest.mark.parametrize(
    ("find", "replace", "count"), [("", "", 0), ("| `len(x)` |", "| `length(x)` |", 1)], ids=["current", "changed"]
)
def test_a_page_that_is_not_current_is_found(tmp_path: Path, find: str, replace: str, count: int) -> None:
    """`make check` compares the generated part; the page of this tree is current."""
    (tmp_path / NAME).parent.mkdir(parents=True)
    (tmp_path / NAME).write_text(PAGE.read_text(encoding="utf-8").replace(find, replace), encoding="utf-8")
    assert len(list(language_page_is_current(Repository(tmp_path)))) == count


@pytest.mark.parametrize(("place", "source"), PROGRAMS, ids=[place for place, _ in PROGRAMS])
def test_programs_on_pages_are_correct(place: str, source: str) -> None:
    """Every block in the language links, and is in the canonical layout."""
    program = parse(source)
    assert link(program, assumed_environment(program), source=source).module_ref.startswith("lashlang:")
    assert format_source(source) == source, place


def test_there_are_programs() -> None:
    """The blocks are found."""
    assert any(re.match(r"reference/lashlang\.md:\d+", place) for place, _ in PROGRAMS)
