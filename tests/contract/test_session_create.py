"""The contract of a session that is created with its first commit: one write, whole or not at all."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from lash.base.compression import BlobRef
from lash.errors import (
    AttachmentNotFound,
    BlobNotFound,
    InvalidInput,
    LashError,
    LeaseLost,
    NodeNotFound,
    RecordConflict,
    SessionBindingMismatch,
    TurnConflict,
)
from lash.model.lease import LeaseFence, session_resource
from lash.model.record import RecordPut
from lash.model.session.checkpoint import CheckpointDraft
from lash.model.session.commit import Commit
from lash.model.session.session import SessionConfig
from lash.testing.harness import Harness
from tests.contract.state import ids, loaded, observe
from tests.factories.session import chain, commit, created, draft, frame, node, spent

FENCE = LeaseFence(resource=session_resource("s"), owner_id="o", incarnation_id="1", token="t", fencing=1)
FIRST = commit(
    0,
    *chain("a", "b"),
    turn_id="t",
    config=SessionConfig(provider_id="p"),
    frames=(frame("f", state=b"frame state"),),
    current_frame_id="f",
    checkpoint=draft(1, {"tool_state": b"tools", "same": b"tools"}),
    usage=(spent(10, 5), spent(1, 1), spent(2, model="other")),
)
REFUSED: dict[str, tuple[dict[str, object], type[LashError]]] = {
    "session": ({"session_id": "other"}, SessionBindingMismatch),
    "revision": ({"expected_revision": 1}, InvalidInput),
    "fence": ({"fence": FENCE}, LeaseLost),
    "parent": ({"graph": commit(0, node("b", "a")).graph}, NodeNotFound),
    "ref": ({"checkpoint": CheckpointDraft(components={"k": BlobRef("0" * 64)})}, BlobNotFound),
    "attachment": ({"attachments": ("0" * 64,)}, AttachmentNotFound),
}


class TestSessionCreate:
    """Laws of creation with a first commit."""

    async def test_the_session_is_that_of_a_creation_and_a_commit(self, harness: Harness) -> None:
        """Everything that can be read of it is the same as after two calls, and so is the next commit."""
        storage = await harness.open()
        made = await storage.sessions.create("s", name="n", model="m", cwd="/", commit=FIRST)
        other = msgspec.structs.replace(FIRST, session_id="other")
        await storage.sessions.create("other", name="n", model="m", cwd="/")
        result = await storage.session("other").commit(other)

        assert (made.created, made.revision, made.commit) == (True, 1, result)
        one, two = await loaded(storage, "s"), await loaded(storage, "other")
        assert one == msgspec.structs.replace(two, head=msgspec.structs.replace(two.head, session_id="s"))
        assert made.meta == msgspec.structs.replace(await storage.session("other").meta(), session_id="s")
        await storage.session("s").commit(commit(1, node("c", "b"), checkpoint=draft(2, {"tool_state": b"new"})))
        read = await loaded(storage)
        assert (ids(read), read.checkpoint.components) == (["a", "b", "c"], {"tool_state": b"new"})

    @pytest.mark.parametrize("what", REFUSED)
    async def test_a_refused_commit_creates_nothing(self, harness: Harness, what: str) -> None:
        """The error is that of the commit, and the id stays free."""
        storage = await harness.open()
        changes, error = REFUSED[what]
        with pytest.raises(error) as raised:
            await storage.sessions.create("s", commit=msgspec.structs.replace(FIRST, **changes))
        assert type(raised.value) is error
        assert await storage.sessions.open("s") is None
        assert (await storage.sessions.create("s")).revision == 0

    async def test_the_repeat_returns_the_first_result(self, harness: Harness) -> None:
        """Under its turn id a repeat finds its commit, also after later ones; other content raises TurnConflict."""
        storage = await harness.open()
        first = await storage.sessions.create("s", commit=FIRST)
        await storage.session("s").append([node("c")])
        before = await observe(storage)
        again = await storage.sessions.create("s", commit=FIRST)
        assert (again.created, again.revision, again.commit) == (False, 2, first.commit)
        with pytest.raises(TurnConflict):
            await storage.sessions.create("s", commit=msgspec.structs.replace(FIRST, usage=()))
        assert await observe(storage) == before

    async def test_a_session_that_exists_stays_as_it_is(self, harness: Harness) -> None:
        """Without this commit it is returned, and the commit is not applied, even if it could not be."""
        storage = await harness.open()
        await created(storage)
        before = await observe(storage)
        refused = [REFUSED[what][0] for what in ("fence", "parent", "ref", "attachment")]
        others: list[dict[str, object]] = [{}, {"turn_id": None}, *refused]
        for changes in others:
            found = await storage.sessions.create("s", commit=msgspec.structs.replace(FIRST, **changes))
            assert (found.created, found.revision, found.commit) == (False, 0, None)
        assert await observe(storage) == before

    async def test_of_concurrent_creations_one_is_applied(self, harness: Harness) -> None:
        """One caller creates, with its own commit; the others find it."""
        storages = [await harness.open(), await harness.open()]

        def first(name: str) -> Commit:
            return commit(0, node(name), turn_id=name)

        made = await asyncio.gather(
            *(storages[number % 2].sessions.create("s", commit=first(f"n{number}")) for number in range(6))
        )
        [winner] = [number for number, each in enumerate(made) if each.created]
        assert [each.commit is not None for each in made] == [number == winner for number in range(6)]
        assert ids(await loaded(storages[0])) == [f"n{winner}"]

    async def test_an_id_that_was_deleted_starts_above_the_old_numbers(self, harness: Harness) -> None:
        """The commit still expects revision 0; its result names the revision that it has."""
        storage = await harness.open()
        await storage.sessions.create("s", commit=FIRST)
        await storage.session("s").append([node("c")])
        await storage.sessions.delete("s")
        made = await storage.sessions.create("s", commit=FIRST)

        assert (made.created, made.revision) == (True, 4)
        assert made.commit is not None
        assert made.commit.revision == 4
        assert (await loaded(storage)).checkpoint.revision == 4
        assert (await storage.session("s").append([node("c")])).revision == 5
        again = await storage.sessions.create("s", commit=FIRST)
        assert again.commit == made.commit

    async def test_records_land_with_the_first_commit(self, harness: Harness) -> None:
        """Those of the new session and of the storage are put with it, or nothing is, also under a used id."""
        storage = await harness.open()
        await storage.records.put("c", "shared", 1)
        puts = [
            RecordPut(collection="c", key="own", value=1, session_id="s", expected_version=0),
            RecordPut(collection="c", key="shared", value=2, expected_version=1),
        ]
        first = msgspec.structs.replace(FIRST, records=tuple(puts))
        stale = msgspec.structs.replace(FIRST, records=(msgspec.structs.replace(puts[1], expected_version=5),))
        with pytest.raises(RecordConflict):
            await storage.sessions.create("s", commit=stale)
        assert await storage.sessions.open("s") is None
        await created(storage)
        await storage.sessions.delete("s")

        made = await storage.sessions.create("s", commit=first)
        assert (made.created, made.revision) == (True, 2)
        own, shared = await storage.records.get("c", "own", session_id="s"), await storage.records.get("c", "shared")
        assert own is not None
        assert shared is not None
        assert (own.value, own.version, shared.value, shared.version) == (1, 1, 2, 2)
        assert (await storage.sessions.create("s", commit=first)).commit == made.commit
