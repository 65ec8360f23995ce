"""``lash chat module:app``: a conversation in the terminal, with a worker in the same process."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Final

import click

from lash.cli import exits
from lash.cli.command import command
from lash.cli.exits import CommandFailed
from lash.cli.output import write
from lash.cli.shell import Shell

if TYPE_CHECKING:
    from lash.base.portal import Portal
    from lash.model.value import JSON
    from lash.runtime.turns.handle import SessionHandle

_PROMPT: Final = "> "


@command(
    "chat",
    "echo 'What did I order?' | lash chat shop.agents:app --session chat-1",
    "echo hello | lash chat shop.agents:app --agent support",
    storage=False,
)
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "--session", "session_id", metavar="SESSION", help="The session to continue or to create.  [default: a new one]"
)
@click.option("--agent", metavar="NAME", help="The agent to talk to, if the application has several.")
def chat(shell: Shell, target: str, session_id: str | None, agent: str | None) -> None:
    """Talk to an agent, one line a message; the storage is the application's own, and a worker runs in this process.

    Ctrl-D ends it. Ctrl-C cancels a running turn, and ends it at the prompt. What a turn shows while it runs is printed
    as it comes.
    """
    from lash.base.ids import new_id
    from lash.base.portal import Portal
    from lash.cli.worker import load_app

    app = load_app(target)
    app.configure(worker=True)
    name = session_id or f"chat-{new_id()[:8]}"
    portal = Portal("lash-chat")
    portal.open()
    try:
        portal.call(app.open)
        handle = portal.call(app.session, name, agent)
        if session_id is None:
            shell.note(f"session {name}; continue it with: lash chat {target} --session {name}")
        failed = _Conversation(shell, portal, handle).run()
    finally:
        portal.end(app.stop)
    if failed:
        raise CommandFailed(exits.ERROR, f"{failed} of the messages got no reply")


class _Conversation:
    """Lines from standard input as messages to one session."""

    def __init__(self, shell: Shell, portal: Portal, handle: SessionHandle) -> None:
        self._shell = shell
        self._portal = portal
        self._handle = handle
        self._shown = ""

    def run(self) -> int:
        """Send each line and print its reply until the input ends; return how many messages got none."""
        failed = 0
        while (line := self._read()) is not None:
            if line.strip():
                failed += not self._answer(line)
        return failed

    def _read(self) -> str | None:
        """Return the next line, None at the end of the input."""
        if not sys.stdin.isatty():
            line = sys.stdin.readline()
            return line.rstrip("\n") if line else None
        with contextlib.suppress(ImportError):
            # Line editing and history for input().
            import readline  # noqa: F401
        try:
            return input(_PROMPT)
        except (EOFError, KeyboardInterrupt):
            self._shell.line()
            return None

    def _answer(self, text: str) -> bool:
        """Print the reply to a message, and return whether there was one."""
        from lash.errors import LashError

        self._shown = ""
        try:
            reply = self._portal.call(self._ask, text)
        except KeyboardInterrupt:
            self._portal.call(self._handle.cancel, "Ctrl-C")
            self._shell.note("cancelled")
            return False
        except LashError as error:
            self._shell.note(str(error))
            return False
        if reply == self._shown:
            self._shell.line()
        else:
            self._shell.text(f"\n{reply}" if self._shown else reply)
        return True

    async def _ask(self, text: str) -> str:
        import asyncio

        cursor = await self._handle.cursor()
        showing = asyncio.create_task(self._show(cursor))
        try:
            return await self._handle.ask(text)
        finally:
            showing.cancel()
            await asyncio.wait({showing})

    async def _show(self, cursor: str) -> None:
        """Print the text that the turn shows while it runs."""
        from lash.model.activity import TurnActivity

        async for observed in self._handle.observe(cursor):
            piece = _text_in(observed.payload) if isinstance(observed, TurnActivity) else ""
            if piece:
                self._shown += piece
                write(sys.stdout, *piece.split("\n"), end="")


def _text_in(payload: JSON) -> str:
    """Return the text of a piece of activity: a string, or the field ``text`` of an object."""
    text = payload.get("text") if isinstance(payload, dict) else payload
    return text if isinstance(text, str) else ""
