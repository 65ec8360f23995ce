"""Costs of appends and of lists of processes: independent of how many exist."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import asyncpg
import pytest
import pytest_asyncio
from asyncpg.connection import LoggedQuery

import lash
from lash.model.process.process import ProcessFilter, ProcessStatus
from lash.postgres.engine.options import PostgresOptions
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from lash.testing.harness import URLHarness
from lash.testing.postgres_server import PostgresServer
from tests.backends import fresh_schema
from tests.contract.harnesses import PostgresHarness
from tests.factories.process import (
    DONE,
    GO,
    NEWS,
    NOTE,
    event,
    news,
    process,
    process_lease,
    registered,
    scope,
)
from tests.factories.session import created, owner

_MOST_ROWS: Final = 5_000
"""More rows than any list here needs to read, and far fewer than exist."""


class Recorder:
    """Records the names of the statements that a storage runs."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def __call__(self, name: str) -> None:
        self._names.append(name)

    def take(self) -> list[str]:
        """Return what ran since the last call."""
        taken, self._names = self._names, []
        return taken


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest_asyncio.fixture(loop_scope="session")
async def sqlite(tmp_path: Path, recorder: Recorder) -> AsyncIterator[Storage]:
    harness = URLHarness("sqlite", f"sqlite:///{tmp_path / 'lash.db'}", ManualClock())
    yield await harness.open(on_statement=recorder)
    await harness.close()


@pytest_asyncio.fixture(loop_scope="session")
async def postgres(postgres_schema_url: str) -> AsyncIterator[PostgresHarness]:
    harness = PostgresHarness(postgres_schema_url)
    yield harness
    await harness.close()


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_a_sqlite_append_does_not_grow(sqlite: Storage, recorder: Recorder, backend_name: str) -> None:
    """An append runs the same statements at ten events and at many, beside one process and beside many."""
    await created(sqlite)
    await sqlite.processes.register(process("p", NOTE, NEWS, wake_session_id="s"))

    async def statements() -> list[str]:
        key = str((await sqlite.events.recent("p", 1))[0].sequence)
        recorder.take()
        await sqlite.events.append("p", event(key=key))
        await sqlite.events.append("p", news())
        return recorder.take()

    await sqlite.events.append("p", event())
    await statements()
    few = await statements()
    for number in range(300):
        await sqlite.events.append("p", event(payload=number))
        await registered(sqlite, f"q{number}")
    await statements()
    assert await statements() == few
    assert few.count("commit") == 2


@pytest.mark.parametrize("backend_name", ["postgres"])
async def test_a_postgres_append_is_one_statement(
    postgres: PostgresHarness, recorder: Recorder, backend_name: str
) -> None:
    """On a storage that has cached the process, an event with all its effects is one round trip."""
    storage = await postgres.open(on_statement=recorder)
    await created(storage)
    await storage.processes.register(process("p", NOTE, NEWS, GO, wake_session_id="s"))
    lease = process_lease(await storage.process_leases.claim("p", owner("w"), ttl_ms=60_000))
    recorder.take()
    costs: dict[str, list[str]] = {}
    await storage.events.append("p", event(payload=1))
    costs["plain"] = recorder.take()
    await storage.events.append("p", event(payload=1, key="k"))
    costs["keyed"] = recorder.take()
    await storage.events.append("p", news())
    costs["waking"] = recorder.take()
    await storage.events.signal("p", "go", signal_id="1")
    costs["signal"] = recorder.take()
    await storage.processes.request_cancel("p", reason="r")
    costs["cancel request"] = recorder.take()
    await storage.process_leases.complete(lease.fence, DONE)
    costs["fenced end"] = recorder.take()
    assert {name: len(statements) for name, statements in costs.items()} == dict.fromkeys(costs, 1)
    assert await storage.process_leases.holder("p") is None
    assert len(await storage.queue.list("s")) == 1


@pytest.mark.parametrize("backend_name", ["postgres"])
async def test_an_outdated_postgres_append_asks_once(
    postgres: PostgresHarness, recorder: Recorder, backend_name: str
) -> None:
    """A storage that has not cached the process reads first; one with a stale cache writes, reads, writes."""
    rival = await postgres.open()
    await registered(rival)
    storage = await postgres.open(on_statement=recorder)
    recorder.take()
    await storage.events.append("p", event())
    assert len(recorder.take()) == 2
    await rival.events.append("p", event())
    await storage.events.append("p", event())
    assert len(recorder.take()) == 3
    await storage.events.append("p", event())
    assert len(recorder.take()) == 1


_FILL = """
INSERT INTO lash_processes (
    process_id, registration_hash, registration, recovery, kind, label, definition_hash, originator_session_id,
    wake_session_id, status, waiting, projection, last_sequence, created_at_ms, updated_at_ms, ended_at_ms, start_xid,
    start_seq, start_sequence, start_payload_hash, start_payload, end_xid, end_seq, end_sequence, end_type,
    end_payload_hash, end_payload
)
SELECT
    'p' || lpad(n::text, 6, '0'), 'h', t.registration, CASE WHEN n % 10 = 0 THEN 'external' ELSE 'rerunnable' END,
    'kind' || n % 50, 'label' || n % 500, 'definition' || n % 300, 'maker' || n % 1000, 'woken' || n % 1000,
    CASE WHEN n % 4 = 0 THEN 'running' WHEN n % 1000 = 1 THEN 'failed' ELSE 'completed' END,
    n % 400 = 0, t.projection, 0, n, n, CASE WHEN n % 4 = 0 THEN NULL ELSE n END, pg_current_xact_id(),
    lash_next_change(), 1, '', '{"payload":{}}', CASE WHEN n % 2 = 1 THEN pg_current_xact_id() END,
    CASE WHEN n % 2 = 1 THEN lash_next_change() END, CASE WHEN n % 2 = 1 THEN 3 END,
    CASE WHEN n % 2 = 1 THEN 'note' END, CASE WHEN n % 2 = 1 THEN '' END, CASE WHEN n % 2 = 1 THEN '{"payload":3}' END
FROM generate_series(1, 100000) AS n, lash_processes AS t;
INSERT INTO lash_process_leases (process_key) SELECT process_key FROM lash_processes ON CONFLICT DO NOTHING;
INSERT INTO lash_grants (session_id, frame_id, process_key)
SELECT 'session' || process_key % 2000, CASE WHEN process_key % 3 = 0 THEN 'frame' ELSE '' END, process_key
FROM lash_processes;
INSERT INTO lash_process_changes (process_id, kind, sequence, status, occurred_at_ms)
SELECT process_id, 'registered', NULL, 'running', 1 FROM lash_processes;
INSERT INTO lash_process_events (process_key, sequence, event_type, payload_hash, payload, occurred_at_ms)
SELECT process_key, 2, 'note', '', '{"payload":1}', 1 FROM lash_processes;
ANALYZE lash_processes, lash_process_leases, lash_process_events, lash_grants, lash_process_changes;
"""
"""Fills a storage with copies of its one process, whose logs begin and mostly end in their rows."""

Ask: TypeAlias = Callable[[Storage], Awaitable[object]]


def _listing(**wanted: Any) -> Ask:  # noqa: ANN401 - the fields of a filter
    return lambda storage: storage.processes.list(ProcessFilter(**wanted))


LISTS: Final[dict[str, Ask]] = {
    "all": _listing(),
    "a later page": lambda storage: _second_page(storage, ProcessFilter()),
    "by id": _listing(process_id="p000007"),
    "by definition": _listing(definition={"a": 1}),
    "by wake target": _listing(wake_session_id="woken7"),
    "by originator": _listing(originator_session_id="maker7"),
    "by parent": _listing(parent_process_id="p000008"),
    "by label": _listing(label="label7"),
    "by kind": _listing(kind="kind7"),
    "a later page by kind": lambda storage: _second_page(storage, ProcessFilter(kind="kind7")),
    "waiting": _listing(waiting=True),
    "parked": _listing(parked=True),
    "with states": lambda storage: storage.processes.list(with_state=True),
    "by status": _listing(status=ProcessStatus.FAILED),
    "by kind and status": _listing(kind="kind8", status=ProcessStatus.RUNNING),
    "nothing of that kind": _listing(kind="none"),
    "ids": lambda storage: storage.processes.ids("p0", limit=10),
    "runnable": lambda storage: storage.processes.runnable(),
    "more runnable": lambda storage: storage.processes.runnable(after="p050000"),
    "grants of a session": lambda storage: storage.grants.list(scope("session7")),
    "live grants of a session": lambda storage: storage.grants.list(scope("session7"), live_only=True),
    "one grant": lambda storage: storage.grants.has(scope("session7"), "p000007"),
    "grants of a process": lambda storage: storage.grants.of_process("p000007"),
    "detach a session": lambda storage: storage.grants.detach_session("session8"),
    "a log": lambda storage: storage.events.after("p000007"),
    "events of a type": lambda storage: storage.events.after("p000007", event_type="note"),
    "the end of a log": lambda storage: storage.events.recent("p000007", 3),
    "open wakes": lambda storage: storage.events.wakes_after("p000007"),
    "changes": lambda storage: storage.events.changes(),
    "events of all processes": lambda storage: storage.events.tail(),
    "pruning of the feed": lambda storage: storage.processes.prune_changes(before_ms=5, limit=100),
    "undeliverable wakes": lambda storage: storage.events.undeliverable_wakes(),
}
"""Queries of a full storage."""


async def _second_page(storage: Storage, wanted: ProcessFilter) -> object:
    first = await storage.processes.list(wanted)
    assert first.next_cursor is not None
    return await storage.processes.list(wanted, cursor=first.next_cursor)


class Full:
    """A storage with 100,000 processes, whose queries are logged and can be explained."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._dsn = PostgresOptions.from_url(url).dsn
        self._logged: list[LoggedQuery] = []

    async def queries(self, ask: Ask) -> list[LoggedQuery]:
        """Run the call, and return the queries that it took."""
        pool = asyncpg.create_pool(self._dsn, min_size=1, max_size=1, init=self._listen)
        async with pool, await lash.open(self._url, pool=pool) as storage:
            await asyncio.sleep(0)
            self._logged.clear()
            await ask(storage)
            await asyncio.sleep(0)
            return [logged for logged in self._logged if "lash_" in logged.query]

    async def explain(self, logged: LoggedQuery, mode: str) -> list[dict[str, Any]]:
        """Run the query under a plan mode, roll back, and return the plan nodes that ran."""
        connection = await asyncpg.connect(self._dsn)
        try:
            await connection.execute(f"SET plan_cache_mode = {mode}")
            await connection.execute(f"PREPARE asked AS {logged.query}")
            await connection.execute("BEGIN")
            given = f" ({', '.join(map(_literal, logged.args))})" if logged.args else ""
            explained = await connection.fetchval(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE asked{given}")
            await connection.execute("ROLLBACK")
        finally:
            await connection.close()
        return [node for node in _nodes(json.loads(explained)[0]["Plan"]) if node["Actual Loops"]]

    async def _listen(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        connection.add_query_logger(self._logged.append)


@pytest.fixture(scope="module")
def full(postgres_server: PostgresServer) -> Iterator[Full]:
    with fresh_schema(postgres_server.url) as url:
        asyncio.run(_fill(url))
        yield Full(url)


async def _fill(url: str) -> None:
    async with await lash.open(url) as storage:
        await registered(storage)
    options = PostgresOptions.from_url(url)
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    try:
        await connection.execute(_FILL)
    finally:
        await connection.close()


@pytest.mark.parametrize("backend_name", ["postgres"])
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("case", LISTS)
async def test_lists_use_indexes(full: Full, backend_name: str, case: str, mode: str) -> None:
    """At 100,000 processes no list scans a table or reads many rows that it discards."""
    queries = await full.queries(LISTS[case])
    assert queries
    for logged in queries:
        scans = [node for node in await full.explain(logged, mode) if node["Node Type"].endswith("Scan")]
        assert [node for node in scans if node["Node Type"] == "Seq Scan" and _is_large(node)] == []
        assert sum(map(_rows_read, scans)) <= _MOST_ROWS, json.dumps(scans)


def _literal(value: object) -> str:
    """Return an argument as SQL."""
    match value:
        case None:
            return "NULL"
        case bool() | int():
            return str(value).lower()
        case str():
            return "'" + value.replace("'", "''") + "'"
        case _:
            raise TypeError(f"no SQL for {value!r}")


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _is_large(node: dict[str, Any]) -> bool:
    return node.get("Relation Name") in {
        *("lash_processes", "lash_process_leases", "lash_process_events", "lash_grants", "lash_process_changes")
    }


def _rows_read(node: dict[str, Any]) -> float:
    """Return how many rows a scan read, filtered out or not."""
    if "Relation Name" not in node:
        return 0
    kept, thrown_away = node["Actual Rows"], node.get("Rows Removed by Filter", 0)
    return float((kept + thrown_away) * node["Actual Loops"])
