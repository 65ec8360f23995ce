"""Costs of emissions and of reads of subscriptions: independent of how many rows exist."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import asyncpg
import pytest
import pytest_asyncio

import lash
from lash.postgres.engine.options import PostgresOptions
from lash.sqlkit.queries import load_queries
from lash.stores.storage import Storage
from lash.testing.postgres_server import PostgresServer
from tests.backends import fresh_schema, run_sql
from tests.factories.session import created
from tests.factories.trigger import by_session, pressed, subscribed, trigger
from tests.raw import raw

_MANY: Final = 1_000
_SUBSCRIPTIONS: Final = 100_000
_OCCURRENCES: Final = 20_000
_MATCHES: Final = 100
"""How many subscriptions watch the same source."""
_MOST_ROWS: Final = 1_000
"""More rows than any query here needs to read, and far fewer than exist."""


class Recorder:
    """Records the names of the statements that a storage runs."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str) -> None:
        self.names.append(name)


@pytest_asyncio.fixture(loop_scope="session")
async def storage(backend_url: str, recorder: Recorder) -> AsyncIterator[Storage]:
    async with await lash.open(backend_url, on_statement=recorder) as opened:
        yield opened


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_thousand_deliveries_cost_as_many_statements_as_one(
    storage: Storage, recorder: Recorder, backend_url: str, backend_name: str
) -> None:
    """The number of statements of an emission does not depend on how many subscriptions match."""
    await created(storage)
    await subscribed(storage, wake_session_id="s")
    recorder.names.clear()
    await storage.occurrences.emit(pressed())
    one = list(recorder.names)
    await _multiply(backend_url, backend_name, _MANY - 1)
    recorder.names.clear()
    report = await storage.occurrences.emit(pressed("2"))
    assert len(report.started_process_ids) == len(set(report.started_process_ids)) == _MANY
    assert recorder.names == one
    assert len(one) == {"sqlite": 10, "postgres": 2}[backend_name]
    recorder.names.clear()
    await storage.occurrences.emit(pressed("2"))
    assert len(recorder.names) == {"sqlite": 4, "postgres": 1}[backend_name]


async def _multiply(url: str, backend_name: str, count: int) -> None:
    """Insert copies of the first subscription under other names, directly into the table."""
    columns = (
        "fingerprint, definition, source_type, source_key, definition_hash, environment_ref, enabled,"
        " created_at_ms, updated_at_ms"
    )
    numbers = {
        "sqlite": "(WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c"
        f" WHERE n < {count}) SELECT n FROM c)",
        "postgres": f"(SELECT generate_series(1, {count}) AS n)",
    }
    await raw(
        url,
        f"INSERT INTO lash_trigger_subscriptions (subscription_id, owner_session_id, key, revision, {columns})"
        f" SELECT 'id' || c.n, owner_session_id, key || c.n, 1, {columns}"
        f" FROM {numbers[backend_name]} AS c, lash_trigger_subscriptions ORDER BY c.n",
    )


_FILL: Final = f"""
INSERT INTO lash_trigger_subscriptions (
    subscription_id, owner_session_id, key, revision, fingerprint, definition, source_type, source_key,
    definition_hash, environment_ref, enabled, created_at_ms, updated_at_ms
)
SELECT
    'id' || n, CASE WHEN n % 2 = 0 THEN '' ELSE 'session' || n % 500 END, 'key' || n, 1, t.fingerprint, t.definition,
    'type' || n % 20, 'source' || n % {_SUBSCRIPTIONS // _MATCHES}, 'definition' || n % 300, 'environment' || n % 1000,
    n % 1000 <> 0, n, n
FROM generate_series(1, {_SUBSCRIPTIONS}) AS n, lash_trigger_subscriptions AS t;
INSERT INTO lash_trigger_occurrences (occurrence_id, request_hash, request, report, occurred_at_ms)
SELECT 'occurrence' || n, '', '', '', n FROM generate_series(1, {_OCCURRENCES}) AS n;
INSERT INTO lash_trigger_deliveries (
    occurrence_key, position, subscription_id, owner_session_id, key, process_id, state, attempts
)
SELECT occurrence_key, 0, 'id', '', 'key', 'process' || occurrence_key, 'started', 1 FROM lash_trigger_occurrences;
ANALYZE lash_trigger_subscriptions, lash_trigger_occurrences, lash_trigger_deliveries;
"""
"""Fills a storage with copies of its one subscription."""

_NONE: Final = "NULL, 101"
_EMPTY: Final = ", ".join([*["'{}'"] * 12, "'p'", *["'{}'"] * 10])
"""The arrays of an emission without a match, and the projection of its processes."""
_NO_SCHEDULE: Final = ", ".join(["NULL"] * 7)
QUERIES: Final[dict[str, tuple[str, str, int]]] = {
    "facts": ("emit_facts", "'occurrence77', 'type7', 'source7'", 1),
    "emission": ("emit_apply", f"'o', 'h', 'b', 'r', 'type7', 'source8', {_EMPTY}, {_NO_SCHEDULE}", 1),
    "match": ("emit_match", "'type7', 'source7'", _MATCHES),
    "no match": ("emit_match", "'type7', 'source8'", 0),
    "one by name": ("trigger_row", "'session7', 'key1007'", 1),
    "one by id": ("emit_subscription", "'id77'", 1),
    "all": ("trigger_page", f"{_NONE}, NULL, NULL, NULL, NULL, NULL, NULL", 101),
    "a session's end": ("trigger_delete_session", "'session7'", 1),
    "whether a session ends more": ("session_ties", "'session7'", 1),
    "the locks of deletions": ("session_delete_untied", "'{session7,session9}', false, false", 0),
    "a deletion": ("session_delete_untied", "'{session7,session9}', false, true", 2),
    "all deliveries": ("emit_all_deliveries", "77", 1),
    "one delivery": ("emit_delivery", "77, 'id'", 1),
    "prunable": ("emit_prunable", "1000000, 100", 100),
}
"""Queries of a full storage: name, arguments, and the number of rows that each must return."""


class Full:
    """A storage with 100,000 subscriptions and many occurrences."""

    def __init__(self, url: str) -> None:
        options = PostgresOptions.from_url(url)
        self._dsn = options.dsn
        self._queries = load_queries("lash.postgres.sql", schema=options.schema)

    async def explain(self, name: str, arguments: str, mode: str) -> list[dict[str, Any]]:
        """Run the query under a plan mode, roll back, and return the plan nodes that ran."""
        connection = await asyncpg.connect(self._dsn)
        try:
            await connection.execute(f"SET plan_cache_mode = {mode}")
            await connection.execute(f"PREPARE asked AS {self._queries[name]}")
            await connection.execute("BEGIN")
            text = await connection.fetchval(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE asked ({arguments})")
            await connection.execute("ROLLBACK")
        finally:
            await connection.close()
        return [node for node in _nodes(json.loads(text)[0]["Plan"]) if node["Actual Loops"]]


@pytest.fixture(scope="module")
def full(postgres_server: PostgresServer) -> Iterator[Full]:
    with fresh_schema(postgres_server.url) as url:
        _fill(url)
        yield Full(url)


def _fill(url: str) -> None:
    async def prepare() -> None:
        async with await lash.open(url) as storage:
            await storage.triggers.register(trigger("first"))

    asyncio.run(prepare())
    run_sql(PostgresOptions.from_url(url).dsn, f'SET search_path = "{PostgresOptions.from_url(url).schema}"', _FILL)


@pytest.mark.parametrize("backend_name", ["postgres"])
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("case", QUERIES)
async def test_indexes_are_used(full: Full, backend_name: str, case: str, mode: str) -> None:
    """With 100,000 subscriptions and many occurrences no query scans a table or reads unneeded rows."""
    name, arguments, answered = QUERIES[case]
    nodes = await full.explain(name, arguments, mode)
    assert nodes[0]["Actual Rows"] == answered
    scans = [node for node in nodes if str(node.get("Relation Name", "")).startswith("lash_trigger")]
    assert [node for node in scans if node["Node Type"] == "Seq Scan"] == []
    assert sum(map(_rows_read, scans)) <= _MOST_ROWS, json.dumps(scans)


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_a_sqlite_match_reads_what_matches(backend_url: str, backend_name: str) -> None:
    """An emission finds its matches by an index over both source fields."""
    async with await lash.open(backend_url) as storage:
        await created(storage)
        await subscribed(storage, "elsewhere", owner=by_session(), source_key="red")
        await _multiply(backend_url, backend_name, 10_000)
        await subscribed(storage)
        report = await storage.occurrences.emit(pressed())
    assert [each.key for each in report.deliveries] == ["k"]
    query = load_queries("lash.sqlite.sql")["emit_match"].replace(":source_type", "'t'").replace(":source_key", "'k'")
    plan = await raw(backend_url, f"EXPLAIN QUERY PLAN {query}")
    assert [row[3] for row in plan] == [
        "SEARCH t USING INDEX lash_trigger_subscriptions_match (source_type=? AND source_key=?)"
    ]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _rows_read(node: dict[str, Any]) -> float:
    """Return how many rows a scan read, filtered out or not."""
    kept, thrown_away = node.get("Actual Rows", 0), node.get("Rows Removed by Filter", 0)
    return float((kept + thrown_away) * node["Actual Loops"])
