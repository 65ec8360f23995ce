"""The contract of turn ids: a commit that carries one is idempotent."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from lash.errors import TurnConflict
from lash.model.lease import LeaseFence, session_resource
from lash.model.session.commit import Append, Commit, CommitResult, ReplaceFull, Unchanged
from lash.model.session.frame import ModelSpec
from lash.model.session.message import Message, Part, PartKind, Role
from lash.model.session.node import MessageEntry, Node
from lash.model.session.session import SessionConfig
from lash.model.session.usage import TokenUsage, UsageEntry
from lash.testing.harness import Harness
from tests.contract.state import loaded, observe, refuse
from tests.factories.session import (
    MOMENT,
    acquired,
    append,
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

TURN = commit(
    1,
    *chain("b", "c", after="a"),
    turn_id="t",
    config=SessionConfig(provider_id="p"),
    frames=(frame("f", state=b"frame state"),),
    current_frame_id="f",
    checkpoint=draft(1, {"tool_state": b"tools"}),
    usage=(spent(10, 5),),
)
"""The commit that most tests here repeat, on a session at revision 1 with the node ``a``."""

OTHER_CONTENT: dict[str, dict[str, object]] = {
    "turn state": {"checkpoint": draft(2, {"tool_state": b"tools"})},
    "component bytes": {"checkpoint": draft(1, {"tool_state": b"other"})},
    "component left out": {"checkpoint": draft(1)},
    "snapshot revision": {"checkpoint": msgspec.structs.replace(TURN.checkpoint, plugin_snapshot_revision=1)},
    "usage": {"usage": (spent(10, 6),)},
    "usage source": {"usage": (spent(10, 5, source="subagent"),)},
    "config": {"config": SessionConfig(provider_id="p", model=ModelSpec(id="other"))},
    "frames": {"frames": (frame("f", state=b"other state"),)},
    "current frame": {"current_frame_id": None},
    "text": {"graph": append(node("b", "a", "other"), node("c", "b"))},
    "role": {"graph": append(node("b", "a", role=Role.ASSISTANT), node("c", "b"))},
    "fewer nodes": {"graph": append(node("b", "a"))},
    "shape": {"graph": append(node("b", "a"), node("c", "a"))},
    "leaf": {"graph": append(*chain("b", "c", after="a"), leaf="b")},
    "kind of delta": {"graph": ReplaceFull(nodes=chain("b", "c"), leaf_node_id="c", replaced_node_count=1)},
    "no delta": {"graph": Unchanged()},
}
"""Changes that make it another commit."""


class TestSessionTurn:
    """Laws of repeated commits."""

    async def test_a_repeated_commit_returns_the_first_result(self, harness: Harness) -> None:
        """The repeat returns the first result and writes nothing, from any handle."""
        storage = await harness.open()
        session = await started(storage)
        first = await session.commit(TURN)
        before = await observe(storage)

        assert await session.commit(TURN) == first
        assert await (await harness.open()).session("s").commit(TURN) == first

        assert await observe(storage) == before
        assert (await loaded(storage)).usage == (spent(10, 5),)

    async def test_a_repeat_needs_neither_lease_nor_head(self, harness: Harness) -> None:
        """The repeat succeeds even if its fence is no longer valid and the head has moved."""
        storage = await harness.open()
        session = await started(storage)
        lease = acquired(await storage.leases.claim("s", owner("w"), ttl_ms=1_000))
        fenced = msgspec.structs.replace(TURN, fence=lease.fence)
        first = await session.commit(fenced)
        await harness.clock.advance(1_000)
        acquired(await storage.leases.claim("s", owner("rival"), ttl_ms=1_000))
        await session.commit(commit(2, node("d", "c"), turn_id="later"))
        before = await observe(storage)

        assert await session.commit(fenced) == first
        assert first.revision == 2
        assert await observe(storage) == before

    async def test_a_repeat_survives_reopening(self, harness: Harness) -> None:
        """The result is stored: after a lost answer and a crash, the repeat returns it."""
        first = await (await started(await harness.open())).commit(TURN)
        storage = await harness.reopen()
        assert await storage.session("s").commit(TURN) == first
        assert (await loaded(storage)).head.revision == 2

    @pytest.mark.parametrize("what", OTHER_CONTENT)
    async def test_other_content_under_the_same_turn_is_a_conflict(self, harness: Harness, what: str) -> None:
        """Any change of content raises TurnConflict, with or without a lease, and changes nothing."""
        storage = await harness.open()
        session = await started(storage)
        await session.commit(TURN)
        changed = msgspec.structs.replace(TURN, **OTHER_CONTENT[what])
        await refuse(storage, changed, TurnConflict)
        lease = acquired(await storage.leases.claim("s", owner("w"), ttl_ms=1_000))
        await refuse(storage, msgspec.structs.replace(changed, fence=lease.fence), TurnConflict)

    @pytest.mark.parametrize("what", ["revision", "fences", "ids", "times", "component as ref", "release"])
    async def test_what_a_retry_may_do_differently_is_not_content(self, harness: Harness, what: str) -> None:
        """Revision, fences, ids of nodes, messages and parts, timestamps, and how bytes are named do not count."""
        storage = await harness.open()
        session = await started(storage)
        first = await session.commit(TURN)
        before = await observe(storage)
        assert await session.commit(_retry(what, first)) == first
        assert await observe(storage) == before

    async def test_a_turn_conflict_names_its_turn(self, harness: Harness) -> None:
        """The error names the turn and its session."""
        session = await created(await harness.open())
        await session.commit(commit(0, turn_id="t"))
        with pytest.raises(TurnConflict) as raised:
            await session.commit(commit(1, node("a"), turn_id="t"))
        assert (raised.value.session_id, raised.value.turn_id) == ("s", "t")

    async def test_a_turn_id_is_used_once_per_session(self, harness: Harness) -> None:
        """The same turn id in two sessions is two turns."""
        storage = await harness.open()
        for session_id in ("one", "two"):
            session = await created(storage, session_id)
            nodes = chain(session_id)
            assert (await session.commit(commit(0, *nodes, session_id=session_id, turn_id="t"))).revision == 1
            assert (await loaded(storage, session_id)).graph.nodes == nodes

    async def test_without_a_turn_id_nothing_is_repeated(self, harness: Harness) -> None:
        """Two equal commits without a turn id are two commits, each counted."""
        storage = await harness.open()
        session = await created(storage)
        for revision in range(2):
            await session.commit(commit(revision, usage=(spent(4),)))
        read = await loaded(storage)
        assert (read.head.revision, read.usage) == (2, (spent(8),))

    async def test_a_repeat_releases_the_lease_it_names(self, harness: Harness) -> None:
        """A repeat frees the lease that ``release`` names if it is held; the ledger does not grow."""
        storage = await harness.open()
        session = await started(storage)
        await session.commit(TURN)
        lease = acquired(await storage.leases.claim("s", owner("w"), ttl_ms=1_000))

        await session.commit(msgspec.structs.replace(TURN, fence=lease.fence, release=lease.fence))

        assert await storage.leases.holder("s") is None
        assert (await loaded(storage)).usage == (spent(10, 5),)

    async def test_a_repeat_with_a_stale_release_frees_nobody(self, harness: Harness) -> None:
        """A repeat by an old holder leaves the lease of its successor alone."""
        storage = await harness.open()
        session = await started(storage)
        old = acquired(await storage.leases.claim("s", owner("w"), ttl_ms=1_000))
        turn = msgspec.structs.replace(TURN, fence=old.fence, release=old.fence)
        first = await session.commit(turn)
        new = acquired(await storage.leases.claim("s", owner("next"), ttl_ms=1_000))

        assert await session.commit(turn) == first
        assert await storage.leases.holder("s") == new

    async def test_identical_commits_at_once_are_one(self, harness: Harness) -> None:
        """Identical concurrent commits on several handles all succeed with one result and one effect."""
        storages = [await harness.open() for _ in range(3)]
        await created(storages[0])
        for revision in range(4):
            turn = commit(revision, node(f"n{revision}"), turn_id=f"t{revision}", usage=(spent(1),))
            results: list[CommitResult] = await asyncio.gather(
                *(storage.session("s").commit(turn) for storage in storages for _ in range(2))
            )
            assert {result.revision for result in results} == {revision + 1}
            assert all(result == results[0] for result in results)
            read = await loaded(storages[0])
            assert (read.head.revision, read.usage) == (revision + 1, (spent(revision + 1),))

    async def test_different_commits_of_one_turn_at_once(self, harness: Harness) -> None:
        """Of different concurrent commits under one turn id one lands; the others raise TurnConflict."""
        storages = [await harness.open() for _ in range(3)]
        await created(storages[0])
        for revision in range(4):
            rivals = [commit(revision, node(f"{revision}-{text}", text=text), turn_id=f"t{revision}") for text in "xyz"]
            outcomes = await asyncio.gather(
                *(storage.session("s").commit(rival) for storage, rival in zip(storages, rivals, strict=True)),
                return_exceptions=True,
            )
            kinds = sorted(type(outcome).__name__ for outcome in outcomes)
            assert kinds == ["CommitResult", "TurnConflict", "TurnConflict"]
            assert (await loaded(storages[0])).head.node_count == revision + 1

    async def test_a_cancelled_commit_can_be_found_out(self, harness: Harness) -> None:
        """After a caller is cancelled in mid-commit, the repeat lands or replays; the effect is single."""
        storage = await harness.open()
        session = await created(storage)
        for revision in range(6):
            turn = commit(revision, node(f"n{revision}"), turn_id=f"t{revision}", usage=(spent(1),))
            task = asyncio.create_task(session.commit(turn))
            for _ in range(revision):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

            assert (await session.commit(turn)).revision == revision + 1

            read = await loaded(storage)
            assert (read.head.revision, read.usage) == (revision + 1, (spent(revision + 1),))

    async def test_a_retry_with_other_usage_is_a_conflict(self, harness: Harness) -> None:
        """A retry with more usage neither loses nor doubles rows: it raises TurnConflict."""
        storage = await harness.open()
        session = await started(storage)
        await session.commit(TURN)
        more = msgspec.structs.replace(TURN, usage=(spent(10, 5), spent(1)))
        await refuse(storage, more, TurnConflict)
        assert (await loaded(storage)).usage == (
            UsageEntry(source="turn", model="m", usage=TokenUsage(input_tokens=10, output_tokens=5)),
        )


def _retry(what: str, first: CommitResult) -> Commit:
    """Return the commit as a retry would build it, with one difference."""
    dead = LeaseFence(resource=session_resource("s"), owner_id="o", incarnation_id="1", token="gone", fencing=3)
    by_ref = draft(1, dict(first.manifest.components))
    changes: dict[str, dict[str, object]] = {
        "revision": {"expected_revision": 77},
        "fences": {"fence": dead},
        "release": {"release": dead},
        "ids": {"graph": append(_renamed("x", "a", "b"), _renamed("y", "x", "c"))},
        "times": {
            "graph": _later(append(*chain("b", "c", after="a"))),
            "frames": (msgspec.structs.replace(TURN.frames[0], created_at=MOMENT + timedelta(hours=1)),),
        },
        "component as ref": {"checkpoint": by_ref},
    }
    return msgspec.structs.replace(TURN, **changes[what])


def _renamed(node_id: str, parent: str, text: str) -> Node:
    part = Part(id="another part id", kind=PartKind.TEXT, content=text)
    message = Message(id="another message id", role=Role.USER, parts=(part,))
    return Node(node_id=node_id, parent_node_id=parent, timestamp=MOMENT, entry=MessageEntry(message=message))


def _later(delta: Append) -> Append:
    moved = (msgspec.structs.replace(each, timestamp=MOMENT + timedelta(days=1)) for each in delta.nodes)
    return append(*moved)
