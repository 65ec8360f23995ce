"""PostgreSQL: lash's one guarded statement against the seeds' way of committing, on the same driver.

The seeds read the head, write one statement for each row, read totals to write them back, and count the nodes of the
session, all in one transaction. The fixture does that with the same content, on tables of its own.
"""

from __future__ import annotations

import asyncio
import functools
import time

import asyncpg

import lash
from benchmarks.kit.machine import postgres_versions
from benchmarks.kit.measure import by_turns
from benchmarks.kit.registry import Scenario, register
from benchmarks.kit.report import Ratio, Report, Row
from benchmarks.kit.works import CommitWork, check_all, commit_of, nodes_of, rate
from benchmarks.kit.workspace import Workspace

_NODES = (20, 1, 200)
"""The first is the headline."""
_CALLS = {1: 200, 20: 100, 200: 30}
_TABLES = """
CREATE TABLE heads (session_id text PRIMARY KEY, revision bigint NOT NULL, leaf text, node_count bigint NOT NULL);
CREATE TABLE turns (session_id text, turn_id text, hash text NOT NULL, PRIMARY KEY (session_id, turn_id));
CREATE TABLE nodes (
    session_id text, node_id text, parent_id text, seq bigint NOT NULL, body text NOT NULL,
    PRIMARY KEY (session_id, node_id)
);
CREATE INDEX nodes_in_order ON nodes (session_id, seq);
CREATE TABLE blobs (hash text PRIMARY KEY, content bytea NOT NULL);
CREATE TABLE usage_rows (session_id text, source text, model text, input bigint, output bigint);
CREATE TABLE usage_totals (
    session_id text, source text, model text, input bigint NOT NULL, output bigint NOT NULL,
    PRIMARY KEY (session_id, source, model)
);
INSERT INTO heads VALUES ('session-000', 0, NULL, 0);
INSERT INTO usage_totals VALUES ('session-000', 'turn', 'model-x', 0, 0);
"""
_SESSION = "session-000"


async def commit_row_by_row(
    connection: asyncpg.Connection[asyncpg.Record], number: int, bodies: list[tuple[str, str | None, str]], state: bytes
) -> None:
    """Commit one turn as the seeds do."""
    turn = f"turn-{number}"
    async with connection.transaction():
        head = await connection.fetchrow("SELECT * FROM heads WHERE session_id = $1 FOR UPDATE", _SESSION)
        assert head is not None
        assert head["revision"] == number
        known = "SELECT hash FROM turns WHERE session_id = $1 AND turn_id = $2"
        assert await connection.fetchrow(known, _SESSION, turn) is None
        for place, (node_id, parent, body) in enumerate(bodies):
            insert = "INSERT INTO nodes VALUES ($1, $2, $3, $4, $5)"
            await connection.execute(insert, _SESSION, node_id, parent, head["node_count"] + place, body)
        await connection.execute("INSERT INTO blobs VALUES ($1, $2) ON CONFLICT DO NOTHING", f"hash-{number}", state)
        spent = (1000 + number, 200)
        await connection.execute("INSERT INTO usage_rows VALUES ($1, 'turn', 'model-x', $2, $3)", _SESSION, *spent)
        totals = await connection.fetchrow("SELECT input, output FROM usage_totals WHERE session_id = $1", _SESSION)
        assert totals is not None
        update = "UPDATE usage_totals SET input = $2, output = $3 WHERE session_id = $1"
        await connection.execute(update, _SESSION, totals["input"] + spent[0], totals["output"] + spent[1])
        count = await connection.fetchval("SELECT count(*) FROM nodes WHERE session_id = $1", _SESSION)
        update = "UPDATE heads SET revision = $2, leaf = $3, node_count = $4 WHERE session_id = $1"
        await connection.execute(update, _SESSION, number + 1, bodies[-1][0], count)
        await connection.execute("INSERT INTO turns VALUES ($1, $2, $3)", _SESSION, turn, f"hash-{number}")


def ours(workspace: Workspace, nodes: int, calls: int, _number: int) -> float:
    """Commit with lash, one turn after the other."""

    async def run(url: str) -> float:
        work = CommitWork(nodes)
        async with await lash.open(url) as storage:
            await work.prepare(storage, 1, calls)
            figure = await rate(storage, work, lanes=1, calls=calls, warm=workspace.warm)
            await check_all(storage, work, lanes=1, calls=calls)
            return figure

    with workspace.database() as url:
        return asyncio.run(run(url))


def row_by_row(workspace: Workspace, nodes: int, calls: int, _number: int) -> float:
    """Commit the same turns as the seeds do."""

    async def run(url: str) -> float:
        turns = [_rows(number, nodes) for number in range(calls)]
        connection = await asyncpg.connect(url)
        await connection.execute(_TABLES)
        for number in range(workspace.warm):
            await commit_row_by_row(connection, number, *turns[number])
        begin = time.perf_counter()
        for number in range(workspace.warm, calls):
            await commit_row_by_row(connection, number, *turns[number])
        taken = time.perf_counter() - begin
        stored = await connection.fetch("SELECT body FROM nodes ORDER BY seq")
        assert [row["body"] for row in stored] == [body for bodies, _ in turns for _, _, body in bodies]
        await connection.close()
        return (calls - workspace.warm) / taken

    with workspace.database() as url:
        return asyncio.run(run(url))


def _rows(number: int, nodes: int) -> tuple[list[tuple[str, str | None, str]], bytes]:
    state = commit_of(0, number, nodes).checkpoint.components["tool_state"]
    assert isinstance(state, bytes)
    bodies = [(each.node_id, each.parent_node_id, repr(each.entry)) for each in nodes_of(0, number, nodes)]
    return bodies, state


def compare(workspace: Workspace) -> Report:
    """Measure commits of few and of many nodes."""
    rows: list[Row] = []
    ratios: list[Ratio] = []
    for nodes in _NODES:
        calls = workspace.warm + workspace.count(_CALLS[nodes])
        sides = [functools.partial(side, workspace, nodes, calls) for side in (ours, row_by_row)]
        mine, theirs = (
            Row(contender=name, case=f"{nodes} nodes", unit="commits/s", samples=samples)
            for name, samples in zip(("lash", "row by row"), by_turns(sides, workspace.rounds), strict=True)
        )
        rows += [mine, theirs]
        ratios.append(Ratio.of(mine, theirs))
    return Report(ratios=tuple(ratios), rows=tuple(rows), versions=postgres_versions(workspace))


register(
    Scenario(
        name="postgres-commit-rows",
        group="the seeds' way",
        what="a commit of 20 (and 1, and 200) nodes, against one statement for each row",
        run=compare,
        target="20 nodes: at least 4 (goal 6)",
    )
)
