"""``lash versions``: which versions of code still have work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import click

from lash.cli.command import Group, command
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import age

if TYPE_CHECKING:
    from lash.model.process.process import ProcessVersion
    from lash.model.worker import WorkerRecord

_COLUMNS: Final = (
    Column("KIND"),
    Column("NAME", stretch=True),
    Column("VERSION"),
    Column("COUNT", right=True),
    Column("CONTINUED", right=True),
    Column("OLDEST", right=True),
)


class _Version(NamedTuple):
    """Processes of one version of their definition, or workers of one version of lash."""

    kind: str
    name: str
    version: str | None
    number: int
    continued: int
    oldest_at_ms: int


@click.group(cls=Group)
def versions() -> None:
    """Show which versions of code still have work."""


@command("ls", "lash versions ls", "lash versions ls --json", group=versions, names=True)
async def list_versions(shell: Shell) -> None:
    """Count the processes that have not ended by the version of their definition, and the workers by that of lash.

    A version of a process without a line has no process left: its code can be removed. CONTINUED is how many of them
    continued as new; these run the version of the worker that did so. -q writes the name, and the version behind a @.
    """
    async with shell.storage() as storage:
        processes, workers = await storage.processes.versions(), await storage.workers.list()
    found = [*map(_of_processes, processes), *_of_workers(workers)]
    shell.table(
        _COLUMNS,
        found,
        _row,
        nothing="no processes that have not ended, and no workers",
        value=_value,
        name=lambda each: f"{each.name}@{each.version or '-'}",
    )


def _of_processes(found: ProcessVersion) -> _Version:
    return _Version("process", found.name, found.version, found.count, found.continued, found.oldest_at_ms)


def _of_workers(workers: tuple[WorkerRecord, ...]) -> list[_Version]:
    started: dict[str, list[int]] = {}
    for worker in workers:
        started.setdefault(worker.beat.version, []).append(worker.started_at_ms)
    return [_Version("worker", "lash", version, len(at), 0, min(at)) for version, at in sorted(started.items())]


def _value(found: _Version) -> object:
    values = found._asdict()
    return {**values, "count": values.pop("number")}


def _row(found: _Version) -> tuple[str, ...]:
    continued = str(found.continued) if found.kind == "process" else "-"
    return (found.kind, found.name, found.version or "-", str(found.number), continued, age(found.oldest_at_ms))
