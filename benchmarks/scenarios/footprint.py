"""Footprint: what importing, idling, parking and storing cost."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable

import asyncpg

import lash
from benchmarks.kit.contest import fresh
from benchmarks.kit.disk import stored_bytes
from benchmarks.kit.machine import lash_versions, postgres_versions
from benchmarks.kit.measure import by_turns
from benchmarks.kit.peer import programs
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.text import prose
from benchmarks.kit.workspace import Workspace
from benchmarks.peers.protocol import turn_texts
from lash.base.ids import new_id
from lash.model.session.commit import Append, Commit
from lash.model.session.message import Message, Role
from lash.model.session.node import MessageEntry, Node
from tests.factories.session import MOMENT

_STARTS = 15


def import_ms(workspace: Workspace, module: str, _number: int) -> float:
    """Return what importing a module takes a fresh interpreter, the least of some: the rest is the machine's noise."""
    program = f"import time; began = time.perf_counter(); import {module}; print(time.perf_counter() - began)"
    command = [sys.executable, "-c", program]
    taken = (
        float(subprocess.run(command, check=True, env=os.environ, capture_output=True, text=True).stdout)
        for _ in range(workspace.count(_STARTS, least=2))
    )
    return min(taken) * 1e3


def import_time(workspace: Workspace) -> Report:
    """Measure the import of lash, and of asyncio alone, both without the start of the interpreter."""
    names = ("lash", "asyncio")
    samples = by_turns([functools.partial(import_ms, workspace, each) for each in names], workspace.rounds)
    rows = [
        Row(contender=name, case="above the bare interpreter", unit="ms", samples=each)
        for name, each in zip(names, samples, strict=True)
    ]
    return Report(ratios=(Ratio.of(*rows),), rows=tuple(rows), versions=lash_versions())


def idle_worker(workspace: Workspace) -> Report:
    """Measure a worker that has nothing to do, against one that polls every 50 ms."""
    seconds = max(0.3, 5 * workspace.scale)
    sides = (("lash", "postgres"), ("bare", "postgres"), ("lash", "sqlite"))
    queries: dict[tuple[str, str], list[float]] = {side: [] for side in sides}

    def cpu(side: tuple[str, str], _number: int) -> float:
        with fresh(workspace, side[1]) as url, programs(side[0]) as running:
            answer = running[side[0]].ask({"do": "idle", "url": url, "seconds": seconds})
        queries[side].append(answer["queries_s"])
        return float(answer["cpu"]) * 1e3

    samples = by_turns([functools.partial(cpu, side) for side in sides], workspace.rounds)
    rows = [
        Row(contender=name, case=f"{backend}, idle", unit="ms of CPU/s", samples=each)
        for (name, backend), each in zip(sides, samples, strict=True)
    ]
    notes = tuple(
        f"{name} on {backend}: {sorted(asked)[len(asked) // 2]:.2f} statements a second"
        for (name, backend), asked in queries.items()
    )
    return Report(
        ratios=(Ratio.of(rows[0], rows[1]), Ratio.of(rows[2], rows[1])),
        rows=tuple(rows),
        versions=postgres_versions(workspace),
        notes=notes,
    )


def parked(workspace: Workspace) -> Report:
    """Measure the bytes of a parked process, over those of one bare row."""
    count = workspace.count(2000, least=20)
    backends = ("sqlite", "postgres")
    sides = [
        functools.partial(_per_item, workspace, each, fill, count) for each in backends for fill in (_park, _bare_rows)
    ]
    samples = by_turns(sides, workspace.rounds)
    names = [(name, backend) for backend in backends for name in ("lash", "bare row")]
    rows = [
        Row(contender=name, case=backend, unit="bytes/process", samples=each)
        for (name, backend), each in zip(names, samples, strict=True)
    ]
    ratios = sorted((Ratio.of(rows[0], rows[1]), Ratio.of(rows[2], rows[3])), key=lambda ratio: -ratio.value)
    return Report(ratios=tuple(ratios), rows=tuple(rows), versions=postgres_versions(workspace))


def _per_item(
    workspace: Workspace, backend: str, fill: Callable[[str, int], object], count: int, _number: int
) -> float:
    with fresh(workspace, backend) as url:
        fill(url, 0)
        before = stored_bytes(url)
        fill(url, count)
        return (stored_bytes(url) - before) / count


def _park(url: str, count: int) -> None:
    async def run() -> None:
        app = lash.App(url, worker=False)

        @app.process
        async def sleeper(ctx: lash.Context, text: str) -> None:  # noqa: ARG001 (an argument takes room)
            await ctx.sleep(days=1)

        async with app:
            for number in range(count):
                await app.start(sleeper, prose(number, 200))
            await app.drain()

    asyncio.run(run())


def _bare_rows(url: str, count: int) -> None:
    table = "CREATE TABLE IF NOT EXISTS sleepers (id text PRIMARY KEY, due bigint NOT NULL, input text NOT NULL)"
    rows = [(new_id(), 1_900_000_000_000, json.dumps([prose(number, 200)])) for number in range(count)]

    async def on_postgres() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(table)
        await connection.executemany("INSERT INTO sleepers VALUES ($1, $2, $3)", rows)
        await connection.close()

    if url.startswith("postgresql"):
        asyncio.run(on_postgres())
        return
    import apsw

    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.execute(table)
    connection.executemany("INSERT INTO sleepers VALUES (?, ?, ?)", rows)
    connection.close()


def disk(workspace: Workspace) -> Report:
    """Measure the bytes on disk of a long conversation, over the bytes of what was said."""
    turns = workspace.count(1000, least=5)
    content = float(sum(len(text.encode()) for number in range(turns) for text in turn_texts(0, number).values()))
    backends = ("sqlite", "postgres")
    samples = by_turns(
        [functools.partial(_conversation, workspace, each, turns) for each in backends], workspace.rounds
    )
    told = by_turns([lambda _: content], workspace.rounds)[0]
    rows = [
        Row(contender="lash", case=backend, unit="bytes", samples=each)
        for backend, each in zip(backends, samples, strict=True)
    ]
    rows.append(Row(contender="content", case=f"{turns} turns", unit="bytes", samples=told))
    ratios = sorted((Ratio.of(rows[0], rows[2]), Ratio.of(rows[1], rows[2])), key=lambda ratio: -ratio.value)
    return Report(
        ratios=tuple(ratios),
        rows=tuple(rows),
        versions=postgres_versions(workspace),
        notes=("an empty storage is taken off: its tables take the same room however much is said",),
    )


def _conversation(workspace: Workspace, backend: str, turns: int, _number: int) -> float:
    async def run(url: str, turns: int) -> None:
        async with await lash.open(url) as storage:
            await storage.sessions.create("session-0")
            leaf = None
            for number in range(turns):
                nodes: list[Node] = []
                for part, text in turn_texts(0, number).items():
                    node_id = new_id()
                    role = Role.USER if part == "user" else Role.ASSISTANT
                    entry = MessageEntry(message=Message.of_text(node_id, role, text))
                    nodes.append(Node(node_id=node_id, parent_node_id=leaf, timestamp=MOMENT, entry=entry))
                    leaf = node_id
                commit = Commit(session_id="session-0", expected_revision=number, graph=Append(nodes=tuple(nodes)))
                await storage.session("session-0").commit(commit)

    with fresh(workspace, backend) as url:
        asyncio.run(run(url, 0))
        before = stored_bytes(url)
        asyncio.run(run(url, turns))
        return float(stored_bytes(url) - before)


def _register(name: str, what: str, run: Callable[[Workspace], Report], target: str = "") -> None:
    register(Scenario(name=name, group="footprint", what=what, run=run, better=Better.LESS, target=target))


_register("import-time", "import lash, over import asyncio", import_time, "below 75 ms (goal 60)")
_register("idle-worker", "CPU of a worker without work, over that of one that polls every 50 ms", idle_worker)
_register("parked", "bytes of a parked process, over those of a bare row", parked)
_register("disk", "bytes on disk of 1,000 turns, over bytes of what was said", disk, "at most 1.3")
