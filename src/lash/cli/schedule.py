"""``lash schedules``: cron lines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from lash.cli import exits, pages
from lash.cli.command import Group, command, deletes, limited
from lash.cli.exits import CommandFailed
from lash.cli.ids import SCHEDULE, SESSION
from lash.cli.operator import operated
from lash.cli.owner import find_owner, owner_of, owner_text, session_of
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import age, plain, plural
from lash.cli.trigger import show_report, trigger_pages

if TYPE_CHECKING:
    from lash.model.trigger.schedule import Schedule
    from lash.model.trigger.trigger import TriggerOwner
    from lash.stores.storage import Storage

_COLUMNS: Final = (
    Column("KEY"),
    Column("OWNER", stretch=True),
    Column("CRON"),
    Column("TIME ZONE"),
    Column("STATE", state=True),
    Column("LAST TICK", right=True),
    Column("NEXT TICK", right=True),
)


_SESSION_OPTION: Final = click.option(
    "--session", "session_id", metavar="SESSION", type=SESSION, help="The schedule of this session."
)


class _Listed(NamedTuple):
    """A schedule, and whether its ticks start something."""

    schedule: Schedule
    state: str


@click.group(cls=Group)
def schedules() -> None:
    """List, enable, disable, run and remove schedules."""


@command("ls", "lash schedules ls", "lash schedules ls --json", group=schedules, names=True)
@click.option("--session", "session_id", metavar="SESSION", type=SESSION, help="Only schedules of this session.")
@limited
async def list_schedules(shell: Shell, session_id: str | None, limit: int, everything: bool) -> None:  # noqa: FBT001
    """List schedules, those of the host first.

    STATE is enabled, disabled, trigger disabled, or no trigger: without an enabled trigger, ticks start nothing.
    """
    damaged: list[str] = []
    async with shell.storage() as storage:
        owner = None if session_id is None else owner_of(await SESSION.match(storage, session_id))
        found = await pages.first(schedule_pages(storage, owner, damaged), shell, limit, everything=everything)
        sources = await _sources(storage) if found else {}
    listed = [_Listed(schedule, _state(schedule, sources)) for schedule in found]
    shell.table(
        _COLUMNS,
        listed,
        _row,
        nothing="no schedules; an application declares them with app.cron(...)",
        value=_fields,
        name=lambda each: each.schedule.key,
    )
    if damaged:
        raise CommandFailed(exits.ERROR, f"{plural(len(damaged), 'schedule')} cannot be read: {', '.join(damaged)}")


def schedule_pages(
    storage: Storage, owner: TriggerOwner | None, damaged: list[str] | None = None
) -> pages.Fetch[Schedule]:
    """Return pages of schedules; keys of unreadable ones are added to ``damaged``."""

    async def fetch(limit: int, cursor: str | None) -> tuple[tuple[Schedule, ...], str | None]:
        page = await storage.schedules.list(owner, limit=limit, cursor=cursor)
        if damaged is not None:
            damaged.extend(page.damaged)
        return page.schedules, page.next_cursor

    return fetch


async def _sources(storage: Storage) -> dict[str, bool]:
    """Return the sources of all triggers by the clock, and whether one of the triggers is enabled."""
    from lash.model.trigger.schedule import CRON_SOURCE_TYPE
    from lash.model.trigger.trigger import TriggerFilter

    fetch = trigger_pages(storage, TriggerFilter(source_type=CRON_SOURCE_TYPE))
    sources: dict[str, bool] = {}
    async for each in pages.each(fetch):
        source = each.definition.source_key
        sources[source] = sources.get(source, False) or each.enabled
    return sources


def _state(schedule: Schedule, sources: dict[str, bool]) -> str:
    if not schedule.enabled:
        return "disabled"
    starts = sources.get(schedule.source_key)
    return "no trigger" if starts is None else "enabled" if starts else "trigger disabled"


def _row(listed: _Listed) -> tuple[str, ...]:
    schedule, state = listed
    definition = schedule.definition
    return (
        schedule.key,
        owner_text(schedule.owner),
        definition.cron,
        definition.time_zone,
        state,
        age(schedule.last_tick_ms),
        _next_tick(schedule.next_tick_ms) if state == "enabled" else "-",
    )


def _next_tick(tick_ms: int | None) -> str:
    """Return how far the next tick is; a tick in the past waits for a worker."""
    shown = age(tick_ms)
    return shown if tick_ms is None or shown.startswith("+") else f"{shown} overdue"


def _fields(listed: _Listed) -> object:
    fields = plain(listed.schedule)
    assert isinstance(fields, dict)
    return {**fields, "state": listed.state}


@command("enable", "lash schedules enable digest", group=schedules)
@click.argument("key", metavar="KEY", type=SCHEDULE)
@_SESSION_OPTION
@operated
async def enable(shell: Shell, key: str, session_id: str | None, by: str) -> None:
    """Enable a schedule from now on; ticks while it was disabled are not emitted."""
    from lash.runtime.acting import acting

    async with shell.storage() as storage:
        schedule = await _found(storage, key, session_id)
        async with acting(storage, by, "enable-schedule", schedule.key, session_id=session_of(schedule.owner)):
            changed = await storage.schedules.enable(schedule.owner, schedule.key, revision=schedule.revision)
        state = _state(changed, await _sources(storage))
    rest = "" if state == "enabled" else f", but ticks start nothing: {state}; see lash triggers ls --source cron"
    shell.done(f"{schedule.key} is enabled{rest}", changed)


@command("disable", "lash schedules disable digest", group=schedules)
@click.argument("key", metavar="KEY", type=SCHEDULE)
@_SESSION_OPTION
@operated
async def disable(shell: Shell, key: str, session_id: str | None, by: str) -> None:
    """Disable a schedule, also for apps that declare it and start later; running processes go on."""
    from lash.runtime.acting import acting

    async with shell.storage() as storage:
        schedule = await _found(storage, key, session_id)
        async with acting(storage, by, "disable-schedule", schedule.key, session_id=session_of(schedule.owner)):
            changed = await storage.schedules.disable(schedule.owner, schedule.key, revision=schedule.revision)
    shell.done(f"{schedule.key} is disabled", changed)


@command("run", "lash schedules run digest", group=schedules, names=True)
@click.argument("key", metavar="KEY", type=SCHEDULE)
@_SESSION_OPTION
@operated
async def run_now(shell: Shell, key: str, session_id: str | None, by: str) -> None:
    """Emit a tick of a schedule now, enabled or not, and show what it started; the next tick stays as it is.

    Exits with code 1 if a delivery was rejected.
    """
    from lash.plan.trigger.schedule import tick_occurrence
    from lash.runtime.acting import acting

    async with shell.storage() as storage:
        schedule = await _found(storage, key, session_id)
        async with acting(storage, by, "run-schedule", schedule.key, session_id=session_of(schedule.owner)):
            report = await storage.occurrences.emit(tick_occurrence(schedule, time.time_ns() // 1_000_000))
    show_report(shell, report)


@command("rm", "lash schedules rm digest --dry-run", "lash schedules rm digest --yes", group=schedules)
@click.argument("key", metavar="KEY", type=SCHEDULE)
@_SESSION_OPTION
@deletes
@operated
async def remove(
    shell: Shell,
    key: str,
    session_id: str | None,
    dry_run: bool,  # noqa: FBT001 (click's)
    yes: bool,  # noqa: FBT001 (click's)
    by: str,
) -> None:
    """Remove a schedule and the trigger that was declared with it; an app that declares both creates them again."""
    from lash.runtime.acting import acting

    async with shell.storage() as storage:
        schedule = await _found(storage, key, session_id)
        key = schedule.key
        trigger = await storage.triggers.get(schedule.owner, key)
        if trigger is not None and trigger.definition.source_key != schedule.source_key:
            trigger = None
        what = f"schedule {key}" + ("" if trigger is None else " and its trigger")
        fields = {"key": key, "removed": not dry_run, "trigger": trigger is not None}
        if not dry_run:
            shell.confirm(f"Remove {what} permanently?", yes=yes)
            async with acting(storage, by, "delete-schedule", key, session_id=session_of(schedule.owner)):
                await storage.schedules.delete(schedule.owner, key, revision=schedule.revision)
                if trigger is not None:
                    await storage.triggers.delete(schedule.owner, key, revision=trigger.revision)
    shell.done(f"{'would remove' if dry_run else 'removed'} {what}", fields)


async def _found(storage: Storage, key: str, session_id: str | None) -> Schedule:
    owner, key = await find_owner(storage, SCHEDULE, key, session_id)
    schedule = await storage.schedules.get(owner, key)
    if schedule is None:
        raise CommandFailed(exits.NOT_FOUND, f"{owner_text(owner)} has no schedule {key!r}; see lash schedules ls")
    return schedule
