"""``lash logs`` and ``lash signal``: the event log of a process, and the turns of a session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from lash.cli.command import command, json_argument
from lash.cli.ids import PROCESS, SESSION
from lash.cli.operator import operated
from lash.cli.output import json_line
from lash.cli.shell import Shell
from lash.cli.step import StepLines
from lash.cli.text import moment
from lash.cli.turn import show_turns

if TYPE_CHECKING:
    from lash.model.process.event import ProcessEvent
    from lash.stores.storage import Storage

_PAGE: Final = 500
_LOOK_EVERY_S: Final = 1.0


@command(
    "logs",
    "lash logs research-7",
    "lash logs research-7 --tail 5",
    "lash logs report-3 --follow --json",
    "lash logs support-42 --json",
)
@click.argument("process_id", metavar="PROCESS|SESSION", type=PROCESS)
@click.option("-f", "--follow", is_flag=True, help="Wait for further events until the process ends.")
@click.option(
    "--after", type=click.IntRange(min=0), metavar="N", default=0, help="Start after the event of this number."
)
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Start with the last N events or turns.")
@click.option("--type", "event_type", help="Show only events of this type.")
async def logs(
    shell: Shell,
    process_id: str,
    follow: bool,  # noqa: FBT001 (click's)
    after: int,
    tail: int | None,
    event_type: str | None,
) -> None:
    """Show the events of a process and the steps of its run between them, or the turns of a session with their steps.

    A step has a dash instead of a number, its key, how it ended, and its result. Steps of earlier runs are deleted when
    the process continues as new. JSON has only the events; the steps are those of `lash effects ls`.

    Of a session, the committed turns of the active path are shown, until their records are pruned. A mark shows where
    an attempt failed or crashed.
    """
    async with shell.storage() as storage:
        session_id = await _session_of(storage, process_id)
        if session_id is not None:
            if follow or after or event_type is not None:
                raise click.UsageError("a session has only --tail; follow it with `lash sessions watch`")
            await show_turns(shell, storage, session_id, tail)
            return
        process_id = await PROCESS.resolve(storage, process_id)
        if tail is not None:
            (last,) = (await storage.events.last_sequences([process_id])).values() or (0,)
            after = max(after, last - tail)
        steps = StepLines(storage, process_id, await _moment_of(storage, process_id, after))
        shows_steps = event_type is None and not shell.json
        if tail == 0:
            await steps.new()
        # Listen before the first read, so that no event is missed between two reads.
        with storage.hints.listen() as hints:
            while True:
                ended = await _has_ended(storage, process_id)
                found = await steps.new() if shows_steps else []
                after = await _show_after(shell, storage, process_id, after, event_type, found)
                if not follow or ended:
                    return
                await hints.wait(_LOOK_EVERY_S)


async def _session_of(storage: Storage, text: str) -> str | None:
    """Return the session that a text means; None if it means a process, or nothing."""
    from lash.errors import NotFound

    if await storage.processes.ids(text, limit=1):
        return None
    session_id = await SESSION.match(storage, text)
    try:
        await storage.session(session_id).meta()
    except NotFound:
        return None
    return session_id


async def _has_ended(storage: Storage, process_id: str) -> bool:
    """Return whether the process has ended; its last event is then in the log."""
    record = await storage.processes.get(process_id)
    return record is None or record.is_terminal


async def _moment_of(storage: Storage, process_id: str, sequence: int) -> int:
    """Return when an event happened; 0 if there is none of the number."""
    found = await storage.events.after(process_id, sequence - 1, limit=1) if sequence > 0 else ()
    return found[0].occurred_at_ms if found else 0


async def _show_after(
    shell: Shell, storage: Storage, process_id: str, after: int, event_type: str | None, steps: list[tuple[int, str]]
) -> int:
    """Show the events after a number with the steps between them, and return the number of the last one."""
    while True:
        found = await storage.events.after(process_id, after, limit=_PAGE)
        shown = [event for event in found if event_type in (None, event.event_type)]
        is_last = len(found) < _PAGE
        if shell.json:
            shell.values(shown)
        else:
            shell.lines(_merged(shown, steps, is_last=is_last))
        after = found[-1].sequence if found else after
        if is_last:
            return after


def _merged(events: list[ProcessEvent], steps: list[tuple[int, str]], *, is_last: bool) -> Iterator[str]:
    """Yield the lines of events, and before each the steps that were recorded before it; all others at the end."""
    for event in events:
        while steps and steps[0][0] < event.occurred_at_ms:
            yield steps.pop(0)[1]
        yield from _lines(event)
    while is_last and steps:
        yield steps.pop(0)[1]


def _lines(event: ProcessEvent) -> Iterator[str]:
    """Yield an event as a line; the traceback of a failed attempt follows it, indented."""
    from lash.model.failure import traceback_in
    from lash.model.process.event import ATTEMPT_FAILED, FAILED, STARTED

    payload, trace = event.payload, None
    if event.event_type == ATTEMPT_FAILED and isinstance(payload, dict):
        trace = traceback_in(payload)
        payload = {name: value for name, value in payload.items() if name != "traceback"}
    elif event.event_type == FAILED and isinstance(payload, dict) and isinstance(payload.get("outcome"), dict):
        # The traceback of the last attempt is shown with that attempt.
        payload = {**payload, "outcome": {**payload["outcome"], "raw": None}}
    elif event.event_type == STARTED and isinstance(payload, dict) and isinstance(payload.get("owner"), dict):
        # The proof of life of the owner is for other workers; JSON has it.
        payload = {"owner": payload["owner"].get("owner_id")}
    shown = "" if payload is None else f"  {json_line(payload)}"
    yield f"{moment(event.occurred_at_ms)}  {event.sequence:>4}  {event.event_type}{shown}"
    for line in (trace or "").splitlines():
        yield f"        {line}"


@command(
    "signal",
    "lash signal research-7 approve",
    """lash signal research-7 approve '{"by": "ada"}' --key approval-1""",
)
@click.argument("process_id", metavar="PROCESS", type=PROCESS)
@click.argument("name", metavar="NAME")
@click.argument("payload", metavar="[JSON]", default="null")
@click.option("--key", help="The idempotency key: a signal with the same key is sent once.")
@operated
async def signal(shell: Shell, process_id: str, name: str, payload: str, key: str | None, by: str) -> None:
    """Send a signal to a process; the payload is JSON, - reads it from standard input."""
    from lash.base.ids import new_id
    from lash.runtime.acting import acting

    value = json_argument(payload)
    async with shell.storage() as storage:
        process_id = await PROCESS.resolve(storage, process_id)
        async with acting(storage, by, "signal", name, process_id=process_id):
            sent = await storage.events.signal(process_id, name, signal_id=key or new_id(), payload=value)
    said = "was sent before as" if sent.replayed else "is"
    shell.done(f"signal {name} {said} event {sent.event.sequence} of {process_id}", sent)
