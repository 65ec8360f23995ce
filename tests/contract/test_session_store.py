"""The contract of creating, listing and deleting sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import msgspec
import pytest

from lash.base.compression import BlobRef
from lash.errors import BlobNotFound, LeaseLost, RevisionConflict, SessionDeleted, SessionNotFound
from lash.model.causal import ToolCallCause
from lash.model.lease import LeaseFence, session_resource
from lash.model.session.commit import CommitResult
from lash.model.session.session import ChildRelation, Durability, RootRelation, SessionMeta
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.state import loaded, observe
from tests.factories.session import acquired, chain, commit, created, draft, node, owner, spent, started

GONE_FENCE = LeaseFence(resource=session_resource("s"), owner_id="w", incarnation_id="1", token="t", fencing=1)

CALLS: dict[str, Callable[[Storage], Awaitable[object]]] = {
    "head": lambda storage: storage.session("s").head(),
    "revision": lambda storage: storage.session("s").revision(),
    "load": lambda storage: storage.session("s").load(),
    "node": lambda storage: storage.session("s").node("a"),
    "checkpoint": lambda storage: storage.session("s").checkpoint(),
    "checkpoint of a revision": lambda storage: storage.session("s").checkpoint(1),
    "blob": lambda storage: storage.session("s").blob(BlobRef("0" * 64)),
    "commit": lambda storage: storage.session("s").commit(commit(0, node("a"))),
    "commit of a turn": lambda storage: storage.session("s").commit(commit(0, node("a"), turn_id="t")),
    "commit with a fence": lambda storage: storage.session("s").commit(commit(0, fence=GONE_FENCE)),
    "meta": lambda storage: storage.session("s").meta(),
    "save_meta": lambda storage: storage.session("s").save_meta(SessionMeta(session_id="s", name="", created_at_ms=0)),
    "tombstone": lambda storage: storage.session("s").tombstone(["a"]),
    "tombstone nothing": lambda storage: storage.session("s").tombstone([]),
    "vacuum": lambda storage: storage.session("s").vacuum(),
    "vacuum, dry": lambda storage: storage.session("s").vacuum(dry_run=True),
    "claim": lambda storage: storage.leases.claim("s", owner("w"), ttl_ms=10),
    "renew": lambda storage: storage.leases.renew(GONE_FENCE, ttl_ms=10),
    "release": lambda storage: storage.leases.release(GONE_FENCE),
    "holder": lambda storage: storage.leases.holder("s"),
}
"""Every call on a session that needs the session to exist."""


class TestSessionStore:
    """Laws of creating and deleting, and of metadata."""

    async def test_the_storage_says_what_a_write_survives(self, harness: Harness) -> None:
        """The storage declares the durability of its backend."""
        storage = await harness.open()
        assert storage.durability is (Durability.DURABLE if harness.durable else Durability.INLINE)

    async def test_opening_an_unknown_session_creates_nothing(self, harness: Harness) -> None:
        """Opening an unknown id returns None, and it stays unknown."""
        storage = await harness.open()
        assert await storage.sessions.open("s") is None
        assert await storage.sessions.open("s") is None
        assert (await storage.sessions.list()).sessions == ()

    async def test_opening_an_existing_session_returns_a_handle(self, harness: Harness) -> None:
        """The handle of an existing session works, from any storage on the database."""
        await started(await harness.open())
        session = await (await harness.open()).sessions.open("s")
        assert session is not None
        assert session.session_id == "s"
        assert await session.node("a") == node("a")

    async def test_create_seeds_the_metadata(self, harness: Harness) -> None:
        """A new session is named like its id, is a root, was created now, and starts at revision 0."""
        storage = await harness.open()
        made = await storage.sessions.create("s")
        meta = SessionMeta(session_id="s", name="s", created_at_ms=harness.clock.now_ms())
        assert (made.created, made.revision, made.meta) == (True, 0, meta)
        assert meta.relation == RootRelation()
        assert await (await harness.open()).session("s").meta() == meta

    async def test_create_takes_all_metadata(self, harness: Harness) -> None:
        """Name, model, directory and relation given to create come back; the session still loads as None."""
        storage = await harness.open()
        cause = ToolCallCause(session_id="parent", call_id="c")
        relation = ChildRelation(parent_session_id="parent", caused_by=cause)
        await storage.sessions.create("s", name="A näme", model="m-1", cwd="/tmp/ü", relation=relation)
        meta = await storage.session("s").meta()
        assert (meta.name, meta.model, meta.cwd, meta.relation) == ("A näme", "m-1", "/tmp/ü", relation)
        assert await storage.session("s").load() is None

    async def test_create_keeps_an_existing_session(self, harness: Harness) -> None:
        """Creating an existing id returns the session with its edited metadata, marked as not created."""
        storage = await harness.open()
        session = await started(storage)
        edited = msgspec.structs.replace(await session.meta(), name="edited", model="m", created_at_ms=12)
        await session.save_meta(edited)
        before = await observe(storage)

        again = await storage.sessions.create("s", name="other", model="n", cwd="/")

        assert (again.created, again.revision, again.meta) == (False, 1, edited)
        assert await observe(storage) == before

    async def test_saved_metadata_round_trips(self, harness: Harness) -> None:
        """Saving overwrites every field of the metadata and leaves the head alone."""
        storage = await harness.open()
        session = await started(storage)
        head = await session.head()
        relation = ChildRelation(parent_session_id="p")
        meta = SessionMeta(session_id="s", name="", created_at_ms=-5, model="m", cwd="/x", relation=relation)
        await session.save_meta(meta)
        assert await (await harness.open()).session("s").meta() == meta
        assert await session.head() == head

    async def test_of_many_creators_one_creates(self, harness: Harness) -> None:
        """Concurrent creates return the same session, and exactly one has created it."""
        storages = [await harness.open() for _ in range(3)]
        for session_id in ("one", "two", "three"):
            made = await asyncio.gather(
                *(
                    storage.sessions.create(session_id, name=f"{index}-{again}")
                    for index, storage in enumerate(storages)
                    for again in range(3)
                )
            )
            assert sum(each.created for each in made) == 1
            assert {each.meta.name for each in made} == {(await storages[0].session(session_id).meta()).name}

    async def test_many_first_opens_succeed(self, harness: Harness) -> None:
        """Sixteen concurrent first opens of an empty database all succeed and work."""
        storages = await asyncio.gather(*(harness.open() for _ in range(16)))
        await started(storages[0])
        for storage in storages:
            assert await storage.session("s").node("a") == node("a")

    async def test_everything_survives_reopening(self, harness: Harness) -> None:
        """Metadata, head, graph, checkpoint, ledger and lease survive closing and reopening."""
        storage = await harness.open()
        session = await created(storage)
        values = commit(0, *chain("a", "b"), checkpoint=draft(4, {"tool_state": b"t" * 9_000}), usage=(spent(3),))
        await session.commit(values)
        await storage.leases.claim("s", owner("w"), ttl_ms=60_000)
        before = await observe(storage)

        storage = await harness.reopen()

        assert await observe(storage) == before
        assert (await loaded(storage)).checkpoint.components == {"tool_state": b"t" * 9_000}

    @pytest.mark.parametrize("call", CALLS)
    async def test_a_session_that_was_never_created(self, harness: Harness, call: str) -> None:
        """Every call on an unknown session raises SessionNotFound, and creates nothing."""
        storage = await harness.open()
        with pytest.raises(SessionNotFound) as raised:
            await CALLS[call](storage)
        assert raised.value.session_id == "s"
        assert (await storage.sessions.create("s")).created

    @pytest.mark.parametrize("call", CALLS)
    async def test_a_session_that_was_deleted(self, harness: Harness, call: str) -> None:
        """Every call through a stale handle raises SessionDeleted, and nothing is resurrected."""
        storage, other = await harness.open(), await harness.open()
        await started(storage)
        assert await other.sessions.delete("s")
        with pytest.raises(SessionDeleted) as raised:
            await CALLS[call](storage)
        assert raised.value.session_id == "s"
        assert await storage.sessions.open("s") is None
        assert (await storage.sessions.list()).sessions == ()

    async def test_deleting_again_succeeds(self, harness: Harness) -> None:
        """Delete returns whether there was a session; deleting an unknown id leaves nothing behind."""
        storage = await harness.open()
        await started(storage)
        await started(storage, "kept")
        kept = await loaded(storage, "kept")
        assert [await storage.sessions.delete("s") for _ in range(3)] == [True, False, False]
        assert await storage.sessions.delete("never") is False
        assert (await storage.sessions.create("never")).revision == 0
        assert await loaded(storage, "kept") == kept

    async def test_a_recreated_session_is_new(self, harness: Harness) -> None:
        """A recreated session has new metadata and nothing of the old one: no nodes, usage, bytes or turns."""
        storage = await harness.open()
        session = await created(storage)
        values = commit(0, node("a"), turn_id="t", checkpoint=draft(1, {"k": b"bytes"}), usage=(spent(1),))
        ref = (await session.commit(values)).manifest.components["k"]
        await session.save_meta(msgspec.structs.replace(await session.meta(), name="old"))
        await storage.sessions.delete("s")
        await harness.clock.advance(1_000)

        made = await storage.sessions.create("s")

        assert (made.created, made.meta.name, made.meta.created_at_ms) == (True, "s", harness.clock.now_ms())
        assert (await session.load(), await session.head(), await session.node("a")) == (None, None, None)
        with pytest.raises(BlobNotFound):
            await session.blob(ref)
        result = await session.commit(msgspec.structs.replace(values, expected_revision=made.revision))
        assert result.revision == made.revision + 1
        assert (await loaded(storage)).usage == (spent(1),)

    async def test_numbers_of_a_recreated_session_start_above_the_old(self, harness: Harness) -> None:
        """Revision and fencing numbers continue above the old ones, so no old writer can match."""
        storage, stale = await harness.open(), await harness.open()
        session = await started(storage)
        await session.commit(commit(1, node("b", "a")))
        await stale.session("s").load()
        old = acquired(await storage.leases.claim("s", owner("w"), ttl_ms=60_000))
        await storage.sessions.delete("s")
        made = await storage.sessions.create("s")
        assert made.revision == await stale.session("s").revision() == 3

        for expected in (0, 1, 2):
            with pytest.raises(RevisionConflict):
                await stale.session("s").commit(commit(expected))
        with pytest.raises(LeaseLost):
            await stale.leases.renew(old.fence, ttl_ms=10)
        with pytest.raises(LeaseLost):
            await stale.session("s").commit(commit(3, fence=old.fence))
        assert await storage.leases.holder("s") is None
        assert acquired(await storage.leases.claim("s", owner("w"), ttl_ms=10)).fencing > old.fencing
        assert (await stale.session("s").commit(commit(3, node("a")))).revision == 4

    async def test_numbers_grow_over_many_lives(self, harness: Harness) -> None:
        """Every life of an id starts above the previous one, even without a commit or lease."""
        storage = await harness.open()
        revisions = [(await storage.sessions.create("s")).revision]
        fencings = [acquired(await storage.leases.claim("s", owner("w"), ttl_ms=10)).fencing]
        for _ in range(4):
            await storage.sessions.delete("s")
            revisions.append((await storage.sessions.create("s")).revision)
        fencings.append(acquired(await storage.leases.claim("s", owner("w"), ttl_ms=10)).fencing)
        assert all(later > earlier for earlier, later in pairwise(revisions))
        assert fencings[1] > fencings[0]

    async def test_a_commit_racing_with_a_deletion(self, harness: Harness) -> None:
        """A commit concurrent with a deletion lands before it or raises SessionDeleted."""
        storages = [await harness.open() for _ in range(2)]
        for attempt in range(6):
            session_id = f"s{attempt}"
            session = await started(storages[0], session_id)
            committed, deleted = await asyncio.gather(
                session.commit(commit(1, node("b", "a"), session_id=session_id)),
                storages[1].sessions.delete(session_id),
                return_exceptions=True,
            )
            assert deleted is True
            assert isinstance(committed, CommitResult | SessionDeleted)
            with pytest.raises(SessionDeleted):
                await session.load()
