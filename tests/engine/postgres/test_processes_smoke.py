"""Processes on PostgreSQL under concurrent callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import lash
from lash.model.process.event import WakeState
from lash.model.process.process import ChangeKind, ProcessAcquired, ProcessChange, ProcessRefused
from lash.postgres.engine.options import PostgresOptions
from lash.stores.storage import Storage
from tests.engine.postgres.kit import raw_connection
from tests.factories.process import DONE, NEWS, event, news, process, process_lease, registered
from tests.factories.session import created, owner

_WRITERS = 48


@asynccontextmanager
async def opened(url: str, count: int) -> AsyncIterator[list[Storage]]:
    storages = [await lash.open(url) for _ in range(count)]
    try:
        yield storages
    finally:
        for storage in storages:
            await storage.close()


async def read_feed(storage: Storage, writing: asyncio.Future[list[None]]) -> list[ProcessChange]:
    """Read the feed two changes at a time during writes, and then to its end."""
    changes: list[ProcessChange] = []
    cursor: str | None = None
    while True:
        was_writing = not writing.done()
        page = await storage.events.changes(cursor, limit=2)
        changes, cursor = [*changes, *page.changes], page.cursor
        if not page.changes and not was_writing:
            return changes


async def test_an_append_to_a_known_process_is_one_statement(postgres_storage_url: str) -> None:
    """An append to a cached process is one round trip, also when the event wakes a session or ends the process."""
    heard: list[str] = []
    async with await lash.open(postgres_storage_url, on_statement=heard.append) as storage:
        await created(storage)
        await storage.processes.register(process("p", NEWS, wake_session_id="s"))
        lease = process_lease(await storage.process_leases.claim("p", owner("w"), ttl_ms=60_000))
        heard.clear()
        await storage.events.append("p", news(key="k"))
        await storage.process_leases.complete(lease.fence, DONE)
    assert heard == ["event_append", "process_lease_complete"]


async def test_concurrent_appends_are_numbered_without_a_gap(postgres_storage_url: str) -> None:
    """48 appends through four storages get the numbers 1 to 48, each once."""
    async with opened(postgres_storage_url, 4) as storages:
        await registered(storages[0])
        appended = await asyncio.gather(
            *(storages[number % 4].events.append("p", event(payload=number)) for number in range(_WRITERS))
        )
        stored = await storages[0].events.after("p")
    assert sorted(each.event.sequence for each in appended) == list(range(1, _WRITERS + 1))
    assert {each.event.sequence: each.event for each in appended} == {each.sequence: each for each in stored}


async def test_concurrent_appends_under_one_key_are_one(postgres_storage_url: str) -> None:
    """Of 24 equal appends through two storages one writes, and all get its event."""
    async with opened(postgres_storage_url, 2) as storages:
        await registered(storages[0])
        appended = await asyncio.gather(
            *(storages[number % 2].events.append("p", event(payload=1, key="k")) for number in range(24))
        )
        assert len(await storages[0].events.after("p")) == 1
    assert len({each.event.sequence for each in appended}) == 1
    assert [each.replayed for each in appended].count(False) == 1


async def test_the_feed_shows_every_change_once(postgres_storage_url: str) -> None:
    """A reader that takes two changes at a time, beside 48 writers, misses none and sees none twice."""

    async def write(storage: Storage, process_id: str) -> None:
        await registered(storage, process_id)
        for number in range(3):
            await storage.events.append(process_id, event(payload=number))

    async with opened(postgres_storage_url, 3) as storages:
        writing = asyncio.gather(*(write(storages[number % 2], f"p{number}") for number in range(_WRITERS)))
        changes = await read_feed(storages[2], writing)
        await writing
    expected = {(f"p{number}", sequence) for number in range(_WRITERS) for sequence in (None, 1, 2, 3)}
    assert len(changes) == len(expected)
    assert {(change.process_id, change.sequence) for change in changes} == expected


async def test_a_change_that_is_committed_late_is_not_passed_over(postgres_storage_url: str) -> None:
    """The feed waits for a transaction that began before others which have ended."""
    async with opened(postgres_storage_url, 1) as (storage,), raw_connection(postgres_storage_url) as connection:
        changes = f'"{PostgresOptions.from_url(postgres_storage_url).schema}".lash_process_changes'
        slow = connection.transaction()
        await slow.start()
        await connection.execute(
            f"INSERT INTO {changes} (process_id, kind, occurred_at_ms) VALUES ('slow', 'changed', 0)"
        )
        await registered(storage, "fast")
        early = await storage.events.changes()
        await slow.commit()
        late = await storage.events.changes(early.cursor)
    assert early.changes == ()
    assert [(each.process_id, each.kind) for each in late.changes] == [
        ("slow", ChangeKind.CHANGED),
        ("fast", ChangeKind.REGISTERED),
    ]


async def test_one_of_many_claims_wins(postgres_storage_url: str) -> None:
    """Of 24 owners on a free process one gets it; the others learn who, and one start is in the log."""
    async with opened(postgres_storage_url, 2) as storages:
        await registered(storages[0])
        outcomes = await asyncio.gather(
            *(
                storages[number % 2].process_leases.claim("p", owner(f"w{number}"), ttl_ms=60_000)
                for number in range(24)
            )
        )
        log = await storages[0].events.after("p")
    won = [outcome for outcome in outcomes if isinstance(outcome, ProcessAcquired)]
    assert len(won) == 1
    assert [each.holder for each in outcomes if isinstance(each, ProcessRefused)] == [won[0].lease] * 23
    assert [each.event_type for each in log] == ["process.started"]
    assert won[0].record.last_sequence == 1


async def test_wakes_and_the_deletion_of_their_session(postgres_storage_url: str) -> None:
    """While a session is deleted, every append to it lands, and no wake is left as lying in its queue."""
    names = [f"p{number}" for number in range(8)]
    async with opened(postgres_storage_url, 2) as (storage, other):
        await created(storage)
        for name in names:
            await storage.processes.register(process(name, NEWS, wake_session_id="s"))
        appending = [other.events.append(name, news(wake="s")) for name in names for _ in range(4)]
        deleted, *appended = await asyncio.gather(storage.sessions.delete("s"), *appending)
        wakes = [wake for name in names for wake in await storage.events.wakes_after(name)]
    assert deleted is True
    assert len(appended) == len(wakes) == 32
    assert {wake.state for wake in wakes} == {WakeState.UNDELIVERABLE}


async def test_a_claim_that_waited_for_the_holder_knows_its_effects(postgres_storage_url: str) -> None:
    """The snapshot of a claim is older than the lease that it gets: what the holder recorded last is not in it."""
    options = PostgresOptions.from_url(postgres_storage_url)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with opened(postgres_storage_url, 2) as (storage, other), raw_connection(postgres_storage_url) as holder:
        await registered(storage, "p")
        lease = process_lease(await storage.process_leases.claim("p", owner("a"), ttl_ms=60_000))
        await other.processes.get("p")
        await holder.execute(f'SET search_path TO "{options.schema}"')
        begun = holder.transaction()
        await begun.start()
        await holder.execute("SELECT 1 FROM lash_process_leases FOR UPDATE")
        claiming = asyncio.create_task(other.process_leases.claim("p", owner("b"), ttl_ms=60_000))
        while not await holder.fetchval(waiting):  # noqa: ASYNC110 - the server has no event
            await asyncio.sleep(0.01)
        await holder.execute(
            "INSERT INTO lash_effects (scope_id, replay_key, process_key, envelope, envelope_hash, status, outcome,"
            " once, fencing, created_at_ms, updated_at_ms) SELECT 'process:p', 'k', process_key, '{}', '', 'completed',"
            " '1', false, $1, 0, 0 FROM lash_processes",
            lease.fencing,
        )
        await holder.execute("UPDATE lash_process_leases SET token = NULL, owner_id = NULL, incarnation_id = NULL")
        await begun.commit()
        claimed = await claiming
    assert isinstance(claimed, ProcessAcquired)
    assert claimed.has_effects
