"""``lash queue``: queued work of sessions, and dead letters."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from lash.cli import exits, pages
from lash.cli.command import Group, command, deletes, limited
from lash.cli.exits import CommandFailed
from lash.cli.session import session_pages
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import age, clean, json_text, plural

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
        if session_id is not None:
            found = await _of_session(storage, session_id)
        else:
            async for summary in pages.each(session_pages(storage)):
                found.extend(await _of_session(storage, summary.meta.session_id))
                if len(found) > limit and not everything:
                    break
    if len(found) > limit and not everything:
        found = found[:limit]
        if not shell.json:
            shell.note(f"only the first {limit:,} are shown; --no-limit shows all of them")
    shell.table(_COLUMNS, found, _row, nothing="no queued work", value=_fields)


async def _of_session(storage: Storage, session_id: str) -> list[tuple[Batch, bool]]:
    """Return the queued batches of a session, each with whether a claim holds it."""
    queued = await storage.queue.list(session_id)
    free = {batch.batch_id for batch in await storage.queue.list_pending(session_id)} if queued else set()
    return [(batch, batch.batch_id not in free) for batch in queued]


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
        return payload.input if isinstance(payload.input, str) else json_text(payload.input)
    return " ".join(item.text if isinstance(item, TextItem) else f"[{item.attachment.id}]" for item in payload.items)


@command("dead", "lash queue dead", "lash queue dead support-42 --json", group=queue)
@click.argument("session_id", metavar="[SESSION]", required=False)
@limited
async def dead(shell: Shell, session_id: str | None, limit: int, everything: bool) -> None:  # noqa: FBT001 (click's)
    """List dead letters, the oldest first: input whose turns failed permanently."""
    async with shell.storage() as storage:
        found = await pages.first(_dead_pages(storage, session_id), shell, limit, everything=everything)
    shell.table(_DEAD_COLUMNS, found, _dead_row, nothing="no dead letters")


def _dead_pages(storage: Storage, session_id: str | None) -> pages.Fetch[DeadLetter]:
    async def fetch(limit: int, cursor: str | None) -> tuple[tuple[DeadLetter, ...], str | None]:
        after = None if cursor is None else int(cursor)
        page = await storage.queue.dead(session_id=session_id, limit=limit, after=after)
        return page, str(page[-1].position) if len(page) == limit else None

    return fetch


def _dead_row(letter: DeadLetter) -> tuple[str, ...]:
    batch = letter.batch
    return (
        batch.session_id,
        batch.batch_id,
        str(letter.attempts),
        age(letter.died_at_ms),
        letter.reason,
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
            shell.done(clean(f"requeued {batch_id}"), batch)


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
                shell.done(clean(f"would discard {batch_id}"), fields)
            return
        if chosen:
            shell.confirm(f"Discard {plural(len(chosen), 'dead letter')} permanently?", yes=yes)
        for batch_id in chosen:
            gone = await storage.queue.discard(session_id, batch_id)
            fields = {"session_id": session_id, "batch_id": batch_id, "discarded": gone}
            shell.done(clean(f"discarded {batch_id}"), fields)


async def _chosen(storage: Storage, session_id: str, batch_ids: tuple[str, ...], *, everything: bool) -> list[str]:
    """Return the chosen dead letters; raise if one does not exist."""
    if bool(batch_ids) == everything:
        raise click.UsageError("name dead letters, or use --all")
    there = [letter.batch.batch_id async for letter in pages.each(_dead_pages(storage, session_id))]
    missing = [batch_id for batch_id in batch_ids if batch_id not in there]
    if missing:
        raise CommandFailed(exits.NOT_FOUND, f"session {session_id!r} has no dead letter {missing[0]!r}")
    return there if everything else list(dict.fromkeys(batch_ids))
