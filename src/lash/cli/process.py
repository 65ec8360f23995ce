"""``lash ps`` and ``lash cancel``: background processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from lash.cli import exits, pages
from lash.cli.command import command, limited
from lash.cli.exits import CommandFailed
from lash.cli.failure import reason_of
from lash.cli.ids import PROCESS, SESSION
from lash.cli.operator import operated
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import age, plain

if TYPE_CHECKING:
    from lash.model.process.process import ProcessFilter, ProcessRecord
    from lash.stores.storage import Storage

_COLUMNS: Final = (
    Column("PROCESS"),
    Column("LABEL", stretch=True),
    Column("STATUS", state=True),
    Column("DUE", right=True),
    Column("EVENTS", right=True),
    Column("CREATED", right=True),
    Column("UPDATED", right=True),
    Column("WAKES", stretch=True),
    Column("REASON", stretch=True),
)
_STATUSES: Final = ("running", "completed", "failed", "cancelled", "abandoned")


@command(
    "ps",
    "lash ps",
    "lash ps -a --label research",
    "lash ps --waiting",
    "lash ps --status failed -o json",
    "lash ps --label research -q | xargs -r -n 1 lash logs --tail 1",
    names=True,
)
@click.option("-a", "--all", "ended", is_flag=True, help="Show ended processes too.")
@click.option("--status", type=click.Choice(_STATUSES), help="Show only processes of this status.")
@click.option("--waiting", is_flag=True, help="Show only processes that sleep, wait, or pause before a retry.")
@click.option("--label", help="Show only processes with this label; for a durable function its name.")
@click.option(
    "--session", "session_id", metavar="SESSION", type=SESSION, help="Show only processes that this session started."
)
@click.option("--parent", metavar="PROCESS", type=PROCESS, help="Show only processes that this process started.")
@limited
async def ps(
    shell: Shell,
    ended: bool,  # noqa: FBT001 (click's)
    status: str | None,
    waiting: bool,  # noqa: FBT001 (click's)
    label: str | None,
    session_id: str | None,
    parent: str | None,
    limit: int,
    everything: bool,  # noqa: FBT001 (click's)
) -> None:
    """List processes, the newest first; by default without ended ones.

    STATUS is running, ready (for a free worker), sleeping, waiting, retrying or cancelling. DUE is when a parked
    process runs at the latest. REASON is why a process failed, was cancelled or was abandoned.
    """
    from lash.model.process.process import ProcessFilter, ProcessStatus

    async with shell.storage() as storage:
        wanted = ProcessFilter(
            status=ProcessStatus(status) if status else None if ended else ProcessStatus.RUNNING,
            parked=True if waiting else None,
            label=label,
            originator_session_id=await SESSION.match_given(storage, session_id),
            parent_process_id=await PROCESS.match_given(storage, parent),
        )
        found = await pages.first(process_pages(storage, wanted), shell, limit, everything=everything)
    shell.table(
        _COLUMNS,
        found,
        _row,
        nothing=_nothing(status, ended=ended),
        value=process_fields,
        name=lambda each: each.process_id,
    )


def _nothing(status: str | None, *, ended: bool) -> str:
    if status is not None:
        return f"no {status} processes"
    return (
        "no processes; start one with: lash start MODULE:APP PROCESS" if ended else "no processes; -a shows ended ones"
    )


def process_pages(storage: Storage, wanted: ProcessFilter) -> pages.Fetch[ProcessRecord]:
    async def fetch(limit: int, cursor: str | None) -> tuple[tuple[ProcessRecord, ...], str | None]:
        page = await storage.processes.list(wanted, with_state=True, limit=limit, cursor=cursor)
        return page.processes, page.next_cursor

    return fetch


def process_fields(record: ProcessRecord) -> object:
    """Return the JSON of a process: the record, with its status beside the id."""
    fields = plain(record)
    assert isinstance(fields, dict)
    return {"process_id": record.process_id, "status": record.status.value, **fields}


def _row(record: ProcessRecord) -> tuple[str, ...]:
    return (
        record.process_id,
        _label(record),
        _status(record),
        "-" if record.state is None else age(record.state.due_at_ms),
        str(record.last_sequence),
        age(record.created_at_ms),
        age(record.updated_at_ms),
        record.wake_session_id or "",
        reason_of(record.projection.outcome),
    )


def _label(record: ProcessRecord) -> str:
    """Return the label of a process, and the number of its run if it has continued as new."""
    identity = record.registration.identity
    label = "" if identity is None else identity.label or identity.kind
    return label if record.projection.run == 1 else f"{label} (run {record.projection.run})"


def _status(record: ProcessRecord) -> str:
    state = record.state
    if state is None:
        return record.status.value
    if record.projection.cancel_requested:
        return "cancelling"
    return state.phase.value if state.waits_for is None else f"{state.phase.value} ({state.waits_for})"


@command(
    "cancel",
    "lash cancel research-7 --reason 'no longer needed'",
    "lash cancel --session support-42",
)
@click.argument("process_id", metavar="[PROCESS]", required=False, type=PROCESS)
@click.option(
    "--session", "session_id", metavar="SESSION", type=SESSION, help="Cancel the turn of this session instead."
)
@click.option("--reason", default="", help="The reason; it is stored.")
@operated
async def cancel(shell: Shell, process_id: str | None, session_id: str | None, reason: str, by: str) -> None:
    """Ask a process, or the current turn of a session, to stop.

    It is a durable request: a worker that runs it, now or later, sees it and stops. The input of a cancelled turn is
    consumed and the session goes on. Exits with code 4 if the process has ended, or if no turn is running.
    """
    if (process_id is None) == (session_id is None):
        raise click.UsageError("name a process, or a session with --session")
    async with shell.storage() as storage:
        if process_id is not None:
            await _cancel_process(shell, storage, await PROCESS.resolve(storage, process_id), reason, by)
        elif session_id is not None:
            await _cancel_turn(shell, storage, await SESSION.resolve(storage, session_id), reason, by)


async def _cancel_process(shell: Shell, storage: Storage, process_id: str, reason: str, by: str) -> None:
    from lash.runtime.acting import acting

    record = await storage.processes.get(process_id)
    if record is not None and record.is_terminal:
        raise CommandFailed(exits.CONFLICT, f"process {process_id!r} has already ended: {record.status.value}")
    async with acting(storage, by, "cancel", process_id, process_id=process_id):
        record = await storage.processes.request_cancel(process_id, reason=reason)
    shell.done(f"asked process {process_id} to stop", process_fields(record))


async def _cancel_turn(shell: Shell, storage: Storage, session_id: str, reason: str, by: str) -> None:
    from lash.runtime.acting import acting
    from lash.runtime.turns.handle import SessionHandle

    async with acting(storage, by, "cancel", session_id, session_id=session_id):
        if not await SessionHandle(storage, session_id).cancel(reason):
            raise CommandFailed(exits.CONFLICT, f"session {session_id!r} has no running turn")
    shell.done(f"asked the turn of session {session_id} to stop", {"session_id": session_id, "cancelled": True})


@command("rerun", "lash rerun research-7", "lash rerun research-7 --id research-8 --as ada", names=True)
@click.argument("process_id", metavar="PROCESS", type=PROCESS)
@click.option("--id", "new", metavar="ID", help="The id of the new process; a second call with it does nothing.")
@operated
async def rerun(shell: Shell, process_id: str, new: str | None, by: str) -> None:
    """Start a process again with the same input, under a new id, and print the id; a worker runs it.

    Every step runs again: nothing that the first one recorded is used. Whether it has ended does not matter.
    """
    from lash.base.ids import new_id
    from lash.runtime.acting import acting
    from lash.runtime.processes.handle import ProcessHandle

    async with shell.storage() as storage:
        process_id = await PROCESS.resolve(storage, process_id)
        made = new or new_id()
        async with acting(storage, by, "rerun", made, process_id=process_id):
            handle: ProcessHandle[object] = ProcessHandle(storage, process_id)
            record = await (await handle.rerun(made)).record()
    shell.done(f"started {made}, a rerun of {process_id}", process_fields(record), made)
