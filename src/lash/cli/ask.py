"""``lash ask`` and ``lash watch``: a message from a terminal, and what happens in a session."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Final

import click

from lash.cli import exits
from lash.cli.command import command, seconds
from lash.cli.exits import CommandFailed
from lash.cli.ids import SESSION
from lash.cli.output import json_line
from lash.cli.shell import Shell
from lash.cli.text import clock_time

if TYPE_CHECKING:
    from lash.model.activity import Observed
    from lash.runtime.turns.handle import SessionHandle

_RECENT: Final = 100
"""How many messages at the end of a session are compared after a commit."""


@command(
    "ask",
    "lash ask chat-1 'What did I order?' --timeout 60",
    "git diff | lash ask reviews - --agent reviewer --json",
)
@click.argument("session_id", metavar="SESSION", type=SESSION)
@click.argument("text", metavar="TEXT")
@click.option("--agent", metavar="NAME", help="The agent that answers, if the session has none yet.")
@click.option("--key", metavar="KEY", help="Makes the message idempotent: the same key again waits for the same reply.")
@click.option("--timeout", "timeout_s", type=float, metavar="SECONDS", callback=seconds, help="How long to wait.")
async def ask(
    shell: Shell, session_id: str, text: str, agent: str | None, key: str | None, timeout_s: float | None
) -> None:
    """Send a message and print the reply. TEXT - reads the message from standard input.

    A worker must be running: see `lash worker`. The message stays queued if no reply comes in time (exit code 5),
    or after Ctrl-C; what is printed then has its id and says how to see the reply later.
    """
    import asyncio

    from lash.base.ids import new_id
    from lash.errors import TurnFailed, WaitTimedOut
    from lash.runtime.turns.handle import SessionHandle

    message = sys.stdin.read() if text == "-" else text
    source_key = key or new_id()
    async with shell.storage() as storage:
        handle = SessionHandle(storage, session_id, agent=agent)
        sent = await handle.send(message, key=source_key)
        queued = _still_queued(session_id, sent.batch_id, source_key)
        if shell.is_terminal:
            shell.note(f"sent message {sent.batch_id}; waiting for the reply")
        try:
            reply = await handle.ask(message, key=source_key, timeout_s=timeout_s)
        except WaitTimedOut:
            hint = "" if await storage.workers.list() else "; no worker is running: start one with lash worker"
            raise CommandFailed(exits.UNAVAILABLE, f"no reply within {timeout_s:g} s; {queued}{hint}") from None
        except TurnFailed as error:
            rest = f"; see lash queue dead {shlex.quote(session_id)}"
            raise CommandFailed(exits.ERROR, exits.explain(error)[1] + rest) from error
        except asyncio.CancelledError:
            shell.note(f"lash: interrupted; {queued}")
            raise
    if shell.json:
        shell.value({"session_id": session_id, "reply": reply})
    else:
        shell.text(reply)


def _still_queued(session_id: str, batch_id: str, key: str) -> str:
    """Return what becomes of a message whose reply is not awaited any more, and how to see the reply."""
    session = shlex.quote(session_id)
    later = f"see lash queue ls {session} and lash watch {session}"
    return f"message {batch_id} stays queued; {later}, or ask the same again with --key {shlex.quote(key)}"


@command("watch", "lash watch chat-1", "lash watch chat-1 --json")
@click.argument("session_id", metavar="SESSION", type=SESSION)
@click.option("--after", "cursor", metavar="CURSOR", help="Continue after this cursor, of a value of --json.")
async def watch(shell: Shell, session_id: str, cursor: str | None) -> None:
    """Show what happens in a session until Ctrl-C: messages, output of running turns, queue, processes.

    It ends with exit code 0 when the session is deleted.
    """
    from lash.runtime.turns.handle import SessionHandle

    async with shell.storage() as storage:
        session_id = await SESSION.resolve(storage, session_id)
        handle = SessionHandle(storage, session_id)
        # Taken before the messages are read: whatever is committed later is observed.
        start = cursor or await handle.cursor()
        shown = {message.id for message in await handle.messages(last=_RECENT)}
        if shell.is_terminal:
            shell.note(f"watching {session_id}; Ctrl-C ends")
        async for observed in handle.observe(start):
            if shell.json:
                shell.value(observed)
            else:
                await _show(shell, handle, observed, shown)


async def _show(shell: Shell, handle: SessionHandle, observed: Observed, shown: set[str]) -> None:
    """Show one value for people; of a commit, its messages."""
    from lash.model.activity import Committed, Gap, ProcessChanged, QueueChanged, TurnActivity

    match observed:
        case TurnActivity():
            shell.line(f"{clock_time()}  output     {json_line(observed.payload)}")
        case Committed():
            await _show_messages(shell, handle, shown)
        case QueueChanged():
            queue = observed.queue
            counts = f"{queue.queued} queued, {queue.claimed} of them running, {queue.dead} dead"
            shell.line(f"{clock_time()}  queue      {counts}")
        case ProcessChanged():
            status = "" if observed.status is None else f" {observed.status.value}"
            shell.line(f"{clock_time()}  process    {observed.process_id} {observed.kind.value}{status}")
        case Gap():
            shell.line(f"{clock_time()}  gap        {observed.reason.value}; earlier values are missing")


async def _show_messages(shell: Shell, handle: SessionHandle, shown: set[str]) -> None:
    from lash.runtime.turns.messages import text_of

    for message in await handle.messages(last=_RECENT):
        if message.id not in shown:
            shown.add(message.id)
            shell.text(f"{clock_time()}  {message.role.value:<9}  {text_of(message)}")
