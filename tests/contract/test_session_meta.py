"""The contract of a session's metadata: owner, labels, metadata of the application, expiry; and of deleting many."""

from __future__ import annotations

from typing import Any

import pytest

from lash.errors import InvalidInput, SessionDeleted, SessionNotFound
from lash.model.session.checkpoint import CheckpointDraft, TurnState
from lash.model.session.session import SessionFilter, SessionMeta
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.factories.session import commit, created, owner, started

FULL: dict[str, Any] = {
    "owner": "ada",
    "labels": {"env": "prod", "ä": "ö €", "empty": ""},
    "metadata": {"theme": "dark", "deep": [{"n": 1.5, "none": None}], "text": "\0é"},
    "expires_at_ms": 9_000_000_000_000,
}


class TestMeta:
    """Laws of creating and editing."""

    async def test_a_session_keeps_what_it_was_created_with(self, harness: Harness) -> None:
        """Owner, labels, metadata and expiry are returned by create, meta and list; a second create changes nothing."""
        storage = await harness.open()
        made = await storage.sessions.create("s", **FULL)
        again = await storage.sessions.create("s", owner="bob")
        assert (again.created, again.meta) == (False, made.meta)
        assert {name: getattr(made.meta, name) for name in FULL} == FULL
        other = await harness.open()
        assert await other.session("s").meta() == made.meta
        assert [each.meta for each in (await other.sessions.list(SessionFilter(owner="ada"))).sessions] == [made.meta]

    async def test_a_session_with_its_first_commit_has_them_too(self, harness: Harness) -> None:
        """A session that is created with a commit has its owner and labels, and the agent of the commit."""
        storage = await harness.open()
        state = TurnState(protocol_turn_options={"agent": "helper"})
        first = commit(0, checkpoint=CheckpointDraft(turn_state=state))
        made = await storage.sessions.create("s", **FULL, commit=first)
        assert {name: getattr(made.meta, name) for name in FULL} == FULL
        wanted = SessionFilter(owner="ada", labels={"env": "prod"}, agent="helper")
        assert [each.meta for each in (await storage.sessions.list(wanted)).sessions] == [made.meta]
        again = await storage.sessions.create("s", owner="bob", commit=first)
        assert (again.created, again.meta) == (False, made.meta)

    async def test_a_fork_has_only_what_it_is_given(self, harness: Harness) -> None:
        """A fork inherits neither owner nor labels, metadata or expiry."""
        storage = await harness.open()
        await storage.sessions.create("s", **FULL)
        bare = await storage.sessions.fork("s", "bare")
        full = await storage.sessions.fork("s", "full", **FULL | {"owner": "bob"})
        assert (bare.meta.owner, bare.meta.labels, bare.meta.metadata, bare.meta.expires_at_ms) == (None, {}, {}, None)
        assert (full.meta.owner, full.meta.labels) == ("bob", FULL["labels"])
        assert await _found(storage, owner="bob") == ["full"]

    async def test_an_edit_changes_what_it_names(self, harness: Harness) -> None:
        """An edit replaces the given parts, also in lists, and leaves the others and the head."""
        storage = await harness.open()
        session = await created(storage)
        await session.commit(commit(0))
        head = await session.head()
        before = await session.meta()
        for field, value in (*FULL.items(), ("name", "New"), ("labels", {"env": "test"}), ("owner", None)):
            await session.edit(**{field: value})
            after = await session.meta()
            assert getattr(after, field) == value
            for name in ("name", *FULL):
                if name != field:
                    assert getattr(after, name) == getattr(before, name)
            before = after
        assert await session.head() == head
        assert await _found(storage, labels={"env": "test"}) == ["s"]
        assert await _found(storage, labels={"env": "prod"}) == await _found(storage, owner="ada") == []
        await session.edit(expires_at_ms=None, metadata={}, labels={}, owner="eve")
        assert (await session.meta()).labels == {}
        assert await _found(storage, owner="eve") == ["s"]

    async def test_saving_overwrites_all(self, harness: Harness) -> None:
        """save_meta replaces owner and labels too, and lists follow."""
        storage = await harness.open()
        await storage.sessions.create("s", owner="ada", labels={"a": "1", "b": "2"})
        await storage.sessions.create("t", owner="bob", labels={"b": "3"})
        other = SessionMeta(session_id="s", name="s", created_at_ms=5, owner="bob", labels={"b": "3"})
        await storage.session("s").save_meta(other)
        assert await storage.session("s").meta() == other
        assert await _found(storage, owner="ada") == await _found(storage, labels={"a": "1"}) == []
        assert await _found(storage, owner="bob", labels={"b": "3"}) == ["t", "s"]

    async def test_an_edit_of_a_missing_session_is_refused(self, harness: Harness) -> None:
        """A session that was never created, or was deleted, cannot be edited."""
        storage = await harness.open()
        with pytest.raises(SessionNotFound):
            await storage.session("s").edit(owner="ada")
        await created(storage)
        await storage.sessions.delete("s")
        with pytest.raises(SessionDeleted):
            await storage.session("s").edit(labels={"a": "b"})

    @pytest.mark.parametrize(
        "wrong",
        [
            {"owner": ""},
            {"owner": "o" * 256},
            {"labels": {"": "x"}},
            {"labels": {"k": 1}},
            {"labels": {"k": "v" * 256}},
            {"labels": [("k", "v")]},
            {"labels": {str(number): "" for number in range(33)}},
            {"metadata": []},
            {"metadata": {"x": {1, 2}}},
            {"metadata": {"x": "y" * 70_000}},
            {"expires_at_ms": -1},
            {"expires_at_ms": "tomorrow"},
        ],
    )
    async def test_a_wrong_value_is_refused(self, harness: Harness, wrong: dict[str, Any]) -> None:
        """A value that cannot be stored or indexed raises InvalidInput, at creation and at an edit."""
        storage = await harness.open()
        session = await created(storage)
        for call in (storage.sessions.create("new", **wrong), session.edit(**wrong)):
            with pytest.raises(InvalidInput):
                await call
        assert [each.meta.session_id for each in (await storage.sessions.list()).sessions] == ["s"]


class TestExpiry:
    """Laws of expiry, and of deleting many."""

    async def test_an_expired_session_is_deleted_once_its_lease_is_free(self, harness: Harness) -> None:
        """From the moment of its expiry on a session is deleted, unless a live lease holds it; others stay."""
        storage = await harness.open()
        now = harness.clock.now_ms()
        for name, expiry in (("soon", now + 100), ("held", now + 50), ("later", now + 9_000), ("never", None)):
            await storage.sessions.create(name, expires_at_ms=expiry, owner="ada")
        await storage.leases.claim("held", owner("w"), ttl_ms=1_000)
        assert await storage.sessions.delete_expired() == ()
        await harness.clock.advance(100)
        assert await storage.sessions.delete_expired() == ("soon",)
        await harness.clock.advance(1_000)
        assert await storage.sessions.delete_expired(limit=1) == ("held",)
        assert await storage.sessions.delete_expired() == ()
        assert await _found(storage, owner="ada") == ["never", "later"]
        with pytest.raises(SessionDeleted):
            await storage.session("soon").meta()
        await storage.session("later").edit(expires_at_ms=now)
        assert await storage.sessions.delete_expired() == ("later",)

    async def test_many_are_deleted_in_one_call(self, harness: Harness) -> None:
        """Each is deleted like by a single deletion; the call returns the existing ids, and can be repeated."""
        storage = await harness.open()
        names = [f"s{number}" for number in range(7)]
        for name in names:
            await started(storage, name)
        await storage.sessions.fork("s0", "fork")
        assert await storage.sessions.delete_many([*names[:5], "unknown", "s0"]) == tuple(names[:5])
        assert await storage.sessions.delete_many(names[:5]) == await storage.sessions.delete_many([]) == ()
        assert [each.meta.session_id for each in (await storage.sessions.list()).sessions] == ["fork", "s6", "s5"]
        read = await storage.session("fork").load()
        assert read is not None
        assert [each.node_id for each in read.graph.nodes] == ["a"]
        for wrong in ("s5", ["s5", ""], 7):
            with pytest.raises(InvalidInput):
                await storage.sessions.delete_many(wrong)  # type: ignore[arg-type]


async def _found(storage: Storage, **wanted: Any) -> list[str]:  # noqa: ANN401 - the fields of a filter
    return [each.meta.session_id for each in (await storage.sessions.list(SessionFilter(**wanted))).sessions]
