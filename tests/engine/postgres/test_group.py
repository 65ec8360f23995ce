"""Writes of many callers share statements on PostgreSQL, and each has its own answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Mapping

import pytest
import pytest_asyncio

import lash
from lash.model.process.process import ProcessAcquired, Success
from lash.postgres.engine.batcher import Group
from lash.postgres.rows import effect as effects
from lash.postgres.rows.process import process_claim, process_end
from lash.sqlkit.queries import load_queries
from tests.factories.effect import effect
from tests.factories.process import NOTE, process, process_lease
from tests.factories.session import owner

LIMIT = 8
CALLERS = 40
ANN = owner("ann")


class Sender:
    """Answers each item with itself, when it is let; remembers what was sent together."""

    def __init__(self) -> None:
        self.sent: list[list[Hashable]] = []
        self.arrived = asyncio.Semaphore(0)
        self.open = asyncio.Event()
        self.open.set()
        self.refused: set[Hashable] = set()
        self.broken: set[Hashable] = set()
        self.held: set[Hashable] = set()

    async def __call__(self, items: Mapping[Hashable, str]) -> Mapping[Hashable, str]:
        self.sent.append(list(items))
        self.arrived.release()
        if self.held & items.keys():
            await self.open.wait()
        await asyncio.sleep(0)
        if self.broken & items.keys():
            raise ZeroDivisionError
        return {key: item for key, item in items.items() if key not in self.refused}


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def group(sender: Sender) -> Group[str, str]:
    return Group(sender, limit=LIMIT)


async def ask_all(group: Group[str, str], *keys: Hashable) -> list[object]:
    return await asyncio.gather(*(group.ask(key, f"item {key}") for key in keys), return_exceptions=True)


async def test_those_who_ask_at_the_same_moment_share_a_statement(group: Group[str, str], sender: Sender) -> None:
    """As many as fit go together, in the order in which they asked, and each has the answer of its own item."""
    assert await ask_all(group, *range(20)) == [f"item {number}" for number in range(20)]
    assert {key for keys in sender.sent for key in keys} == set(range(20))
    assert [len(keys) for keys in sender.sent] == [LIMIT, LIMIT, 20 - 2 * LIMIT]


async def test_who_is_alone_is_sent_alone(group: Group[str, str], sender: Sender) -> None:
    """Callers one after the other wait for nobody, also after many have asked at once."""
    await ask_all(group, *range(20))
    sender.sent.clear()
    for number in range(10):
        assert await group.ask(number, "alone") == "alone"
    assert sender.sent == [[number] for number in range(10)]


async def test_a_refusal_concerns_one(group: Group[str, str], sender: Sender) -> None:
    """An item without an answer was refused; the others have theirs."""
    sender.refused = {3}
    assert await ask_all(group, *range(6)) == ["item 0", "item 1", "item 2", None, "item 4", "item 5"]


async def test_an_error_concerns_one(group: Group[str, str], sender: Sender) -> None:
    """When a statement fails, each of its items is sent alone, and only the one that cannot be sent hears of it."""
    sender.broken = {3}
    answers = await ask_all(group, *range(6))
    assert isinstance(answers.pop(3), ZeroDivisionError)
    assert answers == ["item 0", "item 1", "item 2", "item 4", "item 5"]
    assert await group.ask(9, "later") == "later"


async def test_items_of_one_key_are_sent_one_after_the_other(group: Group[str, str], sender: Sender) -> None:
    """Two writes to one thing in one statement could not be told apart."""
    answers = await asyncio.gather(*(group.ask(number % 2, f"{number}") for number in range(6)))
    assert answers == [f"{number}" for number in range(6)]
    assert all(len(set(keys)) == len(keys) for keys in sender.sent)


@pytest.mark.parametrize("steps", range(4))
async def test_a_caller_that_gives_up_costs_nobody_else(group: Group[str, str], sender: Sender, steps: int) -> None:
    """Whenever the first or the last of several is cancelled, the others have their answers."""
    calls = [asyncio.create_task(group.ask(number, f"item {number}")) for number in range(5)]
    for _ in range(steps):
        await asyncio.sleep(0)
    calls[0].cancel()
    calls[4].cancel()
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert answers[1:4] == ["item 1", "item 2", "item 3"]
    assert await group.ask(9, "later") == "later"


async def test_statements_that_are_stuck_hold_up_nobody(group: Group[str, str], sender: Sender) -> None:
    """While as many statements as there are lanes wait for locks, others are sent; the stuck ones come later."""
    sender.held, sender.open = {"a", "b"}, asyncio.Event()
    stuck = [asyncio.create_task(group.ask("a", "a"))]
    await sender.arrived.acquire()
    stuck.append(asyncio.create_task(group.ask("b", "b")))
    await sender.arrived.acquire()
    async with asyncio.timeout(5):
        assert await ask_all(group, 1, 2, 3) == ["item 1", "item 2", "item 3"]
    assert not any(each.done() for each in stuck)
    sender.open.set()
    assert await asyncio.gather(*stuck) == ["a", "b"]


@pytest.mark.parametrize(
    ("statement", "limit"),
    [
        ("process_lease_acquire", process_claim.MAX_TOGETHER),
        ("process_lease_complete", process_end.MAX_TOGETHER),
        ("effect_record_in_process", effects.MAX_TOGETHER),
    ],
)
def test_a_statement_takes_as_many_as_are_sent(statement: str, limit: int) -> None:
    """What is beyond the limit of the statement would be taken for refused."""
    assert f"LIMIT {limit}\n" in load_queries("lash.postgres.sql", schema="public")[statement]


@pytest_asyncio.fixture
async def counted(postgres_storage_url: str) -> AsyncIterator[tuple[lash.Storage, Counter[str]]]:
    counts: Counter[str] = Counter()

    def count(name: str) -> None:
        counts[name] += 1

    async with await lash.open(postgres_storage_url, on_statement=count) as storage:
        yield storage, counts


async def test_many_runs_at_once_take_few_statements(counted: tuple[lash.Storage, Counter[str]]) -> None:
    """Claims, records and ends of forty processes at once are a few statements of each kind, not forty."""
    storage, counts = counted
    names = [f"p{number}" for number in range(CALLERS)]
    for name in names:
        await storage.processes.register(process(name, NOTE))
    counts.clear()

    async def run(name: str) -> None:
        claimed = await storage.process_leases.claim(name, ANN, ttl_ms=60_000)
        assert isinstance(claimed, ProcessAcquired)
        fence = process_lease(claimed).fence
        record = await storage.effects.record(fence, effect(scope=lash.model.ProcessScope(process_id=name)), name)
        assert record.outcome == name
        await storage.process_leases.complete(fence, Success(value=name))

    await asyncio.gather(*map(run, names))
    assert counts.keys() == {"process_lease_acquire", "effect_record_in_process", "process_lease_complete"}
    assert max(counts.values()) <= 2
    for name in names:
        found = await storage.processes.get(name)
        assert found is not None
        assert found.projection.outcome == Success(value=name)
        assert [each.outcome for each in await storage.effects.list(lash.model.ProcessScope(process_id=name))] == [name]


async def test_many_claims_of_unknown_processes_ask_once(
    counted: tuple[lash.Storage, Counter[str]], postgres_storage_url: str
) -> None:
    """A storage that has not seen the processes reads all of them at once."""
    storage, counts = counted
    names = [f"p{number}" for number in range(process_claim.MAX_TOGETHER)]
    async with await lash.open(postgres_storage_url) as other:
        for name in names:
            await other.processes.register(process(name, NOTE))
    counts.clear()
    outcomes = await asyncio.gather(*(storage.process_leases.claim(name, ANN, ttl_ms=60_000) for name in names))
    assert [process_lease(each).resource.id for each in outcomes] == names
    assert counts == {"process_rows": 1, "process_lease_acquire": 1}
