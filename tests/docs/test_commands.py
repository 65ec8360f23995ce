"""The commands that the documentation names in running text work."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from tests.cli.seed import Seeded, seed
from tests.cli.test_examples import LEAVES
from tests.docs.pages import README, SHELLS, blocks_of, markdown_files
from tests.docs.typed import INSTEAD, TypedShell, commands_of

pytestmark = pytest.mark.proof

# tests/cli/test_examples.py runs the generated part of the page of commands.
TEXTS = [path.read_text(encoding="utf-8").partition("<!-- generated")[0] for path in [README, *markdown_files()]]
NAMED = sorted({command for text in TEXTS for command in re.findall(r"`((?:make|lash|pip) [a-z][^`\n]*)`", text)})
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_:-]+")


def _needs_more(words: list[str]) -> bool:
    """Return True if the command cannot run without arguments, or has placeholders for them."""
    command = LEAVES.get(" ".join(word for word in words[1:] if not _PLACEHOLDER.fullmatch(word)))
    if command is None:
        return False
    required = any(isinstance(each, click.Argument) and each.required for each in command.params)
    return required or any(_PLACEHOLDER.fullmatch(word) for word in words)


TYPED = [command for command in NAMED if not _needs_more(shlex.split(command))]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Seeded]:
    """A storage with one of everything, for all commands of this module."""
    directory = tmp_path_factory.mktemp("commands")
    return directory, seed(f"sqlite:///{directory / 'agents.db'}")


@pytest.mark.parametrize("command", TYPED)
def test_a_command_in_running_text_can_be_typed(command: str, filled: tuple[Path, Seeded]) -> None:
    """It succeeds on a storage that has one of everything."""
    directory, seeded = filled
    TypedShell(directory, seeded.variables).run(command)


def test_what_is_not_typed_names_a_command_whose_examples_are() -> None:
    """A command without its arguments exists; tests/cli/test_examples.py runs the examples of every command."""
    left_out = [command for command in NAMED if command not in TYPED]
    assert "lash worker" in left_out
    assert not [command for command in left_out if not command.startswith("lash ")]


def test_nothing_is_excused_that_no_page_shows() -> None:
    """Each replaced command is shown on a page."""
    blocks = [block for text in TEXTS for block in blocks_of(text) if block.language in SHELLS]
    shown = {line for block in blocks for line in commands_of(block.body)}
    assert set(INSTEAD) <= shown | {line for command in NAMED for line in commands_of(command)}


def test_what_pip_installs_is_there() -> None:
    """Every extra that a page names exists, and no page names the other project's distribution."""
    project = tomllib.loads((README.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {found for text in TEXTS for found in re.findall(r"'(\.)\[(\w+)\]'|\b(lash[\w-]*)\[(\w+)\]", text)}
    assert named
    assert {first or second for _, first, _, second in named} <= set(project["optional-dependencies"])
    assert {distribution for _, _, distribution, _ in named if distribution} == {project["name"]}
