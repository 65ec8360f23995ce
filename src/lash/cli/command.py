"""Commands with their common options, and groups that import their commands on demand."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import re
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lash.cli import exits
from lash.cli.exits import CommandFailed
from lash.cli.shell import VARIABLE, Shell

if TYPE_CHECKING:
    from lash.model.value import JSON

Work = Callable[..., Coroutine[Any, Any, None]] | Callable[..., None]
"""The function of a command: it takes the shell first, then its options."""
F = TypeVar("F", bound=Callable[..., Any])

FORMATS: Final = ("table", "json", "name")
"""The formats of the output; the first is the default, and the last is for commands that list things with ids."""
_SHORT: Final = {"json": "json", "quiet": "name"}
"""Options that are short for a format, by their names."""
_SYNONYMS: Final = {"list": "ls", "remove": "rm", "delete": "rm", "processes": "ps"}
"""Names of other tools for a command, which an error translates."""
LIMIT: Final = 50
"""How many items a list shows by default."""


def _set(name: str) -> Callable[[click.Context, click.Parameter, object], None]:
    """Return a callback that stores an option on the shell, so that it works before and after the command's name."""

    def keep(context: click.Context, _parameter: click.Parameter, value: object) -> None:
        if value not in (None, False):
            setattr(context.ensure_object(Shell), name, value)

    return keep


def _choose(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Store the output format of ``-o``, or of an option that is short for one."""
    if value in (None, False):
        return
    chosen = value if isinstance(value, str) else _SHORT[str(parameter.name)]
    given = f"-o {chosen}" if isinstance(value, str) else parameter.opts[-1]
    context.ensure_object(Shell).choose(chosen, given)


def common_options(*, storage: bool = True, names: bool = True) -> list[click.Parameter]:
    """Return the options of every command; those about the storage only if the command uses one.

    Only commands with ``names`` can write ids.
    """
    debug = click.Option(
        ["--debug"], is_flag=True, expose_value=False, callback=_set("debug"), help="Show the traceback of an error."
    )
    if not storage:
        return [debug]
    return [
        click.Option(
            ["--url"],
            metavar="URL",
            expose_value=False,
            is_eager=True,
            callback=_set("given_url"),
            help=f"The storage: sqlite:///agents.db or postgresql://user@host/database.  [default: ${VARIABLE}]",
        ),
        click.Option(
            ["-o", "--output"],
            type=click.Choice(FORMATS if names else FORMATS[:-1]),
            expose_value=False,
            callback=_choose,
            help="A table, JSON lines, or one id a line." if names else "Text for people, or JSON lines.",
        ),
        click.Option(["--json"], is_flag=True, expose_value=False, callback=_choose, help="Short for -o json."),
        debug,
    ]


def _quiet() -> click.Option:
    return click.Option(
        ["-q", "--quiet"],
        is_flag=True,
        expose_value=False,
        callback=_choose,
        help="Short for -o name: write one id a line.",
    )


class Explained(click.Command):
    """A command with a short help for lists."""

    def get_short_help_str(self, limit: int = 45) -> str:  # noqa: ARG002 (click's)
        """Return the first clause of the help, never truncated."""
        first = inspect.cleandoc(self.help or "").partition("\n\n")[0]
        return re.split(r"[.:;](?: |$)", " ".join(first.split()), maxsplit=1)[0]


class Command(Explained):
    """A command with the common options and examples."""

    examples: Sequence[str] = ()

    def format_epilog(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        with formatter.section("Examples" if len(self.examples) > 1 else "Example"):
            for example in self.examples:
                formatter.write(f"  {example}\n")


class Group(Explained, click.Group):
    """A group whose commands are imported on demand: ``name -> module:attribute``."""

    def __init__(self, *args: Any, lazy: Mapping[str, str] | None = None, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self._lazy = dict(lazy or {})
        self.params.extend(common_options())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show the help if there are no arguments, with exit code 0 in every version of click."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; a group may be named in the singular, and the error of an unknown name has similar ones."""
        name = args[0]
        if f"{name}s" in self._lazy and name not in self._lazy:
            args = [f"{name}s", *args[1:]]
        elif not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            raise click.UsageError(f"unknown command {name!r}{_similar(name, self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's)
        """Return the names in the order of their declaration."""
        return [*self.commands, *self._lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = self._lazy.get(cmd_name)
        if target is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = target.partition(":")
        found = getattr(importlib.import_module(module), attribute)
        assert isinstance(found, click.Command), target
        return found


def _similar(name: str, known: Sequence[str]) -> str:
    """Return similar names as an addition to an error; empty if there are none."""
    from difflib import get_close_matches

    meant = _SYNONYMS.get(name, name)
    found = [each for each in known if each.startswith(meant)] or get_close_matches(meant, known)
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""


def command(
    name: str, *examples: str, group: click.Group | None = None, storage: bool = True, names: bool = False
) -> Callable[[Work], Command]:
    """Turn a function into a command; it takes the shell first, then its options, and its docstring is the help.

    A command with ``names`` also writes the ids of what it shows, with ``-o name`` or ``-q``.
    """

    def make(function: Work) -> Command:
        @functools.wraps(function)
        def call(**values: object) -> None:
            context = click.get_current_context()
            shell = context.find_object(Shell)
            assert shell is not None
            if shell.names and not names:
                raise click.UsageError(f"{context.command_path} writes no ids; use -o table or -o json", context)
            running = function(shell, **values)
            if inspect.iscoroutine(running):
                # Imported here so that help and completion stay fast.
                import asyncio

                asyncio.run(running)

        made = click.command(name, cls=Command)(call)
        made.params.extend(common_options(storage=storage, names=names))
        if names:
            made.params.insert(-1, _quiet())
        made.examples = examples
        if group is not None:
            group.add_command(made)
        return made

    return make


def deletes(function: F) -> F:
    """Add ``--dry-run`` and ``--yes`` to a command that removes something."""
    dry = click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
    return dry(click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(function))


def limited(function: F) -> F:
    """Add ``--limit`` and ``--no-limit`` to a list."""
    limit = click.option(
        "-n",
        "--limit",
        type=click.IntRange(min=1),
        metavar="N",
        default=LIMIT,
        show_default=True,
        help="Show at most this many.",
    )
    return limit(click.option("--no-limit", "everything", is_flag=True, help="Show all of them.")(function))


def seconds(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    """Check an option that is a number of seconds."""
    # Written so that NaN is refused too.
    if value is not None and not 0 <= value < math.inf:
        raise click.BadParameter(f"expected a number of seconds, 0 or more, got {value}.")
    return value


def label_dict(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Return labels such as ``env=prod`` by their keys."""
    for text in given:
        if "=" not in text:
            raise click.BadParameter(f"expected KEY=VALUE, got {text!r}")
    return dict(text.split("=", 1) for text in given)


def json_argument(text: str, what: str = "the payload") -> JSON:
    """Read JSON from an argument; ``-`` reads it from standard input."""
    import msgspec

    if text == "-":
        text = sys.stdin.read()
    try:
        value: JSON = msgspec.json.Decoder().decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise CommandFailed(
            exits.USAGE, f"{what}: expected JSON, got text that is not ({error}); quote a text twice: '\"yes\"'"
        ) from None
    return value
