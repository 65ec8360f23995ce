"""The reference of the language is current, and its programs are correct."""

from __future__ import annotations

import re

import pytest

from lash.lang.host.assumed import assumed_environment
from lash.lang.link import link
from lash.lang.parse import parse
from lash.lang.printing.program import format_source
from tests.docs.pages import blocks_of, markdown_files, page_id
from tools.write_language_page import PAGE, page

PROGRAMS = [
    (f"{page_id(path)}:{block.line}", block.body)
    for path in markdown_files()
    for block in blocks_of(path.read_text(encoding="utf-8"))
    if block.language == "lash"
]


def test_the_page_is_up_to_date() -> None:
    """The generated part is current; `python -m tools.write_language_page` writes it."""
    present = PAGE.read_text(encoding="utf-8")
    assert page(present) == present


@pytest.mark.parametrize(("place", "source"), PROGRAMS, ids=[place for place, _ in PROGRAMS])
def test_programs_on_pages_are_correct(place: str, source: str) -> None:
    """Every block in the language links, and is in the canonical layout."""
    program = parse(source)
    assert link(program, assumed_environment(program), source=source).module_ref.startswith("lashlang:")
    assert format_source(source) == source, place


def test_there_are_programs() -> None:
    """The blocks are found."""
    assert any(re.match(r"reference/lashlang\.md:\d+", place) for place, _ in PROGRAMS)
