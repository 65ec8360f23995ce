"""``lash db check``: reads everything once and reports what cannot be read. Nothing is changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from lash.cli import pages
from lash.cli.process import process_pages
from lash.cli.text import plural
from lash.cli.url import is_postgres, sqlite_path

if TYPE_CHECKING:
    from lash.stores.storage import Storage
    from lash.stores.trigger.schedule import ScheduleStore
    from lash.stores.trigger.trigger import TriggerStore

_PAGE: Final = 500
"""The largest page of most lists: fewer round trips."""


async def file_problems(url: str) -> list[str]:
    """Return the problems that SQLite finds in its file; none for PostgreSQL, which checks its own files."""
    path = None if is_postgres(url) else sqlite_path(url)
    if path is None:
        return []
    from lash.cli.backup import examine

    return await examine(path)


async def session_problems(storage: Storage, session_id: str) -> AsyncIterator[str]:
    """Read a whole session: its graph, its checkpoint and its queue."""
    from lash.errors import CorruptData, SessionDeleted
    from lash.model.session.session import FullGraph

    session = storage.session(session_id)
    for read in (lambda: session.load(FullGraph()), session.checkpoint, lambda: storage.queue.list(session_id)):
        try:
            await read()
        except CorruptData as error:
            yield str(error)
        except SessionDeleted:
            # Deleted since it was listed.
            return


async def listed_problems(storage: Storage) -> AsyncIterator[tuple[str, str]]:
    """Read everything that belongs to no single session: processes, triggers, schedules, dead letters."""
    async for problem in _process_problems(storage):
        yield problem
    async for problem in _damaged("trigger", storage.triggers):
        yield problem
    async for problem in _damaged("schedule", storage.schedules):
        yield problem
    async for problem in _dead_letter_problems(storage):
        yield problem


async def _process_problems(storage: Storage) -> AsyncIterator[tuple[str, str]]:
    from lash.errors import CorruptData
    from lash.model.process.process import ProcessFilter

    try:
        async for record in pages.each(process_pages(storage, ProcessFilter())):
            problem = await _log_problem(storage, record.process_id)
            if problem is not None:
                yield f"process {record.process_id}", problem
    except CorruptData as error:
        yield "processes", str(error)


async def _log_problem(storage: Storage, process_id: str) -> str | None:
    from lash.errors import CorruptData, NotFound

    after = 0
    try:
        while found := await storage.events.after(process_id, after, limit=_PAGE):
            after = found[-1].sequence
    except CorruptData as error:
        return str(error)
    except NotFound:
        # Pruned since it was listed.
        return None
    return None


async def _damaged(kind: str, store: TriggerStore | ScheduleStore) -> AsyncIterator[tuple[str, str]]:
    cursor: str | None = None
    while True:
        page = await store.list(limit=_PAGE, cursor=cursor)
        for each in page.damaged:
            yield f"{kind} {each}", "it cannot be read"
        cursor = page.next_cursor
        if cursor is None:
            return


async def _dead_letter_problems(storage: Storage) -> AsyncIterator[tuple[str, str]]:
    from lash.errors import CorruptData

    try:
        await storage.queue.dead(limit=_PAGE)
    except CorruptData as error:
        yield "dead letters", str(error)


async def garbage_problems(storage: Storage) -> AsyncIterator[str]:
    """Return garbage that indicates a bug; left-over environments are normal and not reported."""
    found = await storage.maintenance.collect_garbage(dry_run=True)
    if found.is_clean:
        return
    for kind, counted in (("components", found.components), ("blobs", found.blobs), ("graphs", found.graphs)):
        if counted.rows:
            yield f"{plural(counted.rows, 'row')} of {kind} that nothing needs; lash db gc removes them"
