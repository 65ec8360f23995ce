"""The rows of forks of forks: few for each, shared while they are inherited, and gone with the last fork."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

import lash
from lash.postgres.engine.options import PostgresOptions
from lash.sqlkit.queries import load_queries
from tests.factories.session import node, started
from tests.raw import raw


async def _chain_of_forks(storage: lash.Storage, length: int) -> str:
    """Fork a session, then the fork, and so on, each with a node of its own; return the last."""
    await started(storage, "f0", "n0")
    for number in range(1, length + 1):
        await storage.sessions.fork(f"f{number - 1}", f"f{number}")
        await storage.session(f"f{number}").append([node(f"n{number}")])
    return f"f{length}"


_ROWS = "SELECT (SELECT count(*) FROM lash_runs) + (SELECT count(*) FROM lash_inherited)"


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_fork_of_forks_writes_two_rows_about_its_ancestors(backend_url: str) -> None:
    """At any depth of a chain a fork adds one run and one reference; a path across the chain is whole."""
    async with await lash.open(backend_url) as storage:
        last = await _chain_of_forks(storage, 12)
        assert await raw(backend_url, _ROWS) == [(24,)]
        await storage.sessions.fork(last, "other")
        await storage.sessions.fork(last, "at an inherited node", node_id="n5")
        await storage.sessions.fork("other", "same", node_id="n12")
        assert await raw(backend_url, _ROWS) == [(24 + 2 + 1 + 1,)]
        read = await storage.session("same").load()
        assert read is not None
        assert [each.node_id for each in read.graph.nodes] == [f"n{number}" for number in range(13)]
        short = await storage.session("at an inherited node").load(lash.model.ActivePath(last=2))
        assert short is not None
        assert [each.node_id for each in short.graph.nodes] == ["n4", "n5"]


@pytest.mark.parametrize("backend_name", ["postgres"], indirect=True)
async def test_the_search_for_a_node_ends_where_it_is_found(backend_url: str) -> None:
    """An own node costs the same at any depth of a chain of forks, an inherited one as many runs as it lies above."""
    async with await lash.open(backend_url) as storage:
        last = await _chain_of_forks(storage, 12)
    options = PostgresOptions.from_url(backend_url)
    connection = await asyncpg.connect(options.dsn)
    try:
        await connection.execute(
            f"PREPARE one AS {load_queries('lash.postgres.sql', schema=options.schema)['node_one']}"
        )
        for node_id, runs in {"n12": 0, "n11": 1, "n9": 3, "n0": 12, "unknown": 12}.items():
            explained = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE one ('{last}', '{node_id}')")
            # Before version 18 the server rounds the rows of each loop.
            assert abs(_runs(json.loads(explained)[0]["Plan"]) - runs) <= 1, node_id
    finally:
        await connection.close()


def _runs(plan: dict[str, Any]) -> int:
    """Return how many runs were read."""
    own = round(plan["Actual Rows"] * plan["Actual Loops"]) if plan.get("Relation Name") == "lash_runs" else 0
    return own + sum(_runs(child) for child in plan.get("Plans", ()))


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_runs_go_with_the_last_fork_that_inherits_them(backend_url: str) -> None:
    """Deleting a chain in any order leaves what the others inherit, and in the end nothing."""
    async with await lash.open(backend_url) as storage:
        last = await _chain_of_forks(storage, 8)
        await storage.sessions.fork("f4", "side", node_id="n3")
        for number in (3, 0, 5, 1, 7, 2, 6, 4):
            await storage.sessions.delete(f"f{number}")
            assert await storage.maintenance.find_damage() == ()
        assert await raw(backend_url, "SELECT count(*) FROM lash_nodes") == [(9,)]
        await storage.sessions.delete(last)
        read = await storage.session("side").load()
        assert read is not None
        assert [each.node_id for each in read.graph.nodes] == ["n0", "n1", "n2", "n3"]
        assert await raw(backend_url, "SELECT count(*) FROM lash_nodes") == [(4,)]
        await storage.sessions.delete("side")
        for table in ("lash_runs", "lash_inherited", "lash_segments", "lash_nodes"):
            assert await raw(backend_url, f"SELECT count(*) FROM {table}") == [(0,)]
