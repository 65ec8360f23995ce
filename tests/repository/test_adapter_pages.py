"""The pages of the adapters name the tests that show what they promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_PAGES = sorted(path for path in (ROOT / "docs" / "adapters").glob("*.md") if path.name != "index.md")
_ROW = re.compile(r"^\| .*\|$", re.MULTILINE)
_PAINS = re.compile(r"^\|[^|\n]*\|[^|\n]*\| shown by \|\n\|[-|]+\|\n((?:\|.*\|\n)+)", re.MULTILINE)


def _tests() -> set[str]:
    """Return the names of all tests of adapters, and their directories and files."""
    names: set[str] = set()
    for path in (ROOT / "tests" / "adapters").rglob("test_*.py"):
        names |= set(re.findall(r"def (test_\w+)", path.read_text()))
        names |= {str(each.relative_to(ROOT)) for each in (path, path.parent)}
    return names


@pytest.mark.parametrize("page", _PAGES, ids=lambda path: path.stem)
def test_every_pain_has_a_test(page: Path) -> None:
    """Every row of the table names at least one test, and all tests that it names exist."""
    tables = _PAINS.findall(page.read_text())
    assert len(tables) == 1
    for row in _ROW.findall(tables[0]):
        named = re.findall(r"`(test_\w+|tests/[\w/.]+)`", row.split("|")[-2])
        assert named, row
        assert set(named) <= _tests(), row
