"""``lash limits``: named limits in use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from lash.cli import pages
from lash.cli.command import Group, command, limited
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import age

if TYPE_CHECKING:
    from lash.model.limit import LimitState
    from lash.stores.storage import Storage

_COLUMNS: Final = (
    Column("LIMIT"),
    Column("KEY", stretch=True),
    Column("INTERVAL", right=True),
    Column("BURST", right=True),
    Column("WAITING", right=True),
    Column("NEXT", right=True),
)


@click.group(cls=Group)
def limits() -> None:
    """Show the named limits in use."""


@command("ls", "lash limits ls", "lash limits ls --json", group=limits, names=True)
@limited
async def list_limits(shell: Shell, limit: int, everything: bool) -> None:  # noqa: FBT001 (click's)
    """List limits by name and key: the time between two starts, how many steps wait, and when the next may start.

    A limit without a key has an empty one. Limits that were not used for a while are not listed. -q writes the name,
    and the key behind a space.
    """
    async with shell.storage() as storage:
        found = await pages.first(_pages(storage), shell, limit, everything=everything)
    shell.table(_COLUMNS, found, _row, nothing="no limits in use", name=_name)


def _pages(storage: Storage) -> pages.Fetch[LimitState]:
    last: list[LimitState] = []

    async def fetch(limit: int, _cursor: str | None) -> tuple[tuple[LimitState, ...], str | None]:
        after = (last[-1].name, last[-1].key) if last else None
        found = await storage.limits.list(limit=limit, after=after)
        last.extend(found[-1:])
        return found, "more" if len(found) == limit else None

    return fetch


def _name(state: LimitState) -> str:
    return f"{state.name} {state.key}" if state.key else state.name


def _row(state: LimitState) -> tuple[str, ...]:
    interval = f"{state.interval_us / 1_000_000:g}s"
    return state.name, state.key, interval, str(state.burst), str(state.waiting), age(state.next_at_ms)
