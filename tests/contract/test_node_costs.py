"""Costs of reading nodes by id, parent and kind: the same at 10 and at 10,000 nodes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

import apsw
import asyncpg
import pytest

import lash
from lash.postgres.engine.options import PostgresOptions
from lash.sqlkit.queries import load_queries
from tests.factories.session import commit, node, started
from tests.raw import raw

_MANY: Final = 10_000
_FILL: Final = """
    INSERT INTO lash_nodes (
        session_key, segment, depth, seq, node_id, parent_node_id, user_message, body, kind, begins_branch
    )
    SELECT 1, value, 1, value, 'n' || value, 'a', {no}, 'x', 'plugin:other', {yes}
    FROM generate_series(10, {many}) AS value
    """
_SEGMENTS: Final = """
    INSERT INTO lash_segments (session_key, segment, parent_segment, parent_depth)
    SELECT 1, value, 1, 0 FROM generate_series(10, {many}) AS value
    """
_ERASED: Final = ("erase_found", "erase_nodes", "erase_head")
_READS: Final = {
    "node_many": "'s', ARRAY['a', 'b', 'n500']",
    "node_children": "'s', NULL, 'a', 20",
    "node_list": "'s', NULL, 'message', 20",
    "node_tail": "'s', 20",
    "node_list_newest": "'s', 'n500', 'plugin:other', 20",
}


async def _fill(url: str, *, many: bool) -> None:
    async with await lash.open(url) as storage:
        session = await started(storage, "s", "a", "b")
        await session.commit(commit(1, node("c", "a")))
    if many:
        flags = {"no": "0", "yes": "1"} if url.startswith("sqlite") else {"no": "false", "yes": "true"}
        for statement in (_SEGMENTS, _FILL):
            await raw(url, statement.format(many=_MANY, **flags))


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_each_read_is_as_many_statements_at_any_size(backend_url: str, backend_name: str) -> None:
    """On PostgreSQL each read is one statement; on SQLite the session, the beginning of the page, and the page.

    The end of the active path is one statement on both.
    """
    names: list[str] = []
    async with await lash.open(backend_url, on_statement=names.append) as storage:
        session = await started(storage, "s", *(f"n{number}" for number in range(100)))
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "nodes": lambda: session.nodes([f"n{number}" for number in range(100)]),
            "children": lambda: session.children("n5"),
            "kind": lambda: session.list_nodes("message", after="n5", limit=50),
            "tail": lambda: session.raw_path(last=20),
            "manifest": session.checkpoint_manifest,
        }
        ran = {}
        for name, call in calls.items():
            await call()
            names.clear()
            await call()
            ran[name] = len([each for each in names if each.startswith(("session_", "node_", "checkpoint_"))])
            assert name != "tail" or names == ["node_tail"]
    sqlite = {"nodes": 2, "children": 2, "kind": 3, "tail": 1, "manifest": 3}
    assert ran == (sqlite if backend_name == "sqlite" else dict.fromkeys(ran, 1))


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_an_erasure_is_as_many_statements_at_any_size(backend_url: str, backend_name: str) -> None:
    """Erasing one node or a thousand, in a short graph or a long one, runs the same statements."""
    names: list[str] = []
    ran = []
    async with await lash.open(backend_url, on_statement=names.append) as storage:
        for session_id, length, gone in (("warm", 2, 1), ("short", 10, 1), ("long", 2_000, 1_000)):
            nodes = [f"n{number}" for number in range(length)]
            session = await started(storage, session_id, *nodes)
            names.clear()
            assert await session.erase(nodes[:gone]) == gone
            ran.append(names.copy())
    assert ran[1] == ran[2]
    assert len(ran[1]) == {"sqlite": 12, "postgres": 9}[backend_name], ran[1]


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_sqlite_finds_nodes_through_its_indexes(backend_url: str) -> None:
    """No read scans the table of nodes, also after the file was analysed."""
    await _fill(backend_url, many=False)
    connection = apsw.Connection(urlsplit(backend_url).path.removeprefix("/"))
    try:
        for _ in range(2):
            for name in (*_READS, "node_place", *_ERASED):
                text = load_queries("lash.sqlite.sql")[name]
                plan = [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + text, _Nulls())]
                assert not [line for line in plan if line.startswith(("SCAN n", "SCAN lash_"))], (name, plan)
            connection.execute("ANALYZE")
    finally:
        connection.close()


class _Nulls(dict[str, None]):
    """Parameters of a query, all NULL."""

    def __missing__(self, name: str) -> None:
        return None


@pytest.mark.parametrize("backend_name", ["postgres"], indirect=True)
async def test_postgres_reads_as_many_rows_as_it_returns(backend_url: str) -> None:
    """A node with 10,000 children, and a kind with as many nodes, cost what a page of them costs."""
    await _fill(backend_url, many=True)
    options = PostgresOptions.from_url(backend_url)
    queries = load_queries("lash.postgres.sql", schema=options.schema)
    connection = await asyncpg.connect(options.dsn)
    try:
        await connection.execute(f'ANALYZE "{options.schema}".lash_nodes')
        for name, values in _READS.items():
            await connection.execute(f"PREPARE {name} AS {queries[name]}")
            explained = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {name} ({values})")
            assert _rows(json.loads(explained)[0]["Plan"]) <= 50, name
    finally:
        await connection.close()


def _rows(plan: dict[str, Any]) -> int:
    """Return how many rows of nodes were read, also the rows that a filter dropped."""
    own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    read = own if plan.get("Relation Name") == "lash_nodes" else 0
    return int(read) + sum(_rows(child) for child in plan.get("Plans", ()))
