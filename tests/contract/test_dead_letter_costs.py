"""Costs of many dead letters: each query finds its rows through an index."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import urlsplit

import apsw
import asyncpg
import pytest

import lash
from lash.postgres.engine.options import PostgresOptions
from lash.sqlkit.queries import load_queries
from tests.factories.session import created
from tests.raw import raw

_MANY: Final = 20_000
_FEW_HUNDRED: Final = 300
_LETTER: Final = (
    "batch_id, seq, lane, delivery, slot, enqueued_at_ms, claim_count, payloads, claim_token, reason, error, died_at_ms"
)
_VALUES: Final = "'late', 'after_current_turn_commit', 'exclusive', 0, 1, '{}', 't', 'r', '{}', 0"
_LOAD: Final = (
    f"INSERT INTO lash_dead_letters (session_key, {_LETTER}) SELECT 1, 'b' || value, value, {_VALUES}"
    f" FROM generate_series(1, {_MANY}) AS value"
)
_LONELY: Final = f"INSERT INTO lash_dead_letters (session_key, {_LETTER}) VALUES (2, 'lonely', 0, {_VALUES})"
_SQLITE: Final = {
    "dead_letter_page": ["SEARCH d USING INTEGER PRIMARY KEY (rowid>?)"],
    "dead_letter_page_of_session": ["SEARCH d USING INDEX lash_dead_letters_session (session_key=? AND place>?)"],
    "dead_letter_of_claim": [
        "SEARCH lash_dead_letters USING INDEX lash_dead_letters_id (session_key=? AND batch_id=?)"
    ],
    "dead_letter_bury": ["SEARCH lash_batches USING INDEX lash_batches_claim (session_key=? AND claim_token=?)"],
    "dead_letter_revive": ["SEARCH lash_dead_letters USING INDEX lash_dead_letters_id (session_key=? AND batch_id=?)"],
    "dead_letter_remove": ["SEARCH lash_dead_letters USING INDEX lash_dead_letters_id (session_key=? AND batch_id=?)"],
}
"""How SQLite must find its rows: always a SEARCH, never a SCAN, and no sort."""
_POSTGRES: Final = (
    ("dead_letter_page", "0, 100"),
    ("dead_letter_page", "19999, 100"),
    ("dead_letter_page_of_session", "'lonely', 0, 100"),
    ("dead_letter_page_of_session", "'crowded', 5000, 100"),
    ("dead_letter_page_prefix", "0, 100, 'lone', 'lonf'"),
    ("dead_letter_of_claim", "'crowded', ARRAY['b1', 'b2'], 't'"),
    ("dead_letter_bury", "'crowded', 't', 'c', ARRAY['b1'], 'r', '{}'"),
    ("dead_letter_revive", "'crowded', 'b5'"),
    ("dead_letter_remove", "'crowded', 'b5'"),
)


class _Parameters(dict[str, object]):
    """Parameters of a query, all NULL."""

    def __missing__(self, name: str) -> object:
        return None


async def _fill(url: str) -> None:
    async with await lash.open(url) as storage:
        await created(storage, "crowded")
        await created(storage, "lonely")


@pytest.mark.parametrize("name", _SQLITE)
@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
async def test_sqlite_finds_letters_through_its_indexes(backend_url: str, backend_name: str, name: str) -> None:
    """Each query uses its own index, also after the file was analysed."""
    await _fill(backend_url)
    connection = apsw.Connection(urlsplit(backend_url).path.removeprefix("/"))
    try:
        for _ in range(2):
            text = load_queries("lash.sqlite.sql")[name]
            plan = [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + text, _Parameters())]
            assert plan[:1] == _SQLITE[name]
            assert not [line for line in plan if "lash_dead_letters" in line and line.startswith("SCAN")]
            assert not [line for line in plan if "lash_batches" in line and line.startswith("SCAN")]
            for number in range(300):
                connection.execute(_LONELY.replace("'lonely'", f"'l{number}'").replace("(2,", "(1,"))
            connection.execute("ANALYZE")
            connection.execute("DELETE FROM lash_dead_letters")
    finally:
        connection.close()


@pytest.mark.parametrize("backend_name", ["postgres"], indirect=True)
async def test_postgres_reads_few_rows_however_many_are_dead(backend_url: str, backend_name: str) -> None:
    """No statement reads more than a few hundred of 20,000 rows, even if most belong to another session."""
    await _fill(backend_url)
    await raw(backend_url, _LOAD)
    await raw(backend_url, "ANALYZE lash_dead_letters")
    await raw(backend_url, _LONELY)
    options = PostgresOptions.from_url(backend_url)
    queries = load_queries("lash.postgres.sql", schema=options.schema)
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    try:
        for name, arguments in _POSTGRES:
            for mode in ("force_custom_plan", "force_generic_plan"):
                most = await _most_rows(connection, queries[name], arguments, mode)
                assert most <= _FEW_HUNDRED, f"{name} ({arguments}), {mode}"
    finally:
        await connection.close()


async def _most_rows(connection: asyncpg.Connection[asyncpg.Record], text: str, arguments: str, mode: str) -> float:
    """Run a statement prepared, as a driver does, roll back, and return the most rows that a step read."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
        await connection.execute(f"PREPARE asked AS {text}")
        explained = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE asked ({arguments})")
    finally:
        await transaction.rollback()
        await connection.execute("DEALLOCATE asked")
    return _most(json.loads(explained)[0]["Plan"])


def _most(plan: dict[str, Any]) -> float:
    own: float = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return max([own, *(_most(child) for child in plan.get("Plans", ()))])
