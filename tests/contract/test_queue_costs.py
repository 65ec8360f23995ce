"""Costs of claims and of finding ready sessions: the same with few batches queued and with very many."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import apsw
import asyncpg
import pytest

import lash
from lash.postgres.engine.options import PostgresOptions
from lash.postgres.engine.pool import PLANNING
from lash.sqlkit.queries import load_queries
from tests.contract.queue_state import leased
from tests.factories.session import created
from tests.raw import raw

SESSIONS: Final = tuple(f"s{number}" for number in range(10))
FEW: Final = 1
MANY: Final = 10_000
"""Batches for each session: 10 and 100,000 in all."""
FEW_HUNDRED: Final = 300
NEVER_MS: Final = 2**62

_LOAD = """
    INSERT INTO lash_batches (
        session_key, batch_id, lane, delivery, slot, merge_key, available_at_ms, enqueued_at_ms, payloads
    )
    SELECT
        s.session_key, 'b' || number, CASE number % 2 WHEN 0 THEN 'early' ELSE 'late' END,
        CASE number % 2 WHEN 0 THEN 'earliest_safe_boundary' ELSE 'after_current_turn_commit' END,
        'join', 'g', CASE number % 20 WHEN 7 THEN {never} WHEN 8 THEN {due} ELSE 0 END, 0,
        '{{"payloads":[{{"kind":"session_command","command":"c"}}]}}'
    FROM lash_sessions AS s CROSS JOIN {numbers}
    WHERE s.session_id {which} 'lonely'
"""
_NUMBERS = {
    "sqlite": """(
        WITH RECURSIVE numbers (number) AS (
            SELECT {first} UNION ALL SELECT number + 1 FROM numbers WHERE number < {last}
        )
        SELECT number FROM numbers
    )""",
    "postgres": "generate_series({first}::bigint, {last}::bigint) AS number",
}


def _load(backend_name: str, first: int, last: int, *, due_ms: int, which: str = "<>") -> str:
    """Return a statement that queues these batches for every session, one in twenty due later."""
    numbers = _NUMBERS[backend_name].format(first=first, last=last)
    return _LOAD.format(numbers=numbers, never=NEVER_MS, due=due_ms, which=which)


class Recorder:
    """Records the names of the statements that a storage runs."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str) -> None:
        self.names.append(name)


async def _asked(storage: lash.Storage, recorder: Recorder, fence: lash.model.LeaseFence) -> list[str]:
    """Find ready sessions, claim in every way, release, and return the statements that ran."""
    recorder.names.clear()
    assert len(await storage.queue.ready_sessions(limit=5)) == 5
    for boundary in lash.model.Boundary:
        claim = await storage.queue.claim(fence, boundary=boundary, ttl_ms=60_000, max_batches=4)
        assert isinstance(claim, lash.model.Claim)
        await storage.queue.abandon(claim)
    assert isinstance(await storage.queue.claim_command(fence, ttl_ms=60_000), lash.model.NothingClaimed)
    return list(recorder.names)


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_no_more_statements_with_more_work(backend_url: str, backend_name: str) -> None:
    """Claims and the idle poll run the same statements with 10 and with 5,000 batches queued."""
    recorder = Recorder()
    async with await lash.open(backend_url, on_statement=recorder) as storage:
        for session_id in SESSIONS:
            await created(storage, session_id)
        await raw(backend_url, _load(backend_name, 1, 10, due_ms=NEVER_MS))
        fence = await leased(storage, session_id="s0")
        few = await _asked(storage, recorder, fence)
        await raw(backend_url, _load(backend_name, 11, 5_000, due_ms=NEVER_MS))
        many = await _asked(storage, recorder, fence)
    assert few == many
    assert few.count("queue_ready_sessions") == 1
    assert few.count("queue_stamp") == 2


async def _fill(url: str, backend_name: str, count: int) -> None:
    """Fill the storage with this many batches for each session, some of them due."""
    async with await lash.open(url) as storage:
        for session_id in (*SESSIONS, "lonely"):
            await created(storage, session_id)
    await raw(url, _load(backend_name, 1, count, due_ms=1))


_SQLITE = load_queries("lash.sqlite.sql")
_ON_BATCHES: Final = {
    "queue_head": [
        "b USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
        *3 * ["c USING INDEX lash_batches_ready (session_key=? AND lane=?)"],
        "b USING COVERING INDEX lash_batches_ready (session_key=? AND lane=?)",
        "b USING COVERING INDEX lash_batches_claim (session_key=? AND claim_token>?)",
        "b USING COVERING INDEX lash_batches_delayed (session_key=? AND available_at_ms>?)",
    ],
    "queue_promote": [
        "lash_batches USING INDEX lash_batches_delayed (session_key=? AND available_at_ms>? AND available_at_ms<?)"
    ],
    "queue_ready_sessions": [
        "lash_batches USING COVERING INDEX lash_batches_ready (session_key>?)",
        "b USING COVERING INDEX lash_batches_ready (session_key>?)",
        "b USING INDEX lash_batches_due (available_at_ms>? AND available_at_ms<?)",
    ],
    "queue_stamp": ["lash_batches USING INTEGER PRIMARY KEY (rowid=?)"],
    "commit_held": ["b USING INDEX lash_batches_claim (session_key=? AND claim_token=?)"],
    "commit_consume": ["lash_batches USING COVERING INDEX lash_batches_claim (session_key=? AND claim_token=?)"],
}
"""How each query must find its batches: always a SEARCH, never a SCAN."""


class _Parameters(dict[str, object]):
    """Parameters of a query; those not given are NULL."""

    def __missing__(self, name: str) -> object:
        return None


@pytest.fixture
def database(backend_url: str) -> Iterator[apsw.Connection]:
    """A separate connection to the SQLite file."""
    connection = apsw.Connection(urlsplit(backend_url).path.removeprefix("/"))
    yield connection
    connection.close()


def _steps(connection: apsw.Connection, name: str, **parameters: object) -> int:
    """Return how many instructions SQLite runs for a query, and roll it back."""
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return False

    connection.execute("BEGIN")
    # The first run is not counted: it reads the schema and compiles the query.
    for handler in (None, step):
        connection.set_progress_handler(handler, 1)
        connection.execute(_SQLITE[name], _Parameters(parameters)).fetchall()
    connection.set_progress_handler(None)
    connection.execute("ROLLBACK")
    return count


@pytest.mark.parametrize("name", _ON_BATCHES)
@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_sqlite_finds_batches_through_its_indexes(
    backend_url: str, backend_name: str, database: apsw.Connection, name: str
) -> None:
    """Each query of a claim and of the idle poll uses its own index, at any size."""
    await _fill(backend_url, backend_name, FEW)
    _assert_searched(database, name)
    await raw(backend_url, _load(backend_name, FEW + 1, 100, due_ms=1))
    await raw(backend_url, "ANALYZE")
    _assert_searched(database, name)


def _assert_searched(connection: apsw.Connection, name: str) -> None:
    plan = [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + _SQLITE[name], _Parameters())]
    found = [
        line
        for line in plan
        if " lash_batches" in line or line.startswith(("SEARCH b ", "SCAN b", "SEARCH c ", "SCAN c "))
    ]
    assert found == [f"SEARCH {line}" for line in _ON_BATCHES[name]]


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_sqlite_works_no_longer_with_more_work(
    backend_url: str, backend_name: str, database: apsw.Connection
) -> None:
    """SQLite runs equally many instructions with 2,000 and with 100,000 batches queued."""
    questions: dict[str, dict[str, object]] = {
        "queue_head": {"session_id": "s1", "early": 5, "late": 5, "now_ms": 9, "lease_fencing": 1},
        "queue_promote": {"session_key": 2, "now_ms": 0},
        "queue_ready_sessions": {"limit": 5, "now_ms": 9},
        "queue_all": {"after": 500, "limit": 5, "now_ms": 9},
        "queue_all_prefix": {"first": "lone", "end": "lonf", "after": 0, "limit": 5, "now_ms": 9},
        "queue_all_claimed": {"after": 0, "limit": 5, "now_ms": 9},
    }
    await _fill(backend_url, backend_name, 200)
    few = {name: _steps(database, name, **parameters) for name, parameters in questions.items()}
    await raw(backend_url, _load(backend_name, 201, MANY, due_ms=1))
    many = {name: _steps(database, name, **parameters) for name, parameters in questions.items()}
    assert few == many
    assert min(few.values()) > 0


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _rows_read(node: dict[str, Any]) -> int:
    """Return how many rows a plan node read, filtered out or not."""
    each = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    rows: int = round(each * node["Actual Loops"])
    return rows


@asynccontextmanager
async def _server(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    options = PostgresOptions.from_url(url)
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    try:
        yield connection
    finally:
        await connection.close()


_QUESTIONS: Final = (
    ("queue_facts", "'s3', 1, 'early,late', 64"),
    ("queue_facts", "'lonely', 1, 'early,late', 64"),
    ("queue_ready_sessions", "100, NULL"),
    ("queue_ready_sessions", "100, 's9'"),
    ("queue_known_key", "'s3', 'unknown'"),
    ("queue_stamp", "4, ARRAY[1, 2, 3], 'owner', 'incarnation', 'token', 1, 'id', 'token', 5"),
    ("queue_claim_turn", "4, '1,2,3', 1, 'owner', 'incarnation', NULL, 'token', 'id', 'token', 5, 'scope'"),
    ("queue_extend", "'s3', 'token', 2, 5"),
    ("queue_cancel", "'s3', 'unknown'"),
    ("queue_all", "0, NULL, 100"),
    ("queue_all", "90000, NULL, 100"),
    ("queue_all_prefix", "0, NULL, 100, 'lone', 'lonf'"),
    ("queue_all_claimed", "0, 'claimed', 100"),
)
"""Statements that must not grow, with the arguments of a call. The only batch of ``lonely`` is the newest."""


async def _plan(connection: asyncpg.Connection[asyncpg.Record], text: str, arguments: str) -> dict[str, Any]:
    """Run a statement prepared, as a driver does, roll back, and return its plan."""
    async with connection.transaction():
        for setting, value in PLANNING.items():
            await connection.execute(f"SET LOCAL {setting} = {value}")
        await connection.execute(f"PREPARE asked AS {text}")
        explained = await connection.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS off, FORMAT JSON) EXECUTE asked ({arguments})"
        )
        await connection.execute("DEALLOCATE asked")
    plan: dict[str, Any] = json.loads(explained)[0]["Plan"]
    return plan


@pytest.mark.parametrize("backend_name", ["postgres"], indirect=True)
async def test_postgres_reads_few_rows_however_many_are_queued(backend_url: str, backend_name: str) -> None:
    """No step of a claim or of the idle poll reads more than a few hundred of 100,000 rows."""
    queries = load_queries("lash.postgres.sql", schema=PostgresOptions.from_url(backend_url).schema)
    await _fill(backend_url, backend_name, FEW)
    async with _server(backend_url) as connection:
        await _assert_few_rows(connection, queries)
        await connection.execute(_load(backend_name, FEW + 1, MANY, due_ms=1))
        await connection.execute(_load(backend_name, 2, 2, due_ms=1, which="="))
        await connection.execute("ANALYZE lash_batches")
        await _assert_few_rows(connection, queries)
        # Nothing in the late lane, in long queues.
        await connection.execute("UPDATE lash_batches SET lane = 'early'")
        await connection.execute("VACUUM ANALYZE lash_batches")
        await _assert_few_rows(connection, queries)
        # Much delayed work, none of it due.
        await connection.execute(f"UPDATE lash_batches SET available_at_ms = {NEVER_MS} WHERE available_at_ms = 1")
        await _assert_few_rows(connection, queries)
        await connection.execute("VACUUM ANALYZE lash_batches")
        await _assert_few_rows(connection, queries)


async def _assert_few_rows(connection: asyncpg.Connection[asyncpg.Record], queries: Mapping[str, str]) -> None:
    for name, arguments in _QUESTIONS:
        plan = await _plan(connection, queries[name], arguments)
        touched = [node for node in _nodes(plan) if "Relation Name" in node or "Index Name" in node]
        most = max(touched, key=_rows_read)
        assert _rows_read(most) <= FEW_HUNDRED, f"{name} ({arguments}): {most}"
        scanned = {node["Relation Name"] for node in touched if node["Node Type"] == "Seq Scan"}
        assert "lash_batches" not in scanned, f"{name} ({arguments})"
