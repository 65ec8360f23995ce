"""The contract of reads: the nodes of each scope, the ledger, and a single revision."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone

import msgspec
import pytest

from lash.errors import StorageClosed
from lash.model.causal import ProcessEventCause, TurnCause
from lash.model.session.commit import Commit, Unchanged
from lash.model.session.message import (
    AttachmentRef,
    Message,
    Part,
    PartKind,
    PluginOrigin,
    ReasoningMeta,
    ResponseMeta,
    Role,
    Summarized,
    ToolReplay,
)
from lash.model.session.node import MessageEntry, Node, ProtocolEntry
from lash.model.session.session import ActivePath, FullGraph, SessionConfig, SessionRead
from lash.model.session.usage import PromptUsage, TokenUsage, UsageEntry
from lash.testing.harness import Harness
from tests.contract.state import ids, loaded, observe
from tests.factories.session import (
    MOMENT,
    chain,
    commit,
    created,
    draft,
    frame,
    node,
    owner,
    plugin_node,
    spent,
    started,
)


class TestSessionRead:
    """Laws of loading."""

    async def test_the_full_graph_is_every_branch_in_order(self, harness: Harness) -> None:
        """The full graph has the live nodes of every branch in the order of insertion."""
        session = await started(await harness.open(), "s", "b", "a")
        await session.commit(commit(1, *chain("d", "c", after="b")))
        read = await session.load(FullGraph())
        assert read is not None
        assert read.graph.nodes == (*chain("b", "a"), *chain("d", "c", after="b"))
        assert read.graph.leaf_node_id == "c"

    async def test_the_active_path_is_the_ancestry_of_the_leaf(self, harness: Harness) -> None:
        """The default scope has the ancestry of the head's leaf, root first, and no sibling."""
        session = await started(await harness.open(), "s", "a", "b")
        await session.commit(commit(1, *chain("c", "d", after="a")))
        read = await session.load()
        assert read is not None
        assert read.graph.nodes == (*chain("a"), *chain("c", "d", after="a"))
        assert read.graph.leaf_node_id == "d"

    async def test_the_path_of_any_node_can_be_read(self, harness: Harness) -> None:
        """A named leaf is read with its ancestry, whatever the head's leaf is; the head does not change."""
        session = await started(await harness.open(), "s", "a", "b", "c")
        await session.commit(commit(1, node("d", "a")))
        before = await session.head()
        read = await session.load(ActivePath(leaf_node_id="b"))
        assert read is not None
        assert (ids(read), read.graph.leaf_node_id) == (["a", "b"], "b")
        assert read.head == before == await session.head()

    async def test_the_path_of_an_unknown_leaf_is_empty(self, harness: Harness) -> None:
        """An unknown leaf has no nodes, and is still returned as the leaf."""
        session = await started(await harness.open())
        read = await session.load(ActivePath(leaf_node_id="nowhere"))
        assert read is not None
        assert (read.graph.nodes, read.graph.leaf_node_id, read.head.leaf_node_id) == ((), "nowhere", "a")

    async def test_without_a_leaf_the_path_is_empty(self, harness: Harness) -> None:
        """With neither a named leaf nor a leaf of the head there is no path."""
        session = await started(await harness.open())
        await session.commit(commit(1, graph=Unchanged(leaf_node_id=None)))
        read = await session.load()
        assert read is not None
        assert (read.graph.nodes, read.graph.leaf_node_id) == ((), None)

    async def test_the_end_of_a_path_can_be_read_alone(self, harness: Harness) -> None:
        """``last`` keeps the nodes nearest to the leaf, across branches, and no more than there are."""
        session = await started(await harness.open(), "s", "a", "b", "c")
        await session.commit(commit(1, *chain("d", "e", after="b")))
        expected = {1: "e", 2: "de", 3: "bde", 4: "abde", 5: "abde", 2**62: "abde"}
        for last, path in expected.items():
            assert ids(await session.load(ActivePath(last=last))) == list(path)
        assert ids(await session.load(ActivePath(leaf_node_id="c", last=2))) == ["b", "c"]
        assert ids(await session.load(ActivePath(leaf_node_id="nowhere", last=2))) == []

    async def test_a_single_node_of_any_branch_can_be_read(self, harness: Harness) -> None:
        """A node is found by its id on and off the active path; an unknown id returns None."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        await session.commit(commit(1, node("c", "a")))
        await started(storage, "other", "elsewhere")
        assert [await session.node(node_id) for node_id in "abc"] == [*chain("a", "b"), node("c", "a")]
        assert await session.node("elsewhere") is None

    async def test_every_kind_of_node_round_trips(self, harness: Harness) -> None:
        """Nodes come back equal in every field, on another handle."""
        session = await created(await harness.open())
        nodes = _rich_nodes()
        await session.commit(commit(0, *nodes))
        read = await (await harness.open()).session("s").load()
        assert read is not None
        assert read.graph.nodes == nodes

    async def test_the_ledger_is_summed_by_source_and_model(self, harness: Harness) -> None:
        """The ledger sums each pair in the order first seen; rows that count nothing are omitted."""
        session = await created(await harness.open())
        await session.commit(
            commit(0, usage=(spent(5, source="turn", model="b"), spent(1, 2, source="sub", model="a"), spent(0)))
        )
        await session.commit(commit(1, usage=(spent(7, source="x"), spent(2, 1, source="turn", model="b"))))
        await session.commit(commit(2))
        read = await session.load()
        assert read is not None
        assert read.usage == (
            spent(7, 1, source="turn", model="b"),
            spent(1, 2, source="sub", model="a"),
            spent(7, source="x"),
        )

    async def test_cached_usage_counts(self, harness: Harness) -> None:
        """Usage that was only cached is kept, and every counter adds up on its own."""
        session = await created(await harness.open())
        cached = UsageEntry(source="turn", model="m", usage=TokenUsage(cached_input_tokens=9))
        rest = UsageEntry(source="turn", model="m", usage=TokenUsage(reasoning_tokens=4, output_tokens=1))
        await session.commit(commit(0, usage=(cached,)))
        await session.commit(commit(1, usage=(rest, cached)))
        read = await session.load()
        assert read is not None
        total = TokenUsage(cached_input_tokens=18, reasoning_tokens=4, output_tokens=1)
        assert read.usage == (UsageEntry(source="turn", model="m", usage=total),)

    async def test_the_turn_state_round_trips(self, harness: Harness) -> None:
        """The turn state comes back in every field."""
        session = await created(await harness.open())
        state = msgspec.structs.replace(
            draft(3).turn_state,
            token_usage=TokenUsage(input_tokens=1, output_tokens=2, cached_input_tokens=3, reasoning_tokens=4),
            last_prompt_usage=PromptUsage(prompt_context_tokens=5, context_budget_tokens=6),
            protocol_turn_options={"nested": {"list": [1, 2.5, None, True]}},
        )
        await session.commit(commit(0, checkpoint=msgspec.structs.replace(draft(), turn_state=state)))
        read = await session.load()
        assert read is not None
        assert read.checkpoint.manifest.turn_state == state

    async def test_a_load_sees_one_revision(self, harness: Harness) -> None:
        """A load concurrent with commits has head, graph, ledger and checkpoint of one revision."""
        writer, reader = await harness.open(), await harness.open()
        session, other = await created(writer), reader.session("s")
        await session.commit(_marked(1))
        for revision in range(2, 16):
            results = await asyncio.gather(
                other.load(FullGraph()),
                session.commit(_marked(revision)),
                other.load(ActivePath()),
                other.load(ActivePath(last=3)),
                session.load(FullGraph()),
            )
            for read in results:
                if isinstance(read, SessionRead):
                    assert read.head.revision in (revision - 1, revision)
                    _assert_one_revision(read)
        _assert_one_revision(await loaded(reader))

    async def test_loads_during_removals_see_one_state(self, harness: Harness) -> None:
        """A load concurrent with removals has as many nodes as its head counts."""
        writer, reader = await harness.open(), await harness.open()
        session = await started(writer, "s", *(f"n{number}" for number in range(10)))
        await session.commit(commit(1, node("x")))
        for number in range(10):
            read, removed, later = await asyncio.gather(
                reader.session("s").load(FullGraph()), session.tombstone([f"n{number}"]), session.load(FullGraph())
            )
            assert removed == 1
            for each in (read, later):
                assert each is not None
                assert len(each.graph.nodes) == each.head.node_count

    async def test_reading_changes_nothing(self, harness: Harness) -> None:
        """Reads have no effect: reading twice returns the same result."""
        storage = await harness.open()
        session = await started(storage)
        await storage.leases.claim("s", owner("w"), ttl_ms=10)
        before = await observe(storage)
        await session.load(ActivePath(leaf_node_id="nowhere"))
        await session.checkpoint(0)
        await session.node("nowhere")
        await storage.sessions.open("missing")
        assert await observe(storage) == before

    async def test_a_closed_storage_does_not_answer(self, harness: Harness) -> None:
        """Reading and writing through a closed storage raises and never returns None. Closing twice is fine."""
        storage = await harness.open()
        session = await started(storage)
        await storage.close()
        await storage.close()
        with pytest.raises(StorageClosed):
            await session.load()
        with pytest.raises(StorageClosed):
            await session.head()
        with pytest.raises(StorageClosed):
            await session.commit(commit(1))
        with pytest.raises(StorageClosed):
            await storage.sessions.list()
        with pytest.raises(StorageClosed):
            await storage.sessions.open("s")
        with pytest.raises(StorageClosed):
            await storage.leases.holder("s")


def _marked(revision: int) -> Commit:
    """Return the commit of this revision, with its number in everything that it writes."""
    mark = f"r{revision}"
    parent = None if revision == 1 else f"r{revision - 1}"
    components = {"tool_state": mark.encode(), "execution_state": b"x" * 5_000 + mark.encode()}
    return commit(
        revision - 1,
        node(mark, parent),
        config=SessionConfig(provider_id=mark),
        frames=(frame(mark),),
        current_frame_id=mark,
        checkpoint=draft(revision, components),
        usage=(spent(1),),
    )


def _assert_one_revision(read: SessionRead) -> None:
    """Assert that everything in the read has the number of its head."""
    revision, mark = read.head.revision, f"r{read.head.revision}"
    shown = [each.node_id for each in read.graph.nodes]
    whole_path = [f"r{number}" for number in range(1, revision + 1)]
    assert shown in (whole_path, whole_path[-3:])
    assert (read.head.leaf_node_id, read.head.config.provider_id, read.head.node_count) == (mark, mark, revision)
    assert [each.frame_id for each in read.frames] == [mark]
    assert (read.checkpoint.revision, read.checkpoint.manifest.turn_state.turn_index) == (revision, revision)
    assert read.checkpoint.components["tool_state"] == mark.encode()
    assert read.checkpoint.components["execution_state"].endswith(f"x{mark}".encode())
    assert read.usage == (spent(revision),)


def _rich_nodes() -> tuple[Node, ...]:
    part = Part(
        id="p",
        kind=PartKind.TOOL_RESULT,
        content="líne\n\u2028 \N{PILE OF POO} \x01 NUL:\0 end",
        attachment=AttachmentRef(id="f" * 64, media_type="image/png", byte_len=7, width=3, label="l"),
        tool_call_id="c",
        tool_name="t",
        tool_replay=ToolReplay(item_id="i", opaque={"k": [None, 1.5, "x"]}),
        prune_state=Summarized(summary="short", archive_hash="h"),
        reasoning_meta=ReasoningMeta(signature="sig", redacted=True, summary=("one", "two")),
        response_meta=ResponseMeta(id="r", status="done"),
    )
    origin = PluginOrigin(plugin_id="pl", transient=True)
    message = Message(id="m", role=Role.ASSISTANT, parts=(part, part), origin=origin)
    east = datetime(2024, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    return (
        Node(
            node_id="rich/id with spaces: ü",
            timestamp=east,
            entry=MessageEntry(message=message),
            agent_frame_id="f",
            caused_by=ProcessEventCause(process_id="p", sequence=2**53 + 1),
        ),
        Node(
            node_id="protocol",
            parent_node_id="rich/id with spaces: ü",
            timestamp=MOMENT,
            entry=ProtocolEntry(plugin_id="p", payload=[1, -(2**63), 2**63 - 1, 0.1, 1e300, "", {}, [], None, False]),
            caused_by=TurnCause(session_id="s", turn_id="t"),
        ),
        plugin_node("plugin", {"": {"nul": "\0", "ключ": "значение"}}, "protocol"),
    )
