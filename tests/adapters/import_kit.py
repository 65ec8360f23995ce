"""Imports as `lash import` makes them: after a dry run, with progress."""

from __future__ import annotations

from typing import Any

import msgspec

import lash
from lash.adapters.importing import FrameworkReader, ImportReport, import_database, open_source
from lash.stores.storage import Storage
from lash.transfer.progress import Progress


async def imported(url: str, theirs: str, reader: FrameworkReader) -> ImportReport:
    """Import a database and return the report.

    A dry run before it reports the same and writes nothing, and both report their progress up to the total.
    """
    async with await lash.open(url) as storage:
        before = await _written(storage)
        dry = await _import(storage, theirs, reader, dry_run=True)
        assert await _written(storage) == before
        report = await _import(storage, theirs, reader, dry_run=False)
        assert msgspec.structs.replace(dry, dry_run=False) == report
        return report


async def _import(storage: Storage, theirs: str, reader: FrameworkReader, *, dry_run: bool) -> ImportReport:
    steps: list[Progress] = []
    async with open_source(theirs) as source:
        report = await import_database(storage, source, reader, dry_run=dry_run, progress=steps.append)
    assert [(step.done, step.total) for step in steps] == [(done, len(steps)) for done in range(1, len(steps) + 1)]
    return report


async def _written(storage: Storage) -> dict[str, Any]:
    """Return the sessions with their revisions, and the records of the storage."""
    sessions = (await storage.sessions.list(limit=1_000)).sessions
    revisions = {each.meta.session_id: each.revision for each in sessions}
    collections = ("import.raw", "langgraph.store", "adk.app", "adk.user")
    return revisions | {name: await storage.records.list(name, limit=1_000) for name in collections}
