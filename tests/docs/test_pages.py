"""The kit that runs the pages notices what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import blocks_of, program_of, run_page


def _page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    return path


def test_blocks_of_a_page_are_one_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A later block uses what an earlier one made, and may await at its top."""
    first = "```python\nimport asyncio\n\nnumber = 20\n```\n"
    text = first + "\nText.\n\n```python\nawait asyncio.sleep(0)\nprint(number + 1)\n```\n"
    run_page(_page(tmp_path, text), tmp_path)
    assert capsys.readouterr().out == "21\n"


def test_an_error_tells_its_line_in_the_page(tmp_path: Path) -> None:
    """A block that fails fails the page, where it stands."""
    with pytest.raises(ZeroDivisionError) as raised:
        run_page(_page(tmp_path, "# Title\n\n```python\nlow = 0\n```\n\n```python\n1 / low\n```\n"), tmp_path)
    assert raised.traceback[-1].lineno == 7


def test_tests_in_a_page_are_run(tmp_path: Path) -> None:
    """Also those that are async and ask for a folder."""
    text = "```python\nasync def test_it(tmp_path):\n    assert not list(tmp_path.glob('*.md'))\n```\n"
    with pytest.raises(AssertionError):
        run_page(_page(tmp_path, text), tmp_path)


def test_fragments_are_left_out() -> None:
    """What is marked is no part of the program, nor are other languages."""
    text = "<!-- fragment: needs a server -->\n```python\nraise SystemExit\n```\n\n```sh\nmake test\n```\n"
    blocks = blocks_of(text)
    assert [(block.language, block.marker) for block in blocks] == [("python", "fragment"), ("sh", None)]
    assert program_of(blocks).strip() == ""


@pytest.mark.parametrize("marker", ["fragmnt: why", "fragment"])
def test_a_marker_is_spelt_rightly_and_gives_its_reason(marker: str) -> None:
    """Nothing is left out of the run by a slip."""
    with pytest.raises(ValueError, match="line 3"):
        blocks_of(f"<!-- {marker} -->\n```python\npass\n```\n")
