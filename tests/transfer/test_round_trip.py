"""An exported and imported session is the same session."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lash.model.session.commit import Append, ReplaceFull
from lash.model.session.message import Message, Role
from lash.model.session.node import BytesEntry, Entry, MessageEntry, Node
from lash.model.session.session import ActivePath, ForkRelation
from lash.transfer import Progress, export_session, import_session
from tests.factories.session import MOMENT, chain, commit, created, node, plugin_node, started
from tests.transfer.kit import VIDEO, batches, carried, comparable, exported, opened, parsed, rich_session, whole


async def test_a_session_is_the_same_on_every_backend(backend_url: str) -> None:
    """After export and import the visible state is equal, and so is the file except for the named fields."""
    async with opened(backend_url, "sqlite://") as (source, target):
        await rich_session(source)
        first = await exported(source, with_queue=True)
        second = await carried(source, target, with_queue=True)
        assert comparable(second) == comparable(first)
        assert await whole(target) == await whole(source)
        assert await target.session("s").meta() == await source.session("s").meta()
        assert (await target.attachments.get("s", hashlib.sha256(VIDEO).hexdigest())).content == VIDEO
        assert [each.payloads for each in await target.queue.list("s")] == [each.payloads for each in batches("s")]


async def test_a_session_goes_to_postgresql_and_back(tmp_path: Path, postgres_schema_url: str) -> None:
    """From SQLite to PostgreSQL and back, the lines between the first and the last are the same bytes."""
    async with opened(f"sqlite:///{tmp_path / 'a.db'}", postgres_schema_url, f"sqlite:///{tmp_path / 'b.db'}") as all_:
        sqlite, postgres, back = all_
        await rich_session(sqlite)
        first = await exported(sqlite, with_queue=True)
        second = await carried(sqlite, postgres, with_queue=True)
        third = await carried(postgres, back, with_queue=True)
        assert second.splitlines()[1:-1] == first.splitlines()[1:-1]
        assert third.splitlines()[1:-1] == first.splitlines()[1:-1]
        assert await whole(back) == await whole(sqlite)


async def test_the_file_says_what_the_session_is() -> None:
    """The header has counts, parents precede their children, and a removed node is left out, its child is not."""
    async with opened("sqlite://") as (storage,):
        await rich_session(storage)
        lines = parsed(await exported(storage, with_queue=True))
    assert lines[0] == {
        "kind": "header",
        "format": "lash.session",
        "version": 2,
        "session_id": "s",
        "created_at_ms": lines[1]["created_at_ms"],
        "counts": {"frames": 2, "nodes": 6, "blobs": 4, "usage": 3, "attachments": 4, "batches": 3},
        "revision": 2,
        "updated_at_ms": lines[0]["updated_at_ms"],
    }
    nodes = [line["node"]["node_id"] for line in lines if line["kind"] == "node"]
    assert nodes == ["a", "b", "c", "x", "w", "p"]
    usage = [(line["entry"]["source"], line["entry"]["usage"]) for line in lines if line["kind"] == "usage"]
    assert usage == [
        ("z", {"input_tokens": 13, "output_tokens": 4}),
        ("a", {"input_tokens": 1}),
        ("later", {"input_tokens": 2}),
    ]
    assert [line["committed"] for line in lines if line["kind"] == "attachment"].count(True) == 3
    assert all(len(msgspec.json.encode(line)) < 2**21 for line in lines)


async def test_the_queue_is_carried_only_if_asked() -> None:
    """Without the option the file has no queued work."""
    async with opened("sqlite://", "sqlite://") as (source, target):
        await rich_session(source)
        await carried(source, target)
        assert await target.queue.list("s") == ()
        assert len(await source.queue.list("s")) == 3


async def test_a_session_can_get_another_name() -> None:
    """An import under another id leaves the original alone, and its export is equal."""
    async with opened("sqlite://") as (storage,):
        await rich_session(storage)
        file = await exported(storage)
        imported = await import_session(storage, io.BytesIO(file), session_id="copy")
        assert (imported.session_id, imported.source_session_id, imported.created) == ("copy", "s", True)
        assert comparable(await exported(storage, "copy")) == comparable(file)
        assert await whole(storage, "copy") == await whole(storage, "s")


async def test_a_fork_takes_its_path_along(backend_url: str) -> None:
    """The file of a fork contains the inherited nodes, so the source is not needed for the import."""
    async with opened(backend_url, "sqlite://") as (source, target):
        await started(source, "origin", "a", "b", "c")
        await source.sessions.fork("origin", "s", node_id="b")
        await source.session("s").commit(commit(1, *chain("d", after="b")))
        await carried(source, target)
        assert [each.node_id for each in (await whole(target)).graph.nodes] == ["a", "b", "d"]
        meta = await target.session("s").meta()
        assert meta.relation == ForkRelation(source_session_id="origin", node_id="b")
        assert comparable(await exported(target)) == comparable(await exported(source))


async def test_a_session_without_a_commit_stays_without(backend_url: str) -> None:
    """A session without a head keeps its metadata and announced attachments."""
    async with opened(backend_url, "sqlite://") as (source, target):
        await created(source)
        await source.attachments.put("s", b"early", "text/plain")
        file = await exported(source)
        assert [line["kind"] for line in parsed(file)] == ["header", "meta", "attachment", "data", "end"]
        assert comparable(await carried(source, target)) == comparable(file)
        assert await target.session("s").head() is None


async def test_children_that_were_inserted_before_their_parents_stay_there() -> None:
    """Parents come first in the file, and the imported graph is still in the order of insertion."""
    async with opened("sqlite://", "sqlite://") as (source, target):
        session = await created(source)
        graph = ReplaceFull(
            nodes=(node("leaf", "mid"), node("root"), node("mid", "root")), leaf_node_id="leaf", replaced_node_count=0
        )
        await session.commit(commit(0, graph=graph))
        lines = [line for line in parsed(await exported(source)) if line["kind"] == "node"]
        assert [(line["node"]["node_id"], line["place"]) for line in lines] == [("root", 2), ("mid", 3), ("leaf", 1)]
        assert comparable(await carried(source, target)) == comparable(await exported(source))
        assert [each.node_id for each in (await whole(target)).graph.nodes] == ["leaf", "root", "mid"]


async def test_erased_nodes_bytes_and_native_items_are_carried() -> None:
    """An erased node keeps its place in the copy and stays empty; bytes and native items are whole."""
    async with opened("sqlite://", "sqlite://") as (here, there):
        session = await started(here, "s", "a", "b", "c")
        await session.erase(["b"])
        entries: tuple[Entry, ...] = (
            BytesEntry(plugin_type="graph", content=bytes(range(256)) * 40),
            MessageEntry(message=Message.of_text("m", Role.USER, "hi"), native={"type": "item"}),
        )
        await session.append(
            [Node(node_id=f"n{place}", timestamp=MOMENT, entry=each) for place, each in enumerate(entries)]
        )
        await carried(here, there)
        assert (await whole(there)).graph == (await whole(here)).graph
        path = await there.session("s").load()
        assert path is not None
        assert [node.node_id for node in path.graph.nodes] == ["a", "c", "n0", "n1"]


async def test_an_attachment_without_bytes_is_left_out(tmp_path: Path) -> None:
    """An attachment that a put announced and never wrote is not exported."""
    async with opened(f"sqlite:///{tmp_path / 'lash.db'}") as (storage,):
        await started(storage)
        ref = await storage.attachments.put("s", b"gone", "text/plain")
        await storage.attachments._bytes.delete(ref.id)  # type: ignore[attr-defined]
        assert parsed(await exported(storage))[0]["counts"]["attachments"] == 0


async def test_progress_is_told() -> None:
    """Progress counts the lines of the file, for exports and imports."""
    async with opened("sqlite://", "sqlite://") as (source, target):
        await rich_session(source)
        told: list[Progress] = []
        stream = io.BytesIO()
        await export_session(source, "s", stream, progress=told.append)
        count = len(stream.getvalue().splitlines())
        assert told[-1] == Progress(noun="line", done=count, total=count)
        told.clear()
        stream.seek(0)
        await import_session(target, stream, progress=told.append)
        assert [each for each in told if each.noun == "line"][-1].done == count
        assert told[-1] == Progress(noun="step", done=5, total=5)


BODIES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\0é", max_size=3), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[tuple[Node, ...], str | None, list[str]]:
    """Return a random tree, its leaf, and nodes to remove."""
    nodes: list[Node] = []
    for number in range(draw(st.integers(1, 12))):
        parent = draw(st.sampled_from([None, *(each.node_id for each in nodes)]))
        nodes.append(plugin_node(f"n{number}", draw(BODIES), parent))
    ids = [each.node_id for each in nodes]
    return tuple(nodes), draw(st.sampled_from([None, *ids])), draw(st.lists(st.sampled_from(ids), max_size=3))


@pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn=graphs())
async def test_any_graph_survives(drawn: tuple[tuple[Node, ...], str | None, list[str]]) -> None:
    """Both graphs have the same paths, for random branches and removals."""
    nodes, leaf, removed = drawn
    async with opened("sqlite://", "sqlite://") as (source, target):
        session = await created(source)
        await session.commit(commit(0, graph=Append(nodes=nodes, leaf_node_id=leaf)))
        read = await session.load(ActivePath())
        assert read is not None
        held = {each.node_id for each in read.graph.nodes}
        await session.tombstone([node_id for node_id in removed if node_id not in held])
        assert comparable(await carried(source, target)) == comparable(await exported(source))
        assert await whole(target) == await whole(source)
        for each in nodes:
            path = ActivePath(leaf_node_id=each.node_id)
            here, there = await session.load(path), await target.session("s").load(path)
            assert here is not None
            assert there is not None
            assert there.graph == here.graph
