"""The migration to the work list keeps the processes that a storage already holds."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import apsw
import asyncpg
import pytest

from lash.model.causal import ProcessCause, ProcessEventCause, TurnCause
from lash.model.process.process import Provenance
from lash.plan.process.process import encode_registration
from lash.postgres.engine.options import PostgresOptions
from lash.sqlkit.migrations import load_migrations
from tests.factories.process import process
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_OLD = """
    INSERT INTO lash_processes (
        process_id, registration_hash, registration, recovery, kind, status, waiting, projection, last_sequence,
        created_at_ms, updated_at_ms, ended_at_ms
    )
    VALUES ('{id}', 'h', '{registration}', '{recovery}', 'k', '{status}', {no}, '{{}}', 0, 1, 1, {ended})
"""
_LEASES = "INSERT INTO lash_process_leases (process_key) SELECT process_key FROM lash_processes"
_CAUSES = {
    "running": None,
    "child": ProcessCause(process_id="running"),
    "event-child": ProcessEventCause(process_id="running", sequence=2),
    "own-child": ProcessCause(process_id="own-child"),
    "turn": TurnCause(session_id="s", turn_id="t"),
}


async def execute(url: str, scripts: list[str]) -> None:
    if url.startswith("sqlite"):
        connection = apsw.Connection(str(Path(urlsplit(url).path.removeprefix("/"))))
        for script in scripts:
            connection.execute(script).fetchall()
        connection.close()
        return
    options = PostgresOptions.from_url(url)
    server = await asyncpg.connect(options.dsn, server_settings={"search_path": options.schema})
    for script in scripts:
        await server.execute(script)
    await server.close()


def _old_row(process_id: str, registration: str, *, recovery: str, status: str, no: str) -> str:
    ended = "NULL" if status == "running" else "1"
    return _OLD.format(id=process_id, registration=registration, recovery=recovery, status=status, ended=ended, no=no)


async def test_existing_processes_join_the_work_list(backend_url: str, backend_name: str) -> None:
    """Running processes are ready, external and ended ones never; parents are read from the registration."""
    schema = None if backend_name == "sqlite" else PostgresOptions.from_url(backend_url).schema
    steps = load_migrations(f"lash.{backend_name}.sql.migrations", schema=schema)
    place = [step.name for step in steps].index("work")
    no = {"sqlite": "0", "postgres": "false"}[backend_name]
    rows = [_old_row(name, _registration(name), recovery="rerunnable", status="running", no=no) for name in _CAUSES]
    rows += [
        _old_row("external", _registration("external"), recovery="external", status="running", no=no),
        _old_row("ended", _registration("ended"), recovery="rerunnable", status="failed", no=no),
    ]
    await execute(backend_url, [*(step.statement for step in steps[:place]), *rows, _LEASES, steps[place].statement])
    found = await raw(
        backend_url,
        """
        SELECT p.process_id, p.parent_process_id, l.runnable, l.ready_at_ms, l.wake_seq
        FROM lash_processes AS p JOIN lash_process_leases AS l ON l.process_key = p.process_key
        ORDER BY p.process_key
        """,
    )
    assert found == [
        ("running", None, True, 0, 0),
        ("child", "running", True, 0, 0),
        ("event-child", "running", True, 0, 0),
        ("own-child", None, True, 0, 0),
        ("turn", None, True, 0, 0),
        ("external", None, False, None, 0),
        ("ended", None, False, None, 0),
    ]


def _registration(process_id: str) -> str:
    """Return the stored form of a registration, which has had its shape since processes exist."""
    return encode_registration(process(process_id, provenance=Provenance(caused_by=_CAUSES.get(process_id)))).body
