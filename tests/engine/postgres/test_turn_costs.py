"""What a turn, a process of ten steps and an event cost: statements, and bytes of WAL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

import lash
from lash.model.process.event import EventDraft
from tests.factories.process import NOTE, external
from tests.raw import raw

WARM_UP = 12
"""So often that the server has chosen its plans."""
TIMES = 10
STEPS = 10
TEXT = "the quick brown fox jumps over the lazy dog " * 25
"""About a thousand characters."""

TURN = ["queue_enqueue", "work_poll", "queue_facts", "queue_claim_turn", "commit_alone_leased", "work_poll"]
PROCESS_STATEMENTS = STEPS + 5
"""The steps, the registration, a poll before and after, the claim and the end."""
TURN_BYTES = 9_000
PROCESS_BYTES = 36_000
EVENT_BYTES = 3_000


class Costs:
    """Counts the statements of an application without a worker, and the bytes that the server writes to its log."""

    def __init__(self, url: str) -> None:
        self.names: list[str] = []
        self._url = url

    async def log_bytes(self) -> int:
        ((place,),) = await raw(self._url, "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
        assert isinstance(place, int)
        return place

    async def of(self, job: Callable[[int], Awaitable[object]]) -> float:
        """Do a job some times, and return the bytes of each, the fewest of three measurements.

        After a checkpoint the server logs each page whole that changes for the first time.
        """
        for number in range(WARM_UP):
            await job(number)
        found = []
        for measurement in range(1, 4):
            self.names.clear()
            before = await self.log_bytes()
            for number in range(TIMES):
                await job(measurement * WARM_UP + number)
            found.append((await self.log_bytes() - before) / TIMES)
        return min(found)


class _Names(lash.Hook):
    def __init__(self, costs: Costs) -> None:
        self._costs = costs

    def statement(self, name: str) -> None:
        self._costs.names.append(name)


@pytest.fixture
def costs(postgres_storage_url: str) -> Costs:
    return Costs(postgres_storage_url)


@pytest.fixture
def app(postgres_storage_url: str, costs: Costs) -> lash.App:
    """An application that runs its work in `App.drain`, so that no poll of a worker is counted."""
    return lash.App(postgres_storage_url, worker=False, hooks=[_Names(costs)])


async def test_a_turn_is_six_statements(app: lash.App, costs: Costs) -> None:
    """The message, a poll before and after, the facts, the claim and the commit; and few bytes of WAL."""

    @app.agent
    async def answering(_turn: lash.Turn) -> str:
        return TEXT

    async def turn(number: int) -> None:
        await app.session("s").send(TEXT[:200], key=str(number))
        await app.drain()

    async with app:
        assert await costs.of(turn) <= TURN_BYTES
    assert costs.names == TURN * TIMES


async def test_a_step_is_one_statement(app: lash.App, costs: Costs) -> None:
    """A process takes one statement for each step and five more; and few bytes of WAL."""

    async def tool() -> str:
        return TEXT

    @app.process
    async def stepping(ctx: lash.Context) -> None:
        for _ in range(STEPS):
            await ctx.step("tool", tool)

    async def process(_number: int) -> None:
        await app.start(stepping)
        await app.drain()

    async with app:
        assert await costs.of(process) <= PROCESS_BYTES
    assert len(costs.names) / TIMES <= PROCESS_STATEMENTS, costs.names[-PROCESS_STATEMENTS:]
    assert costs.names.count("effect_record_by_key") == TIMES * STEPS


async def test_an_event_is_one_statement(app: lash.App, costs: Costs) -> None:
    """An event is one statement, and few bytes of WAL."""

    async def append(_number: int) -> None:
        await app.storage.events.append("log", EventDraft(event_type=NOTE.name, payload={"text": TEXT}))

    async with app:
        await app.storage.processes.register(external("log"))
        assert await costs.of(append) <= EVENT_BYTES
    assert costs.names == ["event_append"] * TIMES
