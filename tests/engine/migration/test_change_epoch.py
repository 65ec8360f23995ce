"""The migration to epochs of the change feed keeps the changes that a storage already holds."""

from __future__ import annotations

import base64
from typing import Final

import pytest

import lash
from lash.postgres.engine.options import PostgresOptions
from lash.sqlite.schema import APPLICATION_ID
from lash.sqlkit.migrations import load_migrations
from tests.contract.process_state import feed
from tests.engine.migration.test_work import execute
from tests.factories.process import registered

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_CHANGE: Final = (
    "INSERT INTO lash_process_changes (process_id, kind, status, occurred_at_ms) "
    "VALUES ('{id}', 'registered', 'running', 1)"
)
_RECORD: Final = "INSERT INTO lash_migrations (number, name, applied_at_ms) VALUES ({number}, '{name}', 1)"


async def _with_changes(url: str, backend: str, *more: str) -> None:
    """Create the tables of the migration before, with three changes."""
    schema = None if backend == "sqlite" else PostgresOptions.from_url(url).schema
    steps = load_migrations(f"lash.{backend}.sql.migrations", schema=schema)
    before = steps[: [step.name for step in steps].index("change_epoch")]
    done = [_RECORD.format(number=step.number, name=step.name) for step in before]
    changes = [_CHANGE.format(id=name) for name in ("a", "b", "c")]
    # Recognised as a storage, as the first migration of a file is.
    marks = [f"PRAGMA application_id = {APPLICATION_ID}"] if backend == "sqlite" else []
    await execute(url, [*marks, *(step.statement for step in before), *done, *changes, *more])


async def _require_old_and_new(url: str) -> None:
    async with await lash.open(url) as storage:
        old = base64.urlsafe_b64encode(b"c1:0:2").decode()
        assert (await storage.events.changes(old)).gap is lash.GapReason.UNAVAILABLE
        changes, end = await feed(storage, limit=2)
        assert [change.process_id for change in changes] == ["a", "b", "c"]
        await registered(storage, "d")
        later, _ = await feed(storage, end)
        assert [change.process_id for change in later] == ["d"]


async def test_existing_changes_stay_in_the_feed(backend_url: str, backend_name: str) -> None:
    """A reader from the start sees all of them; a cursor from before the migration gets a gap."""
    await _with_changes(backend_url, backend_name)
    await _require_old_and_new(backend_url)


async def test_a_feed_that_a_restore_broke_is_repaired(backend_url: str, backend_name: str) -> None:
    """Changes with transaction ids that the server has not given out yet are visible after the migration."""
    beyond = "UPDATE lash_process_changes SET xid = '9000000000000'::xid8" if backend_name == "postgres" else "SELECT 1"
    await _with_changes(backend_url, backend_name, beyond)
    await _require_old_and_new(backend_url)
