"""Notes of undone work and misnumbered decisions are found."""

from pathlib import Path

import pytest

from tests.repository.trees import messages, places, tree
from tools.text_rules import decisions_are_numbered, nothing_left_to_do

# Concatenated, so that the rule does not find this file.
NOTES = ["TO" + "DO", "FIX" + "ME"]


@pytest.mark.parametrize("note", NOTES)
@pytest.mark.parametrize("name", ["src/lash/a.py", "src/lash/sqlite/sql/a.sql", "tests/a.py", "docs/a.md"])
def test_a_note_of_undone_work_is_found(tmp_path: Path, name: str, note: str) -> None:
    """Found in code, SQL, tests and documents, with its line."""
    repository = tree(tmp_path, {name: f"first\n-- {note}: later\n"})
    assert places(list(nothing_left_to_do(repository))) == [(name, 2)]


def test_words_that_contain_a_note_are_left_alone(tmp_path: Path) -> None:
    """Only the word itself is a note."""
    repository = tree(tmp_path, {"src/lash/a.py": f"MASTODON = 1  # {NOTES[0]}S_TABLE\n"})
    assert messages(nothing_left_to_do, repository) == []


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["0001-a.md", "0002-b-c.md"], []),
        (["0001-a.md", "0003-c.md"], ["docs/adr/0003-c.md"]),
        (["0001-a.md", "0001-b.md"], ["docs/adr/0001-b.md"]),
        (["0002-b.md"], ["docs/adr/0002-b.md"]),
        (["0001-a.md", "notes.md"], ["docs/adr/notes.md"]),
        (["0001_a.md"], ["docs/adr/0001_a.md"]),
    ],
    ids=["sound", "gap", "double", "late start", "no number", "odd name"],
)
def test_misnumbered_decisions_are_found(tmp_path: Path, names: list[str], expected: list[str]) -> None:
    """Each number occurs once, from 0001, without a gap."""
    repository = tree(tmp_path, {f"docs/adr/{name}": "text" for name in names})
    assert [path for path, _ in places(list(decisions_are_numbered(repository)))] == expected
