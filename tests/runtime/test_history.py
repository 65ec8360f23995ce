"""The history that a worker caches between turns."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from datetime import UTC, datetime

import msgspec
import pytest

import lash
from lash.model.session.commit import Append, Commit
from lash.model.session.message import Message, Role
from lash.model.session.node import MessageEntry, Node
from lash.runtime.app import App
from lash.runtime.turns.history import LEAST_NODES, Histories, size_of
from lash.runtime.turns.turn import Turn
from tests.factories.session import chain, commit, node, started
from tests.runtime.turn_bench import Bench, texts

_ROOMY = 1_000_000


async def test_a_session_in_memory_is_not_read_again(bench: Bench) -> None:
    """A worker that made the last commit reads nothing before the next turn, whatever the length of the history."""
    statements: Counter[str] = Counter()

    class Counting(lash.Hook):
        def statement(self, name: str) -> None:
            statements[name] += 1

    app = await bench.app(hooks=(Counting(),))
    _declare(app)
    for _ in range(2):
        await app.session("s").send("x")
        await app.drain()
    statements.clear()
    await app.session("s").send("x")
    await app.drain()
    second = sum(statements.values())
    for _ in range(20):
        await app.session("s").send("x")
        await app.drain()
    statements.clear()
    await app.session("s").send("x")
    await app.drain()
    assert sum(statements.values()) == second
    assert texts(await app.session("s").messages())[-1] == ("assistant", "47")


async def test_a_first_commit_of_others_is_not_cut_off(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first commit concurrent with the worker's read is part of the history that the worker uses."""
    storage = (await bench.app()).storage
    await storage.sessions.create("s")
    handle = type(storage.session("s"))
    really_ask = handle.revision

    async def ask_late(session: lash.Session) -> int:
        await storage.session("s").commit(commit(0, node("a")))
        return await really_ask(session)

    monkeypatch.setattr(handle, "revision", ask_late)
    history = await Histories(_ROOMY).load(storage, "s")
    assert (history.revision, history.leaf_node_id) == (1, "a")


async def test_what_others_committed_is_seen(bench: Bench) -> None:
    """A head that has moved is read again: another app's turns are part of the next one."""
    if not bench.shared:
        pytest.skip("a storage in memory belongs to one app")
    one, two = await bench.app(), await bench.app()
    for app in (one, two):
        _declare(app)
    for app in (one, two, one, one, two):
        await app.session("s").send("x")
        await app.drain()
    replies = [text for role, text in texts(await one.session("s").messages()) if role == "assistant"]
    assert replies == ["1", "3", "5", "7", "9"]


async def test_a_session_that_was_deleted_begins_anew(bench: Bench) -> None:
    """Nothing of a deleted session is cached when its id is used again."""
    app = await bench.app()
    _declare(app)
    for _ in range(2):
        await app.session("s").send("x")
        await app.drain()
    await app.session("s").delete()
    await app.storage.sessions.create("s")
    for _ in range(2):
        await app.session("s").send("x")
        await app.drain()
    assert [text for _, text in texts(await app.session("s").messages())] == ["x", "1", "x", "3"]


async def test_memory_is_bounded(bench: Bench) -> None:
    """The cache is bounded in bytes, and drops what was not used for longest."""
    app = await bench.app(options=lash.WorkerOptions(history_cache_bytes=22_000))
    _declare(app)
    histories = app._require().histories
    for name in ("a", "b", "c", "d", "e", "d", "f"):
        await app.session(name).send("x")
        await app.drain()
    # A history of one turn takes about 6 kB.
    assert list(histories._kept) == ["e", "d", "f"]
    await app.session("d").send("x" * 10_000)
    await app.drain()
    assert list(histories._kept) == ["d"]
    assert 10_000 < histories.size <= 22_000


async def test_a_cache_may_be_too_small_for_any_session(bench: Bench) -> None:
    """Without room in the cache, every turn reads what it needs."""
    app = await bench.app(options=lash.WorkerOptions(history_cache_bytes=0))
    _declare(app)
    for _ in range(3):
        await app.session("s").send("x")
        await app.drain()
    assert texts(await app.session("s").messages())[-1] == ("assistant", "5")
    assert app._require().histories.size == 0
    with pytest.raises(lash.ConfigError):
        lash.WorkerOptions(history_cache_bytes=-1)


async def test_only_the_end_of_a_large_session_is_kept(bench: Bench) -> None:
    """A session that is larger than the cache is kept with its last messages, and its turns read nothing."""
    app = await bench.app(options=lash.WorkerOptions(history_cache_bytes=300_000))
    _declare(app)
    await app.storage.sessions.create("s")
    names = tuple(f"n{number}" for number in range(500))
    await app.storage.session("s").commit(commit(0, *chain(*names)))
    await app.session("s").send("x")
    await app.drain()
    histories = app._require().histories
    assert texts(await app.session("s").messages(last=1)) == [("assistant", "501")]
    assert list(histories._kept) == ["s"]
    assert len(histories._kept["s"].messages()) == LEAST_NODES + 2
    assert histories.size < 150_000


async def test_sizes_are_close_to_the_memory_that_is_used(bench: Bench) -> None:
    """The size of a history is at least what its messages take in memory, and not much more."""
    app = await bench.app()
    session = await started(app.storage, "s", *(f"{number:>200}" for number in range(2_000)))
    read = await session.load()
    assert read is not None
    gc.collect()
    tracemalloc.start()
    try:
        messages = [
            msgspec.json.decode(msgspec.json.encode(node.entry.message), type=Message)
            for node in read.graph.nodes
            if isinstance(node.entry, MessageEntry)
        ]
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used * 0.8 < size_of(messages) < used * 1.5


def test_a_commit_of_another_revision_is_forgotten() -> None:
    """A history that does not fit the commit is dropped, never patched."""
    histories = Histories(_ROOMY)
    commit = Commit(session_id="s", expected_revision=0, graph=Append(nodes=(_node("a"),)))
    histories.advance("s", commit, _result(1))
    assert histories._kept["s"].revision == 1
    histories.advance("s", Commit(session_id="s", expected_revision=5), _result(6))
    assert "s" not in histories._kept


def _declare(app: App) -> None:
    @app.agent
    async def count(turn: Turn) -> str:
        return str(len(turn.messages()))


def _node(name: str) -> Node:
    entry = MessageEntry(message=Message.of_text(name, Role.USER, name))
    return Node(node_id=name, parent_node_id=None, timestamp=datetime(2026, 1, 1, tzinfo=UTC), entry=entry)


def _result(revision: int) -> lash.model.CommitResult:
    manifest = lash.model.CheckpointManifest()
    return lash.model.CommitResult(revision=revision, checkpoint_ref=lash.model.BlobRef("0" * 64), manifest=manifest)
