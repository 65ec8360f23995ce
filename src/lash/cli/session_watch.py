"""``lash sessions watch``: the feed of all sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lash.cli.command import command
from lash.cli.shell import Shell
from lash.cli.text import clock_time

if TYPE_CHECKING:
    from lash.model.session.change import SessionChange, SessionChangePage


@command(
    "watch",
    "lash sessions watch",
    "lash sessions watch --all --json",
    "lash sessions watch --json --after $CURSOR",
)
@click.option("--after", "cursor", metavar="CURSOR", help="Continue after this cursor, of a value of --json.")
@click.option("--all", "everything", is_flag=True, help="Begin with all sessions.")
async def watch(shell: Shell, cursor: str | None, everything: bool) -> None:  # noqa: FBT001 (click's)
    """Show the sessions that are created, committed to, edited or deleted, until Ctrl-C.

    A session that changed several times since the last read is shown once, as it is then. With --json each line is a
    page of changes with the cursor after it. A gap means that the cursor is of another storage, or of one that was
    restored: the page is then the first of all sessions, and what was read before is void.
    """
    async with shell.storage() as storage:
        if cursor is None and not everything:
            cursor = await storage.sessions.changes_cursor()
        if shell.is_terminal:
            shell.note("watching all sessions; Ctrl-C ends")
        async for page in storage.sessions.follow(cursor):
            if shell.json:
                shell.value(page)
            else:
                _show(shell, page)


def _show(shell: Shell, page: SessionChangePage) -> None:
    if page.gap is not None:
        shell.line(f"{clock_time()}  gap      {page.gap.value}; the cursor is not of this feed, all sessions follow")
    for change in page.changes:
        shell.text(f"{clock_time()}  {_line(change)}")


def _line(change: SessionChange) -> str:
    if change.session is None:
        return f"deleted  {change.session_id}"
    name = change.session.meta.name
    shown = "" if name == change.session_id else f"  {name}"
    return f"changed  {change.session_id}  revision {change.revision}{shown}"
