"""Every code block of the documentation works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import SHELLS, blocks_of, compiled, markdown_files, page_id, program_of, run_page

PAGES = markdown_files()
WITH_PYTHON = [path for path in PAGES if program_of(blocks_of(path.read_text(encoding="utf-8"))).strip()]


@pytest.mark.parametrize("path", WITH_PYTHON, ids=page_id)
def test_a_page_is_a_program(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its blocks run one after the other in an empty folder, and print what the page says they print."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LASH_URL", raising=False)
    run_page(path, tmp_path)
    printed = capsys.readouterr().out
    for block in blocks_of(path.read_text(encoding="utf-8")):
        if block.marker == "output":
            before, found, printed = printed.partition(block.body)
            assert found, f"line {block.line}: the program prints {before or printed!r}, the page says {block.body!r}"


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_fragments_compile(path: Path) -> None:
    """A block that is not run is Python all the same."""
    for block in blocks_of(path.read_text(encoding="utf-8")):
        if block.language == "python" and block.marker == "fragment":
            compiled(block.body, path)


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_every_block_says_its_language(path: Path) -> None:
    """So that none is left out of the run by an oversight."""
    known = {"python", "text", "mermaid", "sql", "ini", "json", "toml", "dockerfile", *SHELLS}
    for block in blocks_of(path.read_text(encoding="utf-8")):
        assert block.language in known, f"line {block.line}: {block.language!r}"
