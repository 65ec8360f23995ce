"""``lash usage``: the tokens of all sessions, summed."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from lash.cli import pages
from lash.cli.command import command, limited
from lash.cli.ids import SESSION
from lash.cli.prune import age_option
from lash.cli.shell import Shell
from lash.cli.table import Column

if TYPE_CHECKING:
    from lash.model.session.usage import UsageSum
    from lash.stores.storage import Storage

_GROUPS: Final = ("day", "model", "agent", "session", "source")
"""The values of `lash.model.session.usage.UsageGroup`, in the order of the columns."""
_COUNTERS: Final = ("INPUT", "OUTPUT", "CACHED", "REASONING", "TOTAL")


def _groups(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """Return the groups of a list such as ``day,model``."""
    names = [name.strip() for name in value.split(",")]
    unknown = [name for name in names if name not in _GROUPS]
    if unknown:
        raise click.BadParameter(f"expected some of {', '.join(_GROUPS)}, got {unknown[0]!r}")
    return tuple(group for group in _GROUPS if group in names)


def moment_option(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Return a moment in milliseconds: an age such as ``7d``, or a date or time of UTC."""
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        try:
            return time.time_ns() // 1_000_000 - age_option(context, parameter, value)
        except click.BadParameter:
            raise click.BadParameter(
                f"expected an age such as 7d or a date such as 2026-11-16, got {value!r}"
            ) from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)


@command(
    "usage", "lash usage", "lash usage --by model,agent --since 7d", "lash usage --by day --session support-42 --json"
)
@click.option(
    "--by", callback=_groups, default="day,model", show_default=True, help="Any of day, model, agent, session, source."
)
@click.option(
    "--since",
    "since_ms",
    callback=moment_option,
    metavar="WHEN",
    help="Only commits from then on: 7d means 7 days ago; or 2026-11-16.",
)
@click.option("--until", "until_ms", callback=moment_option, metavar="WHEN", help="Only commits before then.")
@click.option("--session", "session_id", metavar="SESSION", type=SESSION, help="Only this session.")
@click.option("--agent", help="Only this agent.")
@click.option("--model", help="Only this model.")
@limited
async def usage(
    shell: Shell,
    by: tuple[str, ...],
    since_ms: int | None,
    until_ms: int | None,
    session_id: str | None,
    agent: str | None,
    model: str | None,
    limit: int,
    everything: bool,  # noqa: FBT001 (click's)
) -> None:
    """Sum the tokens of all sessions by day, model, agent, session or source.

    Days are those of UTC. Tokens from before lash stored the time have no day.
    """

    def sums(storage: Storage, session_id: str | None) -> pages.Fetch[UsageSum]:
        async def fetch(size: int, cursor: str | None) -> tuple[tuple[UsageSum, ...], str | None]:
            page = await storage.usage.sum(
                by,
                since_ms=since_ms,
                until_ms=until_ms,
                session_id=session_id,
                agent=agent,
                model=model,
                limit=size,
                cursor=cursor,
            )
            return page.sums, page.next_cursor

        return fetch

    async with shell.storage() as storage:
        fetch = sums(storage, await SESSION.match_given(storage, session_id))
        found = await pages.first(fetch, shell, limit, everything=everything)
    columns = [Column(group.upper()) for group in by] + [Column(name, right=True) for name in _COUNTERS]
    shell.table(tuple(columns), found, lambda each: _row(each, by), nothing="no tokens")


def _row(found: UsageSum, by: tuple[str, ...]) -> tuple[str, ...]:
    keys = {
        "day": found.day,
        "model": found.model,
        "agent": found.agent,
        "session": found.session_id,
        "source": found.source,
    }
    spent = found.usage
    counters = (
        spent.input_tokens,
        spent.output_tokens,
        spent.cached_input_tokens,
        spent.reasoning_tokens,
        spent.total,
    )
    return (*(keys[group] or "-" for group in by), *(f"{number:,}" for number in counters))
