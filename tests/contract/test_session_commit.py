"""The contract of every commit: its checks, their order, and atomicity."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from lash.base.compression import BlobRef
from lash.errors import (
    BlobNotFound,
    CommitTooLarge,
    GraphConflict,
    LeaseLost,
    RevisionConflict,
    SessionBindingMismatch,
    SessionNotFound,
    TurnConflict,
)
from lash.model.lease import LeaseFence, session_resource
from lash.model.session.commit import Commit, CommitBudget, CommitResult, ReplaceFull
from lash.model.session.frame import AgentFrame, FrameStatus, ModelLimits, ModelSpec
from lash.model.session.session import FullGraph, SessionConfig
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.state import loaded, observe, refuse
from tests.factories.session import MOMENT, acquired, chain, commit, created, draft, frame, node, owner, spent, started

NO_SUCH_BYTES = BlobRef("0" * 64)


class TestSessionCommit:
    """Laws of commits and the head."""

    async def test_the_first_commit_makes_a_session_loadable(self, harness: Harness) -> None:
        """A created session loads as None; after its first commit it loads with revision 1."""
        storage = await harness.open()
        session = await created(storage)
        assert (await session.load(), await session.head(), await session.checkpoint()) == (None, None, None)

        result = await session.commit(commit(0, node("a")))

        assert result.revision == 1
        other = (await harness.open()).session("s")
        read, head = await other.load(), await other.head()
        assert read is not None
        assert read.head == head
        assert head is not None
        assert (head.session_id, head.revision, head.leaf_node_id, head.node_count) == ("s", 1, "a", 1)

    async def test_every_applied_commit_raises_the_revision_by_one(self, harness: Harness) -> None:
        """The revision counts applied commits; a refused or repeated one does not count."""
        storage = await harness.open()
        session = await created(storage)
        for revision in range(1, 6):
            assert await session.revision() == revision - 1
            assert (await session.commit(commit(revision - 1, turn_id=f"t{revision}"))).revision == revision

        assert (await session.commit(commit(0, turn_id="t3"))).revision == 3
        with pytest.raises(RevisionConflict):
            await session.commit(commit(4))

        assert (await loaded(storage)).head.revision == 5

    async def test_frames_come_back_as_they_were_committed(self, harness: Harness) -> None:
        """Frames and the current frame round-trip, with unknown reasons and execution state bytes."""
        session = await created(await harness.open())
        first = AgentFrame(frame_id="f1", created_at=MOMENT, status=FrameStatus.SUPERSEDED, execution_state=b"\0state")
        second = AgentFrame(
            frame_id="f2",
            previous_frame_id="f1",
            reason="a reason of tomorrow",
            created_at=MOMENT,
            protocol_turn_options={"depth": [1, {"two": None}]},
        )
        await session.commit(commit(0, frames=(first, second), current_frame_id="f2"))

        other = (await harness.open()).session("s")
        read = await other.load()
        assert read is not None
        stored = read.frames[0]
        assert read.head.current_frame_id == "f2"
        assert stored.execution_state_ref is not None
        assert await other.blob(stored.execution_state_ref) == b"\0state"
        assert stored == msgspec.structs.replace(
            first, execution_state=None, execution_state_ref=stored.execution_state_ref
        )
        assert read.frames[1] == second

    async def test_a_commit_replaces_the_list_of_frames(self, harness: Harness) -> None:
        """Frames that a commit omits are gone, and the others are in the order of the commit."""
        storage = await harness.open()
        session = await created(storage)
        await session.commit(commit(0, frames=(frame("f1"), frame("f2"), frame("f3")), current_frame_id="f1"))
        await session.commit(commit(1, frames=(frame("f3"), frame("f1")), current_frame_id="f3"))
        assert [each.frame_id for each in (await loaded(storage)).frames] == ["f3", "f1"]

        await session.commit(commit(2))

        read = await loaded(storage)
        assert (read.frames, read.head.current_frame_id) == ((), None)

    async def test_the_configuration_is_saved_with_the_head(self, harness: Harness) -> None:
        """The head has the configuration of its own commit, not of an earlier one."""
        storage = await harness.open()
        session = await created(storage)
        limits = ModelLimits(context_window_tokens=200_000, output_token_capacity=8_000)
        config = SessionConfig(provider_id="p", model=ModelSpec(id="m", variant="v", limits=limits))
        await session.commit(commit(0, config=config))
        assert (await loaded(storage)).head.config == config

        await session.commit(commit(1))

        assert (await loaded(storage)).head.config == SessionConfig()

    async def test_a_handle_refuses_the_commit_of_another_session(self, harness: Harness) -> None:
        """A commit that names another session is refused, and neither session changes."""
        storage = await harness.open()
        session = await started(storage)
        await started(storage, "other")
        before = await observe(storage), await observe(storage, "other")

        with pytest.raises(SessionBindingMismatch) as raised:
            await session.commit(commit(1, node("b", "a"), session_id="other"))

        assert (raised.value.bound_session_id, raised.value.attempted_session_id) == ("s", "other")
        assert (await observe(storage), await observe(storage, "other")) == before

    async def test_sessions_of_one_database_do_not_see_each_other(self, harness: Harness) -> None:
        """Two sessions can use the same node ids, turn ids and component keys."""
        storage = await harness.open()
        for session_id in ("one", "two"):
            session = await created(storage, session_id)
            nodes = (node("a", text=session_id), node("b", "a", session_id))
            state = draft(1, {"tool_state": session_id.encode()})
            values = commit(0, *nodes, session_id=session_id, turn_id="t", checkpoint=state, usage=(spent(3),))
            assert (await session.commit(values)).revision == 1

        for session_id in ("one", "two"):
            read = await loaded(storage, session_id)
            assert read.graph.nodes == (node("a", text=session_id), node("b", "a", session_id))
            assert read.checkpoint.components == {"tool_state": session_id.encode()}
            assert read.usage == (spent(3),)

    async def test_a_commit_must_expect_the_current_revision(self, harness: Harness) -> None:
        """The expected revision is mandatory and compared even under a valid lease."""
        storage = await harness.open()
        await started(storage)
        lease = acquired(await storage.leases.claim("s", owner("w"), ttl_ms=1_000))
        for stale in (0, 2):
            await refuse(storage, commit(stale, node("b", "a"), fence=lease.fence), RevisionConflict)

        with pytest.raises(RevisionConflict) as raised:
            await storage.session("s").commit(commit(0))
        assert (raised.value.session_id, raised.value.expected, raised.value.actual) == ("s", 0, 1)

    async def test_a_session_must_be_created_before_its_first_commit(self, harness: Harness) -> None:
        """A commit of revision 0 to an id that was never created raises SessionNotFound and creates nothing."""
        storage = await harness.open()
        with pytest.raises(SessionNotFound):
            await storage.session("missing").commit(commit(0, node("a"), session_id="missing"))
        assert await storage.sessions.open("missing") is None
        assert (await storage.sessions.list()).sessions == ()

    async def test_of_two_first_commits_one_lands(self, harness: Harness) -> None:
        """Of concurrent commits that expect the same revision one lands; the others raise RevisionConflict."""
        storages = [await harness.open() for _ in range(3)]
        await created(storages[0])
        for revision in range(5):
            rivals = [commit(revision, node(f"{revision}-{rival}"), usage=(spent(1),)) for rival in range(3)]
            outcomes = await _race(storages, rivals)
            landed = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, CommitResult)]
            assert len(landed) == 1
            assert sum(isinstance(outcome, RevisionConflict) for outcome in outcomes) == 2
            read = await loaded(storages[0])
            assert (read.head.revision, read.head.leaf_node_id) == (revision + 1, f"{revision}-{landed[0]}")
            assert read.usage == (spent(revision + 1),)
        assert len((await loaded(storages[0])).graph.nodes) == 5

    async def test_of_two_commits_without_nodes_one_lands(self, harness: Harness) -> None:
        """The revision alone decides a race, even between commits that leave the graph unchanged."""
        storages = [await harness.open() for _ in range(3)]
        await created(storages[0])
        for revision in range(5):
            outcomes = await _race(storages, [commit(revision, usage=(spent(1),)) for _ in storages])
            kinds = sorted(type(outcome).__name__ for outcome in outcomes)
            assert kinds == ["CommitResult", "RevisionConflict", "RevisionConflict"]
            read = await loaded(storages[0])
            assert (read.head.revision, read.usage) == (revision + 1, (spent(revision + 1),))

    async def test_a_handle_with_an_old_view_is_refused(self, harness: Harness) -> None:
        """A handle that last saw an older head cannot commit on it, whatever the newer commit changed."""
        storages = [await harness.open() for _ in range(2)]
        session = await started(storages[0])
        await storages[1].session("s").commit(commit(1, usage=(spent(1),)))
        await refuse(storages[0], commit(1, usage=(spent(1),)), RevisionConflict)
        await refuse(storages[0], commit(1, node("b", "a")), RevisionConflict)
        assert (await session.commit(commit(2, node("b", "a")))).revision == 3

    async def test_handles_take_turns(self, harness: Harness) -> None:
        """A handle whose last commit is long superseded can commit on the head of another handle."""
        storages = [await harness.open() for _ in range(2)]
        await started(storages[0])
        for revision in range(1, 7):
            session = storages[revision % 2].session("s")
            result = await session.commit(
                commit(revision, node(f"n{revision}", "a" if revision == 1 else f"n{revision - 1}"))
            )
            assert result.revision == revision + 1
        path = await storages[0].session("s").load()
        assert path is not None
        assert [each.node_id for each in path.graph.nodes] == ["a", "n1", "n2", "n3", "n4", "n5", "n6"]

    async def test_a_commit_without_a_fence_lands(self, harness: Harness) -> None:
        """A fence is optional, so a slow turn lands although its lease lapsed."""
        storage = await harness.open()
        session = await started(storage)
        await storage.leases.claim("s", owner("w"), ttl_ms=1_000)
        await harness.clock.advance(1_000)
        await storage.leases.claim("s", owner("rival"), ttl_ms=1_000)

        assert (await session.commit(commit(1, node("b", "a")))).revision == 2
        assert (await loaded(storage)).head.leaf_node_id == "b"

    async def test_a_commit_with_a_live_fence_lands(self, harness: Harness) -> None:
        """The fence of the live lease is accepted, also from another handle and in its last millisecond."""
        storage = await harness.open()
        await started(storage)
        lease = acquired(await storage.leases.claim("s", owner("w"), ttl_ms=1_000))
        await harness.clock.advance(999)
        await (await harness.open()).session("s").commit(commit(1, node("b", "a"), fence=lease.fence))
        assert (await loaded(storage)).head.revision == 2

    @pytest.mark.parametrize("changed", ["token", "fencing", "owner_id", "incarnation_id", "resource"])
    async def test_a_fence_that_is_not_the_live_one_is_refused(self, harness: Harness, changed: str) -> None:
        """A fence with another token, number, owner, incarnation or session raises LeaseLost; nothing is written."""
        storage = await harness.open()
        await started(storage)
        await started(storage, "other")
        lease = acquired(await storage.leases.claim("s", owner("w"), ttl_ms=1_000))
        false_values = {"fencing": lease.fencing + 1, "resource": session_resource("other")}
        false_fence = msgspec.structs.replace(lease.fence, **{changed: false_values.get(changed, "false")})
        await refuse(storage, commit(1, node("b", "a"), fence=false_fence), LeaseLost)

    async def test_a_fence_whose_lease_is_gone_is_refused(self, harness: Harness) -> None:
        """An expired, released or superseded fence raises LeaseLost; nothing is written."""
        storage = await harness.open()
        await started(storage)
        expired = acquired(await storage.leases.claim("s", owner("w"), ttl_ms=1_000))
        await harness.clock.advance(1_000)
        await refuse(storage, commit(1, node("b", "a"), fence=expired.fence), LeaseLost)
        released = acquired(await storage.leases.claim("s", owner("w"), ttl_ms=1_000))
        await refuse(storage, commit(1, node("b", "a"), fence=expired.fence), LeaseLost)
        await storage.leases.release(released.fence)
        await refuse(storage, commit(1, node("b", "a"), fence=released.fence), LeaseLost)

    async def test_the_first_failing_check_is_reported(self, harness: Harness) -> None:
        """Binding, existence, turn, fence, revision, graph, refs are checked in this order; nothing is written."""
        storage = await harness.open()
        session = await created(storage)
        await session.commit(commit(0, node("a"), turn_id="used", usage=(spent(5),)))
        worst = _everything_wrong(session_id="s")

        with pytest.raises(SessionBindingMismatch):
            await storage.session("missing").commit(worst)
        with pytest.raises(SessionNotFound):
            await storage.session("missing").commit(msgspec.structs.replace(worst, session_id="missing"))
        await refuse(storage, worst, TurnConflict)
        worst = msgspec.structs.replace(worst, turn_id="fresh")
        await refuse(storage, worst, LeaseLost)
        worst = msgspec.structs.replace(worst, fence=None)
        await refuse(storage, worst, RevisionConflict)
        worst = msgspec.structs.replace(worst, expected_revision=1)
        await refuse(storage, worst, GraphConflict)
        graph = ReplaceFull(nodes=chain("x"), leaf_node_id="x", replaced_node_count=1)
        worst = msgspec.structs.replace(worst, graph=graph)
        await refuse(storage, worst, BlobNotFound)

        await session.commit(msgspec.structs.replace(worst, checkpoint=draft(9)))

        read = await loaded(storage)
        assert (read.head.revision, read.graph.nodes) == (2, chain("x"))
        assert (read.usage, read.checkpoint.manifest.turn_state.turn_index) == ((spent(12),), 9)

    async def test_a_refused_commit_leaves_its_turn_free(self, harness: Harness) -> None:
        """The turn row is written with the head, so the turn of a refused commit can still land."""
        storage = await harness.open()
        session = await started(storage)
        await refuse(storage, commit(0, node("b", "a"), turn_id="t"), RevisionConflict)

        await session.commit(commit(1, node("c", "a", "other content"), turn_id="t"))

        assert (await loaded(storage)).head.leaf_node_id == "c"

    async def test_a_commit_beyond_the_budget_is_refused(self, harness: Harness) -> None:
        """A commit with too many rows or bytes raises CommitTooLarge and changes nothing; a smaller one lands."""
        storage = await harness.open(budget=CommitBudget(max_rows=3, max_bytes=5_000))
        session = await started(storage)
        await refuse(storage, commit(1, *chain("b", "c", "d", "e", after="a")), CommitTooLarge)
        await refuse(storage, commit(1, checkpoint=draft(1, {"k": b"x" * 5_001})), CommitTooLarge)
        await refuse(storage, commit(1, node("b", "a", "x" * 5_001)), CommitTooLarge)

        await session.commit(commit(1, *chain("b", "c", "d", after="a")))

        assert (await loaded(storage)).head.node_count == 4

    async def test_a_budget_refusal_never_reaches_the_database(self, harness: Harness) -> None:
        """An oversize commit is refused without running a statement."""
        statements: list[str] = []
        storage = await harness.open(budget=CommitBudget(max_rows=1), on_statement=statements.append)
        session = await created(storage)
        before = len(statements)
        with pytest.raises(CommitTooLarge) as raised:
            await session.commit(commit(0, *chain("a", "b")))
        assert (raised.value.measure, raised.value.actual, raised.value.limit) == ("rows", 2, 1)
        assert len(statements) == before

    async def test_the_time_of_a_commit_is_the_clocks(self, harness: Harness) -> None:
        """The head has the time of its commit by the storage's clock."""
        session = await started(await harness.open())
        await harness.clock.advance(5_000)
        await session.commit(commit(1))
        head = await session.head()
        assert head is not None
        assert head.updated_at_ms == harness.clock.now_ms()

    async def test_a_large_commit_is_read_back_whole(self, harness: Harness) -> None:
        """500 nodes in one commit all come back, in order."""
        storage = await harness.open()
        session = await created(storage)
        nodes = chain(*(f"n{number}" for number in range(500)))
        await session.commit(commit(0, *nodes))
        read = await (await harness.open()).session("s").load(FullGraph())
        assert read is not None
        assert read.graph.nodes == nodes


def _everything_wrong(session_id: str) -> Commit:
    return commit(
        7,
        session_id=session_id,
        turn_id="used",
        fence=LeaseFence(resource=session_resource("s"), owner_id="w", incarnation_id="1", token="t", fencing=9),
        graph=ReplaceFull(nodes=chain("x"), leaf_node_id="x", replaced_node_count=44),
        checkpoint=draft(9, {"tool_state": NO_SUCH_BYTES}),
        usage=(spent(7),),
    )


async def _race(storages: list[Storage], rivals: list[Commit]) -> list[CommitResult | BaseException]:
    """Commit to the session from every storage concurrently."""
    return await asyncio.gather(
        *(storage.session("s").commit(rival) for storage, rival in zip(storages, rivals, strict=True)),
        return_exceptions=True,
    )
