"""What the documentation tells to type at a shell exists."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT, SHELLS, blocks_of, markdown_files, page_id

_KNOWN = frozenset({".", "echo", "export", "kill", "pg_dump", "pg_restore", "pip", "python3", "uvicorn"})
"""Programs that are not ours."""


def _commands() -> Iterator[tuple[str, str]]:
    """Every line of every shell block, and every ``make`` and ``lash`` command in running text."""
    for path in markdown_files():
        text = path.read_text(encoding="utf-8")
        for block in blocks_of(text):
            if block.language in SHELLS:
                lines = block.body.replace("\\\n", " ").splitlines()
                parts = [part for line in lines if line and line[0] != "#" for part in re.split(r" \| | && ", line)]
                yield from ((page_id(path), part.removeprefix("$ ")) for part in parts)
        yield from ((page_id(path), command) for command in re.findall(r"`((?:make|lash) [a-z][^`\n]*)`", text))


@pytest.mark.parametrize(("page", "command"), sorted(set(_commands())))
def test_a_command_exists(page: str, command: str) -> None:
    """A target of the Makefile, a command of lash with options that it knows, or a program that is not ours."""
    words = [word for word in shlex.split(command, comments=True) if not re.fullmatch(r"[A-Z_]+=.*", word)]
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    elif words[0] == "lash":
        _check_lash(words[1:])
    else:
        assert words[0] in _KNOWN


def _check_lash(words: list[str]) -> None:
    """Walk down the tree of commands, then look at the options."""
    assert importlib.util.find_spec("lash.cli.root"), "there is no lash command yet"
    import click

    root = importlib.import_module("lash.cli.root").root
    command: click.Command = root
    context = click.Context(command)
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        while rest and rest[0].startswith("-"):
            del rest[: 2 if rest[0] == "--url" else 1]
        found = command.get_command(context, rest.pop(0))
        assert found is not None, words
        command = found
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given = {word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"}
    assert given <= known | {"--help", "--url", "--json"}, f"{sorted(given - known)} of {words}"
