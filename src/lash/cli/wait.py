"""``lash waits``: durable promises."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

import click

from lash.cli import exits, pages
from lash.cli.command import Group, command, json_argument, limited
from lash.cli.exits import CommandFailed
from lash.cli.ids import PROCESS, WAIT
from lash.cli.operator import operated
from lash.cli.output import json_line
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import age

if TYPE_CHECKING:
    from lash.model.effect import ExecutionScope
    from lash.model.wait import Resolution, WaitIdentity, WaitRecord
    from lash.stores.storage import Storage

_COLUMNS: Final = (
    Column("WAIT"),
    Column("SCOPE", stretch=True),
    Column("FOR", stretch=True),
    Column("QUESTION", stretch=True),
    Column("SINCE", right=True),
    Column("DEADLINE", right=True),
)


_ID: Final = re.compile("[0-9a-f]{64}")
_BEGINNING: Final = re.compile("[0-9a-f]{1,64}")
"""The id of a wait, or its beginning; a signed key has two dots."""
_UNKNOWN: Final = "unknown or revoked wait; see lash waits ls"


@click.group(cls=Group)
def waits() -> None:
    """List open waits, and resolve or reject them."""


@command("ls", "lash waits ls", "lash waits ls --process research-7 --json", group=waits, names=True)
@click.option("--process", "process_id", metavar="PROCESS", type=PROCESS, help="Only waits of this process.")
@limited
async def list_waits(shell: Shell, process_id: str | None, limit: int, everything: bool) -> None:  # noqa: FBT001
    """List open waits, each with its question; JSON has the schema of the answer and the details too."""
    from lash.model.effect import ProcessScope

    async with shell.storage() as storage:
        scope = None if process_id is None else ProcessScope(process_id=await PROCESS.match(storage, process_id))
        found = await pages.first(_pages(storage, scope), shell, limit, everything=everything)
    shell.table(_COLUMNS, found, _row, nothing="no open waits", name=lambda each: each.key_id)


def _pages(storage: Storage, scope: ExecutionScope | None) -> pages.Fetch[WaitRecord]:
    async def fetch(limit: int, cursor: str | None) -> tuple[tuple[WaitRecord, ...], str | None]:
        page = await storage.waits.pending(scope=scope, limit=limit, after=cursor)
        return page, page[-1].key_id if len(page) == limit else None

    return fetch


def _row(wait: WaitRecord) -> tuple[str, ...]:
    return (
        wait.key_id,
        _scope(wait.scope),
        identity_text(wait.identity),
        "-" if wait.ask is None else wait.ask.text,
        age(wait.created_at_ms),
        age(wait.deadline_ms),
    )


def _scope(scope: ExecutionScope) -> str:
    kind = str(type(scope).__struct_config__.tag)
    return f"{kind} " + " ".join(str(getattr(scope, name)) for name in scope.__struct_fields__)


def identity_text(identity: WaitIdentity) -> str:
    """Return what a wait is for."""
    from lash.model.wait import CustomIdentity, ToolCompletion

    if isinstance(identity, CustomIdentity):
        return identity.key
    if isinstance(identity, ToolCompletion):
        return f"tool call {identity.tool_call_id}"
    return f"signal {identity.signal_name} #{identity.ordinal} to {identity.process_id}"


@command(
    "resolve",
    """lash waits resolve $WAIT '{"approved": true}'""",
    "echo $OTHER_KEY | lash waits resolve -",
    group=waits,
)
@click.argument("wait", metavar="WAIT", type=WAIT)
@click.argument("value", metavar="[JSON]", default="null")
@operated
async def resolve(shell: Shell, wait: str, value: str, by: str) -> None:
    """Resolve a wait, by its id from `lash waits ls` or by its signed key; the first resolution wins.

    WAIT - reads it from standard input, which keeps a key out of the list of processes. Exits with code 3 if the wait
    is unknown or was revoked, with code 4 if it was resolved before, and with code 2 if the value does not match the
    schema of its question.
    """
    from lash.model.wait import Resolved

    if wait == "-" and value == "-":
        raise click.UsageError("only one of the wait and the value can come from standard input")
    name = _given(wait)
    await _settle(shell, name, Resolved(value=json_argument(value, "the value")), "resolve", by)


@command(
    "reject",
    "lash waits reject $OTHER_WAIT --code refused --message 'too expensive'",
    group=waits,
)
@click.argument("wait", metavar="WAIT", type=WAIT)
@click.option("--code", default="rejected", show_default=True, help="The code of the error.")
@click.option("--message", default="", help="The message of the error.")
@operated
async def reject(shell: Shell, wait: str, code: str, message: str, by: str) -> None:
    """Resolve a wait with an error: the waiting process gets WaitRejected. WAIT is that of `lash waits resolve`."""
    from lash.model.wait import Rejected

    await _settle(shell, _given(wait), Rejected(code=code, message=message), "reject", by)


def _given(wait: str) -> str:
    return sys.stdin.read().strip() if wait == "-" else wait


async def _settle(shell: Shell, wait: str, resolution: Resolution, verb: str, by: str) -> None:
    from lash.model.scope import scope_process_id, scope_session_id
    from lash.model.wait import AlreadyResolved, UnknownOrRevoked
    from lash.runtime.acting import acting

    async with shell.storage() as storage:
        name = await WAIT.match(storage, wait) if _BEGINNING.fullmatch(wait) else wait
        if _BEGINNING.fullmatch(name) and not _ID.fullmatch(name):
            raise CommandFailed(exits.NOT_FOUND, _UNKNOWN)
        is_id = _ID.fullmatch(name) is not None
        opened = await (storage.waits.get_id(name) if is_id else storage.waits.get(name))
        # The key is a secret, so only the id is recorded; a wait that was not opened yet has none.
        target = "unopened" if opened is None else opened.key_id
        session_id = None if opened is None else scope_session_id(opened.scope)
        process_id = None if opened is None else scope_process_id(opened.scope)
        async with acting(storage, by, verb, target, session_id=session_id, process_id=process_id):
            answer = await (storage.waits.resolve_id if is_id else storage.waits.resolve)(name, resolution)
            if isinstance(answer, UnknownOrRevoked):
                raise CommandFailed(exits.NOT_FOUND, _UNKNOWN)
            if isinstance(answer, AlreadyResolved):
                if shell.json:
                    shell.value(answer)
                raise CommandFailed(exits.CONFLICT, f"the wait was already resolved: {json_line(answer.terminal)}")
    shell.done("resolved" if verb == "resolve" else "rejected", answer)
