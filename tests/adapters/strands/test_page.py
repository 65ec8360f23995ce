"""The page about Strands Agents runs as it is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS
from tests.docs.running import run_page


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of the page runs, and prints what the page shows."""
    monkeypatch.chdir(tmp_path)
    run_page(DOCS / "adapters" / "strands.md", tmp_path)
