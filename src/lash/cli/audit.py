"""``lash db check``: reads everything once, and reports what is damaged and what to do. Nothing is changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, NamedTuple

from lash.cli import pages
from lash.cli.text import plural
from lash.cli.url import is_postgres, sqlite_path

if TYPE_CHECKING:
    from lash.model.session.session import SessionSummary
    from lash.stores.storage import Storage

_PAGE: Final = 100
_RESTORE: Final = "restore a backup: lash db restore"
_SESSION: Final = "restore the session from a backup; without one, lash sessions rm removes it"
_ATTACHMENTS: Final = (
    "nothing, if the application stores them elsewhere (FileBytes, S3Bytes): this command cannot read them there; "
    "else restore the session from a backup"
)


class Finding(NamedTuple):
    """What is damaged, what is wrong with it, and what to do."""

    where: str
    problem: str
    remedy: str


async def file_problems(url: str) -> list[Finding]:
    """Return the problems that SQLite finds in its file; none for PostgreSQL, which checks its own files."""
    path = None if is_postgres(url) else sqlite_path(url)
    if path is None:
        return []
    from lash.cli.backup import examine

    return [Finding("file", problem, _RESTORE) for problem in await examine(path)]


async def row_problems(storage: Storage) -> AsyncIterator[Finding]:
    """Search all rows for damage."""
    for damage in await storage.maintenance.find_damage():
        yield Finding(damage.where, damage.problem, damage.remedy)


async def session_problems(storage: Storage, summary: SessionSummary) -> AsyncIterator[Finding]:
    """Read a whole session as a program would: its graph, its first message, its attachments and its activity."""
    from lash.errors import CorruptData, SessionDeleted

    session_id = summary.meta.session_id
    for read in (_read_graph, _read_attachments, _read_activity):
        try:
            await read(storage, summary)
        except CorruptData as error:
            remedy = _ATTACHMENTS if read is _read_attachments else _SESSION
            yield Finding(f"session {session_id!r}", str(error), remedy)
        except SessionDeleted:
            # Deleted since it was listed.
            return


async def _read_graph(storage: Storage, summary: SessionSummary) -> None:
    from lash.errors import CorruptData
    from lash.model.session.session import FullGraph
    from lash.plan.session.node import user_text

    session = storage.session(summary.meta.session_id)
    read = await session.load(FullGraph())
    await session.checkpoint()
    said = [text for node in (() if read is None else read.graph.nodes) if (text := user_text(node)) is not None]
    if summary.first_user_message != (said[0] if said else ""):
        raise CorruptData("the first message that lists show is not its first")


async def _read_attachments(storage: Storage, summary: SessionSummary) -> None:
    cursor: str | None = None
    while True:
        page = await storage.attachments.list(summary.meta.session_id, limit=_PAGE, cursor=cursor)
        for entry in page.entries:
            if entry.committed_at_ms is not None:
                await storage.attachments.get(summary.meta.session_id, entry.ref.id)
        cursor = page.next_cursor
        if cursor is None:
            return


async def _read_activity(storage: Storage, summary: SessionSummary) -> None:
    from msgspec.structs import replace

    session_id = summary.meta.session_id
    newest = (await storage.activity.read(session_id)).newest
    position = 0
    while (page := await storage.activity.read(session_id, replace(newest, position=position))).activity:
        position = page.activity[-1].position


async def garbage_problems(storage: Storage) -> AsyncIterator[Finding]:
    """Return garbage that indicates a bug; left-over environments are normal and not reported."""
    found = await storage.maintenance.collect_garbage(dry_run=True)
    if found.is_clean:
        return
    for kind, counted in (("components", found.components), ("blobs", found.blobs), ("graphs", found.graphs)):
        if counted.rows:
            yield Finding("garbage", f"{plural(counted.rows, 'row')} of {kind} that nothing needs", "lash db gc")


async def sessions_of(storage: Storage) -> tuple[list[SessionSummary], list[Finding]]:
    """Return the sessions, up to one that cannot be listed, and that finding."""
    from lash.cli.session import session_pages
    from lash.errors import CorruptData

    found: list[SessionSummary] = []
    try:
        async for summary in pages.each(session_pages(storage)):
            found.append(summary)  # noqa: PERF401 (those before a damaged one are kept)
    except CorruptData as error:
        return found, [Finding("sessions", f"{error}; those behind it were not read as sessions", _SESSION)]
    return found, []
