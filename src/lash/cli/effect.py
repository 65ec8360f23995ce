"""``lash effects``: recorded steps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from lash.cli import pages
from lash.cli.command import Group, command, limited
from lash.cli.ids import PROCESS, SESSION
from lash.cli.output import json_line
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import age, plain

if TYPE_CHECKING:
    from lash.model.effect import EffectRecord, ExecutionScope
    from lash.stores.storage import Storage

_COLUMNS: Final = (
    Column("KEY", stretch=True),
    Column("KIND"),
    Column("STATUS", state=True),
    Column("RECORDED", right=True),
    Column("DUE", right=True),
    Column("OUTCOME", stretch=True),
)


@click.group(cls=Group)
def effects() -> None:
    """List recorded steps, which a replay does not run again."""


@command(
    "ls",
    "lash effects ls research-7",
    "lash effects ls --session support-42 --turn turn:$BATCH",
    group=effects,
    names=True,
)
@click.argument("process_id", metavar="[PROCESS]", required=False, type=PROCESS)
@click.option("--session", "session_id", metavar="SESSION", type=SESSION, help="The session of the turn.")
@click.option("--turn", "turn_id", metavar="TURN", help="The turn: `turn:` and the id of its first batch.")
@limited
async def list_effects(
    shell: Shell,
    process_id: str | None,
    session_id: str | None,
    turn_id: str | None,
    limit: int,
    everything: bool,  # noqa: FBT001 (click's)
) -> None:
    """List the recorded effects of a process, or of a turn that has not committed yet.

    A sleep is recorded when it starts, and runs until it is due.
    """
    if (process_id is None) == (session_id is None) or (session_id is None) != (turn_id is None):
        raise click.UsageError("name a process, or a session and a turn with --session and --turn")
    async with shell.storage() as storage:
        scope = await _scope(storage, process_id, session_id, turn_id)
        found = await pages.first(_pages(storage, scope), shell, limit, everything=everything)
    shell.table(_COLUMNS, found, _row, nothing="no recorded effects", value=_fields, name=_key)


async def _scope(
    storage: Storage, process_id: str | None, session_id: str | None, turn_id: str | None
) -> ExecutionScope:
    """Return the scope: a process, or a turn of a session. Raise if the process or the session does not exist."""
    from lash.model.effect import ProcessScope, TurnScope

    if process_id is not None:
        return ProcessScope(process_id=await PROCESS.resolve(storage, process_id))
    return TurnScope(session_id=await SESSION.resolve(storage, session_id or ""), turn_id=turn_id or "")


def _pages(storage: Storage, scope: ExecutionScope) -> pages.Fetch[EffectRecord]:
    async def fetch(limit: int, cursor: str | None) -> tuple[tuple[EffectRecord, ...], str | None]:
        page = await storage.effects.list(scope, limit=limit, after=cursor)
        return page, page[-1].envelope.replay_key if len(page) == limit else None

    return fetch


def _key(record: EffectRecord) -> str:
    return record.envelope.replay_key


def _row(record: EffectRecord) -> tuple[str, ...]:
    kind = type(record.envelope.command).__struct_config__.tag
    return (
        record.envelope.replay_key,
        str(kind),
        status_of(record),
        age(record.updated_at_ms),
        age(record.due_at_ms) if _is_asleep(record) else "-",
        outcome_of(record),
    )


def status_of(record: EffectRecord) -> str:
    """Return the status of an effect; a sleep is recorded at its start, and runs until it is due."""
    if record.status.value == "in_progress" or _is_asleep(record):
        return "running"
    return record.status.value


def _is_asleep(record: EffectRecord) -> bool:
    from lash.model.effect import Sleep

    is_due = record.due_at_ms is None or record.due_at_ms <= time.time_ns() // 1_000_000
    return isinstance(record.envelope.command, Sleep) and not is_due


def outcome_of(record: EffectRecord) -> str:
    """Return the result or the error of an effect; nothing while it runs."""
    if status_of(record) == "running":
        return ""
    error = record.error
    return json_line(record.outcome) if error is None else f"{error.code}: {error.message}"


def _fields(record: EffectRecord) -> object:
    """Return the JSON of an effect: the record, and whether it still runs."""
    fields = plain(record)
    assert isinstance(fields, dict)
    return {**fields, "running": status_of(record) == "running"}
