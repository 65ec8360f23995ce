"""``lash acts``: what operators did; and the name of the operator of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from lash.cli import pages
from lash.cli.command import Group, command, limited
from lash.cli.ids import PROCESS, SESSION
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import moment

if TYPE_CHECKING:
    from lash.model.act import Act
    from lash.stores.storage import Storage

_COLUMNS: Final = (
    Column("WHEN"),
    Column("BY", stretch=True),
    Column("ACT"),
    Column("TARGET", stretch=True),
    Column("OF", stretch=True),
    Column("OUTCOME", state=True),
)


@click.group(cls=Group)
def acts() -> None:
    """List what operators did, and who did it."""


@command(
    "ls", "lash acts ls", "lash acts ls --by ada --json", "lash acts ls --session support-42", group=acts, names=True
)
@click.option("--by", metavar="NAME", help="Only acts of this operator.")
@click.option("--session", "session_id", metavar="SESSION", type=SESSION, help="Only acts about this session.")
@click.option("--process", "process_id", metavar="PROCESS", type=PROCESS, help="Only acts about this process.")
@limited
async def list_acts(
    shell: Shell,
    by: str | None,
    session_id: str | None,
    process_id: str | None,
    limit: int,
    everything: bool,  # noqa: FBT001 (click's)
) -> None:
    """List the acts of operators, the last first, with their outcomes.

    Recorded are cancel, rerun, requeue, discard, resolve, reject, signal, send, edit, switch, fork, delete, drain, and
    changes of schedules and triggers, by these commands and by the console. An act is recorded before it is done; its
    outcome is unknown while it runs, and if its program crashed. OF is the session or the process of the target. -q
    writes the ids of the acts.
    """
    if session_id is not None and process_id is not None:
        raise click.UsageError("name a session or a process, not both")
    async with shell.storage() as storage:
        session_id = await SESSION.match_given(storage, session_id)
        process_id = await PROCESS.match_given(storage, process_id)
        fetch = _pages(storage, by, session_id, process_id)
        found = await pages.first(fetch, shell, limit, everything=everything)
    shell.table(_COLUMNS, found, _row, nothing="no acts", name=lambda act: act.act_id)


def _pages(storage: Storage, by: str | None, session_id: str | None, process_id: str | None) -> pages.Fetch[Act]:
    async def fetch(limit: int, cursor: str | None) -> tuple[tuple[Act, ...], str | None]:
        after = None if cursor is None else int(cursor)
        page = await storage.acts.list(by=by, session_id=session_id, process_id=process_id, limit=limit, after=after)
        return page, str(page[-1].position) if len(page) == limit else None

    return fetch


def _row(act: Act) -> tuple[str, ...]:
    outcome = "unknown" if act.outcome is None else act.outcome.value
    shown = outcome if act.error is None else f"{outcome}: {act.error}"
    return moment(act.at_ms), act.by, act.verb, act.target, act.session_id or act.process_id or "", shown
