"""Names are values: none of them becomes SQL, a path or a command."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

import lash
from lash.bytestore.file import FileBytes
from lash.model.queue import BatchDraft
from lash.testing.postgres_server import PostgresServer
from tests.backends import run_sql
from tests.factories.process import process
from tests.factories.session import commit, node
from tests.factories.trigger import trigger
from tests.proof.fuzz.kit import lash_only_from
from tests.raw import raw

NAMES = (
    "'; DROP TABLE lash_nodes; --",
    '"; DROP TABLE lash_nodes; --',
    "x') OR 1=1 --",
    "%",
    "_",
    "$1",
    ":session_id",
    "../../../etc/passwd",
    "C:\\windows",
    "$(touch pwned)",
    "`touch pwned`",
    "{0.__class__}",
    "%s%n",
    "\\",
    "a\nb",
    "\x1b[2J",
    "\N{RIGHT-TO-LEFT OVERRIDE}x",
)


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
async def test_a_name_is_never_more_than_a_name(
    backend_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each name is stored unchanged wherever one is accepted, finds its own row only, and touches nothing else."""
    monkeypatch.chdir(tmp_path)
    await (await lash.open(backend_url)).close()
    before = await _tables(backend_url)
    async with await lash.open(backend_url) as storage:
        for name in NAMES:
            await storage.sessions.create(name, name=name, model=name, cwd=name)
            await storage.session(name).commit(commit(0, node(name), session_id=name, turn_id=name))
            await storage.queue.enqueue(
                BatchDraft(session_id=name, payloads=(lash.model.TurnInput.of_text(name),), source_key=name)
            )
            await storage.processes.register(process(name))
            await storage.triggers.register(trigger(name, source_type=name, source_key=name))
            await storage.artifacts.put(name, name.encode())
        for name in NAMES:
            assert (await storage.session(name).meta()).name == name
            found = await storage.session(name).node(name)
            assert found is not None
            assert len(await storage.queue.list(name)) == 1
            assert await storage.sessions.delete(name)
        assert (await storage.sessions.list()).sessions == ()
        assert {each.process_id for each in (await storage.processes.list()).processes} == set(NAMES)
        assert set(await storage.artifacts.namespaces()) == set(NAMES)
    assert await _tables(backend_url) == before
    assert {name.partition(".")[0] for _, _, names in os.walk(tmp_path) for name in names} <= {"lash"}


async def _tables(url: str) -> list[object]:
    if url.startswith("sqlite"):
        return sorted(await raw(url, "SELECT name, sql FROM sqlite_schema WHERE type = 'table'"), key=str)
    return await raw(url, "SELECT table_name, column_name FROM information_schema.columns ORDER BY 1, 2")  # type: ignore[return-value]


@pytest.mark.parametrize("schema", ['a"; DROP SCHEMA public CASCADE; --', "a'b $1 %s", "Ä"])
async def test_a_schema_of_any_name_is_one_schema(postgres_server: PostgresServer, schema: str) -> None:
    """The schema name is quoted everywhere: the storage is created, used and reopened in it, and nowhere else."""
    quoted = '"' + schema.replace('"', '""') + '"'
    url = f"{postgres_server.url}?schema={quote(schema, safe='')}"
    try:
        for _ in range(2):
            async with await lash.open(url) as storage:
                await lash_only_from(storage.sessions.create("s"))
                assert len((await storage.sessions.list()).sessions) == 1
                assert (await storage.report()).bytes > 0
    finally:
        run_sql(postgres_server.url, f"DROP SCHEMA {quoted} CASCADE")


@pytest.mark.parametrize("name", [*NAMES, "", ".", "..", "/", "0" * 63, "0" * 64 + "/", "0" * 64 + "\n", "A" * 64])
async def test_no_name_becomes_a_path(name: str, tmp_path: Path) -> None:
    """Only 64 hex digits name a file of an attachment; anything else is refused before any disk access."""
    (tmp_path / "root").mkdir()
    store = FileBytes(tmp_path / "root")
    calls: list[Callable[[], object]] = [
        lambda: store.put(name, b"x"),
        lambda: store.get(name),
        lambda: store.delete(name),
    ]
    for call in calls:
        with pytest.raises(lash.InvalidInput):
            await call()  # type: ignore[misc]
    assert [names for _, _, names in os.walk(tmp_path) if names] == []
