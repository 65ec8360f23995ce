"""The kit that runs pages detects their errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import blocks_of
from tests.docs.running import run_page
from tests.docs.typed import replaced


def _run(directory: Path, text: str) -> None:
    path = directory / "page.md"
    path.write_text(text, encoding="utf-8")
    run_page(path, directory)


def _output(text: str) -> str:
    return f"\n<!-- output -->\n```text\n{text}\n```\n"


def test_blocks_of_a_page_are_one_program(tmp_path: Path) -> None:
    """A later block sees the names of earlier ones, and may await at top level."""
    first = "```python\nimport asyncio\n\nnumber = 20\n```\n"
    second = "\nText.\n\n```python\nawait asyncio.sleep(0)\nprint(number + 1)\n```\n"
    _run(tmp_path, first + second + _output("21"))
    with pytest.raises(AssertionError, match=r"line 16: '21.n' is printed"):
        _run(tmp_path, first + second + _output("22"))


def test_what_is_printed_is_told(tmp_path: Path) -> None:
    """Python output that the page does not show fails it; output of commands is compared where it is shown."""
    program, typed = "```python\nprint('more')\n```\n", "\n```sh\necho less\n```\n"
    _run(tmp_path, program + typed + _output("less") + _output("more"))
    with pytest.raises(AssertionError, match="does not show this output: 'more"):
        _run(tmp_path, program + typed + _output("less"))
    with pytest.raises(AssertionError, match=r"'less.n' is printed, not 'more"):
        _run(tmp_path, typed + _output("more"))


def test_an_error_tells_its_line_in_the_page(tmp_path: Path) -> None:
    """A failing block fails the page, with its line."""
    with pytest.raises(ZeroDivisionError) as raised:
        _run(tmp_path, "# Title\n\n```python\nlow = 0\n```\n\n```python\n1 / low\n```\n")
    assert raised.traceback[-1].lineno == 7


def test_tests_in_a_page_are_run(tmp_path: Path) -> None:
    """Tests that are async or take a directory run too."""
    with pytest.raises(AssertionError):
        _run(tmp_path, "```python\nasync def test_it(tmp_path):\n    assert not list(tmp_path.glob('*.md'))\n```\n")


@pytest.mark.parametrize("command", ["false", "true | false | cat", "lash ps --url sqlite:///none.db", "lash pss"])
def test_a_command_that_fails_fails_the_page(tmp_path: Path, command: str) -> None:
    """A failing command fails the page even if it is not the last of its block."""
    with pytest.raises(AssertionError, match="ended with"):
        _run(tmp_path, f"```sh\n{command}\ntrue\n```\n")


def test_commands_of_a_page_share_their_variables(tmp_path: Path) -> None:
    """A later block has the exported variables of earlier ones."""
    _run(tmp_path, "```sh\nexport NAME=lash\n```\n\n```sh\necho $NAME\n```\n" + _output("lash"))


def test_a_program_is_collected_in_its_file(tmp_path: Path) -> None:
    """A command runs the blocks before it as one file; blocks that no command runs fail the page."""
    talks = "```python\nif __name__ == '__main__':\n    print('hello', name)\n```\n"
    page = f"<!-- program: talk.py -->\n```python\nname = 'Ada'\n```\n\n{talks}\n```sh\npython talk.py\n```\n"
    _run(tmp_path, page + _output("hello Ada"))
    with pytest.raises(AssertionError, match="no command runs"):
        _run(tmp_path, page.replace("talk.py", "other.py") + talks)


def test_a_worker_runs_until_it_works(tmp_path: Path) -> None:
    """A worker that does not become ready fails the page."""
    (tmp_path / "shop.py").write_text("import lash\n\napp = lash.App('sqlite:///a.db')\n", encoding="utf-8")
    _run(tmp_path, "```sh\nlash worker shop:app\n```\n")
    with pytest.raises(AssertionError, match="has no 'other'"):
        _run(tmp_path, "```sh\nlash worker shop:other\n```\n")


def test_nothing_is_replaced_but_what_is_listed() -> None:
    """A command with other options is not replaced."""
    assert replaced("pip install .   # this\npip install . --user\nmake demo") == ":\npip install . --user\nmake demo"


@pytest.mark.parametrize("marker", ["outptu", "program", "fragment: why"])
def test_a_marker_is_spelt_rightly(marker: str) -> None:
    """A misspelt marker is an error, so no block is left out of the run."""
    with pytest.raises(ValueError, match="line 3"):
        blocks_of(f"<!-- {marker} -->\n```python\npass\n```\n")
