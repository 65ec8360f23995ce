"""Costs of polling the work list: one statement, independent of parked processes and queued batches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import apsw
import asyncpg
import pytest

import lash
from lash.model.lease import LocalProcess
from lash.postgres.engine.options import PostgresOptions
from lash.sqlkit.queries import load_queries
from lash.testing.postgres_server import PostgresServer
from tests.backends import fresh_schema
from tests.contract.queue_state import command, late
from tests.contract.test_input_agents import said
from tests.contract.work_state import child, park
from tests.factories.process import DONE, GO, NOTE, process, registered
from tests.factories.session import created, owner
from tests.raw import raw

FEW: Final = 1_000
MANY: Final = 100_000
ME: Final = owner("me", process=LocalProcess(host_id="h", boot_id="b", pid=1, process_start="1"))
_MOST_ROWS: Final = 500
"""More rows than one poll needs to read here, and far fewer than exist."""
_FOREVER: Final = 2**61
_NUMBERS = {
    "sqlite": """(
        WITH RECURSIVE numbers (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n < {last})
        SELECT n FROM numbers
    ) AS numbers""",
    "postgres": "generate_series({first}, {last}) AS n",
}
_PROCESSES = """
    INSERT INTO lash_processes (
        process_id, registration_hash, registration, recovery, kind, status, waiting, projection, last_sequence,
        created_at_ms, updated_at_ms
    )
    SELECT
        'f' || n, 'h', t.registration, 'rerunnable', 'work', 'running', t.waiting, t.projection, 0, n, n
    FROM {numbers} CROSS JOIN lash_processes AS t
    WHERE t.process_id = 'p0'
"""
_LEASES = """
    INSERT INTO lash_process_leases (process_key, ready_at_ms)
    SELECT p.process_key, CASE WHEN p.process_key % 2 = 0 THEN {forever} + p.process_key END
    FROM lash_processes AS p
    WHERE NOT EXISTS (SELECT 1 FROM lash_process_leases AS l WHERE l.process_key = p.process_key)
"""
"""Half of them are parked until a moment, half until they are woken."""
_RUNNING = """
    UPDATE lash_process_leases
    SET ready_at_ms = 1, token = 't', owner_id = 'o', incarnation_id = 'far', expires_at_ms = {forever},
        process = '{{"host_id":"far","boot_id":"far","pid":1,"process_start":"1"}}'
    WHERE process_key IN (SELECT process_key FROM lash_processes WHERE process_id LIKE 'f%' ORDER BY 1 LIMIT {count})
"""
"""Some run elsewhere, under live leases."""
_BATCHES = """
    INSERT INTO lash_batches (
        session_key, batch_id, lane, delivery, slot, available_at_ms, enqueued_at_ms, payloads
    )
    SELECT
        s.session_key, 'f' || n, 'late', 'after_current_turn_commit', 'exclusive',
        CASE n % 2 WHEN 0 THEN 0 ELSE {forever} END, 0, '{{"payloads":[{{"kind":"session_command","command":"c"}}]}}'
    FROM {numbers} CROSS JOIN lash_sessions AS s
    WHERE s.session_id LIKE 's%'
"""
_WAITING = (
    """
    INSERT INTO lash_sessions (session_id, name, created_at_ms, model, relation, revision, updated_at_ms)
    SELECT 'w' || n, 'n', n, '', t.relation, 0, n FROM {numbers} CROSS JOIN lash_sessions AS t WHERE t.session_id = 's0'
    """,
    """
    INSERT INTO lash_session_leases (session_key, paused_until_ms, waiting_for)
    SELECT s.session_key, CASE s.session_key % 2 WHEN 0 THEN {never} ELSE {forever} END, 'session c'
    FROM lash_sessions AS s
    WHERE NOT EXISTS (SELECT 1 FROM lash_session_leases AS l WHERE l.session_key = s.session_key)
    """,
    """
    INSERT INTO lash_batches (
        session_key, batch_id, lane, delivery, slot, available_at_ms, enqueued_at_ms, payloads
    )
    SELECT s.session_key, 'f', 'late', 'after_current_turn_commit', 'exclusive', {never}, 0, '{{}}'
    FROM lash_sessions AS s
    WHERE s.session_id LIKE 'w%' AND NOT EXISTS (SELECT 1 FROM lash_batches AS b WHERE b.session_key = s.session_key)
    """,
)
"""Sessions whose turn is parked, half of them until a moment, each with its input."""
_BACKLOG = (
    """
    INSERT INTO lash_sessions (session_id, name, created_at_ms, model, relation, revision, updated_at_ms)
    SELECT 'q' || n, 'n', n, '', t.relation, 0, n FROM {numbers} CROSS JOIN lash_sessions AS t WHERE t.session_id = 's0'
    """,
    """
    INSERT INTO lash_session_leases (session_key)
    SELECT s.session_key
    FROM lash_sessions AS s
    WHERE NOT EXISTS (SELECT 1 FROM lash_session_leases AS l WHERE l.session_key = s.session_key)
    """,
    """
    INSERT INTO lash_batches (
        session_key, batch_id, lane, delivery, slot, available_at_ms, enqueued_at_ms, payloads, priority
    )
    SELECT s.session_key, 'f', 'late', 'after_current_turn_commit', 'exclusive', 0, 0, '{{}}', s.session_key % 3
    FROM lash_sessions AS s
    WHERE s.session_id LIKE 'q%' AND NOT EXISTS (SELECT 1 FROM lash_batches AS b WHERE b.session_key = s.session_key)
    """,
)
"""Sessions with a ready message each, two of three with a priority."""


_OTHERS = (
    """
    INSERT INTO lash_sessions (session_id, name, created_at_ms, model, relation, revision, updated_at_ms)
    SELECT 'o' || n, 'n', n, '', t.relation, 0, n FROM {numbers} CROSS JOIN lash_sessions AS t WHERE t.session_id = 's0'
    """,
    """
    INSERT INTO lash_session_leases (session_key)
    SELECT s.session_key FROM lash_sessions AS s
    WHERE NOT EXISTS (SELECT 1 FROM lash_session_leases AS l WHERE l.session_key = s.session_key)
    """,
    """
    INSERT INTO lash_batches (
        session_key, batch_id, lane, delivery, slot, available_at_ms, enqueued_at_ms, payloads, agent
    )
    SELECT s.session_key, 'o', 'late', 'after_current_turn_commit', 'exclusive', s.session_key % 2, 0, '{{}}', 'judge'
    FROM lash_sessions AS s
    WHERE s.session_id LIKE 'o%' AND NOT EXISTS (SELECT 1 FROM lash_batches AS b WHERE b.session_key = s.session_key)
    """,
)
"""Sessions with ready and with due input for another agent."""


async def _begin(url: str) -> None:
    """Create ten sessions, two of them with input for an agent, and five processes that are ready."""
    async with await lash.open(url) as storage:
        for number in range(10):
            await created(storage, f"s{number}")
        for number in (3, 9):
            await storage.queue.enqueue(said(f"s{number}", "clerk"))
        await registered(storage, *(f"p{number}" for number in range(5)))


async def _fill(url: str, backend: str, first: int, last: int) -> None:
    """Add parked processes of these numbers, half as many that run elsewhere, batches, parked and ready turns."""
    numbers = _NUMBERS[backend].format(first=first, last=last)
    tenth = _NUMBERS[backend].format(first=first // 10, last=last // 10 - 1)
    await raw(url, _PROCESSES.format(numbers=numbers))
    await raw(url, _LEASES.format(forever=_FOREVER))
    await raw(url, _RUNNING.format(forever=_FOREVER, count=last // 20))
    await raw(url, _BATCHES.format(numbers=tenth, forever=_FOREVER))
    for statement in (*_WAITING, *_BACKLOG, *_OTHERS):
        await raw(url, statement.format(numbers=tenth, forever=_FOREVER, never=2**63 - 1))


@pytest.mark.parametrize("backend_name", ["postgres"], indirect=True)
async def test_a_look_and_parking_are_one_statement(backend_url: str, backend_name: str) -> None:
    """On PostgreSQL a poll, parking, and an end that wakes its parent are one round trip each."""
    names: list[str] = []
    async with await lash.open(backend_url, on_statement=names.append) as storage:
        await storage.processes.register(process("p", NOTE, GO))
        await storage.processes.register(child("c"))
        claim = await storage.process_leases.claim("c", ME, ttl_ms=60_000)
        parent = await storage.process_leases.claim("p", ME, ttl_ms=60_000)
        assert isinstance(parent, lash.model.ProcessAcquired)
        assert isinstance(claim, lash.model.ProcessAcquired)
        names.clear()
        await storage.work.poll(sessions=5, processes=5, owner=ME, running_processes=["p"], running_sessions=["s"])
        assert await park(storage, parent)
        await storage.process_leases.complete(claim.lease.fence, DONE)
        assert names == ["work_poll", "process_lease_park", "process_lease_complete"]
        assert (await storage.work.poll(sessions=5, processes=5, owner=ME)).process_ids == ("p",)


async def test_parking_a_turn_is_one_write(backend_url: str, backend_name: str) -> None:
    """A turn is parked, and its reasons to continue are counted, in one transaction each."""
    names: list[str] = []
    async with await lash.open(backend_url, on_statement=names.append) as storage:
        await created(storage, "s")
        await storage.queue.enqueue(late("a"))
        turn = await storage.queue.claim_turn("s", ME, ttl_ms=60_000)
        assert isinstance(turn, lash.model.ClaimedTurn)
        names.clear()
        assert await storage.leases.park(turn.lease.fence, wake_seq=0, until_ms=None, waiting_for="x")
        await storage.queue.enqueue(command("c"))
        await storage.work.wake()
        if backend_name == "postgres":
            assert names == ["lease_park", "queue_enqueue", "work_wake_sessions"]
        else:
            assert names.count("begin") == names.count("commit") == 3


_QUESTIONS: Final[dict[str, dict[str, object]]] = {
    "work_sessions": {"limit": 20, "now_ms": 9},
    "work_sessions_of_agents": {"limit": 20, "now_ms": 9, "agents": '["clerk"]'},
    "work_sessions_of_labels": {
        "limit": 20,
        "now_ms": 9,
        "agents": None,
        "labels": '{"region":"eu"}',
        "place": 0.0,
    },
    "work_processes": {
        "limit": 20,
        "now_ms": 2**60,
        "owner_id": "me",
        "incarnation_id": "1",
        "process_names": None,
        "labels": None,
    },
    "work_commanded": {"session_ids": '["s0"]', "now_ms": 9},
    "work_cancelled": {"process_ids": '["p0"]'},
    "work_session_holders": {"boot_id": "b", "incarnation_id": "1", "limit": 64},
    "work_process_holders": {"boot_id": "b", "incarnation_id": "1", "limit": 64},
    "work_held_sessions": {"boot_id": "b", "host_id": "h", "incarnation_id": "2", "limit": 20, "now_ms": 9},
    "work_held_processes": {"boot_id": "b", "host_id": "h", "incarnation_id": "2", "limit": 20, "now_ms": 9},
    "work_marks": {"now_ms": 9, "boot_id": "b", "incarnation_id": "1"},
}


def _steps(connection: apsw.Connection, query: str, parameters: dict[str, object]) -> int:
    """Return how many instructions SQLite runs for a query."""
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return False

    # The first run is not counted: it reads the schema and compiles the query.
    for handler in (None, step):
        connection.set_progress_handler(handler, 1)
        connection.execute(query, parameters).fetchall()
    connection.set_progress_handler(None)
    return count


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_sqlite_looks_no_longer_with_more_parked(tmp_path: Path, backend_name: str) -> None:
    """SQLite runs as many instructions with 1,000 as with 100,000 parked processes and queued batches.

    The same holds for 100 and 10,000 parked turns, and sessions that wait for a worker.
    """
    path = tmp_path / "lash.db"
    url, queries = f"sqlite:///{path}", load_queries("lash.sqlite.sql")
    assert {name for name in queries if name.startswith("work_")} - set(_QUESTIONS) == {
        *("work_wake_own", "work_wake_parent", "work_end", "work_note_wake", "work_take_wakes", "work_wake_session"),
        *("work_forget_effects", "work_forget_groups"),
    }
    await _begin(url)
    await _fill(url, backend_name, 10, FEW)
    connection = apsw.Connection(str(path))
    few = {name: _steps(connection, queries[name], given) for name, given in _QUESTIONS.items()}
    await _fill(url, backend_name, FEW + 10, MANY)
    many = {name: _steps(connection, queries[name], given) for name, given in _QUESTIONS.items()}
    connection.close()
    # It reads up to 276 batches in each of two lists, for any agent; there were fewer.
    of_agents, of_labels = "work_sessions_of_agents", "work_sessions_of_labels"
    assert many.pop(of_agents) <= 2 * few.pop(of_agents)
    # It reads up to 276 batches in each of three lists, up to 1,024 due ones, and 1,024 sessions; there were some 200.
    assert many.pop(of_labels) <= 8 * few.pop(of_labels)
    assert few == many
    assert min(few.values()) > 0
    (parked,) = await raw(url, "SELECT count(*) FROM lash_process_leases WHERE token IS NULL")
    assert parked[0] > MANY * 9 // 10


class Full:
    """A PostgreSQL storage with 100,000 parked processes and queued batches."""

    def __init__(self, url: str) -> None:
        self.url = url
        options = PostgresOptions.from_url(url)
        self._dsn = options.dsn
        self._query = load_queries("lash.postgres.sql", schema=options.schema)["work_poll"]

    async def scans(self, mode: str, agents: str = "NULL", labels: str = "NULL") -> list[dict[str, Any]]:
        """Poll under a plan mode, and return the table scans that ran."""
        given = f"20, 20, 'me', '1', 'b', 'h', ARRAY['s0', 's1'], ARRAY['p0', 'f77'], 64, NULL, {agents}, {labels}, 0"
        connection = await asyncpg.connect(self._dsn)
        try:
            await connection.execute(f"SET plan_cache_mode = {mode}")
            await connection.execute(f"PREPARE look AS {self._query}")
            explained = await connection.fetchval(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE look ({given})")
        finally:
            await connection.close()
        nodes = _nodes(json.loads(explained)[0]["Plan"])
        return [node for node in nodes if node["Actual Loops"] and "Relation Name" in node]


@pytest.fixture(scope="module")
def full(postgres_server: PostgresServer) -> Iterator[Full]:
    with fresh_schema(postgres_server.url) as url:
        asyncio.run(_begin(url))
        asyncio.run(_fill(url, "postgres", 10, MANY))
        yield Full(url)


@pytest.mark.parametrize("backend_name", ["postgres"])
@pytest.mark.parametrize("statistics", ["", "fresh"])
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
async def test_a_postgres_look_reads_few_rows(full: Full, backend_name: str, statistics: str, mode: str) -> None:
    """At 100,000 parked processes, 10,000 parked and 10,000 ready turns a poll reads a few rows, through indexes."""
    if statistics:
        await raw(
            full.url,
            "ANALYZE lash_processes, lash_process_leases, lash_batches, lash_sessions, lash_session_leases",
        )
    large = {
        "lash_session_labels",
        "lash_processes",
        "lash_process_leases",
        "lash_batches",
        "lash_process_events",
        "lash_session_leases",
    }
    # For some agents, two of the lists read up to 276 batches each, for any agent. By labels, three do, one more reads
    # up to 1,024, and the walk steps to as many sessions; each of these rows is joined to its lease.
    for agents, labels, most in (
        ("NULL", "NULL", _MOST_ROWS),
        ("ARRAY['clerk', 'unknown']", "NULL", _MOST_ROWS + 2 * 276),
        ("NULL", """'{"region":"eu"}'""", _MOST_ROWS + 2 * (3 * 276 + 2 * 1024)),
    ):
        scans = [node for node in await full.scans(mode, agents, labels) if node["Relation Name"] in large]
        read = [(node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] for node in scans]
        assert [node for node in scans if node["Node Type"] == "Seq Scan"] == []
        assert 0 < sum(read) <= most, json.dumps(scans)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)
