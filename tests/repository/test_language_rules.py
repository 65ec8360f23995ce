"""Prose that the language rules forbid is found; names and code are left alone."""

from pathlib import Path

import pytest

from tests.repository.trees import messages, places, tree
from tools.language_rules import prose_is_plain


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("src/lash/a.py", '"""First.\n\nWhoever waits is woken."""\n', 3),
        ("src/lash/a.py", "x = 1\n# somebody else was faster\n", 2),
        ("src/lash/a.py", 'raise ValueError(f"{1} is no JSON")\n', 1),
        ("src/lash/sqlite/sql/a.sql", "-- name: a\n-- Tells the time.\nSELECT 1;\n", 2),
        ("docs/a.md", "# A\n\nA folder for the bytes.\n", 3),
        ("README.md", "kept for ever\n", 1),
    ],
    ids=["docstring", "comment", "message", "query", "page", "top page"],
)
def test_a_forbidden_word_is_found(tmp_path: Path, name: str, text: str, line: int) -> None:
    """Found in comments, docstrings, messages and pages, with its line."""
    assert places(list(prose_is_plain(tree(tmp_path, {name: text})))) == [(name, line)]


def test_the_finding_has_advice(tmp_path: Path) -> None:
    """A finding quotes the word and says what to write."""
    repository = tree(tmp_path, {"docs/a.md": "Nothing is mended.\n"})
    assert messages(prose_is_plain, repository) == ["'mended': write fix, fixed"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/lash/a.py", '"""Calls `tell`."""\n\n\ndef tell(folder: str) -> None: ...\n'),
        ("src/lash/a.py", 'user = "nobody"\nquery = "SELECT settled FROM a"\n'),
        ("docs/a.md", "Run this:\n\n```sh\ntell somebody\n```\n\nand `folder`.\n"),
        ("src/lash/sqlite/sql/a.sql", "-- name: a\n-- The id.\nSELECT settled FROM a;\n"),
    ],
    ids=["names", "strings", "code", "statements"],
)
def test_names_and_code_are_no_prose(tmp_path: Path, name: str, text: str) -> None:
    """Identifiers and blocks of code are not checked."""
    assert messages(prose_is_plain, tree(tmp_path, {name: text})) == []
