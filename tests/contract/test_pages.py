"""Every list can be read to its end: it has a limit, and an argument that continues after a page."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator

import pytest

from lash.errors import InvalidInput
from lash.model.process.event import WakeRecord
from lash.model.queue import Batch, Boundary, Claim, DeadLetter
from lash.runtime.processes.handle import ProcessHandle
from lash.runtime.turns.handle import SessionHandle
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import LONG, joining, leased, queued
from tests.factories.process import NEWS, NOTE, event, news, process

CONTINUES = frozenset({"after", "after_seq", "cursor", "sequence"})
"""The arguments that continue after a page."""
REPEATS = frozenset(
    {
        *("delete_expired", "expire", "fire_due", "pass_on", "prune", "prune_changes", "prune_deleted"),
        *("prune_receipts", "wake"),
    }
)
"""Called until they return nothing: each call removes what it handled, so they need no cursor."""

EXCERPTS = frozenset({"WorkerStore.holding", "QueueStore.ready_agents"})
"""They show the beginning of something short: the leases of a worker, one for each slot, and the agents of an app."""


def _limited() -> Iterator[tuple[str, inspect.Signature, str]]:
    """Yield the methods of all stores, and of the handles, that take a limit."""
    attributes = [each.fget for _, each in inspect.getmembers(Storage) if isinstance(each, property)]
    stores = [typing.get_type_hints(each)["return"] for each in attributes]
    for store in (*stores, SessionHandle, ProcessHandle):
        for name, method in inspect.getmembers(store, inspect.isfunction):
            signature = inspect.signature(method)
            if not name.startswith("_") and "limit" in signature.parameters:
                yield f"{store.__name__}.{name}", signature, inspect.getdoc(method) or ""


def test_every_limited_method_can_be_continued() -> None:
    """No list stops without a way to read on."""
    found = {name: signature for name, signature, _ in _limited()}
    assert {"QueueStore.dead", "EventStore.undeliverable_wakes", "SessionHandle.pending"} <= set(found)
    ending = {
        name
        for name, signature in found.items()
        if not CONTINUES & set(signature.parameters) and name.rpartition(".")[2] not in REPEATS
    }
    assert ending == EXCERPTS


def test_every_page_without_a_cursor_says_when_it_is_the_last() -> None:
    """A list that returns no cursor documents its limit."""
    silent = {
        name for name, signature, text in _limited() if "cursor" not in signature.parameters and "limit``" not in text
    }
    assert silent == set()


class TestPages:
    """Small pages, read to the end, are the whole list."""

    async def test_pending(self, harness: Harness) -> None:
        """The queue of a session is read in pages, in order."""
        storage = await _session(harness)
        sent = [batch.batch_id for batch in await queued(storage, *(joining(str(number)) for number in range(7)))]
        handle = SessionHandle(storage, "s")
        pages: list[tuple[Batch, ...]] = []
        while page := await handle.pending(limit=3, after=pages[-1][-1].seq if pages else 0):
            pages.append(page)
        assert [len(page) for page in pages] == [3, 3, 1]
        assert [batch.batch_id for page in pages for batch in page] == sent

    async def test_dead_letters(self, harness: Harness) -> None:
        """The dead letters of a session are read in pages, the oldest first."""
        storage = await _session(harness)
        sent = [batch.batch_id for batch in await queued(storage, *(joining(str(number)) for number in range(7)))]
        fence = await leased(storage)
        claim = await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=LONG)
        assert isinstance(claim, Claim)
        assert await storage.queue.bury(claim, reason="no") == 7
        handle = SessionHandle(storage, "s")
        pages: list[tuple[DeadLetter, ...]] = []
        while page := await handle.dead_letters(limit=3, after=pages[-1][-1].position if pages else None):
            pages.append(page)
        assert [len(page) for page in pages] == [3, 3, 1]
        assert [letter.batch.batch_id for page in pages for letter in page] == sent

    async def test_events(self, harness: Harness) -> None:
        """The log of a process is read in pages."""
        storage = await harness.open()
        await storage.processes.register(process("p", NOTE))
        for number in range(5):
            await storage.events.append("p", event("note", number))
        handle: ProcessHandle[object] = ProcessHandle(storage, "p")
        first = await handle.events(limit=3)
        rest = await handle.events(first[-1].sequence, limit=3)
        assert [each.payload for each in (*first, *rest)] == [0, 1, 2, 3, 4]

    async def test_undeliverable_wakes(self, harness: Harness) -> None:
        """Lost wakes of several processes are read in pages, also if one of them was acknowledged meanwhile."""
        storage = await harness.open()
        for name in ("p2", "p1"):
            await storage.processes.register(process(name, NEWS, wake_session_id="nowhere"))
            for _ in range(3):
                await storage.events.append(name, news())
        found: list[WakeRecord] = []
        while page := await storage.events.undeliverable_wakes(limit=2, after=found[-1] if found else None):
            found.extend(page)
            await storage.events.acknowledge_wake(page[-1].process_id, page[-1].sequence)
        named = [(wake.process_id, wake.sequence) for wake in found]
        assert named == [("p1", 1), ("p1", 2), ("p1", 3), ("p2", 1), ("p2", 2), ("p2", 3)]

    @pytest.mark.parametrize("limit", [0, 1_001])
    async def test_limits_of_pages(self, harness: Harness, limit: int) -> None:
        """A page has 1 to 1,000 entries."""
        handle = SessionHandle(await _session(harness), "s")
        with pytest.raises(InvalidInput, match="limit"):
            await handle.pending(limit=limit)
        with pytest.raises(InvalidInput, match="limit"):
            await handle.dead_letters(limit=limit)


async def _session(harness: Harness) -> Storage:
    storage = await harness.open()
    await storage.sessions.create("s")
    return storage
