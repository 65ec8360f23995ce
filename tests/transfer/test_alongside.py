"""Exports and imports concurrent with other work on the same session."""

from __future__ import annotations

import asyncio
import io

import msgspec
import pytest

from lash.backend.session import BoundSession
from lash.errors import Conflict
from lash.model.lease import Acquired
from lash.model.queue import BatchDraft, Boundary, Claim, TurnInput
from lash.model.session.session import ReadScope, SessionRead
from lash.stores.storage import Storage
from lash.transfer import import_session
from tests.factories.session import chain, commit, owner, started
from tests.transfer.kit import comparable, exported, opened, parsed, rich_session


def says(text: str) -> BatchDraft:
    return BatchDraft(session_id="s", payloads=(TurnInput.of_text(text),))


async def consume(storage: Storage) -> None:
    """Run a turn that answers the first batch with node ``b``."""
    lease = await storage.leases.claim("s", owner("w"), ttl_ms=60_000)
    assert isinstance(lease, Acquired)
    claim = await storage.queue.claim(lease.lease.fence, boundary=Boundary.IDLE, ttl_ms=60_000)
    assert isinstance(claim, Claim)
    answer = commit(1, *chain("b", after="a"), release=lease.lease.fence)
    await storage.session("s").commit(msgspec.structs.replace(answer, completions=(claim.completion,)))


async def test_work_is_queued_or_done_and_never_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """An export concurrent with the end of a turn has its node, and its input is not queued."""
    async with opened("sqlite://") as (storage,):
        await started(storage)
        await storage.queue.enqueue(says("hello"))
        load, calls = BoundSession.load, 0

        async def load_then_consume(session: BoundSession, scope: ReadScope) -> SessionRead | None:
            nonlocal calls
            calls += 1
            read = await load(session, scope)
            if calls == 1:
                await consume(storage)
            return read

        monkeypatch.setattr(BoundSession, "load", load_then_consume)
        lines = parsed(await exported(storage, with_queue=True))
    assert [line["node"]["node_id"] for line in lines if line["kind"] == "node"] == ["a", "b"]
    assert [line for line in lines if line["kind"] == "batch"] == []
    assert lines[0]["revision"] == 2


async def test_a_queue_that_never_stands_still_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An export of a session that keeps changing raises after a bounded number of tries."""
    async with opened("sqlite://") as (storage,):
        await started(storage)
        load = BoundSession.load

        async def load_and_say(session: BoundSession, scope: ReadScope) -> SessionRead | None:
            await storage.queue.enqueue(says("again"))
            return await load(session, scope)

        monkeypatch.setattr(BoundSession, "load", load_and_say)
        with pytest.raises(Conflict, match="does not stand still"):
            await exported(storage, with_queue=True)


async def test_imports_of_one_file_at_the_same_time_make_one_session(backend_url: str) -> None:
    """Concurrent imports of one file all succeed and commit once."""
    async with opened("sqlite://", backend_url) as (source, target):
        await rich_session(source)
        file = await exported(source)
        await asyncio.gather(*(import_session(target, io.BytesIO(file)) for _ in range(4)))
        head = await target.session("s").head()
        assert head is not None
        assert head.revision == 1
        assert comparable(await exported(target)) == comparable(file)


async def test_a_session_made_by_hand_is_not_taken_for_an_import_that_died() -> None:
    """A session with another description, or with an attachment that the file lacks, is not overwritten."""
    async with opened("sqlite://", "sqlite://") as (source, target):
        await started(source)
        file = await exported(source)
        await target.sessions.create("s", name="other")
        with pytest.raises(Conflict):
            await import_session(target, io.BytesIO(file))
        await target.sessions.create("t", name="s")
        await target.attachments.put("t", b"mine", "text/plain")
        with pytest.raises(Conflict):
            await import_session(target, io.BytesIO(file), session_id="t")
        assert len((await target.attachments.list("t")).entries) == 1
