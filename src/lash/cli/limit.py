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
    from lash.model.limit import LimitPlace, LimitState
    from lash.stores.storage import Storage

_COLUMNS: Final = (
    Column("LIMIT"),
    Column("KEY", stretch=True),
    Column("INTERVAL", right=True),
    Column("BURST", right=True),
    Column("AT ONCE", right=True),
    Column("HELD", right=True),
    Column("WAITING", right=True),
    Column("NEXT", right=True),
)
_PLACES: Final = (Column("STATE"), Column("KIND"), Column("ID", stretch=True), Column("SINCE", right=True))


@click.group(cls=Group)
def limits() -> None:
    """Show the named limits in use."""


@command("ls", "lash limits ls", "lash limits ls --json", group=limits, names=True)
@limited
async def list_limits(shell: Shell, limit: int, everything: bool) -> None:  # noqa: FBT001 (click's)
    """List limits by name and key: the rate, how many may run at once, how many do, and how many wait.

    INTERVAL is the time between two starts, and NEXT when the next may come. AT ONCE is how many may run at the same
    time, and HELD how many do. A limit without a key has an empty one. Limits that were not used for a while are not
    listed. -q writes the name, and the key behind a space.
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


@command("places", "lash limits places openai", "lash limits places openai --key ann --json", group=limits, names=True)
@click.argument("name")
@click.option("--key", default="", help="The key of the limit.")
@limited
async def list_places(shell: Shell, name: str, key: str, limit: int, everything: bool) -> None:  # noqa: FBT001 (click's)
    """List the sessions and processes that hold a place under a limit, or wait for one, in the order of the line.

    An offered place is free for the next run, which a worker is about to resume. -q writes the ids.
    """
    async with shell.storage() as storage:
        found = await pages.first(_places(storage, name, key), shell, limit, everything=everything)
    shell.table(_PLACES, found, _place, nothing="no places are held or waited for", name=lambda each: each.resource.id)


def _places(storage: Storage, name: str, key: str) -> pages.Fetch[LimitPlace]:
    async def fetch(limit: int, cursor: str | None) -> tuple[tuple[LimitPlace, ...], str | None]:
        found = await storage.limits.places(name, key, limit=limit, after=int(cursor or 0))
        return found, str(found[-1].number) if len(found) == limit else None

    return fetch


def _place(place: LimitPlace) -> tuple[str, ...]:
    return place.state.value, place.resource.kind.value, place.resource.id, age(place.since_ms)


def _name(state: LimitState) -> str:
    return f"{state.name} {state.key}" if state.key else state.name


def _row(state: LimitState) -> tuple[str, ...]:
    interval = "" if state.interval_us is None else f"{state.interval_us / 1_000_000:g}s"
    burst = "" if state.burst is None else str(state.burst)
    places = ("", "") if state.concurrency is None else (str(state.concurrency), str(state.held))
    return state.name, state.key, interval, burst, *places, str(state.waiting), age(state.next_at_ms)
