"""``lash counts``: what there is, by state."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from lash.cli.command import command
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import moment
from lash.cli.usage import moment_option

if TYPE_CHECKING:
    from lash.model.maintenance import StorageCounts, Throughput

_INTERVALS: Final = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_SHOWN: Final = 60
"""How many intervals are shown unless --since says how many."""
_ENDED: Final = (
    Column("FROM"),
    Column("TURNS", right=True),
    Column("PROCESSES", right=True),
    Column("DEAD LETTERS", right=True),
    Column("FAILED PROCESSES", right=True),
)
_COLUMNS: Final = (Column("WHAT"), Column("STATE", state=True), Column("COUNT", right=True))


@command("counts", "lash counts", "lash counts --json", "lash counts --per minute --since 1h --json")
@click.option(
    "--per", type=click.Choice(tuple(_INTERVALS)), help="Count what ended in each minute, hour or day instead, by UTC."
)
@click.option(
    "--since",
    "since_ms",
    callback=moment_option,
    metavar="WHEN",
    help="With --per: from then on: 7d means 7 days ago; or 2026-11-16.  [default: the last 60 intervals]",
)
@click.option(
    "--until", "until_ms", callback=moment_option, metavar="WHEN", help="With --per: before then.  [default: now]"
)
async def counts(shell: Shell, per: str | None, since_ms: int | None, until_ms: int | None) -> None:
    """Count sessions, queued input, dead letters, processes and waits by state, at one moment.

    With --per, count the turns and processes that ended in each interval, and the failures: dead letters, and processes
    that failed. What was deleted, pruned, requeued or discarded since is not counted.
    """
    if per is not None:
        await _throughput(shell, _INTERVALS[per], since_ms, until_ms)
        return
    if since_ms is not None or until_ms is not None:
        raise click.UsageError("--since and --until need --per")
    async with shell.storage() as storage:
        found = await storage.counts()
    if shell.json:
        shell.value(found)
        return
    shell.table(_COLUMNS, list(_rows(found)), lambda row: row, nothing="")


async def _throughput(shell: Shell, interval_ms: int, since_ms: int | None, until_ms: int | None) -> None:
    now_ms = time.time_ns() // 1_000_000
    first_ms = (until_ms or now_ms) - (_SHOWN - 1) * interval_ms if since_ms is None else since_ms
    async with shell.storage() as storage:
        found = await storage.throughput(since_ms=max(0, first_ms), until_ms=until_ms, interval_ms=interval_ms)
    shell.table(_ENDED, found, _interval, nothing="no intervals")


def _interval(each: Throughput) -> tuple[str, ...]:
    numbers = (each.turns, each.processes, each.dead, each.failed)
    return moment(each.at_ms), *(f"{number:,}" for number in numbers)


def _rows(found: StorageCounts) -> Iterator[tuple[str, str, str]]:
    for state, number in found.sessions.items():
        yield "sessions", state.value, f"{number:,}"
    yield "input", "queued", f"{found.queued:,}"
    yield "input", "claimed", f"{found.claimed:,}"
    yield "input", "dead", f"{found.dead:,}"
    for status, number in found.processes.items():
        yield "processes", status.value, f"{number:,}"
    yield "processes", "held by a worker", f"{found.running_processes:,}"
    yield "waits", "open", f"{found.waits:,}"
