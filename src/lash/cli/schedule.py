"""``lash schedules``: cron lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from lash.cli import exits, pages
from lash.cli.command import Group, command, limited
from lash.cli.exits import CommandFailed
from lash.cli.owner import owner_of, owner_text
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import age, plural

if TYPE_CHECKING:
    from lash.model.trigger.schedule import Schedule

_COLUMNS: Final = (
    Column("KEY"),
    Column("OWNER", stretch=True),
    Column("CRON"),
    Column("TIME ZONE"),
    Column("STATE", state=True),
    Column("LAST TICK", right=True),
    Column("NEXT TICK", right=True),
)


@click.group(cls=Group)
def schedules() -> None:
    """List schedules."""


@command("ls", "lash schedules ls", "lash schedules ls --json", group=schedules)
@click.option("--session", "session_id", metavar="SESSION", help="Only schedules of this session.")
@limited
async def list_schedules(shell: Shell, session_id: str | None, limit: int, everything: bool) -> None:  # noqa: FBT001
    """List schedules, those of the host first."""
    owner = None if session_id is None else owner_of(session_id)
    damaged: list[str] = []
    async with shell.storage() as storage:

        async def fetch(count: int, cursor: str | None) -> tuple[tuple[Schedule, ...], str | None]:
            page = await storage.schedules.list(owner, limit=count, cursor=cursor)
            damaged.extend(page.damaged)
            return page.schedules, page.next_cursor

        found = await pages.first(fetch, shell, limit, everything=everything)
    shell.table(_COLUMNS, found, _row, nothing="no schedules")
    if damaged:
        raise CommandFailed(exits.ERROR, f"{plural(len(damaged), 'schedule')} cannot be read: {', '.join(damaged)}")


def _row(schedule: Schedule) -> tuple[str, ...]:
    definition = schedule.definition
    return (
        schedule.key,
        owner_text(schedule.owner),
        definition.cron,
        definition.time_zone,
        "enabled" if schedule.enabled else "disabled",
        age(schedule.last_tick_ms),
        age(schedule.next_tick_ms),
    )
