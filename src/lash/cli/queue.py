"""``lash queue``: queued work of sessions, and dead letters."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from lash.cli import exits, pages
from lash.cli.command import Group, command, deletes, limited
from lash.cli.exits import CommandFailed
from lash.cli.failure import where
from lash.cli.ids import DEAD_LETTER, SESSION
from lash.cli.operator import operated
from lash.cli.output import json_line
from lash.cli.session import dead_pages
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import age, moment, plural

if TYPE_CHECKING:
    from lash.model.lease import ParkedTurn
    from lash.model.queue import Batch, DeadLetter, Payload, QueuedBatch
    from lash.stores.storage import Storage

_COLUMNS: Final = (
    Column("SESSION"),
    Column("BATCH"),
    Column("STATE", stretch=True, state=True),
    Column("KIND"),
    Column("ATTEMPTS", right=True),
    Column("QUEUED", right=True),
    Column("CONTENT", stretch=True),
)
_DEAD_COLUMNS: Final = (
    Column("SESSION"),
    Column("BATCH"),
    Column("ATTEMPTS", right=True),
    Column("DIED", right=True),
    Column("REASON", stretch=True),
    Column("CONTENT", stretch=True),
)


_STATES: Final = ("ready", "delayed", "claimed", "parked")
"""The values of `lash.model.queue.QueuedState`, which help and completion need before it is imported."""


@click.group(cls=Group)
def queue() -> None:
    """List queued work and dead letters."""


@command(
    "ls", "lash queue ls support-42", "lash queue ls", "lash queue ls --state delayed --json", group=queue, names=True
)
@click.argument("session_id", metavar="[SESSION]", required=False, type=SESSION)
@click.option("--prefix", help="Only sessions whose id begins with this.")
@click.option("--state", type=click.Choice(_STATES), help="Only batches in this state.")
@limited
async def list_queue(
    shell: Shell,
    session_id: str | None,
    prefix: str | None,
    state: str | None,
    limit: int,
    everything: bool,  # noqa: FBT001 (click's)
) -> None:
    """List queued work in its order, of one session or of all."""
    if session_id is not None and prefix is not None:
        raise click.UsageError("expected SESSION or --prefix, got both")
    async with shell.storage() as storage:
        session_id = await SESSION.match_given(storage, session_id)
        if session_id is None:
            fetch = _all_pages(storage, prefix, state)
        else:
            fetch = session_queue_pages(storage, session_id, state)
        found = await pages.first(fetch, shell, limit, everything=everything)
    shell.table(
        _COLUMNS,
        found,
        _row,
        nothing="no queued work; lash queue dead lists what failed",
        value=_fields,
        name=lambda each: each.batch.batch_id,
    )


def _all_pages(storage: Storage, prefix: str | None, state: str | None) -> pages.Fetch[QueuedBatch]:
    from lash.model.queue import QueuedState

    wanted = None if state is None else QueuedState(state)

    async def fetch(limit: int, cursor: str | None) -> tuple[tuple[QueuedBatch, ...], str | None]:
        after = None if cursor is None else int(cursor)
        found = await storage.queue.list_all(prefix=prefix, state=wanted, limit=limit, after=after)
        return found, str(found[-1].batch.seq) if len(found) == limit else None

    return fetch


def session_queue_pages(storage: Storage, session_id: str, state: str | None) -> pages.Fetch[QueuedBatch]:
    """Return the pages of a session's queue, with the state of each batch."""
    from lash.model.queue import PARKED_AT_MS, QueuedBatch, QueuedState

    def queued(batch: Batch, parked: ParkedTurn | None, *, pending: bool) -> QueuedBatch:
        now_ms = time.time_ns() // 1_000_000
        if not pending:
            return QueuedBatch(batch=batch, state=QueuedState.CLAIMED)
        if parked is not None and batch.available_at_ms == PARKED_AT_MS:
            if parked.until_ms is not None and parked.until_ms <= now_ms:
                return QueuedBatch(batch=batch, state=QueuedState.READY)
            return QueuedBatch(batch=batch, state=QueuedState.PARKED, parked=parked)
        delayed = batch.available_at_ms > now_ms
        return QueuedBatch(batch=batch, state=QueuedState.DELAYED if delayed else QueuedState.READY)

    async def fetch(limit: int, cursor: str | None) -> tuple[tuple[QueuedBatch, ...], str | None]:
        after_seq = int(cursor or 0)
        found = await storage.queue.list(session_id, limit=limit, after_seq=after_seq)
        pending = await storage.queue.list_pending(session_id, limit=limit, after_seq=after_seq) if found else ()
        parked = await storage.leases.parked(session_id) if found else None
        free = {batch.batch_id for batch in pending}
        items = tuple(queued(batch, parked, pending=batch.batch_id in free) for batch in found)
        wanted = tuple(item for item in items if state is None or item.state == state)
        return wanted, str(found[-1].seq) if len(found) == limit else None

    return fetch


def _row(item: QueuedBatch) -> tuple[str, ...]:
    batch = item.batch
    return (
        batch.session_id,
        batch.batch_id,
        state_of(item),
        kind_of(batch.payloads[0]),
        str(batch.attempts),
        age(batch.enqueued_at_ms),
        content_of(batch),
    )


def state_of(item: QueuedBatch) -> str:
    """Return the state, and for a parked turn what it waits for and when it continues at the latest."""
    if item.parked is None:
        return item.state.value
    until = item.parked.until_ms
    return f"{item.state.value} for {item.parked.waiting_for}" + ("" if until is None else f" until {moment(until)}")


def _fields(item: QueuedBatch) -> object:
    from lash.cli.text import plain

    fields = plain(item.batch)
    assert isinstance(fields, dict)
    return {**fields, "state": item.state.value, "parked": plain(item.parked)}


def kind_of(payload: Payload) -> str:
    """Return what a payload is: a message, a wake or a command."""
    from lash.model.queue import ProcessWake, SessionCommand

    if isinstance(payload, SessionCommand):
        return "command"
    return "wake" if isinstance(payload, ProcessWake) else "message"


def content_of(batch: Batch) -> str:
    """Return the texts of a batch."""
    return " / ".join(_text(payload) for payload in batch.payloads)


def _text(payload: Payload) -> str:
    from lash.model.queue import ProcessWake, SessionCommand, TextItem

    if isinstance(payload, SessionCommand):
        return payload.command
    if isinstance(payload, ProcessWake):
        return payload.input if isinstance(payload.input, str) else json_line(payload.input)
    return " ".join(item.text if isinstance(item, TextItem) else f"[{item.attachment.id}]" for item in payload.items)


@command(
    "dead",
    "lash queue dead",
    "lash queue dead support-42 --json",
    "lash queue dead support-42 -q | xargs -r lash queue requeue support-42",
    group=queue,
    names=True,
)
@click.argument("session_id", metavar="[SESSION]", required=False, type=SESSION)
@click.option("--prefix", help="Only sessions whose id begins with this.")
@limited
async def dead(
    shell: Shell,
    session_id: str | None,
    prefix: str | None,
    limit: int,
    everything: bool,  # noqa: FBT001 (click's)
) -> None:
    """List dead letters, the oldest first: input whose turns failed permanently."""
    if session_id is not None and prefix is not None:
        raise click.UsageError("expected SESSION or --prefix, got both")
    async with shell.storage() as storage:
        session_id = await SESSION.match_given(storage, session_id)
        found = await pages.first(dead_pages(storage, session_id, prefix), shell, limit, everything=everything)
    shell.table(_DEAD_COLUMNS, found, _dead_row, nothing="no dead letters", name=lambda each: each.batch.batch_id)


def _dead_row(letter: DeadLetter) -> tuple[str, ...]:
    batch = letter.batch
    return (
        batch.session_id,
        batch.batch_id,
        str(letter.attempts),
        age(letter.died_at_ms),
        f"{letter.reason}{where(letter.error)}",
        content_of(batch),
    )


@command("requeue", "lash queue requeue support-42 $BATCH", "lash queue requeue support-42 --all", group=queue)
@click.argument("session_id", metavar="SESSION", type=SESSION)
@click.argument("batch_ids", metavar="[BATCH]...", nargs=-1, type=DEAD_LETTER)
@click.option("--all", "everything", is_flag=True, help="All dead letters of the session.")
@operated
async def requeue(
    shell: Shell,
    session_id: str,
    batch_ids: tuple[str, ...],
    everything: bool,  # noqa: FBT001 (click's)
    by: str,
) -> None:
    """Queue dead letters again, after all queued work; recorded steps are not run again."""
    from lash.runtime.acting import acting

    async with shell.storage() as storage:
        session_id = await SESSION.resolve(storage, session_id)
        for batch_id in await _chosen(shell, storage, session_id, batch_ids, everything=everything):
            async with acting(storage, by, "requeue", batch_id, session_id=session_id):
                batch = await storage.queue.requeue(session_id, batch_id)
            shell.done(f"requeued {batch_id}", batch)


@command(
    "discard",
    "lash queue discard support-42 $BATCH --dry-run",
    "lash queue discard support-42 --all --yes",
    group=queue,
)
@click.argument("session_id", metavar="SESSION", type=SESSION)
@click.argument("batch_ids", metavar="[BATCH]...", nargs=-1, type=DEAD_LETTER)
@click.option("--all", "everything", is_flag=True, help="All dead letters of the session.")
@deletes
@operated
async def discard(
    shell: Shell,
    session_id: str,
    batch_ids: tuple[str, ...],
    everything: bool,  # noqa: FBT001 (click's)
    dry_run: bool,  # noqa: FBT001 (click's)
    yes: bool,  # noqa: FBT001 (click's)
    by: str,
) -> None:
    """Delete dead letters permanently."""
    from lash.runtime.acting import acting

    async with shell.storage() as storage:
        session_id = await SESSION.resolve(storage, session_id)
        chosen = await _chosen(shell, storage, session_id, batch_ids, everything=everything)
        if dry_run:
            for batch_id in chosen:
                fields = {"session_id": session_id, "batch_id": batch_id, "discarded": False}
                shell.done(f"would discard {batch_id}", fields)
            return
        if chosen:
            shell.confirm(f"Discard {plural(len(chosen), 'dead letter')} permanently?", yes=yes)
        for batch_id in chosen:
            async with acting(storage, by, "discard", batch_id, session_id=session_id):
                gone = await storage.queue.discard(session_id, batch_id)
            fields = {"session_id": session_id, "batch_id": batch_id, "discarded": gone}
            shell.done(f"discarded {batch_id}", fields)


async def _chosen(
    shell: Shell, storage: Storage, session_id: str, batch_ids: tuple[str, ...], *, everything: bool
) -> list[str]:
    """Return the chosen dead letters, with a note if there are none; raise if one or the session does not exist."""
    if bool(batch_ids) == everything:
        raise click.UsageError("name dead letters, or use --all")
    there = [letter.batch.batch_id async for letter in pages.each(dead_pages(storage, session_id))]
    wanted = [await DEAD_LETTER.match(storage, each, within=session_id) for each in batch_ids]
    missing = [batch_id for batch_id in wanted if batch_id not in there]
    if missing:
        see = f"see lash queue dead {session_id}"
        raise CommandFailed(exits.NOT_FOUND, f"session {session_id!r} has no dead letter {missing[0]!r}; {see}")
    if everything and not there:
        shell.note(f"session {session_id!r} has no dead letters")
    return there if everything else list(dict.fromkeys(wanted))
