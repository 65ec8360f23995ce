"""The visible state of processes, to compare before and after, and a storage that checks every write."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeAlias, cast

import pytest

from lash.errors import LashError
from lash.model.lease import Lease
from lash.model.process.event import ProcessEvent, WakeRecord
from lash.model.process.process import Grant, ProcessChange, ProcessFilter, ProcessRecord
from lash.plan.process.event import refold
from lash.stores.storage import Storage
from lash.testing.harness import Harness

Call: TypeAlias = Callable[..., Awaitable[object]]

_STORES: Final = frozenset({"processes", "process_leases", "events", "grants"})
_READS: Final = frozenset(
    {"get", "list", "runnable", "holder", "has", "of_process"}
    | {
        "signal_at",
        "after",
        "recent",
        "count_through",
        "wakes_after",
        "undeliverable_wakes",
        "changes",
        "last_sequences",
    }
)


class Observed(NamedTuple):
    """Everything that the public API shows of one process."""

    record: ProcessRecord
    events: tuple[ProcessEvent, ...]
    wakes: tuple[WakeRecord, ...]
    grants: tuple[Grant, ...]
    holder: Lease | None


class World(NamedTuple):
    """Everything that the public API shows of all processes."""

    processes: tuple[Observed, ...]
    changes: tuple[ProcessChange, ...]
    undeliverable: tuple[WakeRecord, ...]


async def opened(harness: Harness) -> Storage:
    """Open a storage that checks all logs after every write, accepted or refused."""
    return cast("Storage", _Checking(await harness.open()))


async def check_logs(storage: Storage) -> None:
    """Check that every log is numbered without gaps, ends at most once, and folds to the stored record."""
    for record in await all_records(storage):
        events = await log(storage, record.process_id, through=record.last_sequence)
        assert [event.sequence for event in events] == list(range(1, record.last_sequence + 1)), record.process_id
        assert refold(record.registration, events) == record.projection, record.process_id
        assert record.updated_at_ms >= max((event.occurred_at_ms for event in events), default=record.created_at_ms)


async def all_records(storage: Storage) -> list[ProcessRecord]:
    """Return every process."""
    records: list[ProcessRecord] = []
    cursor: str | None = None
    while True:
        page = await storage.processes.list(limit=1_000, cursor=cursor)
        records += page.processes
        cursor = page.next_cursor
        if cursor is None:
            return records


async def listed(storage: Storage, **wanted: Any) -> list[str]:  # noqa: ANN401 - the fields of a filter
    """Return the ids of the processes that a filter with these fields finds, in the order of the list."""
    page = await storage.processes.list(ProcessFilter(**wanted))
    return [record.process_id for record in page.processes]


async def log(storage: Storage, process_id: str = "p", *, through: int | None = None) -> tuple[ProcessEvent, ...]:
    """Return the whole log of a process, or its events up to a sequence number."""
    events: list[ProcessEvent] = []
    while page := await storage.events.after(process_id, events[-1].sequence if events else 0, limit=1_000):
        events += page
    return tuple(event for event in events if through is None or event.sequence <= through)


async def feed(storage: Storage, cursor: str | None = None, *, limit: int = 1_000) -> tuple[list[ProcessChange], str]:
    """Read the change feed from a cursor to its end, and return the cursor there."""
    changes: list[ProcessChange] = []
    while True:
        page = await storage.events.changes(cursor, limit=limit)
        cursor = page.cursor
        if not page.changes:
            return changes, cursor
        changes += page.changes


async def world(storage: Storage) -> World:
    """Read all processes through the public API."""
    processes = [
        Observed(
            record=record,
            events=await log(storage, record.process_id),
            wakes=await storage.events.wakes_after(record.process_id),
            grants=await storage.grants.of_process(record.process_id),
            holder=await storage.process_leases.holder(record.process_id),
        )
        for record in await all_records(storage)
    ]
    changes, _ = await feed(storage)
    return World(tuple(processes), tuple(changes), await storage.events.undeliverable_wakes())


async def refuse(
    storage: Storage, call: Awaitable[object], error: type[LashError], *, naming: str | None = None
) -> LashError:
    """Assert that the call raises exactly this error with these texts, and changes nothing."""
    before = await world(storage)
    with pytest.raises(error) as raised:
        await call
    assert type(raised.value) is error, raised.value
    assert naming is None or repr(naming) in str(raised.value), raised.value
    assert await world(storage) == before
    return raised.value


class _Checking:
    """Wraps a storage and checks all logs after every write to its processes."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> object:
        attribute: object = getattr(self._storage, name)
        return _CheckingStore(self._storage, attribute) if name in _STORES else attribute


class _CheckingStore:
    def __init__(self, storage: Storage, store: object) -> None:
        self._storage = storage
        self._store = store

    def __getattr__(self, name: str) -> Call:
        method: Call = getattr(self._store, name)
        return method if name in _READS else functools.partial(_call_and_check, self._storage, method)


async def _call_and_check(storage: Storage, method: Call, *arguments: object, **named: object) -> object:
    try:
        return await method(*arguments, **named)
    finally:
        await check_logs(storage)
