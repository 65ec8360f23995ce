"""The kit that runs the pages notices what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import blocks_of
from tests.docs.running import run_page
from tests.docs.typed import replaced


def _run(folder: Path, text: str) -> None:
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    run_page(path, folder)


def _output(text: str) -> str:
    return f"\n<!-- output -->\n```text\n{text}\n```\n"


def test_blocks_of_a_page_are_one_program(tmp_path: Path) -> None:
    """A later block uses what an earlier one made, and may await at its top."""
    first = "```python\nimport asyncio\n\nnumber = 20\n```\n"
    second = "\nText.\n\n```python\nawait asyncio.sleep(0)\nprint(number + 1)\n```\n"
    _run(tmp_path, first + second + _output("21"))
    with pytest.raises(AssertionError, match=r"line 16: '21.n' is printed"):
        _run(tmp_path, first + second + _output("22"))


def test_what_is_printed_is_told(tmp_path: Path) -> None:
    """Output of Python that the page does not show fails it; that of commands is compared where it is shown."""
    program, typed = "```python\nprint('more')\n```\n", "\n```sh\necho less\n```\n"
    _run(tmp_path, program + typed + _output("less") + _output("more"))
    with pytest.raises(AssertionError, match="does not tell that this is printed: 'more"):
        _run(tmp_path, program + typed + _output("less"))
    with pytest.raises(AssertionError, match=r"'less.n' is printed, not 'more"):
        _run(tmp_path, typed + _output("more"))


def test_an_error_tells_its_line_in_the_page(tmp_path: Path) -> None:
    """A block that fails fails the page, where it stands."""
    with pytest.raises(ZeroDivisionError) as raised:
        _run(tmp_path, "# Title\n\n```python\nlow = 0\n```\n\n```python\n1 / low\n```\n")
    assert raised.traceback[-1].lineno == 7


def test_tests_in_a_page_are_run(tmp_path: Path) -> None:
    """Also those that are async and ask for a folder."""
    with pytest.raises(AssertionError):
        _run(tmp_path, "```python\nasync def test_it(tmp_path):\n    assert not list(tmp_path.glob('*.md'))\n```\n")


@pytest.mark.parametrize("command", ["false", "true | false | cat", "lash ps --url sqlite:///none.db", "lash pss"])
def test_a_command_that_fails_fails_the_page(tmp_path: Path, command: str) -> None:
    """Also one that is not the last of its block."""
    with pytest.raises(AssertionError, match="ended with"):
        _run(tmp_path, f"```sh\n{command}\ntrue\n```\n")


def test_commands_of_a_page_share_their_variables(tmp_path: Path) -> None:
    """What one block exports the next one has."""
    _run(tmp_path, "```sh\nexport NAME=lash\n```\n\n```sh\necho $NAME\n```\n" + _output("lash"))


def test_a_program_is_collected_in_its_file(tmp_path: Path) -> None:
    """A command runs what the blocks before it are together; what no command runs fails the page."""
    talks = "```python\nif __name__ == '__main__':\n    print('hello', name)\n```\n"
    page = f"<!-- program: talk.py -->\n```python\nname = 'Ada'\n```\n\n{talks}\n```sh\npython talk.py\n```\n"
    _run(tmp_path, page + _output("hello Ada"))
    with pytest.raises(AssertionError, match="no command runs"):
        _run(tmp_path, page.replace("talk.py", "other.py") + talks)


def test_a_worker_runs_until_it_works(tmp_path: Path) -> None:
    """One that does not come that far fails the page."""
    (tmp_path / "shop.py").write_text("import lash\n\napp = lash.App('sqlite:///a.db')\n", encoding="utf-8")
    _run(tmp_path, "```sh\nlash worker shop:app\n```\n")
    with pytest.raises(AssertionError, match="has no 'other'"):
        _run(tmp_path, "```sh\nlash worker shop:other\n```\n")


def test_nothing_is_replaced_but_what_is_listed() -> None:
    """Options make it another command."""
    assert replaced("pip install .   # this\npip install . --user\nmake demo") == ":\npip install . --user\nmake demo"


@pytest.mark.parametrize("marker", ["outptu", "program", "fragment: why"])
def test_a_marker_is_spelt_rightly(marker: str) -> None:
    """Nothing is left out of the run by a slip."""
    with pytest.raises(ValueError, match="line 3"):
        blocks_of(f"<!-- {marker} -->\n```python\npass\n```\n")
