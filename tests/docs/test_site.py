"""The documentation site is built without a warning."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, markdown_files
from tests.docs.typed import TypedShell

_MISSING = importlib.util.find_spec("mkdocs") is None


@pytest.mark.skipif(_MISSING and "CI" not in os.environ, reason="mkdocs is not installed; it is part of the group dev")
@pytest.mark.timeout(600)
@pytest.mark.proof
def test_the_site_is_built_strictly(tmp_path: Path) -> None:
    """Every link, every anchor, every page in the navigation and every name in the reference resolves."""
    arguments = f"build --strict --site-dir {tmp_path / 'site'}"
    printed = TypedShell(tmp_path).run(f'make docs ARGS="{arguments}" 2>&1')
    assert "WARNING" not in printed
    pages = [*markdown_files(), DOCS / "decisions.md", DOCS / "reference/errors.md", DOCS / "reference/schema.md"]
    for page in pages:
        name = page.relative_to(DOCS).with_suffix("")
        folder = name.parent if name.name == "index" else name
        assert (tmp_path / "site" / folder / "index.html").is_file(), name
