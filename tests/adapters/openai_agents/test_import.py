"""Imports of databases that the SDK's own sessions have written."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession, EncryptedSession, SQLAlchemySession
from agents.memory.session import SessionABC
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import lash
from lash.adapters.importing import ImportReport
from lash.adapters.importing.openai_agents import OpenAIAgentsReader
from lash.adapters.openai_agents import LashSession
from tests.adapters.import_kit import imported

_ITEMS: list[Any] = [
    {"role": "user", "content": "Zürich, 天気は? \U0001f600"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Zürich"}'},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "sunny"}]},
    {"role": "assistant", "type": "message", "content": [{"type": "output_text", "text": "Sunny.", "annotations": []}]},
    {
        "role": "user",
        "content": [{"type": "input_image", "image_url": "data:image/png;base64," + "A" * 9_000}],
        "x": 1.5,
    },
]


@pytest.fixture
async def engine(url: str, tmp_path: Path) -> AsyncIterator[tuple[str, AsyncEngine]]:
    """A database of theirs, of the same kind as the storage, and an engine for `SQLAlchemySession`."""
    if url.startswith("sqlite"):
        path = tmp_path / "theirs.sqlite"
        named, engine = str(path), create_async_engine(f"sqlite+aiosqlite:///{path}")
    else:
        server, schema = os.environ["LASH_ADAPTERS_POSTGRES"], f"theirs_{uuid.uuid4().hex[:12]}"
        engine = create_async_engine(
            server.replace("postgresql://", "postgresql+asyncpg://"),
            connect_args={"server_settings": {"search_path": schema}},
        )
        async with engine.begin() as connection:
            await connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
        named = f"{server.replace('postgresql://', 'postgresql+asyncpg://')}?schema={schema}"
    yield named, engine
    await engine.dispose()


async def _import(url: str, theirs: str) -> ImportReport:
    return await imported(url, theirs, OpenAIAgentsReader())


async def _same(ours: LashSession, theirs: SessionABC) -> None:
    for limit in (None, 0, 1, 3, 100):
        assert await ours.get_items(limit) == await theirs.get_items(limit)


async def test_sessions_of_sqlalchemy_read_as_before(url: str, engine: tuple[str, AsyncEngine]) -> None:
    """Our session returns what theirs does, with every limit, and goes on; the import can be repeated."""
    named, opened = engine
    theirs = [SQLAlchemySession(name, engine=opened, create_tables=True) for name in ("user/1", "x" * 300)]
    for session in theirs:
        await session.add_items(_ITEMS[:4])
        await session.add_items(_ITEMS[4:])
    await theirs[0].pop_item()
    report = await _import(url, named)
    for session in theirs:
        await _same(LashSession(session.session_id, url), session)
    assert (report.sessions, report.counts, report.kept_raw) == (2, {"item": 11}, ())
    ours = LashSession("user/1", url)
    await ours.add_items([{"role": "user", "content": "more"}])
    again = await _import(url, named)
    assert (again.sessions, again.already_there, again.not_imported) == (0, 2, ())
    assert await ours.get_items(2) == [_ITEMS[4], {"role": "user", "content": "more"}]


async def test_sessions_of_sqlite_read_as_before(url: str, tmp_path: Path) -> None:
    """Tables with names of the program's own are found; one session id in two tables is kept, not mixed."""
    path = tmp_path / "theirs.sqlite"
    theirs = SQLiteSession("a", path)
    named = SQLiteSession("b", path, sessions_table="chats", messages_table="lines")
    doubled = SQLiteSession("a", path, sessions_table="chats", messages_table="lines")
    await theirs.add_items(_ITEMS)
    await named.add_items(_ITEMS[:2])
    await doubled.add_items(_ITEMS[:1])
    report = await _import(url, str(path))
    await _same(LashSession("a", url), theirs)
    await _same(LashSession("b", url), named)
    assert (report.sessions, report.counts, report.other_tables) == (2, {"item": 8}, ())
    assert [(each.table, each.rows) for each in report.kept_raw] == [("chats", 1), ("lines", 1)]
    async with await lash.open(url) as storage:
        kept = await storage.records.list("import.raw", session_id="openai-agents:a", where={"table": "lines"})
        assert [json.loads(each.value["row"]["message_data"]) for each in kept] == _ITEMS[:1]  # type: ignore[index,call-overload]
        meta = await storage.session("openai-agents:a").meta()
        assert set(meta.metadata) == {"created_at", "updated_at"}
        (first, *_) = await storage.session("openai-agents:a").list_nodes("message", limit=10)
        assert first.entry.message.text == "Zürich, 天気は? \U0001f600"  # type: ignore[union-attr]
    for session in (theirs, named, doubled):
        session.close()


async def test_branches_become_branches(url: str, tmp_path: Path) -> None:
    """The path is the main branch. The others are in the graph, and records name their ends; usage is kept raw."""
    path = tmp_path / "theirs.sqlite"
    theirs = AdvancedSQLiteSession(session_id="a", db_path=path, create_tables=True)
    turns = [[{"role": "user", "content": f"q{n}"}, {"role": "assistant", "content": f"a{n}"}] for n in range(3)]
    for turn in turns:
        await theirs.add_items(turn)  # type: ignore[arg-type]
    branch = await theirs.create_branch_from_turn(2, "other")
    await theirs.add_items([{"role": "user", "content": "else"}])
    other = await theirs.get_items(branch_id=branch)
    await theirs.switch_to_branch("main")
    plain = SQLiteSession("plain", path)
    await plain.add_items(_ITEMS)
    report = await _import(url, str(path))
    await _same(LashSession("a", url), theirs)
    await _same(LashSession("plain", url), plain)
    assert (report.sessions, report.counts) == (2, {"item": 13, "branch": 1})
    assert {each.table for each in report.kept_raw} <= {"branch_reservations", "session_clear_generations"}
    async with await lash.open(url) as storage:
        (named,) = await storage.records.list("openai-agents.branches", session_id="openai-agents:a")
        assert isinstance(named.value, dict)
        path_of_it = await storage.session("openai-agents:a").raw_path(leaf_node_id=named.value["leaf_node_id"])
        nodes = await storage.session("openai-agents:a").list_nodes("message", limit=100)
    assert [json.loads(each.body)["entry"]["native"] for each in path_of_it] == other
    assert len(nodes) == 7
    for session in (theirs, plain):
        session.close()


async def test_encrypted_items_stay_encrypted(url: str, tmp_path: Path) -> None:
    """They are read with the same key and session id through the SDK's own wrapper."""
    path = tmp_path / "theirs.sqlite"
    inner = SQLiteSession("a", path)
    theirs = EncryptedSession("a", inner, encryption_key="secret", ttl=600)
    await theirs.add_items(_ITEMS)
    await _import(url, str(path))
    ours = EncryptedSession("a", LashSession("a", url), encryption_key="secret", ttl=600)
    assert await ours.get_items() == await theirs.get_items() == _ITEMS
    inner.close()


async def test_rows_that_are_not_items_are_kept(url: str, tmp_path: Path) -> None:
    """What the SDK skips, what lash cannot hold, and what has no session: raw records with all columns."""
    path = tmp_path / "theirs.sqlite"
    theirs = SQLiteSession("a", path)
    await theirs.add_items(_ITEMS[:1])
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE agent_messages ADD COLUMN stars INTEGER")
        insert = "INSERT INTO agent_messages (session_id, message_data, created_at, stars) VALUES (?, ?, ?, ?)"
        rows = [("a", text, "2026-01-01", None) for text in ("{broken", "[1]", '{"n": 1' + "0" * 30 + "}")]
        rows += [("a", '{"role": "user", "content": "late"}', "yesterday", 5), ("gone", b"\xff\xfe", None, None)]
        connection.executemany(insert, rows)
    report = await _import(url, str(path))
    ours = LashSession("a", url)
    assert await ours.get_items() == [_ITEMS[0], {"role": "user", "content": "late"}]
    kept = {each.reason: each.rows for each in report.kept_raw}
    assert kept.pop("it is not JSON") == 2
    assert kept.pop("it is not a JSON object") == 1
    assert kept.pop("its time cannot be read") == 1
    assert kept.pop("columns without a counterpart: stars") == 1
    assert sum(kept.values()) == 1, "the integer beyond 64 bits"
    assert report.counts == {"item": 2}
    theirs.close()


def test_the_command_imports_without_the_sdk(tmp_path: Path) -> None:
    """The program that imports needs neither the SDK nor its libraries."""
    path = tmp_path / "theirs.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE agent_sessions (session_id TEXT, created_at TIMESTAMP, updated_at TIMESTAMP)")
        connection.execute("CREATE TABLE agent_messages (id INTEGER, session_id TEXT, message_data TEXT, created_at)")
        connection.execute("INSERT INTO agent_messages VALUES (1, 'a', '{}', '2026-01-01 00:00:00')")
    program = "import sys; sys.modules['agents'] = None; from lash.cli.main import main; sys.exit(main())"
    environment = os.environ | {"LASH_URL": f"sqlite:///{tmp_path}/ours.db"}

    def lash_command(*arguments: str) -> str:
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    lash_command("init")
    assert lash_command("import", "openai-agents", str(path), "--dry-run") == "would import 1 session: 1 item\n"
    assert json.loads(lash_command("--json", "import", "openai-agents", str(path)))["counts"] == {"item": 1}
    assert lash_command("import", "openai-agents", str(path)) == "imported 0 sessions\nalready there: 1\n"
