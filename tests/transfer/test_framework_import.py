"""Imports of the databases of frameworks: what all readers share, with a reader of a toy framework."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import apsw
import asyncpg
import pytest

from lash.adapters.importing import (
    Found,
    FoundPart,
    FoundRecords,
    FoundSession,
    ImportReport,
    KeptRaw,
    RawRow,
    Row,
    Source,
    import_database,
    open_source,
)
from lash.adapters.importing.pickled import NotPlainData, plain_data
from lash.adapters.importing.readers import READERS, reader_of
from lash.cli.framework import FRAMEWORKS
from lash.errors import InvalidInput, StoreUnavailable
from lash.model.record import RecordPut
from lash.model.session.node import Node, PluginEntry
from lash.stores.storage import Storage
from lash.transfer.progress import Progress
from tests.cli.kit import run
from tests.transfer.kit import opened

_TABLES = (
    "CREATE TABLE talks (id TEXT PRIMARY KEY)",
    "CREATE TABLE lines (talk TEXT, place INTEGER, said TEXT, extra {bytes})",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT)",
    "CREATE TABLE bystander (x TEXT)",
    "INSERT INTO talks VALUES ('t1'), ('t2')",
    "INSERT INTO lines VALUES ('t1', 2, 'two', NULL), ('t1', 1, 'one', NULL), ('t2', 1, NULL, {blob})",
    "INSERT INTO facts VALUES ('a', '1'), ('b', '2')",
)
_LARGE = 100_000


class Toy:
    """Talks with lines; a line without text has no counterpart."""

    framework = "toy"
    tables = frozenset({"talks", "lines", "facts"})

    def __init__(self, broken: str | None = None) -> None:
        self._broken = broken

    async def recognised(self, source: Source) -> frozenset[str]:
        return await source.tables() & self.tables

    async def count(self, source: Source) -> int:
        return await source.count("talks") + 1

    async def found(self, source: Source) -> AsyncIterator[Found]:
        for row in await source.distinct(["lines"], ["talk"]):
            yield FoundSession(
                name=row["talk"],
                session_id=f"toy:{row['talk']}",
                pieces=self._lines(source, row["talk"]),
                labels={"framework": "toy"},
            )
        yield FoundRecords(name="facts", pieces=self._facts(source))

    async def _lines(self, source: Source, talk: str) -> AsyncIterator[FoundPart]:
        parent: str | None = None
        async for row in source.rows("lines", where={"talk": talk}, order=("place",)):
            if talk == self._broken:
                raise ConnectionError(talk)
            if row["said"] is None:
                yield FoundPart(raw=[RawRow(table="lines", row=row, reason="it has no text")])
                continue
            node = _node(row, parent)
            parent = node.node_id
            yield FoundPart(nodes=[node], counts={"line": 1})

    async def _facts(self, source: Source) -> AsyncIterator[FoundPart]:
        async for row in source.rows("facts", order=("name",)):
            put = RecordPut(collection="toy.facts", key=row["name"], value=row["value"])
            yield FoundPart(records=[put], counts={"fact": 1})


def _node(row: Row, parent: str | None) -> Node:
    entry = PluginEntry(plugin_type="toy.line", body=row["said"])
    return Node(
        node_id=str(row["place"]), parent_node_id=parent, timestamp=datetime(2026, 1, 1, tzinfo=UTC), entry=entry
    )


Foreign = str


@pytest.fixture
async def foreign(backend_name: str, request: pytest.FixtureRequest, tmp_path: Path) -> Foreign:
    """The database of the toy framework: a SQLite file, or a schema of PostgreSQL."""
    if backend_name != "postgres":
        return _toy_file(tmp_path / "toy.db")
    url: str = request.getfixturevalue("postgres_schema_url")
    server, _, schema = url.partition("?schema=")
    session = await asyncpg.connect(server)
    try:
        await session.execute(f"SET search_path TO {schema}")
        for statement in _TABLES:
            await session.execute(statement.format(bytes="BYTEA", blob=f"decode(repeat('00', {_LARGE}), 'hex')"))
    finally:
        await session.close()
    return url


def _toy_file(path: Path) -> str:
    connection = apsw.Connection(str(path))
    for statement in _TABLES:
        connection.execute(statement.format(bytes="BLOB", blob=f"zeroblob({_LARGE})"))
    connection.close()
    return str(path)


def _damaged_file(path: Path) -> str:
    """A database whose table of lines begins with a page of zeros."""
    connection = apsw.Connection(_toy_file(path))
    ((size,),) = connection.execute("PRAGMA page_size").fetchall()
    ((page,),) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'lines'").fetchall()
    connection.close()
    assert isinstance(size, int)
    assert isinstance(page, int)
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = bytes(size)
    path.write_bytes(content)
    return str(path)


async def _import(storage: Storage, foreign: Foreign, *, dry_run: bool = False, broken: str = "") -> ImportReport:
    async with open_source(foreign) as source:
        return await import_database(storage, source, Toy(broken), dry_run=dry_run)


async def _said(storage: Storage, session_id: str) -> list[str]:
    nodes = await storage.session(session_id).list_nodes("plugin:toy.line", limit=10)
    return [str(node.entry.body) for node in nodes if isinstance(node.entry, PluginEntry)]


async def test_everything_that_is_found_is_stored_once(backend_url: str, foreign: Foreign) -> None:
    """A dry run reports the same and writes nothing; a repeated import changes nothing."""
    async with opened(backend_url) as (storage,):
        dry = await _import(storage, foreign, dry_run=True)
        assert (await storage.sessions.list()).sessions == ()
        done = await _import(storage, foreign)
        again = await _import(storage, foreign)
        assert await _said(storage, "toy:t1") == ["one", "two"]
        facts = await storage.records.list("toy.facts")
    assert (done.sessions, done.counts, done.already_there) == (2, {"line": 2, "fact": 2}, 0)
    assert done.kept_raw == (KeptRaw(table="lines", reason="it has no text", rows=1),)
    assert done.other_tables == ("bystander",)
    assert (dry.sessions, dry.counts, dry.kept_raw, dry.dry_run) == (2, done.counts, done.kept_raw, True)
    assert (again.sessions, again.counts, again.already_there, again.not_imported) == (0, {}, 4, ())
    assert {fact.key: (fact.value, fact.version) for fact in facts} == {"a": ("1", 1), "b": ("2", 1)}


async def test_progress_is_reported_up_to_the_total(backend_url: str, foreign: Foreign) -> None:
    """Each session is a step, and so are the records of the storage, in a dry run and in an import."""
    for dry_run in (True, False):
        steps: list[Progress] = []
        async with opened(backend_url) as (storage,), open_source(foreign) as source:
            await import_database(storage, source, Toy(), dry_run=dry_run, progress=steps.append)
        assert steps == [Progress(noun="session", done=done, total=3) for done in (1, 2, 3)]


async def test_a_row_without_a_counterpart_is_kept_whole(backend_url: str, foreign: Foreign) -> None:
    """It is a record of its session, with all columns; a large value has records of its own."""
    async with opened(backend_url) as (storage,):
        await _import(storage, foreign)
        (kept,) = await storage.records.list("import.raw", session_id="toy:t2", where={"table": "lines"})
        assert isinstance(kept.value, dict)
        row = kept.value["row"]
        (key,) = row["extra"]["bytes"]
        large = await storage.records.get("import.raw-bytes", key, session_id="toy:t2")
    assert (row["talk"], row["place"], row["said"]) == ("t2", 1, None)
    assert large is not None
    assert large.value == bytes(_LARGE)


async def test_an_interrupted_import_is_repeated(backend_url: str, foreign: Foreign) -> None:
    """The session at which it stopped is imported again, and the ones before it are not."""
    async with opened(backend_url) as (storage,):
        with pytest.raises(ConnectionError):
            await _import(storage, foreign, broken="t2")
        repeated = await _import(storage, foreign)
        assert await _said(storage, "toy:t1") == ["one", "two"]
    assert (repeated.sessions, repeated.already_there) == (1, 1)


async def test_what_the_storage_has_is_never_changed(backend_url: str, foreign: Foreign) -> None:
    """A session or a record of the same name stays, and the report names it."""
    async with opened(backend_url) as (storage,):
        await storage.sessions.create("toy:t1")
        await storage.records.put("toy.facts", "a", "mine")
        report = await _import(storage, foreign)
        assert await _said(storage, "toy:t1") == []
        kept = await storage.records.get("toy.facts", "a")
    assert [each.name for each in report.not_imported] == ["t1", "toy.facts a"]
    assert (report.sessions, report.counts) == (1, {"fact": 1})
    assert kept is not None
    assert kept.value == "mine"


async def test_a_database_of_another_program_is_refused(backend_url: str, tmp_path: Path) -> None:
    """The error names the expected tables and the tables that it has."""
    apsw.Connection(str(tmp_path / "other.db")).execute("CREATE TABLE users (id)").close()
    (tmp_path / "text.db").write_text("no database" * 100)
    async with opened(backend_url) as (storage,):
        with pytest.raises(InvalidInput, match=r"expected tables of toy .*; found: users"):
            await _import(storage, str(tmp_path / "other.db"))
        with pytest.raises(InvalidInput, match="cannot be read as a SQLite database"):
            await _import(storage, f"sqlite:///{tmp_path}/text.db")
        with pytest.raises(InvalidInput, match="no database at"):
            await _import(storage, str(tmp_path / "absent.db"))
        with pytest.raises(StoreUnavailable, match="cannot be opened"):
            await _import(storage, "postgresql://nobody@127.0.0.1:1/none")


def test_the_command_knows_every_reader() -> None:
    """The names in the help are those of the readers; an unknown one is refused."""
    assert tuple(READERS) == FRAMEWORKS
    with pytest.raises(InvalidInput, match="unknown framework 'x'"):
        reader_of("x")


async def test_a_damaged_database_is_an_error(backend_url: str, tmp_path: Path) -> None:
    """The error names the table that cannot be read."""
    async with opened(backend_url) as (storage,):
        with pytest.raises(InvalidInput, match=r"lines cannot be read: .*malformed"):
            await _import(storage, _damaged_file(tmp_path / "damaged.db"))


@pytest.mark.parametrize("framework", ["openai-agents", "adk"])
def test_a_reader_works_without_its_framework(framework: str) -> None:
    """A program that imports a database does not need the framework that wrote it."""
    assert reader_of(framework).framework == framework


@pytest.mark.parametrize(
    "pickled",
    [
        b"cposix\nsystem\n(S'touch /tmp/harm'\ntR.",
        b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.",
        b"\x80\x02cgoogle.adk.events.event_actions\nEventActions\n)\x81K\x01b.",
        b"\x80\x02]q\x00h\x00a.",
        b"\x80\x02}K\x01s.",
        b"\x80\x04\x95",
        b"",
        b"I1\n",
        b"\x80\x02K\x01K\x02\x85R.",
        b"\x80\x02Pname\n.",
    ],
)
def test_a_pickle_is_data_or_an_error(pickled: bytes) -> None:
    """Calls, foreign classes, endless and damaged values are refused by one kind of error."""
    with pytest.raises(NotPlainData):
        plain_data(pickled)


def test_the_command_names_the_extra_of_a_framework_that_is_not_installed(tmp_path: Path) -> None:
    """The exit code is that of a wrong option."""
    ended = run("import", "langgraph", "any.db", url=f"sqlite:///{tmp_path}/a.db")
    assert ended.returncode == 2
    assert "pip install 'lash-runtime[langgraph]'" in ended.stderr


async def test_the_command_fails_if_something_was_not_imported(tmp_path: Path) -> None:
    """The exit code is that of a conflict, the report has all the rest, and nothing is overwritten."""
    path, url = str(tmp_path / "theirs.db"), f"sqlite:///{tmp_path}/ours.db"
    connection = apsw.Connection(path)
    connection.execute("CREATE TABLE agent_sessions (session_id TEXT, created_at TIMESTAMP, updated_at TIMESTAMP)")
    connection.execute("CREATE TABLE agent_messages (id INTEGER, session_id TEXT, message_data TEXT, created_at)")
    connection.execute("INSERT INTO agent_messages VALUES (1, 'a', '{}', '2026-01-01'), (2, 'b', '{}', '2026-01-01')")
    connection.close()
    async with opened(url) as (storage,):
        await storage.sessions.create("openai-agents:a")
    ended = run("import", "openai-agents", path, url=url)
    assert ended.returncode == 4
    assert ended.stdout.startswith("imported 1 session: 1 item\nnot imported: a: ")
    assert "1 not imported" in ended.stderr
