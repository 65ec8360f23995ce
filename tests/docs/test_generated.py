"""Pages that are generated from the source are committed, so that links to them work in a checkout."""

from __future__ import annotations

import pytest

from tools.reference_pages import pages
from tools.write_reference_pages import ROOT


@pytest.mark.parametrize(("name", "text"), list(pages(ROOT)), ids=lambda value: value if value.endswith(".md") else "")
def test_a_generated_page_is_current(name: str, text: str) -> None:
    """After a change of errors, tables, values, names or decisions, run ``python -m tools.write_reference_pages``."""
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text
