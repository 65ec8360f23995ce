"""Lists of sessions: a thousand with their state, against the bare driver, and against one read for each."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

import apsw
import asyncpg

import lash
from benchmarks.kit.contest import fresh
from benchmarks.kit.machine import postgres_versions
from benchmarks.kit.measure import Samples
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.workspace import Workspace
from lash.backend.session_page import PAGES
from lash.model.session.checkpoint import CheckpointDraft, TurnState
from lash.model.session.commit import Commit
from lash.model.session.session import SessionFilter, SessionOrder
from lash.plan.session.page import PageParts, prepare_page
from lash.postgres.engine.options import PostgresOptions
from lash.postgres.engine.pool import session_settings
from lash.postgres.rows.session.page import page_arguments as postgres_arguments
from lash.sqlite.rows.session.page import page_arguments as sqlite_arguments
from lash.sqlkit.queries import load_queries

_SESSIONS = 1_000
_PAGE = 1_000
_COMPONENTS = 3
_CALLS = 5
_PARTS = PageParts(head=True, state=True, counts=True)
Read = Callable[[], Awaitable[int]]
"""Lists all sessions, and returns how many there were."""


async def fill(storage: lash.Storage, sessions: int) -> None:
    """Create sessions of fifty owners, each with one commit and a small state."""
    for number in range(sessions):
        name = f"session-{number:04}"
        await storage.sessions.create(name, owner=f"user-{number % 50}", labels={"app": "bench"})
        components = {f"key-{each}": b'{"value":"%d %d"}' % (number, each) for each in range(_COMPONENTS)}
        checkpoint = CheckpointDraft(turn_state=TurnState(turn_index=1), components=components)
        await storage.session(name).commit(Commit(session_id=name, expected_revision=0, checkpoint=checkpoint))


async def in_one_read(storage: lash.Storage, *, with_checkpoint: bool = False) -> int:
    """List all of them with head, state and counts."""
    page = await storage.sessions.list(
        order=SessionOrder.ACTIVE,
        with_head=_PARTS.head,
        with_state=_PARTS.state,
        with_counts=_PARTS.counts,
        with_checkpoint=with_checkpoint,
        limit=_PAGE,
    )
    return len(page.sessions)


async def one_by_one(storage: lash.Storage) -> int:
    """List all of them, then read each head and checkpoint."""
    page = await storage.sessions.list(limit=_PAGE)
    for entry in page.sessions:
        session = storage.session(entry.meta.session_id)
        await session.head()
        await session.checkpoint()
    return len(page.sessions)


@contextlib.asynccontextmanager
async def the_driver(url: str) -> AsyncIterator[Read]:
    """Run the statement of the first list with the driver alone, set up like lash; the rows stay as they come."""
    page = prepare_page(
        SessionFilter(), order=SessionOrder.ACTIVE, oldest_first=False, parts=_PARTS, limit=_PAGE, cursor=None
    )
    if url.startswith("sqlite"):
        text = load_queries("lash.sqlite.sql")[PAGES[page.way]]
        with contextlib.closing(apsw.Connection(urlsplit(url).path.removeprefix("/"))) as connection:
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)

            async def scan() -> int:
                return len(connection.execute(text, sqlite_arguments(page, time.time_ns() // 10**6)).fetchall())

            yield scan
        return
    options = PostgresOptions.from_url(url)
    text = load_queries("lash.postgres.sql", schema=options.schema)[PAGES[page.way]]
    server = await asyncpg.connect(options.dsn, server_settings=session_settings(options))
    try:
        prepared = await server.prepare(text)

        async def fetch() -> int:
            return len(await prepared.fetch(*postgres_arguments(page, text)))

        yield fetch
    finally:
        await server.close()


async def took_ms(url: str, sessions: int, rounds: int) -> dict[tuple[str, str], Samples]:
    """Measure all ways in turn, the median of a few calls; the first round warms up."""
    async with await lash.open(url) as storage, the_driver(url) as driver:
        await fill(storage, sessions)
        reads: dict[tuple[str, str], Read] = {
            ("lash", "in one read"): functools.partial(in_one_read, storage),
            ("lash", "in one read, with checkpoints"): functools.partial(in_one_read, storage, with_checkpoint=True),
            ("lash", "one by one, with checkpoints"): functools.partial(one_by_one, storage),
            ("driver", "in one read"): driver,
        }
        taken: dict[tuple[str, str], list[float]] = {case: [] for case in reads}
        for _ in range(rounds + 1):
            for case, read in reads.items():
                taken[case].append(statistics.median([await _timed(read, sessions) for _ in range(_CALLS)]))
    return {case: Samples(tuple(known[1:])) for case, known in taken.items()}


async def _timed(read: Read, sessions: int) -> float:
    begin = time.perf_counter()
    assert await read() == sessions
    return (time.perf_counter() - begin) * 1e3


def compare(workspace: Workspace) -> Report:
    """Measure both databases; the list on PostgreSQL, which has the server's time as well, is the headline."""
    rows: list[Row] = []
    ratios: list[Ratio] = []
    sessions = workspace.count(_SESSIONS, least=5)
    for backend in ("postgres", "sqlite"):
        with fresh(workspace, backend) as url:
            found = asyncio.run(took_ms(url, sessions, workspace.rounds))
        whole, saved, apart, driver = (
            Row(contender=contender, case=f"{backend}, {sessions} sessions {case}", unit="ms", samples=samples)
            for (contender, case), samples in found.items()
        )
        rows += [whole, driver, saved, apart]
        ratios += [Ratio.of(whole, driver), Ratio.of(saved, apart)]
    return Report(ratios=tuple(ratios), rows=tuple(rows), versions=postgres_versions(workspace))


register(
    Scenario(
        name="list-sessions",
        group="lists",
        what=f"{_SESSIONS:,} sessions with head, state and counts: time over that of the same statement by the driver, "
        "and with checkpoints over one read for each",
        run=compare,
        better=Better.LESS,
        target="at most 30 ms",
    )
)
