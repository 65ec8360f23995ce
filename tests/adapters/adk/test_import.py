"""Imports of databases that ADK's own session services have written."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import DatabaseSessionService
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.schemas.v0 import Base as OldTables
from google.adk.sessions.session import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import lash
from lash.adapters.adk import LashSessionService
from lash.adapters.importing import ImportReport
from lash.adapters.importing.adk import ADKReader
from tests.adapters.import_kit import imported

_NAMES = [("app", "ann", "s1"), ("app", "bob/b", "s2"), ("other", "ann", "s" * 120)]


@pytest.fixture
async def engine(url: str, tmp_path: Path) -> AsyncIterator[tuple[str, AsyncEngine]]:
    """A database of theirs, of the same kind as the storage, and an engine for `DatabaseSessionService`."""
    if url.startswith("sqlite"):
        path = tmp_path / "theirs.sqlite"
        named, engine = f"sqlite+aiosqlite:///{path}", create_async_engine(f"sqlite+aiosqlite:///{path}")
    else:
        server, schema = os.environ["LASH_ADAPTERS_POSTGRES"], f"theirs_{uuid.uuid4().hex[:12]}"
        engine = create_async_engine(
            server.replace("postgresql://", "postgresql+asyncpg://"),
            connect_args={"server_settings": {"search_path": schema}},
        )
        async with engine.begin() as connection:
            await connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
        named = f"{server}?schema={schema}"
    yield named, engine
    await engine.dispose()


def _events() -> list[Event]:
    call = types.FunctionCall(id="c1", name="weather", args={"city": "Zürich", "n": 1.5, "none": None})
    large = "x" * 3_000
    delta = {"note": large, "app:mode": {"deep": [1, None]}, "user:city": "Ulm", "temp:gone": 1, "none": None}
    return [
        Event(
            id="e-user",
            invocation_id="i1",
            author="user",
            content=types.Content(role="user", parts=[types.Part(text="Wie? \U0001f600")]),
            timestamp=1_700_000_000.123456,
        ),
        Event(
            id="e-call",
            invocation_id="i1",
            author="agent",
            content=types.Content(role="model", parts=[types.Part(function_call=call, thought_signature=b"\xff\x00")]),
            long_running_tool_ids={"c1"},
            timestamp=1_700_000_000.123456,
        ),
        Event(
            id="e-state",
            invocation_id="i1",
            author="agent",
            content=types.Content(
                role="model",
                parts=[
                    types.Part(text="thinking", thought=True),
                    types.Part(text="Sunny."),
                    types.Part(inline_data=types.Blob(mime_type="image/png", data=b"\x89PNG\xff")),
                ],
            ),
            actions=EventActions(state_delta=delta, artifact_delta={"a.txt": 2}, transfer_to_agent="next"),
            custom_metadata={"k": [1, {"x": None}]},
            usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=3, total_token_count=5),
            turn_complete=True,
            error_code="E1",
            timestamp=1_700_000_001.5,
        ),
    ]


async def _fill(service: BaseSessionService) -> None:
    for app_name, user_id, session_id in _NAMES:
        session = await service.create_session(
            app_name=app_name, user_id=user_id, session_id=session_id, state={"first": session_id, "user:n": 1}
        )
        for event in _events():
            await service.append_event(session, event)
    await service.create_session(app_name="app", user_id="carl", session_id="empty")


async def _import(url: str, theirs: str) -> ImportReport:
    return await imported(url, theirs, ADKReader())


async def _got(service: BaseSessionService, name: tuple[str, str, str], config: GetSessionConfig | None) -> Session:
    found = await service.get_session(app_name=name[0], user_id=name[1], session_id=name[2], config=config)
    assert found is not None
    return found


async def _same(ours: BaseSessionService, theirs: BaseSessionService) -> None:
    """Sessions, with and without a choice of events, lists and state of users are equal."""
    for name in (*_NAMES, ("app", "carl", "empty")):
        for config in (None, GetSessionConfig(num_recent_events=2), GetSessionConfig(after_timestamp=1_700_000_001.0)):
            assert (await _got(ours, name, config)).model_dump() == (await _got(theirs, name, config)).model_dump()
    for user_id in (None, "ann", "nobody"):
        listed = [await each.list_sessions(app_name="app", user_id=user_id) for each in (ours, theirs)]
        assert listed[0].model_dump() == listed[1].model_dump()
    assert await ours.get_user_state(app_name="app", user_id="ann") == {"city": "Ulm", "n": 1}


async def _goes_on(ours: BaseSessionService) -> None:
    """A session that was imported takes further events."""
    session = await _got(ours, _NAMES[0], None)
    await ours.append_event(session, Event(author="user", actions=EventActions(state_delta={"first": 2, "app:k": 1})))
    again = await _got(ours, _NAMES[0], None)
    assert (len(again.events), again.state["first"], again.state["app:k"]) == (4, 2, 1)
    assert len(again.state["note"]) == 3_000


async def test_a_database_of_the_current_version_reads_as_before(url: str, engine: tuple[str, AsyncEngine]) -> None:
    """Our service returns what theirs does; the import can be repeated, also after the sessions went on."""
    named, opened = engine
    theirs = DatabaseSessionService(db_engine=opened)
    await _fill(theirs)
    report = await _import(url, named)
    ours = LashSessionService(url)
    await _same(ours, theirs)
    assert (report.sessions, report.counts) == (4, {"event": 9, "app value": 2, "user value": 6})
    assert (report.kept_raw, report.not_imported, report.other_tables) == ((), (), ())
    await _goes_on(ours)
    again = await _import(url, named)
    assert (again.sessions, again.counts, again.not_imported) == (0, {}, ())


async def test_a_database_of_the_old_version_reads_as_before(url: str, engine: tuple[str, AsyncEngine]) -> None:
    """Pickled actions are read without running them."""
    named, opened = engine
    async with opened.begin() as connection:
        await connection.run_sync(OldTables.metadata.create_all)
    theirs = DatabaseSessionService(db_engine=opened)
    await _fill(theirs)
    report = await _import(url, named)
    ours = LashSessionService(url)
    await _same(ours, theirs)
    assert (report.sessions, report.counts["event"], report.kept_raw) == (4, 9, ())
    await _goes_on(ours)


async def test_a_database_of_the_sqlite_service_reads_as_before(url: str, tmp_path: Path) -> None:
    """Events with equal times keep the order in which they were appended, and times are exact."""
    path = tmp_path / "theirs.sqlite"
    theirs = SqliteSessionService(str(path))
    await _fill(theirs)
    report = await _import(url, str(path))
    ours = LashSessionService(url)
    await _same(ours, theirs)
    assert (report.sessions, report.counts["event"], report.kept_raw) == (4, 9, ())
    await _goes_on(ours)
    async with await lash.open(url) as storage:
        nodes = await storage.session("adk:app/bob%2Fb/s2").list_nodes("message", limit=10)
        assert [node.entry.message.text for node in nodes] == ["Wie? \U0001f600", "Sunny."]  # type: ignore[union-attr]
        meta = await storage.session("adk:app/bob%2Fb/s2").meta()
    assert (meta.name, meta.owner, "create_time" in meta.metadata) == ("s2", "bob/b", True)


class _Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {os.environ['LASH_TEST_HARM']}",)


async def test_rows_that_are_not_events_are_kept(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A harmful pickle is not run. Broken events, state and orphans are raw records; the rest is imported."""
    path, harm = tmp_path / "theirs.sqlite", tmp_path / "harm"
    monkeypatch.setenv("LASH_TEST_HARM", str(harm))
    opened = create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with opened.begin() as connection:
        await connection.run_sync(OldTables.metadata.create_all)
    await _fill(DatabaseSessionService(db_engine=opened))
    await opened.dispose()
    named = "WHERE app_name = 'app' AND user_id = 'ann' AND"
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE events SET actions = ? {named} id = 'e-user'", (pickle.dumps(_Harmful()),))
        connection.execute(f"UPDATE events SET content = '{{' {named} id = 'e-call'")
        connection.execute(f"UPDATE sessions SET state = '[]', update_time = 'soon' {named} id = 's1'")
        connection.execute("UPDATE app_states SET state = 'x' WHERE app_name = 'other'")
        connection.execute("DELETE FROM sessions WHERE app_name = 'other'")
        copied = "app_name, user_id, ' s1 ', state, create_time, update_time"
        connection.execute(f"INSERT INTO sessions SELECT {copied} FROM sessions WHERE id = 's1'")
    report = await _import(url, str(path))
    ours = LashSessionService(url)
    session = await _got(ours, _NAMES[0], None)
    assert [event.id for event in session.events] == ["e-state"]
    assert (session.last_update_time, session.state) == (
        1_700_000_001.5,
        {"app:mode": {"deep": [1, None]}, "user:city": "Ulm", "user:n": 1},
    )
    assert not harm.exists()
    assert {(each.table, each.reason.partition(",")[0]): each.rows for each in report.kept_raw} == {
        ("app_states", "its state is not a JSON object"): 1,
        ("events", f"it holds an object of {os.system.__module__}.system"): 1,
        ("events", "it is not the JSON of an event"): 1,
        ("events", "its session does not exist"): 3,
        ("sessions", "another session has the same id without blanks"): 1,
        ("sessions", "its state is not a JSON object"): 1,
        ("sessions", "its time cannot be read"): 1,
    }
    assert (report.sessions, report.counts["event"]) == (3, 4)


async def test_data_of_all_kinds_in_a_pickle(url: str, tmp_path: Path) -> None:
    """Values of Python's own kinds become what ADK's JSON makes of them."""
    path = tmp_path / "theirs.sqlite"
    opened = create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with opened.begin() as connection:
        await connection.run_sync(OldTables.metadata.create_all)
    service = DatabaseSessionService(db_engine=opened)
    session = await service.create_session(app_name="app", user_id="ann", session_id="s1")
    moment = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    values = {"when": moment, "id": uuid.UUID(int=7), "set": {1}, "pair": (1, "a"), "large": 10**30, "no": False}
    await service.append_event(session, Event(id="e", author="a", actions=EventActions(state_delta=values)))
    await opened.dispose()
    await _import(url, str(path))
    found = await _got(LashSessionService(url), ("app", "ann", "s1"), None)
    expected = {"when": moment.isoformat(), "id": str(uuid.UUID(int=7)), "set": [1], "pair": [1, "a"]}
    assert found.events[0].actions.state_delta == {**expected, "large": 10**30, "no": False}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ALTER TABLE events DROP COLUMN event_data", "table events has no column event_data or actions"),
        ("ALTER TABLE sessions DROP COLUMN state", "table sessions has no column state"),
        ("DROP TABLE events", "expected tables of adk"),
        ("CREATE TABLE adk_internal_metadata (key, value)", None),
        ("INSERT INTO adk_internal_metadata VALUES ('schema_version', '7')", "unknown version 7 of ADK's tables"),
    ],
)
def test_the_command_reports_a_database_of_another_kind(tmp_path: Path, change: str, message: str | None) -> None:
    """Tables of the same names with other columns, or of a version that is not known, are refused by a clear error."""
    path = tmp_path / "theirs.sqlite"
    service = SqliteSessionService(str(path))
    asyncio.run(_fill(service))
    with sqlite3.connect(path) as connection:
        if message is not None and "version" in message:
            connection.execute("CREATE TABLE adk_internal_metadata (key, value)")
        connection.execute(change)
    program = "import sys; sys.modules['google.adk'] = None; from lash.cli.main import main; sys.exit(main())"
    environment = os.environ | {"LASH_URL": f"sqlite:///{tmp_path}/ours.db"}

    def lash_command(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert lash_command("init").returncode == 0
    done = lash_command("--json", "import", "adk", str(path))
    if message is None:
        assert json.loads(done.stdout)["counts"] == {"event": 9, "app value": 2, "user value": 6}
    else:
        assert done.returncode != 0
        assert message in done.stderr
        assert "Traceback" not in done.stderr
