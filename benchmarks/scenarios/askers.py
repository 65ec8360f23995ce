"""Many callers that wait for replies: what a reply costs the database, however many others wait."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.kit.contest import fresh
from benchmarks.kit.fleet import crowd
from benchmarks.kit.machine import lash_versions, postgres_versions
from benchmarks.kit.measure import Samples
from benchmarks.kit.peer import PeerFailed
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.server_log import counted
from benchmarks.kit.workspace import Workspace
from benchmarks.peers.lash.fleet import StatementCount, counted_statements, fleet_of

_FEW: Final = 10
_MANY: Final = 1_000
_REPLIES: Final = 500
"""How many replies make a round."""
_SLOTS: Final = 16
"""How many turns of 50 ms the worker runs at once; the messages of the other callers wait in the queue."""
_LIMIT_S: Final = 120.0
"""How long a round may take."""
_LOOK_S: Final = 0.005
_CALLER: Final = "count-caller"
Counts = Callable[[], tuple[int, ...]]
_COUNTED: Final = ("", "callers")
"""The statements of all programs, and those of the callers' program alone."""


async def _ask(workspace: Workspace, url: str, callers: int, hook: StatementCount, counts: Counts) -> list[list[float]]:
    """Let callers ask again and again; return for each round the statements of a reply, as the counts count them."""
    fleet = fleet_of(url, worker=False, hooks=[hook])
    replies, ended = [0] * callers, asyncio.Event()

    async def ask(number: int) -> None:
        session = fleet.app.session(f"s{number}", fleet.slow)
        while not ended.is_set():
            await session.ask("go")
            replies[number] += 1

    async def until(replied: Callable[[], int], wanted: int) -> None:
        limit = time.monotonic() + _LIMIT_S
        while replied() < wanted:
            if time.monotonic() > limit:
                raise PeerFailed(f"{sum(replies)} replies to {callers} callers in {_LIMIT_S:g} s")
            await asyncio.sleep(_LOOK_S)

    found: list[list[float]] = []
    async with fleet.app:
        asking = [asyncio.create_task(ask(number)) for number in range(callers)]
        # The first turn of a session creates it; that is no part of a reply.
        await until(lambda: min(replies), 1)
        for _ in range(workspace.rounds):
            before, first = counts(), sum(replies)
            await until(lambda: sum(replies), first + workspace.count(_REPLIES, least=_FEW))
            made = sum(replies) - first
            found.append([(after - earlier) / made for earlier, after in zip(before, counts(), strict=True)])
        ended.set()
        await asyncio.gather(*asking)
    return found


def _rows(backend: str, callers: int, found: list[list[float]]) -> Iterator[Row]:
    for whose, values in zip(_COUNTED, zip(*found, strict=True), strict=True):
        case = f"{backend}, {callers} wait" + f", {whose} alone" * bool(whose)
        yield Row(contender="lash", case=case, unit="statements/reply", samples=Samples(values))


def _counted(workspace: Workspace, backend: str, callers: int) -> Iterator[Row]:
    """Count with so many callers in this program, and one worker in another."""
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(fresh(workspace, backend))
        log = stack.enter_context(counted(workspace.server, url)) if backend == "postgres" else None
        workers = stack.enter_context(crowd(workspace.new_path(), "lash", 1, url, sessions=_SLOTS))
        own = workers.directory / _CALLER
        hook = StatementCount(own)

        def counts() -> tuple[int, ...]:
            all_programs = workers.statements() if log is None else int(log.count().statements)
            return all_programs, counted_statements(own)

        yield from _rows(backend, callers, asyncio.run(_ask(workspace, url, callers, hook, counts)))


def askers(workspace: Workspace) -> Report:
    """Count the statements of a reply while few and while many callers wait."""
    sizes = (_FEW, max(_FEW, workspace.count(_MANY)))
    rows = [row for backend in ("postgres", "sqlite") for size in sizes for row in _counted(workspace, backend, size)]
    # Of each database: few and all, few and own, many and all, many and own.
    ratios = [Ratio.of(rows[first + 2], rows[first]) for first in (0, 1, 4, 5)]
    return Report(
        ratios=tuple(ratios),
        rows=tuple(rows),
        versions=postgres_versions(workspace) | lash_versions("apsw", "sqlite"),
        notes=(
            f"each caller has a session and asks again at once; one worker runs {_SLOTS} turns of 50 ms at once",
            "on PostgreSQL the server's log counts all programs; the callers' own count is that of a hook",
        ),
    )


register(
    Scenario(
        name="askers",
        group="fleet",
        what="statements for a reply while 1,000 callers wait for replies in 1,000 sessions, over 10 in 10",
        run=askers,
        better=Better.LESS,
        target="at most 1",
    )
)
