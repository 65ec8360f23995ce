"""``lash init`` and ``lash db``: the storage itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import click

from lash.cli import exits, pages
from lash.cli.bar import busy
from lash.cli.command import Group, command, deletes
from lash.cli.exits import CommandFailed
from lash.cli.ids import SESSION
from lash.cli.session import session_pages
from lash.cli.shell import Shell
from lash.cli.table import Column
from lash.cli.text import plural, size

if TYPE_CHECKING:
    from lash.cli.audit import Finding
    from lash.model.maintenance import GarbageCount, GarbageReport, NounSize
    from lash.stores.storage import Storage

_REPORT_COLUMNS: Final = (Column("NOUN"), Column("ROWS", right=True), Column("BYTES", right=True))
_GARBAGE_COLUMNS: Final = (Column("GARBAGE"), Column("ROWS", right=True), Column("BYTES", right=True))
_FINDING_COLUMNS: Final = (Column("WHERE"), Column("PROBLEM", stretch=True), Column("WHAT TO DO", stretch=True))
_GARBAGE: Final = ("components", "blobs", "graphs", "environments")


@command("init", "lash init --url sqlite:///agents.db", "lash init")
async def init(shell: Shell) -> None:
    """Create a storage, or migrate it to the schema of this version; idempotent."""
    await _migrate(shell, dry_run=False)


@click.group(cls=Group, lazy={"prune": "lash.cli.prune:prune"})
def db() -> None:
    """Migrate, check, measure and maintain the storage."""


@command("migrate", "lash db migrate --dry-run", "lash db migrate", group=db)
@click.option("--dry-run", is_flag=True, help="List the pending migrations, and apply none.")
async def migrate(shell: Shell, dry_run: bool) -> None:  # noqa: FBT001 (click's)
    """Apply the pending migrations; safe to run concurrently."""
    await _migrate(shell, dry_run=dry_run)


async def _migrate(shell: Shell, *, dry_run: bool) -> None:
    from lash.errors import PendingMigrations

    due: tuple[str, ...] = ()
    new = False
    try:
        async with shell.storage():
            pass
    except PendingMigrations as pending:
        due, new = pending.pending, pending.found == 0
    if due and not dry_run:
        async with busy("migrate"), shell.storage(migrate=True):
            pass
    said = "would apply" if dry_run else "created the storage with" if new else "applied"
    # A new storage has all of them.
    listed = "" if new and not dry_run else f": {', '.join(due)}"
    text = f"{said} {plural(len(due), 'migration')}{listed}" if due else "the schema is up to date"
    fields = {"url": shell.shown_url, "created": new and not dry_run, "migrations": due, "dry_run": dry_run}
    shell.done(f"{shell.shown_url}: {text}", fields)


@command("report", "lash db report", "lash db report --json", group=db)
async def report(shell: Shell) -> None:
    """Show how many rows and bytes each noun takes; ~ marks an estimate."""
    async with shell.storage() as storage:
        found = await storage.report()
    if shell.json:
        shell.value(found)
        return
    shell.table(_REPORT_COLUMNS, sorted(found.nouns.items()), _report_row, nothing="nothing is stored")
    shell.line(f"{size(found.bytes)} in all")


def _report_row(item: tuple[str, NounSize]) -> tuple[str, ...]:
    noun, measured = item
    return noun, f"{'' if measured.exact else '~'}{measured.rows:,}", size(measured.bytes)


@command("gc", "lash db gc --dry-run", "lash db gc --yes", group=db)
@deletes
async def collect(shell: Shell, dry_run: bool, yes: bool) -> None:  # noqa: FBT001 (click's)
    """Find rows that nothing refers to, and remove them; every write removes its own, so there are few or none."""
    async with shell.storage() as storage:
        async with busy("find garbage"):
            found = await storage.maintenance.collect_garbage(dry_run=True)
        rows = sum(_counted(found, name).rows for name in _GARBAGE)
        if not dry_run and rows:
            shell.confirm(f"Remove {plural(rows, 'row')} that nothing needs?", yes=yes)
            async with busy("remove garbage"):
                found = await storage.maintenance.collect_garbage()
    if shell.json:
        shell.value(found)
        return
    shell.table(_GARBAGE_COLUMNS, _GARBAGE, lambda name: _garbage_row(found, name), nothing="")
    shell.line(f"{'found' if dry_run else 'removed'} {plural(rows, 'row')} that nothing needed")


def _counted(found: GarbageReport, name: str) -> GarbageCount:
    counted: GarbageCount = getattr(found, name)
    return counted


def _garbage_row(found: GarbageReport, name: str) -> tuple[str, ...]:
    counted = _counted(found, name)
    return name, f"{counted.rows:,}", size(counted.bytes)


@command("vacuum", "lash db vacuum --dry-run", "lash db vacuum support-42 --yes", group=db)
@click.argument("session_ids", metavar="[SESSION]...", nargs=-1, type=SESSION)
@deletes
async def vacuum(shell: Shell, session_ids: tuple[str, ...], dry_run: bool, yes: bool) -> None:  # noqa: FBT001 (click's)
    """Delete permanently the nodes that were removed from their sessions, of some sessions or of all."""
    async with shell.storage() as storage:
        chosen = await SESSION.resolve_all(storage, session_ids) or [
            summary.meta.session_id async for summary in pages.each(session_pages(storage))
        ]
        removed = await _vacuum(shell, storage, chosen, dry_run=True)
        if removed and not dry_run:
            question = f"Delete {plural(removed, 'removed node')} of {plural(len(chosen), 'session')} permanently?"
            shell.confirm(question, yes=yes)
            removed = await _vacuum(shell, storage, chosen, dry_run=False)
    said = "would delete" if dry_run else "deleted"
    text = f"{said} {plural(removed, 'removed node')} of {plural(len(chosen), 'session')}"
    shell.done(text, {"sessions": len(chosen), "removed_node_count": removed, "dry_run": dry_run})


async def _vacuum(shell: Shell, storage: Storage, session_ids: list[str], *, dry_run: bool) -> int:
    from lash.errors import SessionDeleted

    removed = 0
    with shell.progress("count" if dry_run else "vacuum", len(session_ids)) as step:
        for session_id in session_ids:
            try:
                removed += (await storage.session(session_id).vacuum(dry_run=dry_run)).removed_node_count
            except SessionDeleted:
                # Deleted since it was listed.
                if len(session_ids) == 1:
                    raise
            step(1)
    return removed


@command("rewrap", "lash db rewrap", group=db)
async def rewrap(shell: Shell) -> None:
    """Seal values again that are plain or sealed with another key than the first of LASH_KEYS.

    Idempotent, and safe beside running workers. Without LASH_KEYS there is nothing to do. Attachments in a directory
    or in S3 are sealed again by storage.maintenance.rewrap() in a program that opens the storage with its byte store.
    """
    async with shell.storage() as storage, busy("rewrap"):
        report = await storage.maintenance.rewrap()
    shell.done(f"sealed the values of {plural(report.rows, 'row')} again", report)


@command("check", "lash db check", "lash db check --json", group=db)
async def check(shell: Shell) -> None:
    """Read everything once and report what is damaged, and what to do; exits with code 1 if there is a finding.

    It compares the schema, reads every row and every attachment, verifies hashes and counters, searches for rows that
    are missing, contradict each other or belong to nothing, and checks a SQLite file page by page. Nothing is changed.
    Run it while no worker runs: rows that change meanwhile may seem to contradict each other.
    """
    async with shell.storage() as storage:
        findings = [finding async for finding in _findings(shell, storage)]
    fields = {"clean": not findings, "findings": [finding._asdict() for finding in findings]}
    if shell.json:
        shell.value(fields)
    elif findings:
        shell.table(_FINDING_COLUMNS, findings, lambda finding: finding, nothing="")
    else:
        shell.line("everything can be read, and nothing is missing, contradictory or left over")
    if findings:
        raise CommandFailed(exits.ERROR, f"found {plural(len(findings), 'problem')}")


async def _findings(shell: Shell, storage: Storage) -> AsyncIterator[Finding]:
    from lash.cli.audit import file_problems, garbage_problems, row_problems, session_problems, sessions_of

    sessions, unlisted = await sessions_of(storage)
    async with busy("check the file"):
        problems = await file_problems(shell.url)
    for finding in (*unlisted, *problems):
        yield finding
    async with busy("check the rows"):
        rows = [finding async for finding in row_problems(storage)]
    for finding in rows:
        yield finding
    known = {finding.problem for finding in rows}
    with shell.progress("check", len(sessions)) as step:
        for summary in sessions:
            async for finding in session_problems(storage, summary):
                if finding.problem not in known:
                    yield finding
            step(1)
    async for finding in garbage_problems(storage):
        yield finding


@command("backup", "lash db backup agents-backup.db", group=db)
@click.argument("target", metavar="FILE", type=click.Path(dir_okay=False))
async def backup(shell: Shell, target: str) -> None:
    """Copy a SQLite storage to a new file, while workers go on, and verify the copy.

    For PostgreSQL use pg_dump: the error shows the command.
    """
    from lash.cli.backup import copy_storage

    copied = await copy_storage(shell, target)
    shell.done(f"copied {size(copied)} to {target}, verified", {"file": target, "bytes": copied})


@command("restore", "lash db restore agents-backup.db --url sqlite:///restored.db --yes", group=db)
@click.argument("source", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@deletes
async def restore(shell: Shell, source: str, dry_run: bool, yes: bool) -> None:  # noqa: FBT001 (click's)
    """Replace a SQLite storage that is not in use by a backup; the old file is kept beside it.

    The backup is verified first. Exits with code 4 while a worker or another program has the storage open.
    """
    from lash.cli.backup import restore_storage

    kept = await restore_storage(shell, source, dry_run=dry_run, yes=yes)
    said = f"{'would restore' if dry_run else 'restored'} {shell.shown_url} from {source}"
    beside = "" if kept is None else f"; the old file {'would be' if dry_run else 'is'} kept as {kept}"
    shell.done(said + beside, {"url": shell.shown_url, "file": source, "kept": kept, "dry_run": dry_run})


@command("copy", "lash db copy sqlite:///copy.db", group=db)
@click.argument("target", metavar="TARGET-URL")
async def copy(shell: Shell, target: str) -> None:
    """Copy sessions, attachments, artifacts, triggers and schedules into another storage, on either backend.

    Stop all workers of both storages first. If it is killed, run it again: it continues. Processes and their logs are
    not copied. Exits with code 4 if the target has other content under the same name.
    """
    from lash.cli.transfer import copy_to

    report = await copy_to(shell, target)
    if shell.json:
        shell.value(report)
    else:
        for said, counts in (("copied", report.copied), ("already there", report.skipped)):
            shell.lines(f"{said}: {plural(count, noun)}" for noun, count in counts.items() if count)
        shell.lines(f"not copied: {plural(count, noun)}" for noun, count in report.never_copied.items() if count)
    if not report.is_complete:
        first = report.refused[0]
        raise CommandFailed(exits.CONFLICT, f"{len(report.refused):,} objects were refused; the first: {first}")


@command("move", "lash db move sqlite:///moved.db", group=db)
@click.argument("target", metavar="TARGET-URL")
async def move(shell: Shell, target: str) -> None:
    """Copy everything into an empty storage, on either backend: processes, logs, waits and old checkpoints as well.

    Stop all workers first. The source stays unchanged; leases and claims are free in the target, and live activity is
    not copied. If it is killed, run it again: it continues. Exits with code 4 if the target is not empty, or if the
    source was changed meanwhile.
    """
    from lash.cli.transfer import move_to

    report = await move_to(shell, target)
    if shell.json:
        shell.value(report)
        return
    shell.lines(f"{table.removeprefix('lash_')}: {count:,}" for table, count in report.rows.items() if count)
    before = f", {report.resumed_at:,} of them by an earlier run" if report.resumed_at else ""
    shell.lines([f"moved {sum(report.rows.values()):,} rows, counted in both storages{before}"])
