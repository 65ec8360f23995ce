"""``lash workers``: the workers that run on a storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import click

from lash.cli import exits
from lash.cli.command import Group, command
from lash.cli.exits import CommandFailed
from lash.cli.ids import WORKER
from lash.cli.operator import operated
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import age, plain

if TYPE_CHECKING:
    from lash.model.worker import Holding, Served, WorkerRecord

_COLUMNS: Final = (
    Column("WORKER"),
    Column("STATE", state=True),
    Column("HOST", stretch=True),
    Column("PID", right=True),
    Column("VERSION"),
    Column("SERVES", stretch=True),
    Column("SESSIONS", right=True),
    Column("PROCESSES", right=True),
    Column("RUNS", stretch=True),
    Column("STARTED", right=True),
    Column("SEEN", right=True),
)
_SHOWN: Final = 3
"""How many names a cell shows."""
_HELD: Final = 1_000
"""How many sessions and processes of a worker are read."""


class _Listed(NamedTuple):
    worker: WorkerRecord
    holding: Holding


@click.group(cls=Group)
def workers() -> None:
    """List the workers that run, and drain one."""


@command("ls", "lash workers ls", "lash workers ls --json", group=workers, names=True)
async def list_workers(shell: Shell) -> None:
    """List workers in the order of their start: slots in use, what they run, version, and their last beat.

    A worker that missed two beats is late: it is dead, or cut off from the database.
    """
    async with shell.storage() as storage:
        listed = await storage.workers.list()
        held = await storage.workers.holding([each.worker_id for each in listed], limit=_HELD)
    found = [_Listed(each, held[each.worker_id]) for each in listed]
    shell.table(
        _COLUMNS,
        found,
        _row,
        nothing="no workers; start one with: lash worker MODULE:APP",
        value=_value,
        name=lambda each: each.worker.worker_id,
    )


@command("drain", "lash workers drain worker-1", group=workers)
@click.argument("worker_id", metavar="WORKER", type=WORKER)
@operated
async def drain(shell: Shell, worker_id: str, by: str) -> None:
    """Let a worker take nothing new; it finishes what it runs, however long that takes, and exits.

    The worker is woken and stops taking work at once. `lash worker drain` does the same. Exits with code 3 if the
    worker is unknown.
    """
    from lash.runtime.acting import acting

    async with shell.storage() as storage:
        worker_id = await WORKER.match(storage, worker_id)
        async with acting(storage, by, "drain", worker_id):
            if not await storage.workers.drain(worker_id):
                raise CommandFailed(exits.NOT_FOUND, f"unknown worker {worker_id}; see lash workers ls")
    shell.done(f"draining {worker_id}; it stops when nothing runs", {"worker_id": worker_id, "status": "draining"})


def _row(listed: _Listed) -> tuple[str, ...]:
    worker, holding = listed
    beat = worker.beat
    return (
        worker.worker_id,
        "late" if worker.is_late else worker.status.value,
        beat.host,
        str(beat.pid),
        beat.version,
        serves_text(beat.served, sessions=beat.session_slots, processes=beat.process_slots),
        f"{len(holding.session_ids)}/{beat.session_slots}",
        f"{len(holding.process_ids)}/{beat.process_slots}",
        names_text(holding.session_ids + holding.process_ids) or "-",
        age(worker.started_at_ms),
        age(worker.seen_at_ms),
    )


def serves_text(served: Served, *, sessions: int, processes: int) -> str:
    """Return which work a worker takes."""
    kinds = [
        "sessions" + ("" if served.agents is None else f" of {names_text(served.agents)}") if sessions else "",
        "processes" + ("" if served.processes is None else f" {names_text(served.processes)}") if processes else "",
    ]
    taken = " and ".join(kind for kind in kinds if kind) or "nothing"
    labels = tuple(f"{key}={value}" for key, value in (served.labels or {}).items())
    return f"{taken} with {names_text(labels)}" if labels else taken


def names_text(names: tuple[str, ...]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" +{more}" if more > 0 else "")


def _value(listed: _Listed) -> object:
    worker, beat = plain(listed.worker), plain(listed.worker.beat)
    assert isinstance(worker, dict)
    assert isinstance(beat, dict)
    # An address inside the registry, of no use to a reader.
    del beat["channel"]
    return {"worker_id": listed.worker.worker_id, **worker, "beat": beat, "holding": plain(listed.holding)}
