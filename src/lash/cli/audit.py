"""Reading everything once, to find what cannot be read. Nothing is changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from lash.cli import pages
from lash.cli.process import process_pages
from lash.cli.text import plural
from lash.cli.url import is_postgres, sqlite_path

if TYPE_CHECKING:
    from lash.stores.storage import Storage

_PAGE: Final = 500


async def file_problems(url: str) -> list[str]:
    """Return what SQLite itself finds wrong with the file; nothing for PostgreSQL, whose server looks after itself."""
    path = None if is_postgres(url) else sqlite_path(url)
    if path is None:
        return []
    from lash.cli.backup import examine

    return await examine(path)


async def session_problems(storage: Storage, session_id: str) -> AsyncIterator[str]:
    """Read a session whole: its graph, its checkpoint, and what is queued for it."""
    from lash.errors import CorruptData, SessionDeleted
    from lash.model.session.session import FullGraph

    session = storage.session(session_id)
    for read in (lambda: session.load(FullGraph()), session.checkpoint, lambda: storage.queue.list(session_id)):
        try:
            await read()
        except CorruptData as error:
            yield str(error)
        except SessionDeleted:
            # Since it was listed; there is nothing left to check.
            return


async def listed_problems(storage: Storage) -> AsyncIterator[tuple[str, str]]:
    """Read what belongs to no single session: processes with their logs, triggers, schedules, dead letters."""
    from lash.errors import CorruptData, NotFound
    from lash.model.process.process import ProcessFilter

    try:
        async for record in pages.each(process_pages(storage, ProcessFilter())):
            try:
                await _read_log(storage, record.process_id)
            except CorruptData as error:
                yield f"process {record.process_id}", str(error)
            except NotFound:
                # It was pruned since it was listed.
                continue
    except CorruptData as error:
        yield "processes", str(error)
    for kind, damaged in (("trigger", _damaged_triggers), ("schedule", _damaged_schedules)):
        for each in await damaged(storage):
            yield f"{kind} {each}", "it cannot be read"
    try:
        await storage.queue.dead(limit=_PAGE)
    except CorruptData as error:
        yield "dead letters", str(error)


async def _read_log(storage: Storage, process_id: str) -> None:
    after = 0
    while found := await storage.events.after(process_id, after, limit=_PAGE):
        after = found[-1].sequence


async def _damaged_triggers(storage: Storage) -> list[str]:
    damaged: list[str] = []
    cursor: str | None = None
    while True:
        page = await storage.triggers.list(limit=_PAGE, cursor=cursor)
        damaged.extend(page.damaged)
        cursor = page.next_cursor
        if cursor is None:
            return damaged


async def _damaged_schedules(storage: Storage) -> list[str]:
    damaged: list[str] = []
    cursor: str | None = None
    while True:
        page = await storage.schedules.list(limit=_PAGE, cursor=cursor)
        damaged.extend(page.damaged)
        cursor = page.next_cursor
        if cursor is None:
            return damaged


async def garbage_problems(storage: Storage) -> AsyncIterator[str]:
    """Return garbage that points to a fault; environments that are left over in ordinary life are none."""
    found = await storage.maintenance.collect_garbage(dry_run=True)
    if found.is_clean:
        return
    for kind, counted in (("components", found.components), ("blobs", found.blobs), ("graphs", found.graphs)):
        if counted.rows:
            yield f"{plural(counted.rows, 'row')} of {kind} that nothing needs; lash db gc removes them"
