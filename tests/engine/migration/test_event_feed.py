"""The migration that makes events entries of the change feed keeps the feed and the logs."""

from __future__ import annotations

from typing import Final

import pytest

import lash
from lash.plan.process.change import ChangeCursor, encode_change_cursor
from lash.plan.process.process import NEW_PROJECTION, encode_registration
from lash.postgres.engine.options import PostgresOptions
from lash.sqlite.schema import APPLICATION_ID
from lash.sqlkit.migrations import load_migrations
from lash.stores.storage import Storage
from tests.contract.process_state import feed
from tests.engine.migration.test_work import execute
from tests.factories.process import DONE, event, process, process_lease
from tests.factories.session import owner
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_RECORD: Final = "INSERT INTO lash_migrations (number, name, applied_at_ms) VALUES ({number}, '{name}', 1)"
_PROCESS: Final = """
INSERT INTO lash_processes (
    process_id, registration_hash, registration, recovery, kind, status, waiting, projection, last_sequence,
    created_at_ms, updated_at_ms
)
VALUES ('{id}', '{hash}', '{registration}', 'rerunnable', '{kind}', 'running', {no}, '{projection}', {last}, 1, 1)
"""
_LEASES: Final = """
INSERT INTO lash_process_leases (
    process_key, fencing, owner_id, incarnation_id, token, claimed_at_ms, expires_at_ms, ready_at_ms, wake_seq
)
SELECT
    process_key, 3, CASE WHEN process_id = 'held' THEN 'w' END, CASE WHEN process_id = 'held' THEN '1' END,
    CASE WHEN process_id = 'held' THEN 't' END, 5, 4000000000000, CASE WHEN process_id = 'held' THEN 5 END, 2
FROM lash_processes
"""
_EVENT: Final = """
INSERT INTO lash_process_events (process_key, sequence, event_type, replay_key, payload_hash, payload, occurred_at_ms)
SELECT process_key, {sequence}, '{type}', {key}, '', '{{"payload":{sequence}}}', 7
FROM lash_processes WHERE process_id = '{id}'
"""
_CHANGE: Final = """
INSERT INTO lash_process_changes (process_id, kind, sequence, status, occurred_at_ms)
VALUES ('{id}', '{kind}', {sequence}, 'running', 7)
"""
_FEED: Final = (
    # The life of an id before the one that exists.
    *(
        ("held", "registered", "NULL"),
        ("held", "event", "1"),
        ("held", "pruned", "NULL"),
        ("parked", "registered", "NULL"),
    ),
    *(("held", "registered", "NULL"), ("held", "event", "1"), ("parked", "event", "1"), ("held", "event", "2")),
    *(("parked", "event", "2"), ("parked", "changed", "NULL")),
)
_PRUNED: Final = 5
"""How many of them were pruned: all of the life before, and the registrations."""


def _old_process(name: str, last: int, backend: str) -> str:
    encoded = encode_registration(process(name))
    no = {"sqlite": "0", "postgres": "false"}[backend]
    return _PROCESS.format(
        id=name,
        hash=encoded.registration_hash,
        registration=encoded.body,
        kind=encoded.kind,
        no=no,
        projection=NEW_PROJECTION,
        last=last,
    )


async def _fill(url: str, backend: str, pruned: int) -> None:
    """Create the tables of the migration before, with a process that is held, one that is parked, and their feed."""
    schema = None if backend == "sqlite" else PostgresOptions.from_url(url).schema
    steps = load_migrations(f"lash.{backend}.sql.migrations", schema=schema)
    before = steps[: [step.name for step in steps].index("event_feed")]
    scripts = [f"PRAGMA application_id = {APPLICATION_ID}"] if backend == "sqlite" else []
    scripts += [step.statement for step in before]
    scripts += [_RECORD.format(number=step.number, name=step.name) for step in before]
    scripts += [_old_process(name, 2, backend) for name in ("held", "parked")]
    scripts.append(_LEASES)
    scripts += [
        _EVENT.format(id=name, sequence=sequence, type="note", key=f"'{sequence}'")
        for name in ("held", "parked")
        for sequence in (1, 2)
    ]
    scripts += [_CHANGE.format(id=name, kind=kind, sequence=sequence) for name, kind, sequence in _FEED]
    if pruned:
        floor = "true, xid, seq" if backend == "postgres" else "1, seq"
        columns = "one, xid, seq" if backend == "postgres" else "one, seq"
        last = f"SELECT {floor} FROM lash_process_changes ORDER BY seq LIMIT 1 OFFSET {pruned - 1}"
        scripts.append(f"INSERT INTO lash_process_change_floor ({columns}) {last}")
        scripts.append("DELETE FROM lash_process_changes WHERE seq <= (SELECT seq FROM lash_process_change_floor)")
    await execute(url, scripts)


def _numbered() -> list[tuple[str, str, int | None]]:
    return [(name, kind, None if sequence == "NULL" else int(sequence)) for name, kind, sequence in _FEED]


async def _seen(storage: Storage, cursor: str | None = None) -> list[tuple[str, str, int | None]]:
    changes, _ = await feed(storage, cursor, limit=2)
    return [(change.process_id, change.kind.value, change.sequence) for change in changes]


@pytest.mark.parametrize("pruned", [0, _PRUNED])
async def test_the_feed_goes_on(backend_url: str, backend_name: str, pruned: int) -> None:
    """Readers see what they would have seen, in its order, from the start and from the cursors that they hold."""
    await _fill(backend_url, backend_name, pruned)
    places = await raw(backend_url, "SELECT seq FROM lash_process_changes ORDER BY seq")
    transactions = places
    if backend_name == "postgres":
        transactions = await raw(backend_url, "SELECT xid::text FROM lash_process_changes ORDER BY seq")
    ((epoch,),) = await raw(backend_url, "SELECT epoch FROM lash_process_change_epoch")
    async with await lash.open(backend_url) as storage:
        assert await _seen(storage) == _numbered()[pruned:]
        for number, ((place,), (transaction,)) in enumerate(zip(places, transactions, strict=True), start=1):
            held = ChangeCursor(int(transaction) if backend_name == "postgres" else 0, place, epoch)
            cursor = encode_change_cursor(held)
            assert (await storage.events.changes(cursor)).gap is None
            assert await _seen(storage, cursor) == _numbered()[pruned + number :]
        _, cursor = await feed(storage)
        await storage.processes.register(process("new"))
        await storage.events.append("parked", event())
        assert await _seen(storage, cursor) == [("new", "registered", None), ("parked", "event", 3)]


@pytest.mark.parametrize("pruned", [0, _PRUNED])
async def test_processes_logs_and_leases_are_kept(backend_url: str, backend_name: str, pruned: int) -> None:
    """A holder goes on under its lease, a parked process is woken, and each log is whole and free of damage."""
    await _fill(backend_url, backend_name, pruned)
    leases = "SELECT * FROM lash_process_leases ORDER BY process_key"
    before = await raw(backend_url, leases)
    async with await lash.open(backend_url) as storage:
        assert await raw(backend_url, leases) == before
        for name in ("held", "parked"):
            found = await storage.events.after(name)
            assert [(each.sequence, each.event_type, each.replay_key, each.payload) for each in found] == [
                (1, "note", "1", 1),
                (2, "note", "2", 2),
            ]
        lease = await storage.process_leases.holder("held")
        assert lease is not None
        assert (await storage.process_leases.renew(lease.fence, ttl_ms=60_000)).fencing == 3
        assert (await storage.process_leases.complete(lease.fence, DONE)).last_sequence == 3
        run = process_lease(await storage.process_leases.claim("parked", owner("w"), ttl_ms=60_000))
        assert run.fencing == 4
        order = "SELECT seq FROM lash_process_log ORDER BY process_key, sequence"
        for log in ("held", "parked"):
            assert (await storage.events.after(log))[-1].sequence == 3
        places = [place for (place,) in await raw(backend_url, order)]
        assert places[:3] == sorted(places[:3])
        assert places[3:] == sorted(places[3:])
