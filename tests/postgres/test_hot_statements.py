"""The statements of turns, steps and events touch one session or one process each, so that a storage can be divided."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import asyncpg
import pytest

from lash.postgres.options import PostgresOptions
from lash.postgres.pool import PLANNING
from lash.sqlkit.queries import load_queries

HOT: Final = (
    *("session_read", "session_load", "commit_facts", "commit_apply"),
    *("queue_enqueue", "queue_facts", "queue_stamp", "queue_extend", "queue_abandon", "queue_page"),
    *("lease_row", "lease_acquire", "lease_extend", "lease_release"),
    *("effect_row", "effect_page", "effect_facts", "effect_record", "effect_begin", "effect_settle", "effect_renew"),
    *("event_facts", "event_append", "event_after", "event_recent", "event_nth_of_type"),
    *("process_register", "process_row", "process_lease_row", "process_lease_acquire", "process_lease_extend"),
    *("process_lease_release", "process_lease_park", "wait_open", "wait_resolve", "wait_row"),
)
"""What is sent for every turn, step, event, message and wait. Looking for work is not among them: it asks a storage."""
OWN_KEYS: Final = re.compile(
    r"\b(?:session_key|session_id|process_key|process_id|scope_id|owner_key|owner_session_id|batch_id|claim_token|key_id)\b"
)
"""What belongs to one session or process: their own keys, and ids under which one of their rows is found."""
SHARED: Final = {"lash_secrets", "lash_process_change_floor", "lash_process_changes"}
"""Tables of the whole storage that hot statements add to, or read one row of."""


def _scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "Scan" in plan["Node Type"] and ("Relation Name" in plan or "Index Name" in plan):
        yield plan
    for child in plan.get("Plans", ()):
        yield from _scans(child)


@pytest.mark.parametrize("name", HOT)
async def test_a_hot_statement_stays_within_one_session_or_process(postgres_storage_url: str, name: str) -> None:
    """Whatever it reads is found by the key of a session, process or scope; no table is read across them."""
    options = PostgresOptions.from_url(postgres_storage_url)
    text = load_queries("lash.postgres.sql", schema=options.schema)[name]
    connection = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema, **PLANNING})
    try:
        await connection.execute(f"PREPARE hot AS {text}")
        taken = "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'hot'"
        nothing = ", ".join(["NULL"] * await connection.fetchval(taken))
        plan = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE hot ({nothing})"))[0]["Plan"]
    finally:
        await connection.close()
    for scan in _scans(plan):
        # A bitmap heap scan takes its rows from the index scan below it, which is looked at itself.
        if scan["Node Type"] != "Bitmap Heap Scan" and scan.get("Relation Name") not in SHARED:
            condition = scan.get("Index Cond", scan.get("TID Cond", ""))
            assert OWN_KEYS.search(condition) or "ctid" in condition, f"{name}: {scan}"
