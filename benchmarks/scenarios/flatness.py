"""Flatness: what a call costs in a storage of many rows over what it costs in one of few."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from urllib.parse import urlsplit

import asyncpg

import lash
from benchmarks.kit.contest import fresh
from benchmarks.kit.machine import postgres_versions
from benchmarks.kit.measure import Samples
from benchmarks.kit.peer import programs
from benchmarks.kit.registry import Better, Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.works import LONG_MS, OWNER, CommitWork, commit_of, ordered_id
from benchmarks.kit.workspace import Workspace
from lash.model.lease import Acquired
from lash.model.process.event import EventDraft
from lash.model.queue import BatchDraft, Boundary, Claim, TurnInput
from lash.model.record import RecordPut
from lash.model.session.commit import Append, Commit
from lash.model.session.message import Message, Role
from lash.model.session.node import MessageEntry, Node
from tests.factories.process import external, process
from tests.factories.session import MOMENT

_FEW, _MANY = 100, 100_000
_LONG = 500_000
_TURN_FIGURES = (("first", "us", 1e6), ("later", "us", 1e6), ("peak", "MB", 1 / 1024))
"""What is measured of turns: the first of a worker, the later ones, and the worker's memory."""
_SESSIONS = 16
_AT_ONCE = 64
_CALLS = 60
Call = Callable[[int], Awaitable[None]]
Fill = Callable[[lash.Storage, int], Awaitable[Call]]
"""Puts so many rows into a storage and returns the call to measure, which is given its number."""


async def nodes_then_commit(storage: lash.Storage, rows: int) -> Call:
    """Fill one session with nodes; the call commits a turn of three."""
    await _nodes(storage, rows)
    revision = await _revision(storage)

    async def call(number: int) -> None:
        # The commits of the common work, on top of what is there.
        turn = commit_of(0, number + 1, 3)
        session = storage.session("session-000")
        delta = Append(nodes=turn.graph.nodes if isinstance(turn.graph, Append) else ())
        first = delta.nodes[0]
        leaf = ordered_id(0, number, 2) if number else ordered_id(0, 0, rows - 1)
        nodes = (_below(first, parent=leaf), *delta.nodes[1:])
        commit = Commit(
            session_id="session-000",
            expected_revision=revision + number,
            turn_id=turn.turn_id,
            graph=Append(nodes=nodes),
            checkpoint=turn.checkpoint,
            usage=turn.usage,
        )
        await session.commit(commit)

    return call


def _below(node: Node, *, parent: str) -> Node:
    """Return the node below another parent."""
    return Node(node_id=node.node_id, parent_node_id=parent, timestamp=node.timestamp, entry=node.entry)


async def nodes_then_tail(storage: lash.Storage, rows: int) -> Call:
    """Fill one session with nodes; the call reads the last twenty of its path."""
    await _nodes(storage, rows)

    async def call(_number: int) -> None:
        read = await storage.session("session-000").load(lash.model.ActivePath(last=20))
        assert read is not None
        assert len(read.graph.nodes) == 20

    return call


async def events_then_append(storage: lash.Storage, rows: int) -> Call:
    """Fill one process's log; the call appends to it."""
    await storage.processes.register(process("process-000"))
    # A log is filled in order, so several processes share the rest of the rows.
    logs = [f"other-{number}" for number in range(_SESSIONS)]
    for name in logs:
        await storage.processes.register(process(name))
    draft = EventDraft(event_type="note", payload={"text": "x" * 100})
    own = min(rows // 2, 5_000)
    await _repeat(own, lambda _: storage.events.append("process-000", draft))
    share = (rows - own) // len(logs)
    await asyncio.gather(*(_repeat(share, functools.partial(_append, storage, name, draft)) for name in logs))

    async def call(number: int) -> None:
        await storage.events.append(
            "process-000", EventDraft(event_type="note", payload={"text": "x" * 1000}, replay_key=f"call-{number}")
        )

    return call


async def batches_then_claim(storage: lash.Storage, rows: int) -> Call:
    """Fill queues; the call claims the next batch of one of them."""
    names = [f"session-{number:03}" for number in range(_SESSIONS)]
    for name in names:
        await storage.sessions.create(name)
    await _enqueue(storage, names, rows)
    outcome = await storage.leases.claim(names[0], OWNER, ttl_ms=LONG_MS)
    assert isinstance(outcome, Acquired)
    fence = outcome.lease.fence

    async def call(_number: int) -> None:
        claimed = await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=LONG_MS, max_batches=1)
        assert isinstance(claimed, Claim)

    # Of few rows in all, this session must still have one for each call.
    await _enqueue(storage, names[:1], 6 * _CALLS)
    return call


async def delayed_then_look(storage: lash.Storage, rows: int) -> Call:
    """Fill the storage with work for later and processes of others; the call is an idle worker's poll."""
    names = [f"session-{number:03}" for number in range(_SESSIONS)]
    for name in names:
        await storage.sessions.create(name)
    later = round(time.time() * 1_000) + 10 * LONG_MS
    await _enqueue(storage, names, rows // 2, available_at_ms=later)
    await _at_once(storage.processes.register(external(f"process-{number}")) for number in range(rows // 2))

    async def call(_number: int) -> None:
        work = await storage.work.poll(sessions=16, processes=64, owner=OWNER)
        assert not work.session_ids
        assert not work.process_ids

    return call


async def records_then_use(storage: lash.Storage, rows: int) -> Call:
    """Fill one collection; the call puts a record, gets one, and reads a page by prefix and one by index field."""
    records = storage.records
    for first in range(0, rows, 1000):
        numbers = range(first, min(first + 1000, rows))
        await records.put_many(
            [
                RecordPut(collection="c", key=f"{number:06}", value="x" * 100, index={"user": f"u{number % 5}"})
                for number in numbers
            ]
        )

    async def call(number: int) -> None:
        key = f"{number % rows:06}"
        await records.put("c", key, "y" * 100, index={"user": f"u{number % rows % 5}"})
        assert await records.get("c", key) is not None
        assert len(await records.list("c", prefix="0000", limit=10, reverse=True)) == 10
        assert len(await records.list("c", where={"user": "u2"}, limit=2)) == 2

    return call


async def _nodes(storage: lash.Storage, rows: int) -> None:
    await CommitWork().prepare(storage, 1, 0)
    parent = None
    part = 0
    for number, first in enumerate(range(0, rows, 1000)):
        nodes: list[Node] = []
        for _ in range(first, min(first + 1000, rows)):
            node_id = ordered_id(0, 0, part)
            entry = MessageEntry(message=Message.of_text(node_id, Role.USER, f"{part} " * 20))
            nodes.append(Node(node_id=node_id, parent_node_id=parent, timestamp=MOMENT, entry=entry))
            parent, part = node_id, part + 1
        commit = Commit(session_id="session-000", expected_revision=number, graph=Append(nodes=tuple(nodes)))
        await storage.session("session-000").commit(commit)


async def _revision(storage: lash.Storage) -> int:
    head = await storage.session("session-000").head()
    assert head is not None
    return head.revision


async def _enqueue(storage: lash.Storage, names: list[str], rows: int, *, available_at_ms: int = 0) -> None:
    async def fill(name: str) -> None:
        payloads = (TurnInput.of_text("x" * 100),)
        for _ in range(rows // len(names)):
            await storage.queue.enqueue(BatchDraft(session_id=name, payloads=payloads, available_at_ms=available_at_ms))

    await asyncio.gather(*map(fill, names))


async def _append(storage: lash.Storage, name: str, draft: EventDraft, _number: int) -> object:
    return await storage.events.append(name, draft)


async def _repeat(times: int, action: Callable[[int], Awaitable[object]]) -> None:
    for number in range(times):
        await action(number)


async def _at_once(actions: Iterable[Awaitable[object]]) -> None:
    waiting = iter(actions)

    async def one_after_the_other() -> None:
        for action in waiting:
            await action

    await asyncio.gather(*(one_after_the_other() for _ in range(_AT_ONCE)))


@dataclasses.dataclass(kw_only=True)
class Filled:
    """A storage with its rows, and how many calls it has had."""

    call: Call
    calls: int = 0

    async def cost_us(self, calls: int) -> float:
        """Return what one call takes, the median of some."""
        taken: list[float] = []
        for number in range(self.calls, self.calls + calls):
            begin = time.perf_counter()
            await self.call(number)
            taken.append(time.perf_counter() - begin)
        self.calls += calls
        return statistics.median(taken) * 1e6


@contextlib.asynccontextmanager
async def filled(url: str, fill: Fill, rows: int) -> AsyncIterator[Filled]:
    """Open a storage and fill it."""
    async with await lash.open(url) as storage:
        call = await fill(storage, rows)
        if urlsplit(url).scheme == "postgresql":
            # Autovacuum would do this a little later, at an arbitrary time.
            connection = await asyncpg.connect(url)
            await connection.execute("VACUUM ANALYZE")
            await connection.close()
        yield Filled(call=call)


async def costs(
    urls: tuple[str, str], fill: Fill, rows: tuple[int, int], rounds: int, calls: int
) -> tuple[Samples, Samples]:
    """Measure few and many rows alternately."""
    small: list[float] = []
    large: list[float] = []
    async with filled(urls[0], fill, rows[0]) as few, filled(urls[1], fill, rows[1]) as many:
        for _ in range(rounds + 1):
            small.append(await few.cost_us(calls))
            large.append(await many.cost_us(calls))
    # The first round warms up.
    return Samples(tuple(small[1:])), Samples(tuple(large[1:]))


def compare(fill: Fill, few: int, most: int, workspace: Workspace) -> Report:
    """Measure both databases; the worse one is the headline."""
    rows: list[Row] = []
    ratios: list[Ratio] = []
    many, calls = workspace.count(most, least=200), workspace.count(_CALLS, least=3)
    for backend in ("sqlite", "postgres"):
        with fresh(workspace, backend) as first, fresh(workspace, backend) as second:
            small, large = asyncio.run(costs((first, second), fill, (few, many), workspace.rounds, calls))
        pair = [
            Row(contender="lash", case=f"{backend}, {count} rows", unit="us", samples=samples)
            for count, samples in ((many, large), (few, small))
        ]
        rows += pair
        ratios.append(Ratio.of(*pair))
    ratios.sort(key=lambda ratio: -ratio.value)
    return Report(ratios=tuple(ratios), rows=tuple(rows), versions=postgres_versions(workspace))


def long_turns(workspace: Workspace) -> Report:
    """Measure turns of a short and a very long session, each in a new worker: time and memory on both databases."""
    rows: list[Row] = []
    ratios: list[Ratio] = []
    many, turns = workspace.count(_LONG, least=200), workspace.count(_CALLS, least=3)
    for backend in ("sqlite", "postgres"):
        with fresh(workspace, backend) as first, fresh(workspace, backend) as second:
            sides = {first: _FEW, second: many}
            for url, count in sides.items():
                asyncio.run(_fill_session(url, count))
            answers = {url: list[dict[str, float]]() for url in sides}
            for _ in range(workspace.rounds + 1):
                for url, known in answers.items():
                    with programs("lash") as running:
                        question = {"do": "long_turns", "url": url, "session": "session-000", "turns": turns}
                        known.append(running["lash"].ask(question))
        for figure, unit, factor in _TURN_FIGURES:
            pair = [
                Row(
                    contender="lash",
                    case=f"{backend}, {figure} of {sides[url]} nodes",
                    unit=unit,
                    # The first round warms up.
                    samples=Samples(tuple(answer[figure] * factor for answer in answers[url][1:])),
                )
                for url in (second, first)
            ]
            rows += pair
            ratios.append(Ratio.of(*pair))
    ratios.sort(key=lambda ratio: -ratio.value)
    return Report(ratios=tuple(ratios), rows=tuple(rows), versions=postgres_versions(workspace))


async def _fill_session(url: str, rows: int) -> None:
    async with filled(url, nodes_then_tail, rows):
        pass


def _register(name: str, what: str, fill: Fill, few: int = _FEW, most: int = _MANY) -> None:
    register(
        Scenario(
            name=name,
            group="flatness",
            what=f"{what}: cost at {most:,} rows over cost at {few}",
            run=functools.partial(compare, fill, few, most),
            better=Better.LESS,
            target="at most 1.15",
        )
    )


_register("flat-commit", "a commit to a session of many nodes", nodes_then_commit)
_register("flat-append", "an event appended to long logs", events_then_append)
_register("flat-claim", "a claim from long queues", batches_then_claim)
_register("flat-active-tail", "the last 20 messages of a long session", nodes_then_tail)
_register("flat-record", "a put, a get and two pages of a collection", records_then_use, 10, 10_000)
_register("flat-idle", "an idle worker's look for work", delayed_then_look)
register(
    Scenario(
        name="flat-turn",
        group="flatness",
        what=f"a turn that asks for the last 5 messages, time and memory: cost at {_LONG:,} nodes over cost at {_FEW}",
        run=long_turns,
        better=Better.LESS,
        target="at most 1.15",
    )
)
