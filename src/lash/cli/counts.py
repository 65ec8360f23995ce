"""``lash counts``: what there is, by state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lash.cli.command import command
from lash.cli.shell import Shell
from lash.cli.table import Column

if TYPE_CHECKING:
    from lash.model.maintenance import StorageCounts

_COLUMNS: Final = (Column("WHAT"), Column("STATE", state=True), Column("COUNT", right=True))


@command("counts", "lash counts", "lash counts --json")
async def counts(shell: Shell) -> None:
    """Count sessions, queued input, dead letters, processes and waits by state, at one moment."""
    async with shell.storage() as storage:
        found = await storage.counts()
    if shell.json:
        shell.value(found)
        return
    shell.table(_COLUMNS, list(_rows(found)), lambda row: row, nothing="")


def _rows(found: StorageCounts) -> Iterator[tuple[str, str, str]]:
    for state, number in found.sessions.items():
        yield "sessions", state.value, f"{number:,}"
    yield "input", "queued", f"{found.queued:,}"
    yield "input", "claimed", f"{found.claimed:,}"
    yield "input", "dead", f"{found.dead:,}"
    for status, number in found.processes.items():
        yield "processes", status.value, f"{number:,}"
    yield "processes", "held by a worker", f"{found.running_processes:,}"
    yield "waits", "open", f"{found.waits:,}"
