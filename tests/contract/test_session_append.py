"""The contract of appends: nodes below the current leaf, without knowing the revision or the leaf."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import lash
from lash.errors import (
    CommitTooLarge,
    InvalidInput,
    NodeConflict,
    RevisionConflict,
    SessionDeleted,
    SessionNotFound,
    TurnConflict,
)
from lash.model.session.checkpoint import TurnState
from lash.model.session.commit import AppendResult, CommitBudget, ReplaceFull, Unchanged
from lash.model.session.message import Role
from lash.model.session.node import MessageEntry, Node
from lash.model.session.session import ActivePath, Retention, SessionConfig
from lash.stores.session import Session
from lash.testing.harness import Harness
from tests.contract.state import ids, loaded, observe
from tests.factories.session import (
    acquired,
    chain,
    commit,
    created,
    draft,
    frame,
    node,
    owner,
    spent,
    started,
)


async def path_of(session: Session) -> list[str]:
    """Return the ids on the active path."""
    return ids(await session.load(ActivePath()))


class TestSessionAppend:
    """Laws of appends."""

    async def test_nodes_follow_the_leaf_and_each_other(self, harness: Harness) -> None:
        """The first node follows the leaf, each other one the node before it, and the last becomes the leaf."""
        storage = await harness.open()
        session = await started(storage)
        result = await session.append([node("b"), node("c", role=Role.ASSISTANT)])

        assert result == AppendResult(revision=2, parent_node_id="a")
        assert (await loaded(storage)).graph.nodes == (node("a"), node("b", "a"), node("c", "b", role=Role.ASSISTANT))
        assert (await loaded(storage)).head.leaf_node_id == "c"
        [summary] = (await storage.sessions.list()).sessions
        assert (summary.first_user_message, summary.user_message_count, summary.revision) == ("a", 2, 2)

    async def test_often_read_texts_are_the_same(self, harness: Harness) -> None:
        """How a text is stored changes neither the node, nor what a repeat of its turn returns."""
        storage = await harness.open()
        session = await created(storage)
        nodes = [node(f"n{size}", text="word " * (size // 5)) for size in (500, 2_000, 10_000)]
        first = await session.append(nodes, turn_id="t", often_read=True)
        assert await session.append(nodes, turn_id="t") == first
        assert await session.append([node("b", text="word " * 400)]) == AppendResult(
            revision=2, parent_node_id="n10000"
        )
        found = (await loaded(storage)).graph.nodes
        assert [lash.text_of(each.entry.message) for each in found if isinstance(each.entry, MessageEntry)] == [
            *("word " * (size // 5) for size in (500, 2_000, 10_000)),
            "word " * 400,
        ]
        assert [each.node_id for each in await session.raw_path(last=2)] == ["n10000", "b"]

    async def test_everything_but_the_graph_stays(self, harness: Harness) -> None:
        """Configuration, frames, checkpoint and usage are those of the commit before."""
        storage = await harness.open()
        session = await created(storage)
        await session.commit(
            commit(
                0,
                node("a"),
                config=SessionConfig(provider_id="p"),
                frames=(frame("f", state=b"state"),),
                current_frame_id="f",
                checkpoint=draft(3, {"k": b"v"}),
                usage=(spent(1),),
            )
        )
        before = await loaded(storage)
        await session.append([node("b")])
        after = await loaded(storage)

        assert after.head == msgspec.structs.replace(
            before.head,
            revision=2,
            leaf_node_id="b",
            node_count=2,
            updated_at_ms=after.head.updated_at_ms,
        )
        assert (after.frames, after.usage) == (before.frames, before.usage)
        assert after.checkpoint == msgspec.structs.replace(before.checkpoint, revision=2)
        assert await session.checkpoint(1) is None

    async def test_commits_and_appends_take_turns(self, harness: Harness) -> None:
        """A commit that expects the revision of an append succeeds, with its own state, and so does the next append."""
        storage = await harness.open()
        session = await started(storage)
        await session.append([node("b")])
        with pytest.raises(RevisionConflict):
            await session.commit(commit(1, node("late", "b")))
        await session.commit(commit(2, node("c", "b"), checkpoint=draft(1, {"k": b"v"})))
        await session.append([node("d")])
        await session.commit(commit(4, node("e", "d"), checkpoint=draft(2, {"k": b"w"})))

        read = await loaded(storage)
        assert ids(read) == ["a", "b", "c", "d", "e"]
        assert (read.checkpoint.components, read.checkpoint.revision) == ({"k": b"w"}, 5)

    async def test_an_append_can_be_the_first_commit(self, harness: Harness) -> None:
        """On a session without a commit it makes the head, with the defaults of a commit."""
        storage = await harness.open()
        session = await created(storage)
        result = await session.append([node("a")])
        read = await loaded(storage)

        assert result == AppendResult(revision=1, parent_node_id=None)
        assert (read.head.config, read.checkpoint.manifest.turn_state) == (SessionConfig(), TurnState())
        other = await created(storage, "other")
        await other.commit(commit(0, node("a"), session_id="other"))
        assert (await loaded(storage, "other")).head.checkpoint_ref == read.head.checkpoint_ref

    @pytest.mark.parametrize("leaf", ["a", None])
    async def test_nodes_go_where_the_leaf_was_moved(self, harness: Harness, leaf: str | None) -> None:
        """After the leaf moved to an earlier node, or before the first, they are a new branch."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b", "c")
        await session.commit(commit(1, graph=Unchanged(leaf_node_id=leaf)))

        assert (await session.append([node("x"), node("y")])).parent_node_id == leaf
        assert await path_of(session) == ([] if leaf is None else [leaf]) + ["x", "y"]
        assert ids(await loaded(storage)) == ["a", "b", "c", "x", "y"]
        assert [each.node_id for each in await session.children("x")] == ["y"]
        assert [each.node_id for each in await session.children("a")] == ["b", *(["x"] if leaf == "a" else [])]

    async def test_a_place_is_not_used_again(self, harness: Harness) -> None:
        """After a vacuum took the nodes behind the leaf, a new branch begins."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        await session.commit(commit(1, node("side", "b")))
        await session.commit(commit(2, graph=Unchanged(leaf_node_id="a")))
        await session.tombstone(["side", "b"])
        await session.vacuum()
        await session.append([node("x")])
        assert await path_of(session) == ["a", "x"]

    async def test_a_fork_and_its_source_take_appends(self, harness: Harness) -> None:
        """Each appends to its own path; an id of an inherited node is taken, one of the other side is free."""
        storage = await harness.open()
        source = await started(storage, "s", "a", "b")
        await storage.sessions.fork("s", "fork", node_id="a")
        fork = storage.session("fork")
        await source.append([node("x")])
        await fork.append([node("x", text="other"), node("y")])
        with pytest.raises(NodeConflict):
            await fork.append([node("a")])

        assert (await path_of(source), await path_of(fork)) == (["a", "b", "x"], ["a", "x", "y"])

    async def test_concurrent_appends_all_succeed_in_the_order_of_acknowledgement(self, harness: Harness) -> None:
        """Of 40 callers in two storages none fails; the path and the revisions have the order of acknowledgement."""
        storages = [await harness.open(), await harness.open()]
        await created(storages[0])
        acknowledged: list[list[tuple[int, str]]] = [[], []]

        async def caller(side: int, name: str) -> None:
            nodes = [node(f"{side}{name}1"), node(f"{side}{name}2")]
            result = await storages[side].session("s").append(nodes)
            acknowledged[side].append((result.revision, nodes[0].node_id))

        await asyncio.gather(*(caller(number % 2, f"n{number}") for number in range(40)))
        path = await path_of(storages[0].session("s"))

        assert [sorted(each) for each in acknowledged] == acknowledged
        in_order = [name for _, name in sorted(acknowledged[0] + acknowledged[1])]
        assert path[::2] == in_order
        assert path[1::2] == [f"{name[:-1]}2" for name in in_order]
        assert await storages[1].session("s").revision() == 40

    async def test_appends_to_several_sessions_keep_apart(self, harness: Harness) -> None:
        """Callers of several sessions at once each write to their own."""
        storage = await harness.open()
        sessions = [await created(storage, f"s{number}") for number in range(3)]
        await asyncio.gather(*(sessions[n % 3].append([node(f"n{n}")]) for n in range(12)))
        for number, session in enumerate(sessions):
            assert sorted(await path_of(session)) == sorted(f"n{n}" for n in range(12) if n % 3 == number)

    async def test_a_lease_does_not_matter(self, harness: Harness) -> None:
        """As a commit without a fence, an append goes on while a worker holds the lease."""
        storage = await harness.open()
        session = await started(storage)
        lease = acquired(await storage.leases.claim("s", owner("w"), ttl_ms=1_000))
        await session.append([node("b")])
        assert await storage.leases.holder("s") == lease

    async def test_a_repeated_append_returns_the_first_result(self, harness: Harness) -> None:
        """Under its turn id the repeat writes nothing, also after later commits, with other ids, and at once."""
        storage = await harness.open()
        session = await started(storage)
        first = await session.append([node("b")], turn_id="t")
        await session.append([node("c")])
        before = await observe(storage)

        again = await (await harness.open()).session("s").append([node("b")], turn_id="t")
        other_ids = await session.append([node("other", text="b")], turn_id="t")
        assert (first, again, other_ids) == (AppendResult(revision=2, parent_node_id="a"), first, first)
        assert await observe(storage) == before

        both = await asyncio.gather(*(session.append([node("d")], turn_id="u") for _ in range(3)))
        assert both == [AppendResult(revision=4, parent_node_id="c")] * 3

    async def test_other_content_under_the_same_turn_is_a_conflict(self, harness: Harness) -> None:
        """Other nodes, or a commit, under the turn id of an append raise TurnConflict and change nothing."""
        storage = await harness.open()
        session = await started(storage)
        await session.append([node("b")], turn_id="t")
        before = await observe(storage)
        for nodes in ([node("b", text="other")], [node("b"), node("c")]):
            with pytest.raises(TurnConflict):
                await session.append(nodes, turn_id="t")
        with pytest.raises(TurnConflict):
            await session.commit(commit(2, node("b", "a"), turn_id="t"))
        assert await observe(storage) == before

    async def test_a_taken_node_id_is_a_conflict(self, harness: Harness) -> None:
        """A live or removed node, or one of another append at once, keeps its id; the append writes nothing."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        await session.commit(commit(1, graph=Unchanged(leaf_node_id="a")))
        await session.tombstone(["b"])
        before = await observe(storage)
        for taken in ("a", "b"):
            with pytest.raises(NodeConflict):
                await session.append([node("new"), node(taken)])
        assert await observe(storage) == before

        outcomes = await asyncio.gather(*(session.append([node("c")]) for _ in range(3)), return_exceptions=True)
        assert sorted(type(each).__name__ for each in outcomes) == ["AppendResult", "NodeConflict", "NodeConflict"]
        assert await path_of(session) == ["a", "c"]

    async def test_each_of_several_appends_fails_alone(self, harness: Harness) -> None:
        """A refused append leaves no hole between its neighbours in the same statement or transaction."""
        storage = await harness.open()
        session = await started(storage)
        names = ["b", "a", "c", "a", "d"]
        outcomes = await asyncio.gather(*(session.append([node(name)]) for name in names), return_exceptions=True)
        assert [isinstance(each, NodeConflict) for each in outcomes] == [False, True, False, True, False]
        assert await path_of(session) == ["a", "b", "c", "d"]
        assert await session.revision() == 4

    async def test_an_append_after_a_replaced_graph(self, harness: Harness) -> None:
        """It continues the new graph."""
        storage = await harness.open()
        session = await started(storage)
        await session.commit(
            commit(1, graph=ReplaceFull(nodes=chain("x", "y"), leaf_node_id="y", replaced_node_count=1))
        )
        await session.append([node("a")])
        assert await path_of(session) == ["x", "y", "a"]

    @pytest.mark.parametrize("keep", [2, None])
    async def test_each_revision_that_is_kept_has_its_checkpoint(self, harness: Harness, keep: int | None) -> None:
        """An append counts as a revision, and has the checkpoint of the one before."""
        storage = await harness.open(retention=Retention(keep=keep))
        session = await created(storage)
        await session.commit(commit(0, node("a"), checkpoint=draft(1, {"k": b"v"})))
        await asyncio.gather(*(session.append([node(name)]) for name in ("b", "c", "d")))
        kept = [await session.checkpoint(revision) for revision in range(1, 5)]
        assert [None if each is None else each.components for each in kept] == (
            [{"k": b"v"}] * 4 if keep is None else [None, None, {"k": b"v"}, {"k": b"v"}]
        )

    @pytest.mark.parametrize(
        "nodes",
        [(), "ab", [node("b", "a")], [node("b"), node("b")], ["b"], [msgspec.structs.replace(node("b"), node_id="")]],
        ids=["none", "text", "parent", "twice", "type", "empty id"],
    )
    async def test_invalid_nodes_are_refused(self, harness: Harness, nodes: list[Node]) -> None:
        """No nodes, nodes with a parent, and the same node twice are InvalidInput."""
        session = await started(await harness.open())
        with pytest.raises(InvalidInput):
            await session.append(nodes)

    async def test_the_budget_of_commits_holds(self, harness: Harness) -> None:
        """An append that is too large is refused before anything is written."""
        storage = await harness.open(budget=CommitBudget(max_rows=2, max_bytes=10_000))
        session = await created(storage)
        with pytest.raises(CommitTooLarge):
            await session.append([node("a"), node("b"), node("c")])
        with pytest.raises(CommitTooLarge):
            await session.append([node("a", text="x" * 10_000)])
        assert await session.head() is None

    async def test_the_session_must_exist(self, harness: Harness) -> None:
        """An unknown session is SessionNotFound, a deleted one SessionDeleted."""
        storage = await harness.open()
        with pytest.raises(SessionNotFound):
            await storage.session("s").append([node("a")])
        await started(storage)
        await storage.session("s").append([node("b")])
        await storage.sessions.delete("s")
        with pytest.raises(SessionDeleted):
            await storage.session("s").append([node("c")])
