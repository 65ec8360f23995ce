"""Writes of many callers share statements on PostgreSQL, and each caller gets its own answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Mapping

import pytest
import pytest_asyncio

import lash
from lash.model.process.process import ProcessAcquired, Success
from lash.postgres import process_batches
from lash.postgres.engine.batcher import StatementBatcher
from lash.postgres.rows import effect as effects
from lash.sqlkit.queries import load_queries
from tests.factories.effect import effect
from tests.factories.process import NOTE, process, process_lease
from tests.factories.session import owner

LIMIT = 8
CALLERS = 40
ANN = owner("ann")


class Sender:
    """Answers each item with itself, once it is open; records which items were sent together."""

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
def batcher(sender: Sender) -> StatementBatcher[str, str]:
    return StatementBatcher(sender, limit=LIMIT)


async def submit_all(batcher: StatementBatcher[str, str], *keys: Hashable) -> list[object]:
    return await asyncio.gather(*(batcher.submit(key, f"item {key}") for key in keys), return_exceptions=True)


async def test_callers_of_one_iteration_share_a_statement(batcher: StatementBatcher[str, str], sender: Sender) -> None:
    """As many as fit are sent together, in order, and each caller gets the answer to its own item."""
    assert await submit_all(batcher, *range(20)) == [f"item {number}" for number in range(20)]
    assert {key for keys in sender.sent for key in keys} == set(range(20))
    assert [len(keys) for keys in sender.sent] == [LIMIT, LIMIT, 20 - 2 * LIMIT]


async def test_a_lone_item_is_sent_alone(batcher: StatementBatcher[str, str], sender: Sender) -> None:
    """Sequential callers do not wait, also after a burst of concurrent ones."""
    await submit_all(batcher, *range(20))
    sender.sent.clear()
    for number in range(10):
        assert await batcher.submit(number, "alone") == "alone"
    assert sender.sent == [[number] for number in range(10)]


async def test_a_refusal_concerns_one_item(batcher: StatementBatcher[str, str], sender: Sender) -> None:
    """An item without an answer was refused; the others have theirs."""
    sender.refused = {3}
    assert await submit_all(batcher, *range(6)) == ["item 0", "item 1", "item 2", None, "item 4", "item 5"]


async def test_an_error_concerns_one_item(batcher: StatementBatcher[str, str], sender: Sender) -> None:
    """When a statement fails, each of its items is sent alone, and only the failing item raises."""
    sender.broken = {3}
    answers = await submit_all(batcher, *range(6))
    assert isinstance(answers.pop(3), ZeroDivisionError)
    assert answers == ["item 0", "item 1", "item 2", "item 4", "item 5"]
    assert await batcher.submit(9, "later") == "later"


async def test_an_item_that_may_be_written_stays_of_unknown_outcome() -> None:
    """If the answer to a shared statement is lost and no item can be sent again, each may have been written."""
    sent: list[int] = []

    async def lose(items: Mapping[Hashable, str]) -> Mapping[Hashable, str]:
        sent.append(len(items))
        await asyncio.sleep(0)
        raise lash.StoreUnavailable("made for the test", outcome_unknown=len(items) > 1)

    answers = await submit_all(StatementBatcher(lose, limit=LIMIT), *range(4))
    assert sent.count(1) == 4
    assert [isinstance(each, lash.StoreUnavailable) and each.outcome_unknown for each in answers] == [True] * 4


async def test_a_serial_key_has_one_statement_in_flight(batcher: StatementBatcher[str, str], sender: Sender) -> None:
    """Items of a serial key wait for its statement, then share the next one in order; others go beside it."""
    sender.open.clear()
    sender.held = {0}
    first = asyncio.create_task(batcher.submit(0, "0", serial_key="s"))
    await sender.arrived.acquire()
    later = [asyncio.create_task(batcher.submit(number, str(number), serial_key="s")) for number in (1, 2, 3)]
    assert await batcher.submit(4, "4", serial_key="other") == "4"
    assert sender.sent == [[0], [4]]
    sender.open.set()
    assert await asyncio.gather(first, *later) == ["0", "1", "2", "3"]
    assert sender.sent == [[0], [4], [1, 2, 3]]


async def test_items_of_one_key_are_sent_one_after_the_other(
    batcher: StatementBatcher[str, str], sender: Sender
) -> None:
    """Two writes under one key never share a statement, which could not distinguish them."""
    answers = await asyncio.gather(*(batcher.submit(number % 2, f"{number}") for number in range(6)))
    assert answers == [f"{number}" for number in range(6)]
    assert all(len(set(keys)) == len(keys) for keys in sender.sent)


@pytest.mark.parametrize("steps", range(4))
async def test_a_cancelled_caller_does_not_affect_others(
    batcher: StatementBatcher[str, str], sender: Sender, steps: int
) -> None:
    """Whichever caller is cancelled, first or last, the others get their answers."""
    calls = [asyncio.create_task(batcher.submit(number, f"item {number}")) for number in range(5)]
    for _ in range(steps):
        await asyncio.sleep(0)
    calls[0].cancel()
    calls[4].cancel()
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert answers[1:4] == ["item 1", "item 2", "item 3"]
    assert await batcher.submit(9, "later") == "later"


async def test_stuck_statements_do_not_hold_up_others(batcher: StatementBatcher[str, str], sender: Sender) -> None:
    """While the maximum of statements in flight waits for locks, others are sent beside them."""
    sender.held, sender.open = {"a", "b"}, asyncio.Event()
    stuck = [asyncio.create_task(batcher.submit("a", "a"))]
    await sender.arrived.acquire()
    stuck.append(asyncio.create_task(batcher.submit("b", "b")))
    await sender.arrived.acquire()
    async with asyncio.timeout(60):
        assert await submit_all(batcher, 1, 2, 3) == ["item 1", "item 2", "item 3"]
    assert not any(each.done() for each in stuck)
    sender.open.set()
    assert await asyncio.gather(*stuck) == ["a", "b"]


@pytest.mark.parametrize(
    ("statement", "limit"),
    [
        ("process_lease_acquire", process_batches.MAX_TOGETHER),
        ("process_lease_complete", process_batches.MAX_TOGETHER),
        ("effect_record_in_process", effects.MAX_TOGETHER),
    ],
)
def test_a_statement_takes_as_many_as_are_sent(statement: str, limit: int) -> None:
    """Items beyond the limit of the statement would count as refused."""
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
    """A storage without the processes in its cache reads all of them in one statement."""
    storage, counts = counted
    names = [f"p{number}" for number in range(process_batches.MAX_TOGETHER)]
    async with await lash.open(postgres_storage_url) as other:
        for name in names:
            await other.processes.register(process(name, NOTE))
    counts.clear()
    outcomes = await asyncio.gather(*(storage.process_leases.claim(name, ANN, ttl_ms=60_000) for name in names))
    assert [process_lease(each).resource.id for each in outcomes] == names
    assert counts == {"process_rows": 1, "process_lease_acquire": 1}
