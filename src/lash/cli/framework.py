"""``lash import``: the databases of other frameworks, read into the storage."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import click

from lash.cli import exits
from lash.cli.command import command
from lash.cli.exits import CommandFailed
from lash.cli.shell import Shell
from lash.cli.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lash.adapters.importing import ImportReport
    from lash.cli.bar import Bar
    from lash.transfer import Progress

FRAMEWORKS: Final = ("langgraph", "openai-agents", "adk")
"""The names of `lash.adapters.importing.readers.READERS`, which help and completion need before it is imported."""
_SHOWN: Final = 10
"""How many sessions that were not imported the report lists; the JSON report has all of them."""


@command("import", "lash import langgraph checkpoints.sqlite --dry-run")
@click.argument("framework", metavar="FRAMEWORK", type=click.Choice(FRAMEWORKS))
@click.argument("database", metavar="DATABASE")
@click.option("--dry-run", is_flag=True, help="Read everything and report it, and write nothing.")
async def import_(shell: Shell, framework: str, database: str, dry_run: bool) -> None:  # noqa: FBT001 (click's)
    """Import the database of another framework: a SQLite file, or a postgresql:// URL (?schema=NAME if not public).

    FRAMEWORK is langgraph, openai-agents or adk. The database is only read. Its sessions become sessions of this
    storage, and rows without a counterpart are kept as records in the collection import.raw. Idempotent: an
    interrupted import continues if you repeat it. Exits with code 4 if something was not imported.
    """
    from lash.adapters.importing import import_database, open_source
    from lash.adapters.importing.readers import reader_of
    from lash.cli.bar import drawn

    reader = reader_of(framework)
    async with shell.storage() as storage, open_source(database) as opened:
        with drawn() as bar:
            report = await import_database(storage, opened, reader, dry_run=dry_run, progress=partial(_show, bar))
    if shell.json:
        shell.value(report)
    else:
        shell.lines(_lines(report))
    if report.not_imported:
        raise CommandFailed(exits.CONFLICT, f"{len(report.not_imported)} not imported")


def _show(bar: Bar, progress: Progress) -> None:
    bar.show("import sessions", progress.done, progress.total)


def _lines(report: ImportReport) -> Iterator[str]:
    counts = ", ".join(plural(count, noun) for noun, count in report.counts.items())
    verb = "would import" if report.dry_run else "imported"
    yield f"{verb} {plural(report.sessions, 'session')}{': ' if counts else ''}{counts}"
    if report.already_there:
        yield f"already there: {report.already_there:,}"
    for kept in report.kept_raw:
        yield f"kept as raw records: {plural(kept.rows, 'row')} of {kept.table}: {kept.reason}"
    for each in report.not_imported[:_SHOWN]:
        yield f"not imported: {each.name}: {each.reason}"
    if len(report.not_imported) > _SHOWN:
        yield f"not imported: {len(report.not_imported) - _SHOWN:,} more; --json shows all"
    if report.other_tables:
        yield f"tables of others, not read: {', '.join(report.other_tables)}"
