"""The storage that the scenario `console` looks at: what agents and processes leave behind, many times over."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

import asyncpg

import lash
from benchmarks.kit.multiply import FIRST, multiply
from benchmarks.kit.text import prose
from benchmarks.kit.works import LONG_MS, OWNER
from lash.stores.storage import Storage
from tests.factories.session import commit, node
from tests.factories.trigger import trigger

LONG: Final = "long"
"""The id of the session with many nodes, and of the process with many steps."""
_AGENTS: Final = ("guide", "clerk")
_TURNS: Final = 2
_MORE: Final = 3
_CHARACTERS: Final = 200
_STEPS: Final = 3
_APART_MS: Final = 86_400_000 * 60
"""The time between the oldest and the newest row: sixty days."""
_HELD: Final = 8
_AT_ONCE: Final = 2_000


class Size(NamedTuple):
    """How much a storage has: copies of some sessions and as many processes, and the length of the long ones.

    Each session has ten nodes.
    """

    copies: int
    in_copy: int
    nodes: int
    steps: int

    @property
    def sessions(self) -> int:
        return self.copies * self.in_copy


def name_of(noun: str, number: int) -> str:
    """Return the name of a session or process in the first copy."""
    return f"{noun}{FIRST}{number:03}"


async def fill(template_url: str, url: str, size: Size) -> None:
    """Fill an empty storage with copies of the one that `make_template` made."""
    async with await lash.open(template_url) as source, await lash.open(url) as target:
        apart_ms = _APART_MS // max(size.copies, 1)
        await multiply(source, target, size.copies, apart_ms=apart_ms, once=(LONG,))
    async with await lash.open(url) as storage:
        for number in range(_HELD):
            await storage.leases.claim(name_of("chat", number), OWNER, ttl_ms=LONG_MS)
    if url.startswith("postgres"):
        # What autovacuum does after such a load, a minute later.
        connection = await asyncpg.connect(url)
        await connection.execute("VACUUM ANALYZE")
        await connection.close()


class _Declared(NamedTuple):
    app: lash.App
    report: Any
    approval: Any
    failing: Any


def _application(url: str) -> _Declared:
    """Return agents that add five nodes in a turn, and processes that end, wait or fail."""
    app = lash.App(url, worker=False)

    async def answer(turn: lash.Turn) -> str:
        await turn.step("look up", asyncio.sleep, 0)
        for number in range(_MORE):
            turn.add(prose((turn.text, number), _CHARACTERS))
        turn.usage(f"model-{len(turn.text) % 3}", input_tokens=900, output_tokens=100)
        return prose(turn.text, _CHARACTERS)

    for name in _AGENTS:
        app.agent(name=name)(answer)

    @app.agent(retry=lash.Retry(max_attempts=1))
    async def broken(turn: lash.Turn) -> str:
        raise LookupError(f"no such order: {turn.text}")

    @app.process
    async def report(ctx: lash.Context, steps: int) -> int:
        for number in range(steps):
            await ctx.step(f"page {number}", asyncio.sleep, 0)
        return steps

    @app.process
    async def approval(ctx: lash.Context) -> object:
        return await ctx.wait("approve")

    @app.process(retry=lash.Retry(max_attempts=1))
    async def failing(ctx: lash.Context) -> None:
        raise LookupError(f"no such page: {ctx.process_id}")

    return _Declared(app, report, approval, failing)


async def make_template(url: str, size: Size) -> None:
    """Make one copy with real agents and processes. Two of each kind are special: they fail, wait, or are forks."""
    common = size.in_copy - 2
    app, report, approval, failing = _application(url)
    async with app:
        for number in range(common):
            labels = {"team": f"team-{number % 5}"}
            await app.storage.sessions.create(name_of("chat", number), owner=f"user-{number % 50}", labels=labels)
        for turn in range(_TURNS):
            for number in range(common):
                text = prose((number, turn), _CHARACTERS + number % 3)
                await app.session(name_of("chat", number), _AGENTS[number % 2]).send(text)
            await app.drain()
        await app.session(name_of("broken", 0), "broken").send("17")
        for number in range(common):
            await app.starting(process_id=name_of("job", number)).start(report, _STEPS)
        await app.starting(process_id=name_of("approval", 0)).start(approval)
        await app.starting(process_id=name_of("failing", 0)).start(failing)
        await app.starting(process_id=LONG).start(report, size.steps)
        await app.drain()
        await _rest(app.storage, size)


async def _rest(storage: Storage, size: Size) -> None:
    """Add what no agent has run: a queued message, a fork, a file, a trigger, a schedule, and a long session."""
    await lash.SessionHandle(storage, name_of("chat", 0)).send("are you there?")
    await storage.sessions.fork(name_of("chat", 1), name_of("fork", 0))
    await storage.attachments.put(name_of("chat", 2), b"a file", "text/plain", label="notes")
    await storage.triggers.register(trigger(name_of("trigger", 0)))
    await storage.sessions.create(LONG)
    for revision, first in enumerate(range(0, size.nodes, _AT_ONCE)):
        numbers = range(first, min(size.nodes, first + _AT_ONCE))
        new = [node(f"n{each}", f"n{each - 1}" if each else None, prose(each, _CHARACTERS)) for each in numbers]
        await storage.session(LONG).commit(commit(revision, *new, session_id=LONG))
