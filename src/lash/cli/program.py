"""``lash program``: what a process runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lash.cli.command import command
from lash.cli.ids import PROCESS
from lash.cli.shell import Shell

if TYPE_CHECKING:
    from lash.model.process.process import ProcessRecord


@command("program", "lash program research-7", "lash program research-7 --json", "lash program research-7 --source")
@click.argument("process_id", metavar="PROCESS", type=PROCESS)
@click.option("--source", "only_source", is_flag=True, help="Write only the source, as it was given.")
async def program(shell: Shell, process_id: str, only_source: bool) -> None:  # noqa: FBT001 (click's)
    """Show what a process runs: its engine, its program, the artifact with its source, and the source.

    A durable function has no source here; it is part of the application. The source of a program in sandboxed Python
    is stored under its hash, which is the artifact.
    """
    from lash.code.source import read_source
    from lash.errors import ProcessNotFound

    async with shell.storage() as storage:
        process_id = await PROCESS.resolve(storage, process_id)
        record = await storage.processes.get(process_id)
        if record is None:
            raise ProcessNotFound(process_id)
        source = await read_source(storage, record)
    facts = _facts(record)
    if only_source:
        shell.text(source or "")
    elif shell.json:
        shell.value({"process_id": process_id, **facts, "source": source})
    else:
        shell.lines(f"{name:<10}{value}" for name, value in facts.items() if value is not None)
        if source is not None:
            shell.line()
            shell.lines(f"{number:>4}  {line}" for number, line in enumerate(source.splitlines(), 1))


def _facts(record: ProcessRecord) -> dict[str, str | None]:
    from lash.code.source import source_ref
    from lash.model.process.process import EngineInput

    given, identity = record.registration.input, record.registration.identity
    payload = given.payload if isinstance(given, EngineInput) and isinstance(given.payload, dict) else {}
    version = payload.get("version")
    return {
        "engine": given.kind if isinstance(given, EngineInput) else None,
        "program": None if identity is None else identity.label,
        "version": version if isinstance(version, str) else None,
        "artifact": source_ref(record),
    }
