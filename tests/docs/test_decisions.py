"""Every decision record says whether it still holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS

RECORDS = sorted((DOCS / "adr").glob("*.md"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_has_its_number_and_a_status(path: Path) -> None:
    """The title starts with the number of the file, and a known status follows it."""
    title, blank, status, *_ = path.read_text(encoding="utf-8").splitlines()
    assert title.startswith(f"# {path.name[:4]}: ")
    assert blank == ""
    assert re.match(r"Status: (Accepted|Superseded by|Folded into)", status)
