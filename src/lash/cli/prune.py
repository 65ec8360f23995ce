"""``lash db prune``: removes what is left of ended work, and old idempotency keys."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import click

from lash.cli.bar import busy
from lash.cli.command import command, deletes
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import UNITS, moment, plural

if TYPE_CHECKING:
    from lash.model.maintenance import Prunable
    from lash.stores.storage import Storage

KINDS: Final = {
    "turns": "turn ids, by which a repeated commit is recognised",
    "source_keys": "keys of handled messages, by which a repeated one is recognised",
    "processes": "ended processes, with their logs and recorded steps",
    "occurrences": "what happened, with its deliveries; pruned, it can happen again",
    "receipts": "answers to changes of triggers",
    "schedules": "deleted schedules",
    "waits": "resolved waits that belong to nothing",
    "activity": "live activity of idle sessions",
    "records": "expired records",
    "acts": "what operators did, and who did it",
}
"""The kinds of rows that can be pruned, in this order."""
_COLUMNS: Final = (Column("KIND"), Column("ROWS", right=True), Column("WHAT", stretch=True))
_AT_ONCE: Final = 500
_AGE: Final = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>[a-z])")


def age_option(_context: click.Context, _parameter: click.Parameter, value: str) -> int:
    """Return an age such as ``30d`` or ``12h`` in milliseconds."""
    match = _AGE.fullmatch(value)
    seconds = None if match is None else dict(UNITS).get(match["unit"])
    if match is None or seconds is None:
        units = ", ".join(unit for unit, _ in UNITS)
        raise click.BadParameter(f"expected a number and one of {units}, such as 30d, got {value!r}")
    return int(match["count"]) * seconds * 1_000


@command("prune", "lash db prune --older-than 30d --dry-run", "lash db prune --older-than 90d --only processes --yes")
@click.option(
    "--older-than", "age_ms", metavar="AGE", callback=age_option, required=True, help="Such as 30d, 12h or 1y."
)
@click.option(
    "--only", metavar="KIND", multiple=True, type=click.Choice(list(KINDS)), help=f"One of {', '.join(KINDS)}."
)
@deletes
async def prune(shell: Shell, age_ms: int, only: tuple[str, ...], dry_run: bool, yes: bool) -> None:  # noqa: FBT001 (click's)
    """Remove rows beyond an age: ended processes, expired records, and rows that make retries idempotent.

    No message, node or dead letter is removed. Choose the age by how late a duplicate may come: a key that was pruned
    no longer recognises its message.
    """
    chosen = [kind for kind in KINDS if not only or kind in only]
    async with shell.storage() as storage:
        async with busy("count"):
            found = await storage.maintenance.prunable(older_than_ms=age_ms)
        rows = _rows(found, chosen)
        if not dry_run and any(rows.values()):
            before = moment(found.before_ms)
            shell.confirm(f"Remove {plural(sum(rows.values()), 'row')} from before {before} for good?", yes=yes)
            rows = {kind: await _prune(shell, storage, kind, found, age_ms) for kind in chosen}
    if shell.json:
        shell.value({"dry_run": dry_run, "before_ms": found.before_ms, "rows": rows})
        return
    shell.table(_COLUMNS, chosen, lambda kind: (kind, f"{rows[kind]:,}", KINDS[kind]), nothing="")
    shell.line(f"{'found' if dry_run else 'removed'} {plural(sum(rows.values()), 'row')} that old")


def _rows(found: Prunable, kinds: list[str]) -> dict[str, int]:
    return {kind: getattr(found, kind) for kind in kinds}


async def _prune(shell: Shell, storage: Storage, kind: str, found: Prunable, age_ms: int) -> int:
    removed = 0
    with shell.progress(f"prune {kind}", getattr(found, kind)) as step:
        async for count in _removed(storage, kind, found.before_ms, age_ms):
            removed += count
            step(count)
    return removed


async def _removed(storage: Storage, kind: str, before_ms: int, age_ms: int) -> AsyncIterator[int]:
    """Remove a page at a time until nothing that old is left, and return how many."""
    if kind in ("turns", "source_keys", "activity"):
        prune_all = getattr(storage.maintenance, f"prune_{kind}")
        yield (await prune_all(older_than_ms=age_ms)).removed_count
        return
    while True:
        count = await _some(storage, kind, before_ms)
        yield count
        if not count:
            return


async def _some(storage: Storage, kind: str, before_ms: int) -> int:
    match kind:
        case "processes":
            pruned = await storage.processes.prune(ended_before_ms=before_ms, through_cursor=None, limit=_AT_ONCE)
            return len(pruned.pruned_process_ids)
        case "occurrences":
            return len((await storage.occurrences.prune(before_ms=before_ms, limit=_AT_ONCE)).occurrence_ids)
        case "receipts":
            return await storage.triggers.prune_receipts(before_ms=before_ms, limit=_AT_ONCE)
        case "schedules":
            return await storage.schedules.prune_deleted(before_ms=before_ms, limit=_AT_ONCE)
        case "acts":
            return await storage.acts.prune(before_ms=before_ms, limit=_AT_ONCE)
        case "records":
            return await storage.records.prune(expired_before_ms=before_ms, limit=_AT_ONCE)
    return await storage.waits.prune(resolved_before_ms=before_ms, limit=_AT_ONCE)
