"""The documentation site is built without a warning."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, markdown_files

_MISSING = importlib.util.find_spec("mkdocs") is None


@pytest.mark.skipif(_MISSING and "CI" not in os.environ, reason="mkdocs is not installed; it is part of the group dev")
@pytest.mark.timeout(300)
def test_the_site_is_built_strictly(tmp_path: Path) -> None:
    """Every link, every anchor, every page in the navigation and every name in the reference resolves."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": path}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = [*markdown_files(), DOCS / "decisions.md", DOCS / "reference/errors.md", DOCS / "reference/schema.md"]
    for page in pages:
        name = page.relative_to(DOCS).with_suffix("")
        folder = name.parent if name.name == "index" else name
        assert (tmp_path / "site" / folder / "index.html").is_file(), name
