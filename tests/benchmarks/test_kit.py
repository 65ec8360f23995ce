"""The parts of the benchmarks: the text, the figures, and the literals that pgbench is given."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

import asyncpg
import pytest

from benchmarks.kit.measure import Samples, by_turns
from benchmarks.kit.postgres_trace import Lane, find_pgbench, literal, pgbench_rate
from benchmarks.kit.report import Ratio
from benchmarks.kit.server_log import Count, counted
from benchmarks.kit.text import prose
from benchmarks.kit.workspace import workspace
from lash.testing.postgres_server import PostgresServer


def test_prose_is_hardly_compressible() -> None:
    """Text shrinks as natural language does, neither like noise nor like one repeated letter."""
    text = prose("seed", 100_000).encode()
    assert 2.0 < len(text) / len(zlib.compress(text)) < 3.0


def test_prose_depends_on_its_seed_alone() -> None:
    """The same seed gives the same text, another seed another one, of exactly the length asked for."""
    assert prose((1, "a"), 500) == prose((1, "a"), 500)
    assert prose((1, "a"), 500) != prose((1, "b"), 500)
    assert [len(prose(0, size)) for size in (1, 7, 500)] == [1, 7, 500]


def test_sides_take_turns() -> None:
    """Every side is measured once in a round, the first round does not count, and the order alternates."""
    order: list[str] = []

    def side(name: str, number: int) -> float:
        order.append(name)
        return float(number)

    first, second = by_turns([lambda number: side("a", number), lambda number: side("b", number)], 3)
    assert first.values == second.values == (1.0, 2.0, 3.0)
    assert order == ["b", "a", "a", "b", "b", "a", "a", "b"]


def test_a_ratio_is_of_medians() -> None:
    """One outlier round does not count."""
    ratio = Ratio(case="", ours=Samples((1.0, 2.0, 90.0)), other=Samples((4.0, 4.0, 4.0)), unit="x")
    assert ratio.value == 0.5
    assert ratio.ours.spread == 44.5


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "text"),
        (-5, "bigint"),
        (True, "boolean"),
        ('it\'s "quoted" \\ {x} :name; -- ?', "text"),
        (b"\x00'\\\xff", "bytea"),
        (["a,b", None, 'c"d', "\\", "NULL", ""], "text[]"),
        ([1, None], "bigint[]"),
        ([b"\x01\\", None], "bytea[]"),
        ([], "boolean[]"),
    ],
    ids=str,
)
def test_literals_mean_what_they_were(postgres_server: PostgresServer, value: object, kind: str) -> None:
    """PostgreSQL reads a literal as the value that it was made of."""

    async def read() -> object:
        connection = await asyncpg.connect(postgres_server.url)
        try:
            return await connection.fetchval(f"SELECT {literal(value)}::{kind}")
        finally:
            await connection.close()

    assert asyncio.run(read()) == value


def test_pgbench_is_timed_after_its_warm_calls(postgres_server: PostgresServer, tmp_path: Path) -> None:
    """The rate is that of the calls after the warm-up, which are slower here."""
    pgbench = find_pgbench()
    assert pgbench is not None
    call = "SELECT pg_sleep($1)"
    lanes: list[Lane] = [[[(call, (seconds,))] for seconds in (0, 0, 0.05, 0.05)] for _ in range(2)]
    with workspace(tmp_path, rounds=1, scale=1, server=postgres_server) as here:
        rate = pgbench_rate(pgbench, here, postgres_server.url, lanes, warm=2)
    assert 0 < rate <= len(lanes) / 0.05


def test_the_server_counts_statements_and_transactions(tmp_path: Path, postgres_server: PostgresServer) -> None:
    """What runs after the mark in one database is counted at once, a transaction of several statements once."""

    async def run(url: str, *texts: str) -> None:
        connection = await asyncpg.connect(url)
        for text in texts:
            await connection.fetch(text)
        await connection.close()

    with (
        workspace(tmp_path, rounds=1, scale=1, server=postgres_server) as here,
        here.database() as url,
        counted(postgres_server, url) as log,
    ):
        asyncio.run(run(url, "SELECT 1"))
        log.mark()
        asyncio.run(run(url, "SELECT\n1", "BEGIN", "SELECT 2", "SELECT 3", "COMMIT", "LISTEN here"))
        asyncio.run(run(postgres_server.url, "SELECT 4"))
        assert log.count() == Count(statements=6, transactions=3)
