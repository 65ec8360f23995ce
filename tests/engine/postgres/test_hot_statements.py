"""The statements of turns, steps and events touch one session or process each, so that a storage can be partitioned."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import asyncpg

import lash
from lash.postgres.engine.options import PostgresOptions
from lash.postgres.engine.pool import PLANNING
from lash.sqlkit.queries import load_queries

HOT: Final = (
    *("session_read", "session_load", "session_nodes", "commit_facts"),
    *("commit_alone", "commit_alone_leased", "commit_turns", "commit_apply"),
    *(
        "queue_enqueue",
        "queue_enqueue_turn",
        "queue_facts",
        "queue_stamp",
        "queue_claim_turn",
        "queue_extend",
        "queue_abandon",
    ),
    "queue_page",
    *("lease_row", "lease_acquire", "lease_extend", "lease_release"),
    *("effect_row", "effect_page", "effect_facts", "effect_record", "effect_claim", "effect_finish", "effect_renew"),
    *("effect_record_in_process", "effect_record_by_key", "process_rows", "process_lease_complete"),
    "process_register_and_claim",
    *("event_facts", "event_append", "event_after", "event_recent", "event_nth_of_type"),
    *("process_register", "process_row", "process_lease_row", "process_lease_acquire", "process_lease_extend"),
    *("process_lease_release", "process_lease_park", "wait_open", "wait_resolve", "wait_row"),
)
"""The statements of turns, steps, events, messages and waits. Polls for work are excluded: they read the storage."""
OWN_KEYS: Final = re.compile(
    r"\b(?:session_key|session_id|run_key|process_key|process_id|scope_id|scope_key|owner_key|owner_session_id|batch_id|claim_token|key_id)\b"
)
"""Keys of one session or process, of a scope of records, and ids under which one of their rows is found."""
SHARED: Final = {"lash_secrets", "lash_process_change_floor", "lash_process_changes"}
"""Tables of the whole storage to which hot statements add rows, or of which they read one row."""


def _scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "Scan" in plan["Node Type"] and ("Relation Name" in plan or "Index Name" in plan):
        yield plan
    for child in plan.get("Plans", ()):
        yield from _scans(child)


async def test_hot_statements_stay_within_one_session_or_process(postgres_schema_url: str) -> None:
    """Every row they read is found by the key of a session, process or scope; no table is scanned across them.

    The tables are not analysed, so the server does not know that a sequential scan would be as cheap.
    """
    await (await lash.open(postgres_schema_url)).close()
    options = PostgresOptions.from_url(postgres_schema_url)
    queries = load_queries("lash.postgres.sql", schema=options.schema)
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema, **PLANNING})
    try:
        plans = {name: await _plan(connection, name, queries[name]) for name in HOT}
    finally:
        await connection.close()
    crossing = [f"{name}: {scan}" for name, plan in plans.items() for scan in _scans(plan) if not _is_own(scan)]
    assert crossing == []


async def _plan(connection: asyncpg.Connection[asyncpg.Record], name: str, text: str) -> dict[str, Any]:
    await connection.execute(f"PREPARE {name} AS {text}")
    taken = f"SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = '{name}'"
    nothing = ", ".join(["NULL"] * await connection.fetchval(taken))
    explained = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE {name} ({nothing})")
    plan: dict[str, Any] = json.loads(explained)[0]["Plan"]
    return plan


def _is_own(scan: dict[str, Any]) -> bool:
    # A bitmap heap scan takes its rows from the index scan below it, which is checked itself.
    if scan["Node Type"] == "Bitmap Heap Scan" or scan.get("Relation Name") in SHARED:
        return True
    condition = str(scan.get("Index Cond", scan.get("TID Cond", "")))
    return OWN_KEYS.search(condition) is not None or "ctid" in condition
