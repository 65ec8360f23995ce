"""Lists of sessions: one read of a thousand, with their state, against one read for each."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable

import lash
from benchmarks.kit.contest import fresh
from benchmarks.kit.machine import postgres_versions
from benchmarks.kit.measure import Samples
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.workspace import Workspace
from lash.model.session.checkpoint import CheckpointDraft, TurnState
from lash.model.session.commit import Commit
from lash.model.session.session import SessionOrder

_SESSIONS = 1_000
_PAGE = 1_000
_COMPONENTS = 3
Read = Callable[[lash.Storage, int], Awaitable[None]]


async def fill(storage: lash.Storage, sessions: int) -> None:
    """Create sessions of fifty owners, each with one commit and a small state."""
    for number in range(sessions):
        name = f"session-{number:04}"
        await storage.sessions.create(name, owner=f"user-{number % 50}", labels={"app": "bench"})
        components = {f"key-{each}": b'{"value":"%d %d"}' % (number, each) for each in range(_COMPONENTS)}
        checkpoint = CheckpointDraft(turn_state=TurnState(turn_index=1), components=components)
        await storage.session(name).commit(Commit(session_id=name, expected_revision=0, checkpoint=checkpoint))


async def in_one_read(storage: lash.Storage, sessions: int, *, with_checkpoint: bool = False) -> None:
    """List all of them with head, state and counts."""
    page = await storage.sessions.list(
        order=SessionOrder.ACTIVE,
        with_head=True,
        with_state=True,
        with_counts=True,
        with_checkpoint=with_checkpoint,
        limit=_PAGE,
    )
    assert len(page.sessions) == sessions


async def one_by_one(storage: lash.Storage, sessions: int) -> None:
    """List all of them, then read each head and checkpoint."""
    page = await storage.sessions.list(limit=_PAGE)
    for entry in page.sessions:
        session = storage.session(entry.meta.session_id)
        await session.head()
        await session.checkpoint()
    assert len(page.sessions) == sessions


_READS: dict[str, Read] = {
    "in one read": in_one_read,
    "in one read, with checkpoints": functools.partial(in_one_read, with_checkpoint=True),
    "one by one, with checkpoints": one_by_one,
}


async def took_ms(url: str, sessions: int, rounds: int) -> dict[str, Samples]:
    """Measure all ways in turn; the first round warms up."""
    taken: dict[str, list[float]] = {case: [] for case in _READS}
    async with await lash.open(url) as storage:
        await fill(storage, sessions)
        for _ in range(rounds + 1):
            for case, read in _READS.items():
                begin = time.perf_counter()
                await read(storage, sessions)
                taken[case].append((time.perf_counter() - begin) * 1e3)
    return {case: Samples(tuple(known[1:])) for case, known in taken.items()}


def compare(workspace: Workspace) -> Report:
    """Measure both databases; the worse list with checkpoints is the headline."""
    rows: list[Row] = []
    ratios: list[Ratio] = []
    sessions = workspace.count(_SESSIONS, least=5)
    for backend in ("sqlite", "postgres"):
        with fresh(workspace, backend) as url:
            found = asyncio.run(took_ms(url, sessions, workspace.rounds))
        *together, apart = (
            Row(contender="lash", case=f"{backend}, {sessions} sessions {case}", unit="ms", samples=samples)
            for case, samples in found.items()
        )
        rows += [*together, apart]
        ratios += [Ratio.of(each, apart) for each in together]
    ratios.sort(key=lambda ratio: -ratio.value)
    return Report(ratios=tuple(ratios), rows=tuple(rows), versions=postgres_versions(workspace))


register(
    Scenario(
        name="list-sessions",
        group="lists",
        what=f"{_SESSIONS:,} sessions with head, state and counts, and with checkpoints: one read over one for each",
        run=compare,
        better=Better.LESS,
        target="at most 30 ms",
    )
)
