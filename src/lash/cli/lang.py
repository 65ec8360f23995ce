"""``lash lang``: check, format, show and run programs in lashlang."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Final

import click

from lash.cli import exits
from lash.cli.command import Group, command, json_argument, seconds
from lash.cli.exits import CommandFailed
from lash.cli.shell import Shell
from lash.cli.table import Column

if TYPE_CHECKING:
    from lash.lang.graph import GraphNode, ModuleGraph
    from lash.lang.host.catalogue import HostCatalogue
    from lash.lang.link import LinkedModule
    from lash.lang.process.engine import Lashlang
    from lash.model.value import JSON

_COLUMNS: Final = (
    Column("ENTRY"),
    Column("LINE", right=True),
    Column("KIND"),
    Column("WHAT", stretch=True),
    Column("THEN"),
)


@click.group(cls=Group)
def lang() -> None:
    """Check, format, show and run programs in lashlang, the language for programs that models write."""


_on_app: Final = click.option(
    "--app", "target", metavar="MODULE:APP", help="Link against the modules of this application's engine."
)


@command("check", "lash lang check poll.lash", "lash lang check poll.lash --app shop.agents:app --json", group=lang)
@click.argument("file", metavar="FILE")
@_on_app
def check(shell: Shell, file: str, target: str | None) -> None:
    """Parse and link a program, and print what it needs of its host; FILE - reads standard input.

    Without --app, modules, operations and types that only its host knows are assumed to exist. The error of a program
    is printed with its line, and the exit code is 1.
    """
    artifact = _linked(_read(file), target).artifact
    resources, abilities = artifact.requirements.resources, artifact.requirements.abilities
    needs = _operations(resources)
    shell.done(
        f"no errors; needs {', '.join(needs)}" if needs else "no errors; needs no operations",
        {
            "processes": list(artifact.exports),
            "modules": {alias: sorted(each.operations) for alias, each in sorted(resources.modules.items())},
            "types": {kind: sorted(known) for kind, known in sorted(resources.resource_types.items())},
            "abilities": [each.name for each in fields(abilities) if getattr(abilities, each.name)],
        },
    )


@command("fmt", "lash lang fmt poll.lash", "lash lang fmt poll.lash --check", group=lang, storage=False)
@click.argument("file", metavar="FILE")
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit with 1 if the layout is another one.")
def fmt(shell: Shell, file: str, only_check: bool) -> None:  # noqa: FBT001 (click's)
    """Write a program in the canonical layout, with its comments; FILE - reads standard input and writes the result.

    The text is replaced only if the new one parses to the same program.
    """
    from lash.lang.diagnostic import ProgramError
    from lash.lang.printing.program import format_source

    source = _read(file)
    try:
        text = format_source(source)
    except ProgramError as error:
        raise _failed(error) from None
    if only_check and text != source:
        raise CommandFailed(exits.ERROR, f"{file} is not in the canonical layout; run: lash lang fmt {file}")
    if only_check:
        return
    if file == "-":
        shell.text(text.removesuffix("\n"))
    elif text != source:
        _write(file, text)


@command("graph", "lash lang graph poll.lash", "lash lang graph poll.lash --app shop.agents:app --json", group=lang)
@click.argument("file", metavar="FILE")
@_on_app
def graph(shell: Shell, file: str, target: str | None) -> None:
    """List the effects and branches of a program, and what can follow each; FILE - reads standard input.

    THEN has the numbers of the nodes that can follow, LINE the line of the source. With --app the ids in the JSON are
    those of the effects of a run; without it they belong to a host that is assumed.
    """
    import msgspec

    from lash.lang.diagnostic import line_and_column
    from lash.lang.graph import module_graph

    source = _read(file)
    found = module_graph(_linked(source, target).artifact)
    if shell.json:
        shell.value(msgspec.to_builtins(found))
        return
    names = {entry.entry: entry.name for entry in found.entries}
    numbers = {node.id: str(number) for number, node in enumerate(found.nodes, start=1)}

    def row(node: GraphNode) -> tuple[str, ...]:
        line = "" if node.span is None else str(line_and_column(source, node.span.start)[0])
        what = f"{node.title}: {node.text}" if node.title else node.text
        return names[node.entry], line, node.kind, f"{numbers[node.id]} {what}", _following(found, node, numbers)

    shell.table(_COLUMNS, found.nodes, row, nothing="no effects and no branches")


@command(
    "run",
    "lash lang run poll.lash --app shop.agents:app --arg id=7",
    """lash lang run poll.lash --app shop.agents:app --process poll --arg 'id="build-7"' --detach""",
    group=lang,
    storage=False,
)
@click.argument("file", metavar="FILE")
@click.option("--app", "target", metavar="MODULE:APP", required=True, help="The application with the engine.")
@click.option("--process", "name", metavar="NAME", help="The process to start, if the program declares several.")
@click.option("--arg", "arguments", metavar="NAME=JSON", multiple=True, help="An argument; give it once for each.")
@click.option("--id", "process_id", metavar="ID", help="The id of the process; starting it again does nothing.")
@click.option("--detach", is_flag=True, help="Print the id and leave the process to a worker.")
@click.option("--timeout", "timeout_s", type=float, metavar="SECONDS", callback=seconds, help="How long to wait.")
async def run_program(
    shell: Shell,
    file: str,
    target: str,
    name: str | None,
    arguments: tuple[str, ...],
    process_id: str | None,
    detach: bool,  # noqa: FBT001 (click's)
    timeout_s: float | None,
) -> None:
    """Start a process of a program, run it here, and print its result; FILE - reads standard input.

    The program is linked against the modules of the application's engine. Its storage is the application's own. The
    error of a program is printed with its line, and the exit code is 1.
    """
    import msgspec

    from lash.cli.worker import load_app
    from lash.errors import ProcessFailed
    from lash.lang.diagnostic import ProgramError
    from lash.lang.process.engine import Lashlang

    app = load_app(target)
    engine = app.find_engine("lashlang")
    assert isinstance(engine, Lashlang)
    try:
        program = engine.process(_read(file), name)
    except ProgramError as error:
        raise _failed(error) from None
    given = dict(_argument(each) for each in arguments)
    # A worker for this program alone: it leaves the other work of the storage to others.
    names = tuple(program.module.artifact.exports)
    app.configure(options=msgspec.structs.replace(app.options, sessions=0, process_names=names), worker=not detach)
    async with app:
        handle = await app.starting(process_id=process_id).start(program, **given)
        if detach:
            shell.line(handle.process_id)
            return
        shell.note(f"process {handle.process_id}")
        try:
            shell.value(await handle.result(timeout_s=timeout_s))
        except ProcessFailed as error:
            outcome = (await handle.record()).projection.outcome
            place = program.locate(getattr(outcome, "raw", None))
            raise CommandFailed(exits.ERROR, str(error) if place is None else place) from None


def _argument(given: str) -> tuple[str, JSON]:
    name, equals, text = given.partition("=")
    if not equals or not name.isidentifier():
        raise CommandFailed(exits.USAGE, f"--arg {given}: expected NAME=JSON")
    return name, json_argument(text, f"--arg {name}")


def _following(found: ModuleGraph, node: GraphNode, numbers: dict[str, str]) -> str:
    ways = [edge for edge in found.edges if edge.source == node.id]
    return ", ".join(numbers[edge.target] + (f" ({edge.when})" if edge.when else "") for edge in ways)


def _read(file: str) -> str:
    """Return the text of a file as it is, line ends included."""
    try:
        if file == "-":
            return sys.stdin.buffer.read().decode()
        with open(file, "rb") as opened:  # noqa: PTH123 (one name for files and standard input)
            return opened.read().decode()
    except UnicodeDecodeError:
        raise CommandFailed(exits.USAGE, f"{file}: expected text in UTF-8") from None
    except OSError as error:
        raise CommandFailed(exits.USAGE, f"{file}: {error.strerror}") from None


def _write(file: str, text: str) -> None:
    try:
        with open(file, "wb") as opened:  # noqa: PTH123 (the same)
            opened.write(text.encode())
    except OSError as error:
        raise CommandFailed(exits.ERROR, f"{file}: {error.strerror}") from None


def _operations(resources: HostCatalogue) -> list[str]:
    """Return the operations that a program calls: of a module, or of any module of a type."""
    modules = resources.modules.values()
    named = {f"{each.alias}.{name}" for each in modules for name in each.operations}
    covered = {(each.resource_type, name) for each in modules for name in each.operations}
    typed = {(kind, name) for kind, known in resources.resource_types.items() for name in known}
    return sorted(named | {f"{kind}.{name}" for kind, name in typed - covered})


def _engine(target: str) -> Lashlang:
    from lash.cli.worker import load_app
    from lash.lang.process.engine import Lashlang

    engine = load_app(target).find_engine("lashlang")
    assert isinstance(engine, Lashlang)
    return engine


def _linked(source: str, target: str | None) -> LinkedModule:
    """Link a program against an application, or against what it uses."""
    from lash.lang.diagnostic import ProgramError
    from lash.lang.host.assumed import assumed_environment
    from lash.lang.link import link
    from lash.lang.parse import parse

    try:
        program = parse(source)
        environment = assumed_environment(program) if target is None else _engine(target).environment
        return link(program, environment, source=source)
    except ProgramError as error:
        raise _failed(error) from None


def _failed(error: Exception) -> CommandFailed:
    """Return the end of a command whose program has an error; the message has several lines."""
    return CommandFailed(exits.ERROR, str(error))
