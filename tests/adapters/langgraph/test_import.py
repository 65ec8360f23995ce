"""Imports of databases that LangGraph's own savers and stores have written."""

from __future__ import annotations

import operator
import os
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC
from pathlib import Path
from typing import Annotated, Any

import psycopg
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.base import VECTOR_MIGRATIONS
from langgraph.types import Send, interrupt
from psycopg.rows import dict_row
from sqlite_vec import serialize_float32
from typing_extensions import TypedDict

import lash
import lash.sync
from lash.adapters.importing import ImportReport
from lash.adapters.langgraph import LashSaver, LashStore
from lash.adapters.langgraph.importing import LangGraphReader
from tests.adapters.import_kit import imported

_KEY = "0123456789abcdef"


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]
    parts: Annotated[list[str], operator.add]
    note: str
    whole: dict[str, Any]


def _graph(saver: Any) -> Any:  # noqa: ANN401 (a compiled graph)
    def answer(state: State) -> dict[str, Any]:
        number = len(state["messages"])
        whole = {"large": "x" * 2_000, "number": number}
        return {"messages": [AIMessage(f"answer {number}", id=f"a{number}")], "note": "n", "whole": whole}

    def part(state: dict[str, Any]) -> dict[str, Any]:
        return {"parts": [f"part {state['n']}"]}

    def ask(state: State) -> dict[str, Any]:
        return {"note": str(interrupt("sure?"))} if len(state["messages"]) > 11 else {}

    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_node("part", part)
    builder.add_node("ask", ask)
    builder.add_edge(START, "answer")
    builder.add_conditional_edges("answer", lambda _: [Send("part", {"n": n}) for n in range(3)], ["part"])
    builder.add_edge("part", "ask")
    builder.add_edge("ask", END)
    return builder.compile(checkpointer=saver)


def _fill(saver: BaseCheckpointSaver[Any]) -> None:
    """Two threads; the first ends with an interrupt, so that it has pending writes."""
    graph = _graph(saver)
    for thread, turns in (("a/b", 6), ("other", 1)):
        for turn in range(turns):
            config = {"configurable": {"thread_id": thread}, "metadata": {"run_id": f"run-{turn}"}}
            graph.invoke({"messages": [HumanMessage(f"say {turn}", id=f"h{turn}")]}, config)


@pytest.fixture
def theirs(url: str, tmp_path: Path) -> Iterator[tuple[str, BaseCheckpointSaver[Any]]]:
    """A database of theirs, on the same kind of database as the storage, and the saver that reads it."""
    if url.startswith("sqlite"):
        path = str(tmp_path / "theirs.sqlite")
        with SqliteSaver.from_conn_string(path) as saver:
            yield path, saver
        return
    server = os.environ["LASH_ADAPTERS_POSTGRES"]
    schema = f"theirs_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True, row_factory=dict_row) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"SET search_path TO {schema}")
        saver = PostgresSaver(connection)
        saver.setup()
        yield f"{server}{'&' if '?' in server else '?'}schema={schema}", saver


async def _import(url: str, theirs: str) -> ImportReport:
    return await imported(url, theirs, LangGraphReader())


def _all(saver: BaseCheckpointSaver[Any]) -> dict[str, CheckpointTuple]:
    return {each.config["configurable"]["checkpoint_id"]: each for each in saver.list(None)}


def _comparable(each: CheckpointTuple) -> Mapping[str, object]:
    named = {key: each.config["configurable"][key] for key in ("thread_id", "checkpoint_ns", "checkpoint_id")}
    return {**each._asdict(), "config": named, "pending_writes": list(each.pending_writes or ())}


async def test_every_checkpoint_reads_as_before(url: str, theirs: tuple[str, BaseCheckpointSaver[Any]]) -> None:
    """Our saver returns what theirs does, checkpoint by checkpoint, and the graph continues its thread."""
    database, saver = theirs
    _fill(saver)
    expected = _all(saver)
    report = await _import(url, database)
    ours = LashSaver(url)
    found = _all(ours)
    assert len(expected) > 30
    assert {key: _comparable(each) for key, each in found.items()} == {
        key: _comparable(each) for key, each in expected.items()
    }
    assert (report.sessions, report.counts["checkpoint"], report.kept_raw) == (2, len(expected), ())
    config = {"configurable": {"thread_id": "a/b"}}
    assert [each.value for each in _graph(ours).get_state(config).interrupts] == ["sure?"]
    after = _graph(ours).invoke({"messages": [HumanMessage("more", id="more")]}, config)
    assert [message.content for message in after["messages"]][:3] == ["say 0", "answer 1", "say 1"]
    ours.delete_for_runs(["run-0"])
    assert len(_all(ours)) < len(expected)


async def test_lists_are_stored_item_by_item(url: str, theirs: tuple[str, BaseCheckpointSaver[Any]]) -> None:
    """A message is stored once, however many checkpoints have it."""
    database, saver = theirs
    _fill(saver)
    await _import(url, database)
    async with await lash.open(url) as storage:
        nodes = await storage.session("langgraph:a/b").list_nodes("bytes:langgraph.item", limit=1_000)
    messages = len(saver.get_tuple({"configurable": {"thread_id": "a/b"}}).checkpoint["channel_values"]["messages"])  # type: ignore[union-attr]
    parts = 6 * 3
    assert len(nodes) == messages + parts


async def test_a_checkpoint_that_cannot_be_read_is_kept(url: str, theirs: tuple[str, BaseCheckpointSaver[Any]]) -> None:
    """Its row is a raw record with the reason; the other checkpoints are imported."""
    database, saver = theirs
    _fill(saver)
    count = len(_all(saver))
    latest = saver.get_tuple({"configurable": {"thread_id": "other"}})
    assert latest is not None
    named = latest.config["configurable"]["checkpoint_id"]
    if isinstance(saver, SqliteSaver):
        saver.conn.execute("UPDATE checkpoints SET type = 'pickle' WHERE checkpoint_id = ?", (named,))
        saver.conn.commit()
    else:
        assert isinstance(saver, PostgresSaver)
        saver.conn.execute("UPDATE checkpoints SET metadata = '[]' WHERE checkpoint_id = %s", (named,))  # type: ignore[union-attr]
    report = await _import(url, database)
    async with await lash.open(url) as storage:
        (kept,) = await storage.records.list("import.raw", session_id="langgraph:other")
    assert report.counts["checkpoint"] == count - 1
    assert [(each.table, each.rows) for each in report.kept_raw] == [("checkpoints", 1)]
    assert isinstance(kept.value, dict)
    assert kept.value["row"]["checkpoint_id"] == named


@pytest.mark.parametrize("has_key", [True, False])
async def test_an_encrypted_database_stays_encrypted(
    url: str,
    theirs: tuple[str, BaseCheckpointSaver[Any]],
    has_key: bool,  # noqa: FBT001 (a parameter of the test)
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the key lists are taken apart and encrypted again; without it nothing is lost."""
    database, saver = theirs
    serde = EncryptedSerializer.from_pycryptodome_aes(key=_KEY.encode())
    saver.serde = serde
    _fill(saver)
    expected = _all(saver)
    if has_key:
        monkeypatch.setenv("LANGGRAPH_AES_KEY", _KEY)
    report = await _import(url, database)
    if has_key or isinstance(saver, PostgresSaver):
        found = _all(LashSaver(url, serde=serde))
        assert {key: _comparable(each) for key, each in found.items()} == {
            key: _comparable(each) for key, each in expected.items()
        }
    else:
        assert [(each.rows, each.reason) for each in report.kept_raw] == [
            (len(expected), "encrypted; set LANGGRAPH_AES_KEY to import it")
        ]
    async with await lash.open(url) as storage:
        nodes = await storage.session("langgraph:a/b").list_nodes("bytes:langgraph.item", limit=1_000)
        assert all(b"say" not in node.entry.content for node in nodes)  # type: ignore[union-attr]


async def test_items_of_a_store_keep_their_times_and_vectors(url: str, tmp_path: Path) -> None:
    """Values, times, the time to live, and on SQLite the embeddings come along; an expired item is kept raw."""
    index: Any = {"dims": 2, "embed": lambda texts: [[float(len(text)), 1.0] for text in texts], "fields": ["text"]}
    path = str(tmp_path / "store.sqlite")
    with SqliteStore.from_conn_string(path) as store:
        store.setup()
        store.put(("users", "ann"), "city", {"text": "Ulm"})
        store.put(("users", "bob"), "city", {"text": "Rome"}, ttl=60)
        store.put(("users",), "old", {"text": "gone"}, ttl=60)
        expected = {item.key + str(item.namespace): item for item in store.search(("users",), limit=10)}
    connection = sqlite3.connect(path)
    with connection:
        # What the store itself writes if the extension for vectors can be loaded, which many Pythons cannot do.
        connection.executescript(VECTOR_MIGRATIONS[0])
        insert = "INSERT INTO store_vectors (prefix, key, field_name, embedding) VALUES (?, 'city', 'text', ?)"
        for prefix, length in (("users.ann", 3.0), ("users.bob", 4.0)):
            connection.execute(insert, (prefix, serialize_float32([length, 1.0])))
        connection.execute("UPDATE store SET expires_at = '2020-01-01 00:00:00' WHERE key = 'old'")
    connection.close()
    report = await _import(url, path)
    ours = LashStore(url, index=index)
    found = {item.key + str(item.namespace): item for item in ours.search(("users",), limit=10)}
    assert [(each.table, each.reason, each.rows) for each in report.kept_raw] == [("store", "it has expired", 1)]
    assert report.counts == {"item": 2}
    assert set(found) == set(expected) - {"old('users',)"}
    for key, item in found.items():
        assert (item.value, item.created_at, item.updated_at) == (
            expected[key].value,
            expected[key].created_at.replace(tzinfo=UTC),
            expected[key].updated_at.replace(tzinfo=UTC),
        )
    (nearest, _) = ours.search(("users",), query="Ulm")
    assert (nearest.value, round(nearest.score or 0, 3)) == ({"text": "Ulm"}, 1.0)


async def test_items_of_a_store_on_postgresql(url: str) -> None:
    """Namespaces, keys, values and times are those of their store."""
    server = os.environ["LASH_ADAPTERS_POSTGRES"]
    schema = f"theirs_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True, row_factory=dict_row) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"SET search_path TO {schema}")
        store = PostgresStore(connection)
        store.setup()
        store.put(("users", "ann"), "city", {"text": "Ulm", "n": [1, None]})
        store.put(("users", "bob"), "city", {"text": "Rome"}, ttl=60)
        expected = store.search(("users",))
    await _import(url, f"{server}{'&' if '?' in server else '?'}schema={schema}")
    found = LashStore(url).search(("users",))
    assert sorted((i.namespace, i.key, i.value, i.created_at, i.updated_at) for i in found) == sorted(
        (i.namespace, i.key, i.value, i.created_at, i.updated_at) for i in expected
    )


def test_the_command_imports_and_reports(tmp_path: Path) -> None:
    """A dry run and an import print what they find; the second import finds everything there."""
    path = str(tmp_path / "theirs.sqlite")
    with SqliteSaver.from_conn_string(path) as saver:
        _fill(saver)
        count = len(_all(saver))
    environment = os.environ | {"LASH_URL": f"sqlite:///{tmp_path}/ours.db"}

    def lash_command(*arguments: str) -> str:
        command = [sys.executable, "-m", "lash", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    lash_command("init")
    assert lash_command("import", "langgraph", path, "--dry-run").startswith(
        f"would import 2 sessions: {count} checkpoints, "
    )
    assert lash_command("import", "langgraph", path).startswith(f"imported 2 sessions: {count} checkpoints, ")
    assert lash_command("import", "langgraph", path) == "imported 0 sessions\nalready there: 2\n"
