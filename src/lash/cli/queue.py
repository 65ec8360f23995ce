"""``lash queue``: queued work of sessions, and dead letters."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import click

from lash.cli import exits, pages
from lash.cli.command import Group, command, deletes, limited
from lash.cli.exits import CommandFailed
from lash.cli.failure import where
from lash.cli.output import json_line
from lash.cli.session import dead_pages, session_pages
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import age, plural

if TYPE_CHECKING:
    from lash.model.queue import Batch, DeadLetter, Payload
    from lash.stores.storage import Storage

_COLUMNS: Final = (
    Column("SESSION"),
    Column("BATCH"),
    Column("STATE", state=True),
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


@click.group(cls=Group)
def queue() -> None:
    """List queued work and dead letters."""


@command("ls", "lash queue ls support-42", "lash queue ls", group=queue)
@click.argument("session_id", metavar="[SESSION]", required=False)
@limited
async def list_queue(shell: Shell, session_id: str | None, limit: int, everything: bool) -> None:  # noqa: FBT001 (click's)
    """List queued work in its order, of one session or, session by session, of all.

    Without SESSION every session is asked, which takes its time where there are many.
    """
    async with shell.storage() as storage:
        found: list[tuple[Batch, bool]] = []
        async for item in _queued(storage, session_id):
            found.append(item)
            if len(found) > limit and not everything:
                break
    if len(found) > limit and not everything:
        found = found[:limit]
        pages.say_more(shell, limit)
    shell.table(_COLUMNS, found, _row, nothing="no queued work", value=_fields)


async def _queued(storage: Storage, session_id: str | None) -> AsyncIterator[tuple[Batch, bool]]:
    """Yield the queued batches of a session, or of all, each with whether a claim holds it."""
    if session_id is not None:
        async for item in pages.each(_queue_pages(storage, session_id)):
            yield item
        return
    async for summary in pages.each(session_pages(storage)):
        async for item in pages.each(_queue_pages(storage, summary.meta.session_id)):
            yield item


def _queue_pages(storage: Storage, session_id: str) -> pages.Fetch[tuple[Batch, bool]]:
    async def fetch(limit: int, cursor: str | None) -> tuple[tuple[tuple[Batch, bool], ...], str | None]:
        after_seq = int(cursor or 0)
        queued = await storage.queue.list(session_id, limit=limit, after_seq=after_seq)
        pending = await storage.queue.list_pending(session_id, limit=limit, after_seq=after_seq) if queued else ()
        free = {batch.batch_id for batch in pending}
        items = tuple((batch, batch.batch_id not in free) for batch in queued)
        return items, str(queued[-1].seq) if len(queued) == limit else None

    return fetch


def _state(batch: Batch, claimed: bool) -> str:  # noqa: FBT001 (a pair that belongs together)
    if claimed:
        return "running"
    return "delayed" if batch.available_at_ms > time.time_ns() // 1_000_000 else "ready"


def _row(item: tuple[Batch, bool]) -> tuple[str, ...]:
    batch, claimed = item
    return (
        batch.session_id,
        batch.batch_id,
        _state(batch, claimed),
        _kind(batch.payloads[0]),
        str(batch.attempts),
        age(batch.enqueued_at_ms),
        _content(batch),
    )


def _fields(item: tuple[Batch, bool]) -> object:
    from lash.cli.text import plain

    fields = plain(item[0])
    assert isinstance(fields, dict)
    return {**fields, "claimed": item[1]}


def _kind(payload: Payload) -> str:
    from lash.model.queue import ProcessWake, SessionCommand

    if isinstance(payload, SessionCommand):
        return "command"
    return "wake" if isinstance(payload, ProcessWake) else "message"


def _content(batch: Batch) -> str:
    return " / ".join(_text(payload) for payload in batch.payloads)


def _text(payload: Payload) -> str:
    from lash.model.queue import ProcessWake, SessionCommand, TextItem

    if isinstance(payload, SessionCommand):
        return payload.command
    if isinstance(payload, ProcessWake):
        return payload.input if isinstance(payload.input, str) else json_line(payload.input)
    return " ".join(item.text if isinstance(item, TextItem) else f"[{item.attachment.id}]" for item in payload.items)


@command("dead", "lash queue dead", "lash queue dead support-42 --json", group=queue)
@click.argument("session_id", metavar="[SESSION]", required=False)
@limited
async def dead(shell: Shell, session_id: str | None, limit: int, everything: bool) -> None:  # noqa: FBT001 (click's)
    """List dead letters, the oldest first: input whose turns failed permanently."""
    async with shell.storage() as storage:
        found = await pages.first(dead_pages(storage, session_id), shell, limit, everything=everything)
    shell.table(_DEAD_COLUMNS, found, _dead_row, nothing="no dead letters")


def _dead_row(letter: DeadLetter) -> tuple[str, ...]:
    batch = letter.batch
    return (
        batch.session_id,
        batch.batch_id,
        str(letter.attempts),
        age(letter.died_at_ms),
        f"{letter.reason}{where(letter.error)}",
        _content(batch),
    )


@command("requeue", "lash queue requeue support-42 $BATCH", "lash queue requeue support-42 --all", group=queue)
@click.argument("session_id", metavar="SESSION")
@click.argument("batch_ids", metavar="[BATCH]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All dead letters of the session.")
async def requeue(shell: Shell, session_id: str, batch_ids: tuple[str, ...], everything: bool) -> None:  # noqa: FBT001
    """Queue dead letters again, after all queued work; recorded steps are not run again."""
    async with shell.storage() as storage:
        for batch_id in await _chosen(storage, session_id, batch_ids, everything=everything):
            batch = await storage.queue.requeue(session_id, batch_id)
            shell.done(f"requeued {batch_id}", batch)


@command(
    "discard",
    "lash queue discard support-42 $BATCH --dry-run",
    "lash queue discard support-42 --all --yes",
    group=queue,
)
@click.argument("session_id", metavar="SESSION")
@click.argument("batch_ids", metavar="[BATCH]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All dead letters of the session.")
@deletes
async def discard(
    shell: Shell,
    session_id: str,
    batch_ids: tuple[str, ...],
    everything: bool,  # noqa: FBT001 (click's)
    dry_run: bool,  # noqa: FBT001 (click's)
    yes: bool,  # noqa: FBT001 (click's)
) -> None:
    """Delete dead letters permanently."""
    async with shell.storage() as storage:
        chosen = await _chosen(storage, session_id, batch_ids, everything=everything)
        if dry_run:
            for batch_id in chosen:
                fields = {"session_id": session_id, "batch_id": batch_id, "discarded": False}
                shell.done(f"would discard {batch_id}", fields)
            return
        if chosen:
            shell.confirm(f"Discard {plural(len(chosen), 'dead letter')} permanently?", yes=yes)
        for batch_id in chosen:
            gone = await storage.queue.discard(session_id, batch_id)
            fields = {"session_id": session_id, "batch_id": batch_id, "discarded": gone}
            shell.done(f"discarded {batch_id}", fields)


async def _chosen(storage: Storage, session_id: str, batch_ids: tuple[str, ...], *, everything: bool) -> list[str]:
    """Return the chosen dead letters; raise if one does not exist."""
    if bool(batch_ids) == everything:
        raise click.UsageError("name dead letters, or use --all")
    there = [letter.batch.batch_id async for letter in pages.each(dead_pages(storage, session_id))]
    missing = [batch_id for batch_id in batch_ids if batch_id not in there]
    if missing:
        raise CommandFailed(exits.NOT_FOUND, f"session {session_id!r} has no dead letter {missing[0]!r}")
    return there if everything else list(dict.fromkeys(batch_ids))
