"""A program that stays through a migration by a newer version: it notices, stops taking work and reports it once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lash
from lash.model.lease import Lease
from lash.runtime.hooks import Attributes
from lash.sqlkit.migrations import last_number
from lash.stores.storage import Storage
from lash.transfer.move import move_storage
from tests.cli.kit import run
from tests.factories.session import owner
from tests.raw import raw
from tests.runtime.worker_kit import PATIENCE_S, Crew, crew, until

pytestmark = [
    pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True),
    pytest.mark.timeout(240),
]

ADDITION = "ALTER TABLE {schema}lash_sessions ADD COLUMN added text"
HARMLESS = "CREATE INDEX future ON {schema}lash_sessions (session_id)"
UNREADABLE = "UPDATE {schema}lash_nodes SET body = 'in a format of the future'"
WITHOUT_SCHEDULES = "ALTER TABLE {schema}lash_schedules RENAME TO lash_plans"
FAST = lash.WorkerOptions(poll_s=0.05, grace_s=10)
KNOWN = last_number("lash.sqlite.sql.migrations")
NEWER = f"INSERT INTO lash_migrations (number, name, applied_at_ms) VALUES ({KNOWN + 1}, 'of_the_future', 0)"


class Notes(lash.Hook):
    """Keeps the kinds and texts of all notes."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, str]] = []

    def note(self, kind: str, attributes: Attributes) -> None:
        self.noted.append((kind, str(attributes.get("error", ""))))


def migrate(url: str, statement: str, *kinds: str) -> None:
    """Let a newer version, in another process, apply its migration."""
    schema = "" if url.startswith("sqlite") else ':"schema".'
    arguments = [sys.executable, "-m", "tests.engine.migration.future", url, statement.format(schema=schema), *kinds]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    # It refuses tables that its catalogue does not know, after it has migrated them.
    assert ended.returncode == 0 or "SchemaMismatch" in ended.stderr, ended.stderr


async def poll(storage: Storage) -> object:
    return await storage.work.poll(sessions=5, processes=5, owner=owner("me"))


@pytest.fixture
def workers(backend_url: str, tmp_path: Path) -> Iterator[Crew]:
    with crew(backend_url, tmp_path) as hired:
        yield hired


@pytest.mark.parametrize("statement", [HARMLESS, WITHOUT_SCHEDULES], ids=["readable", "unreadable"])
async def test_a_poll_names_both_schemas(backend_url: str, statement: str) -> None:
    """An open storage that was migrated past its version refuses polls, also if the poll itself no longer works."""
    async with await lash.open(backend_url) as storage:
        await poll(storage)
        await storage.work.check_schema()
        migrate(backend_url, statement)
        for _attempt in range(2):
            with pytest.raises(lash.NewerSchema, match=rf"schema {KNOWN + 1}\b.*restart this program") as refused:
                await poll(storage)
            assert (refused.value.found, refused.value.supported) == (KNOWN + 1, KNOWN)
        with pytest.raises(lash.NewerSchema):
            await storage.work.check_schema()


async def test_an_additive_migration_stops_nothing(backend_url: str, tmp_path: Path) -> None:
    """An open storage goes on polling, and the older version opens it again; only a move would lose what was added."""
    async with await lash.open(backend_url) as storage:
        required = await raw(backend_url, "SELECT max(number) FROM lash_migrations")
        migrate(backend_url, ADDITION, "additive")
        await poll(storage)
        await storage.work.check_schema()
    async with (
        await lash.open(backend_url, migrate=False) as storage,
        await lash.open(f"sqlite:///{tmp_path}/target.db") as target,
    ):
        assert (await storage.sessions.create("s")).created
        with pytest.raises(lash.NewerSchema, match=rf"schema {KNOWN + 1}\b.*up to {KNOWN}\b"):
            await move_storage(storage, target)
    assert await raw(backend_url, "SELECT max(number) FROM lash_migrations") == required
    assert await raw(backend_url, "SELECT max(number) FROM lashadditions") == [(KNOWN + 1,)]
    ended = run("doctor", url=backend_url)
    assert ended.returncode == 0, ended.stdout


async def test_a_damaged_table_is_not_a_newer_schema(backend_url: str) -> None:
    """Without a newer migration, the error of the poll stays what it is."""
    async with await lash.open(backend_url) as storage:
        await raw(backend_url, WITHOUT_SCHEDULES.format(schema=""))
        with pytest.raises(lash.SchemaMismatch, match="lash_schedules"):
            await poll(storage)


async def test_a_worker_stops_taking_work_and_reports_it_once(backend_url: str, workers: Crew) -> None:
    """A worker of the old version ends with its own exit code; what it did not take waits for the new version."""
    worker = workers.hire(poll=0.1)
    async with lash.App(backend_url, worker=False) as sender:
        assert await sender.session("s").ask("say one", key="1", timeout_s=PATIENCE_S) == "one"
        await sender.session("held").send("hold a", key="1")
        await workers.began("a")
        migrate(backend_url, UNREADABLE)
        # Until its next poll the worker still takes what is assigned to it.
        await until(lambda: "worker.outdated" in workers.log(worker))
        await sender.session("s").send("say two", key="2")
        workers.open_gate("a")
        assert await workers.ended(worker) == 6, workers.log(worker)
        assert [batch.attempts for batch in await sender.session("s").pending()] == [0]
        assert await sender.session("s").dead_letters() == ()
        assert await sender.session("held").pending() == (), "what ran when the storage was migrated was finished"
    log = workers.log(worker)
    assert log.count("worker.outdated") == 1
    assert f"schema {KNOWN + 1}, this version of lash knows schemas up to {KNOWN}" in log
    assert "restart this program" in log
    assert "worker.failed" not in log
    assert "CorruptData" not in log


async def test_an_application_reports_its_outdated_worker_once(backend_url: str) -> None:
    """The worker of an open app ends; waiting for it and stopping the app raise the reason."""
    notes = Notes()
    app = lash.App(backend_url, options=FAST, hooks=[notes])
    await app.open()
    migrate(backend_url, HARMLESS)
    with pytest.raises(lash.NewerSchema):
        async with asyncio.timeout(PATIENCE_S):
            await app.run()
    await app.session("s").send("later", key="1")
    with pytest.raises(lash.NewerSchema):
        await app.stop()
    (noted,) = (each for each in notes.noted if each[0].startswith("worker."))
    assert noted[0] == "worker.outdated"
    assert "upgrade lash and restart this program" in noted[1]


async def test_a_turn_that_fails_on_a_newer_schema_costs_no_attempt(backend_url: str) -> None:
    """A message is not buried because the worker is too old to handle it."""
    app = lash.App(backend_url, worker=False)

    @app.agent(retry=lash.Retry(max_attempts=1))
    async def fails(turn: lash.Turn) -> str:
        await raw(backend_url, NEWER)
        raise ValueError(turn.text)

    async with app:
        await app.session("s").send("go", key="1")
        with pytest.raises(lash.NewerSchema):
            await app.drain()
        assert [batch.attempts for batch in await app.session("s").pending()] == [0]
        assert await app.session("s").dead_letters() == ()
        assert await _holder(app.storage) is None


async def test_a_turn_that_cannot_read_its_session_costs_no_attempt(backend_url: str) -> None:
    """The history is read before the agent runs; if a newer version has rewritten it, the turn is given back."""
    app = lash.App(backend_url, worker=False)

    @app.agent
    async def echo(turn: lash.Turn) -> str:
        return turn.text

    async with app:
        await app.session("s").send("one", key="1")
        await app.drain()
    taken = asyncio.Event()

    class Migrates(lash.Hook):
        def statement(self, name: str) -> None:
            if name in ("session_read", "session_load") and not taken.is_set():
                taken.set()
                migrate(backend_url, UNREADABLE)

    app = lash.App(backend_url, worker=False, hooks=[Migrates()])
    app.agent(echo.function)
    async with app:
        await app.session("s").send("two", key="2")
        with pytest.raises(lash.NewerSchema):
            await app.drain()
        assert taken.is_set()
        assert [batch.attempts for batch in await app.session("s").pending()] == [0]
        assert await _holder(app.storage) is None


async def test_a_process_that_fails_on_a_newer_schema_goes_on_later(backend_url: str) -> None:
    """A process is not ended because the worker is too old to run it."""
    app = lash.App(backend_url, worker=False)

    @app.process(retry=lash.Retry(max_attempts=1))
    async def fails(_ctx: lash.Context) -> str:
        await raw(backend_url, NEWER)
        raise ValueError

    async with app:
        handle = await app.starting(process_id="p").start(fails)
        with pytest.raises(lash.NewerSchema):
            await app.drain()
        record = await app.storage.processes.get(handle.process_id)
        assert record is not None
        assert record.projection.status is lash.model.ProcessStatus.RUNNING
        assert await app.storage.process_leases.holder("p") is None


async def test_the_doctor_of_the_old_version_names_the_schema(backend_url: str) -> None:
    """``lash doctor`` fails and says which schema it found, and what to do."""
    await (await lash.open(backend_url)).close()
    migrate(backend_url, HARMLESS)
    ended = run("doctor", "--json", url=backend_url)
    assert ended.returncode == 1
    assert f"the database has schema {KNOWN + 1}, this version of lash knows schemas up to {KNOWN}" in ended.stdout


async def _holder(storage: Storage) -> Lease | None:
    return await storage.leases.holder("s")
