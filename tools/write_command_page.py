"""Writes the generated part of docs/cli.md from the commands themselves: ``python -m tools.write_command_page``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from lash.cli.command import Command, common_options
from lash.cli.exits import MEANINGS
from lash.cli.root import root

PAGE: Final = Path(__file__).parents[1] / "docs" / "cli.md"
BEGIN: Final = "<!-- generated: python -m tools.write_command_page -->"
_COMMON: Final = frozenset(parameter.name for parameter in common_options())


def main() -> None:
    """Rewrite the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE}")


def page(present: str) -> str:
    """Return the page with its generated part replaced; the part before the mark is written by hand."""
    kept, mark, _old = present.partition(BEGIN)
    if not mark:
        raise ValueError(f"{PAGE} has no line {BEGIN}")
    return kept + "\n".join([BEGIN, "", *_exit_codes(), "", *_commands(root, ("lash",))]).rstrip("\n") + "\n"


def _exit_codes() -> Iterator[str]:
    yield from ("## Exit codes", "", "| code | meaning |", "|---|---|")
    for code, meaning in MEANINGS.items():
        yield f"| {code} | {meaning} |"


def _commands(group: click.Group, path: tuple[str, ...]) -> Iterator[str]:
    context = click.Context(group, info_name=path[-1])
    if len(path) == 1:
        yield from ("## Commands", "")
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None, name
        if isinstance(found, click.Group):
            yield from (f"### {' '.join((*path, name))}", "", _prose(found), "")
            yield from _commands(found, (*path, name))
        elif isinstance(found, Command):
            yield from _command(found, (*path, name))


def _command(found: Command, path: tuple[str, ...]) -> Iterator[str]:
    context = click.Context(found, info_name=path[-1])
    words = [piece for piece in found.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    yield from (
        f"{'#' * (len(path) + 1)} {' '.join(path)}",
        "",
        f"`{' '.join((*path, *words))}`",
        "",
        _prose(found),
        "",
    )
    options = [each for each in found.params if isinstance(each, click.Option) and each.name not in _COMMON]
    if options:
        yield from ("| option | |", "|---|---|")
        for option in options:
            yield f"| `{_cell(_named(option))}` | {_cell(_told(option))} |"
        yield ""
    yield from ("```bash", *found.examples, "```", "")


def _named(option: click.Option) -> str:
    names = ", ".join(option.opts)
    if option.is_flag:
        return names
    if isinstance(option.type, click.Choice):
        return f"{names} {'|'.join(str(choice) for choice in option.type.choices)}"
    return f"{names} {option.metavar or 'TEXT'}"


def _told(option: click.Option) -> str:
    default = f" [default: {option.default}]" if option.show_default else ""
    return f"{option.help}{default}"


def _prose(found: click.Command) -> str:
    assert found.help, found.name
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in found.help.split("\n\n"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    main()
