"""Costs of lists of sessions: one statement, which reads by an index however many sessions there are."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import apsw
import asyncpg
import pytest

import lash
from lash.backend.session_page import PAGES
from lash.model.session.session import SessionFilter, SessionOrder, SessionState
from lash.plan.session.page import PageParts, prepare_page
from lash.postgres.engine.options import PostgresOptions
from lash.postgres.rows.session.page import page_arguments
from lash.sqlkit.queries import load_queries
from tests.contract.queue_state import late
from tests.factories.session import created, started
from tests.raw import raw

CREATED, ACTIVE = SessionOrder.CREATED, SessionOrder.ACTIVE
WHOLE: Final = PageParts(head=True, state=True, counts=True, checkpoint=True)

_SQLITE: Final = {
    "session_page_newest": "SEARCH s USING INTEGER PRIMARY KEY (rowid<?)",
    "session_page_oldest": "SEARCH s USING INTEGER PRIMARY KEY (rowid>?)",
    "session_page_active_newest": "SEARCH s USING INDEX lash_sessions_active (updated_at_ms>? AND updated_at_ms<?)",
    "session_page_active_oldest": "SEARCH s USING INDEX lash_sessions_active (updated_at_ms>? AND updated_at_ms<?)",
    "session_page_agent_newest": "SEARCH s USING INDEX lash_sessions_agent (agent=? AND rowid<?)",
    "session_page_agent_oldest": "SEARCH s USING INDEX lash_sessions_agent (agent=? AND rowid>?)",
    "session_page_label_newest": "SEARCH lead USING COVERING INDEX lash_session_labels_value "
    "(key=? AND value=? AND session_key<?)",
    "session_page_label_oldest": "SEARCH lead USING COVERING INDEX lash_session_labels_value "
    "(key=? AND value=? AND session_key>?)",
    "session_page_label_active": "SEARCH lead USING COVERING INDEX lash_session_labels_value (key=? AND value=?)",
    "session_page_prefix": "SEARCH s USING INDEX sqlite_autoindex_lash_sessions_1 (session_id>? AND session_id<?)",
    "session_page_search": "SEARCH s USING INTEGER PRIMARY KEY (rowid=?)",
    "session_page_source": "SEARCH s USING INDEX lash_sessions_source (<expr>=?)",
    "session_page_state": "SEARCH s USING INTEGER PRIMARY KEY (rowid=?)",
}
"""The first step of the plan of each query."""
_SORTED: Final = ("label_active", "prefix", "search", "source", "state")
_SHOWN: Final = {"lash_session_leases", "lash_batches", "lash_dead_letters", "lash_waits", "lash_checkpoints"}
"""What states, counts and checkpoints are read from."""

_LOAD: Final = """
INSERT INTO lash_sessions (
    session_id, name, created_at_ms, model, relation, revision, updated_at_ms, agent, first_user_message
)
SELECT
    'u' || lpad((n % 100)::text, 3, '0') || ':' || n, 'n', n, '', t.relation, 0, n * 500, 'agent' || n % 50,
    'hello word' || n % 50
FROM generate_series(1, 5000) AS n, lash_sessions AS t WHERE t.session_id = 's';
INSERT INTO lash_session_leases (session_key) SELECT session_key FROM lash_sessions WHERE session_id LIKE 'u%';
INSERT INTO lash_session_labels (session_key, key, value)
SELECT session_key, '', substr(session_id, 1, 4) FROM lash_sessions WHERE session_id LIKE 'u%'
UNION ALL
SELECT session_key, 'n', (created_at_ms % 50)::text FROM lash_sessions WHERE session_id LIKE 'u%';
VACUUM ANALYZE lashsearch;
ANALYZE lash_sessions, lash_session_leases, lash_session_labels, lash_batches, lash_waits;
"""
_FEW_HUNDRED: Final = 400
_LISTS: Final = (
    (SessionFilter(), CREATED),
    (SessionFilter(), ACTIVE),
    (SessionFilter(active_after_ms=1_000_000, active_before_ms=1_050_000), ACTIVE),
    (SessionFilter(owner="u007"), CREATED),
    (SessionFilter(owner="u007"), ACTIVE),
    (SessionFilter(labels={"n": "7"}), CREATED),
    (SessionFilter(prefix="u007:"), CREATED),
    (SessionFilter(agent="agent7"), CREATED),
    (SessionFilter(source_session_id="u007:7"), ACTIVE),
    (SessionFilter(text="word7 hello"), ACTIVE),
    (SessionFilter(state=SessionState.QUEUED), ACTIVE),
    (SessionFilter(state=SessionState.RUNNING), CREATED),
    (SessionFilter(state=SessionState.IDLE), ACTIVE),
)


@pytest.mark.parametrize("parts", [PageParts(), WHOLE])
@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_list_is_one_statement(backend_url: str, backend_name: str, parts: PageParts) -> None:
    """A page is one statement, whatever it shows; on SQLite the bytes of all checkpoints are a second one."""
    names: list[str] = []
    async with await lash.open(backend_url, on_statement=names.append) as storage:
        for number in range(5):
            await started(storage, f"s{number}")
            await storage.queue.enqueue(late("hello", session_id=f"s{number}"))
        for order in SessionOrder:
            names.clear()
            page = await storage.sessions.list(
                order=order,
                with_head=parts.head,
                with_state=parts.state,
                with_counts=parts.counts,
                with_checkpoint=parts.checkpoint,
            )
            assert len(page.sessions) == 5
            most = 2 if backend_name == "sqlite" and parts.checkpoint else 1
            assert len([name for name in names if name not in ("begin", "commit")]) == most, names


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_sqlite_reads_lists_by_their_indexes(backend_url: str, backend_name: str) -> None:
    """Each query is a range of its index, in the order of the list, or sorts keys before it reads what it shows."""
    async with await lash.open(backend_url) as storage:
        await created(storage)
    queries = load_queries("lash.sqlite.sql")
    assert {name for name in queries if name.startswith("session_page")} == {*_SQLITE, "session_page_components"}
    connection = apsw.Connection(urlsplit(backend_url).path.removeprefix("/"))
    try:
        for name, first in _SQLITE.items():
            plan = [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + queries[name], _Parameters())]
            sorts = name.endswith(_SORTED)
            assert plan[:2] == ["CO-ROUTINE page", first] if sorts else plan[0] == first
            assert any(line.startswith("USE TEMP B-TREE FOR ORDER BY") for line in plan) == sorts
    finally:
        connection.close()


@pytest.mark.parametrize("backend_name", ["postgres"], indirect=True)
async def test_postgres_reads_few_rows_however_many_sessions_there_are(backend_url: str, backend_name: str) -> None:
    """At 5,000 sessions no list scans a table or reads more than a few hundred rows; states are read for one page."""
    async with await lash.open(backend_url) as storage:
        await created(storage)
        await storage.queue.enqueue(late("hello"))
    for statement in _LOAD.strip().split(";\n"):
        await raw(backend_url, statement)
    options = PostgresOptions.from_url(backend_url)
    queries = load_queries("lash.postgres.sql", schema=options.schema)
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    try:
        for (wanted, order), parts in itertools.product(_LISTS, (PageParts(), WHOLE)):
            for mode in ("force_custom_plan", "force_generic_plan"):
                page = prepare_page(wanted, order=order, oldest_first=False, parts=parts, limit=20, cursor=None)
                text = queries[PAGES[page.way]]
                nodes = await _explained(connection, page_arguments(page, text), text, mode)
                scanned = [each for each in nodes if each["Node Type"] == "Seq Scan" and _is_large(each)]
                assert scanned == [], (wanted, order, mode)
                assert max(map(_rows, nodes)) <= _FEW_HUNDRED, (wanted, order, mode)
                shown = [each["Actual Loops"] for each in nodes if each.get("Relation Name") in _SHOWN]
                assert max(shown, default=0) <= (page.limit if wanted.state is None else _FEW_HUNDRED), (wanted, order)
        for mode in ("force_custom_plan", "force_generic_plan"):
            nodes = await _explained(connection, ["u", "v", 10], queries["session_ids"], mode)
            assert max(map(_rows, nodes)) == 10, mode
    finally:
        await connection.close()


async def _explained(
    connection: asyncpg.Connection[asyncpg.Record], arguments: list[object], text: str, mode: str
) -> list[dict[str, Any]]:
    """Run a statement prepared, as a driver does, and return the plan nodes that ran."""
    await connection.execute(f"SET plan_cache_mode = {mode}")
    await connection.execute(f"PREPARE asked AS {text}")
    try:
        given = ", ".join(map(_literal, arguments))
        explained = await connection.fetchval(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE asked ({given})")
    finally:
        await connection.execute("DEALLOCATE asked")
    return [each for each in _nodes(json.loads(explained)[0]["Plan"]) if each["Actual Loops"]]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _is_large(node: dict[str, Any]) -> bool:
    return node.get("Relation Name") in {"lash_sessions", "lashsearch", "lash_session_leases", "lash_session_labels"}


def _rows(node: dict[str, Any]) -> float:
    read: float = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return read


def _literal(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bool() | int():
            return str(value).lower()
        case list():
            return "ARRAY[" + ", ".join(map(_literal, value)) + "]"
        case _:
            return "'" + str(value).replace("'", "''") + "'"


class _Parameters(dict[str, None]):
    """A value for every parameter: explaining does not run the query."""

    def __missing__(self, key: str) -> None:
        return None
