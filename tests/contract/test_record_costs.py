"""Costs of records: one statement on PostgreSQL, and the same at 10 and at 10,000 keys."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

import apsw
import asyncpg
import pytest

import lash
from lash.model.record import RecordDelete, RecordPut
from lash.postgres.engine.options import PostgresOptions
from lash.sqlkit.queries import load_queries
from tests.factories.session import commit, created, node
from tests.raw import raw

_MANY: Final = 10_000
_FILL: Final = rf"""
    INSERT INTO lash_records (
        scope_key, collection, key, version, form, hash, codec, size, index_1, index_2, created_at_ms, updated_at_ms,
        content
    )
    SELECT 0, 'c', 'k' || value, 1, 'json', 'x', 'plain', 1, 'all=1', CASE WHEN value % 100 = 0 THEN 'some=1' END, 1,
        1, '\x31'::bytea
    FROM generate_series(1, {_MANY}) AS value
    """
_READS: Final = {
    "record_get": "NULL, 'c', ARRAY['k11', 'k500', 'none']",
    "record_page": "NULL, 'c', 'k2', 'k3', 20",
    "record_page_back": "NULL, 'c', '', 'l', 20",
    "record_page_by_index": "NULL, 'c', 'k2', 'l', 20, 'all=1', NULL, NULL, NULL",
    "record_page_by_index_back": "NULL, 'c', '', 'l', 20, 'some=1', 'all=1', NULL, NULL",
    "record_collections": "NULL",
    "record_apply": "ARRAY[NULL, NULL], ARRAY['c', 'c'], ARRAY['k500', 'new'], ARRAY[1, 0], ARRAY['json', 'json'], "
    "ARRAY['x', 'x'], ARRAY['plain', 'plain'], ARRAY[1, 1], ARRAY['1', '1']::bytea[], ARRAY['all=1', NULL], "
    "ARRAY[NULL, NULL], ARRAY[NULL, NULL], ARRAY[NULL, NULL], ARRAY[NULL, NULL]::bigint[], "
    "ARRAY[NULL, NULL]::bigint[], 1000",
    "record_prune": "NULL, 20",
}


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_each_call_is_as_many_statements_at_any_size(backend_url: str, backend_name: str) -> None:
    """On PostgreSQL each call is one statement, also of a session's records; on SQLite few, whatever is stored."""
    names: list[str] = []
    many = [RecordPut(collection="many", key=str(number), value=number) for number in range(50)]
    async with await lash.open(backend_url, on_statement=names.append) as storage:
        session, records = await created(storage, "s"), storage.records
        await session.commit(commit(0, node("a")))
        put = RecordPut(collection="c", key="k", value=1)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "get": lambda: records.get("c", "k"),
            "get many": lambda: records.get_many("c", [str(number) for number in range(50)]),
            "get of a session": lambda: records.get("c", "none", session_id="s"),
            "put": lambda: records.put("c", "k", 1, index={"f": "x"}),
            "put of a session": lambda: records.put("c", "k", 1, session_id="s"),
            "list": lambda: records.list("c", prefix="k"),
            "list by index": lambda: records.list("c", where={"f": "x"}, reverse=True),
            "put many": lambda: records.put_many(many),
            "delete many": lambda: records.delete_many(
                [RecordDelete(collection=each.collection, key=each.key) for each in many]
            ),
            "commit": lambda: session.commit(commit(1, node("b", "a"), records=(put,))),
        }
        ran = {}
        for name, call in calls.items():
            names.clear()
            await call()
            ran[name] = len([each for each in names if each.startswith(("record_", "commit_", "session_"))])
    if backend_name == "postgres":
        assert ran == dict.fromkeys(ran, 1)
        return
    assert ran.pop("commit") <= 8
    assert ran == {
        "get": 1,
        "get many": 1,
        "get of a session": 2,
        "put": 2,
        "put of a session": 4,
        "list": 1,
        "list by index": 1,
        "put many": 100,
        "delete many": 100,
    }


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_sqlite_finds_records_through_its_indexes(backend_url: str) -> None:
    """No statement scans the table or sorts a collection, also after the file was analysed."""
    async with await lash.open(backend_url) as storage:
        puts = [RecordPut(collection="c", key=str(number), value=1, index={"f": "x"}) for number in range(100)]
        await storage.records.put_many(puts)
    connection = apsw.Connection(urlsplit(backend_url).path.removeprefix("/"))
    queries = load_queries("lash.sqlite.sql")
    try:
        for _ in range(2):
            for name in (each for each in queries if each.startswith("record_")):
                plan = [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + queries[name], _Nulls())]
                assert not [line for line in plan if line.startswith("SCAN lash_records")], (name, plan)
            for name in ("record_page", "record_page_back"):
                plan = [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + queries[name], _Nulls())]
                assert not [line for line in plan if "B-TREE" in line], (name, plan)
            connection.execute("ANALYZE")
    finally:
        connection.close()


class _Nulls(dict[str, None]):
    """Parameters of a query, all NULL."""

    def __missing__(self, name: str) -> None:
        return None


@pytest.mark.parametrize("backend_name", ["postgres"], indirect=True)
async def test_postgres_reads_as_many_rows_as_it_returns(backend_url: str) -> None:
    """Plans that were made on an empty table read at most a page of rows at 10,000 keys."""
    async with await lash.open(backend_url):
        pass
    options = PostgresOptions.from_url(backend_url)
    queries = load_queries("lash.postgres.sql", schema=options.schema)
    settings = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
    connection = await asyncpg.connect(options.dsn, server_settings=settings)
    try:
        for name, values in _READS.items():
            await connection.execute(f"PREPARE {name} AS {queries[name]}")
            await connection.execute(f"EXPLAIN EXECUTE {name} ({values})")
        await raw(backend_url, _FILL)
        for analysed in (False, True):
            for name, values in _READS.items():
                explained = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {name} ({values})")
                assert _rows(json.loads(explained)[0]["Plan"]) <= 60, (name, analysed)
            await raw(backend_url, "DELETE FROM lash_records WHERE key = 'new'")
            await raw(backend_url, "UPDATE lash_records SET version = 1 WHERE key = 'k500'")
            await raw(backend_url, "ANALYZE lash_records")
    finally:
        await connection.close()


def _rows(plan: dict[str, Any]) -> int:
    """Return how many rows of records were read, also the rows that a filter dropped."""
    own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    read = own if plan.get("Relation Name") == "lash_records" else 0
    return int(read) + sum(_rows(child) for child in plan.get("Plans", ()))
