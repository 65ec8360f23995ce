"""The contract of attachments in a commit: stamped in its transaction, or the commit is refused."""

from __future__ import annotations

import asyncio

from lash.errors import AttachmentNotFound, InvalidInput, RevisionConflict
from lash.testing.harness import Harness
from tests.contract.state import refuse
from tests.contract.test_attachment import UNKNOWN, digest, turn, uncommitted
from tests.factories.session import commit, created, node, started


class TestAttachmentCommit:
    """Attachments and commits."""

    async def test_a_commit_stamps_what_it_names(self, harness: Harness) -> None:
        """A commit makes the attachments it names permanent; the first stamp stays, others get none."""
        storage = await harness.open()
        session = await created(storage, "s")
        named = await storage.attachments.put("s", b"named", "text/plain", owner=turn("t"))
        other = await storage.attachments.put("s", b"other", "text/plain", owner=turn("t"))
        await session.commit(commit(0, node("a"), attachments=(named.id, named.id)))
        first = await storage.attachments.entry("s", named.id)
        await harness.clock.advance(5_000)
        await session.commit(commit(1, node("b", "a"), attachments=(named.id,)))
        assert first is not None
        assert first.committed_at_ms is not None
        assert await storage.attachments.entry("s", named.id) == first
        assert await uncommitted(storage) == [("s", other.id)]

    async def test_a_commit_with_an_unknown_attachment_is_refused(self, harness: Harness) -> None:
        """A commit that names an attachment never put, or one of another session, is refused whole."""
        storage = await harness.open()
        await started(storage, "s", "a")
        await created(storage, "other")
        mine = await storage.attachments.put("s", b"mine", "text/plain")
        theirs = await storage.attachments.put("other", b"theirs", "text/plain")
        for bad in (UNKNOWN, theirs.id):
            await refuse(storage, commit(1, node("b", "a"), attachments=(mine.id, bad)), AttachmentNotFound)
        await refuse(storage, commit(1, attachments=("../x",)), InvalidInput)
        assert sorted(await uncommitted(storage)) == sorted([("other", theirs.id), ("s", mine.id)])

    async def test_a_refused_commit_stamps_nothing(self, harness: Harness) -> None:
        """A commit that fails on the revision leaves its attachments uncommitted."""
        storage = await harness.open()
        await started(storage, "s", "a")
        ref = await storage.attachments.put("s", b"late", "text/plain")
        await refuse(storage, commit(0, node("b", "a"), attachments=(ref.id,)), RevisionConflict)
        assert await uncommitted(storage) == [("s", ref.id)]

    async def test_a_repeated_commit_is_the_same_with_its_attachments(self, harness: Harness) -> None:
        """A repeat returns the first result; order and repetition of the attachments do not matter."""
        storage = await harness.open()
        session = await created(storage, "s")
        one = await storage.attachments.put("s", b"1", "text/plain")
        two = await storage.attachments.put("s", b"2", "text/plain")
        first = await session.commit(commit(0, node("a", text="x"), turn_id="t", attachments=(one.id, two.id)))
        again = await session.commit(commit(0, node("z", text="x"), turn_id="t", attachments=(two.id, one.id, one.id)))
        assert (again, first.revision) == (first, 1)

    async def test_a_commit_racing_a_sweep_wins_or_is_told(self, harness: Harness) -> None:
        """Either the commit stamps the attachment and its bytes stay, or it is refused as a whole."""
        storage = await harness.open()
        other = await harness.open()

        async def gone(_entry: object) -> bool:
            return True

        for round_number in range(10):
            name = f"s{round_number}"
            session = await created(storage, name)
            content = name.encode()
            ref = await storage.attachments.put(name, content, "text/plain")
            outcomes = await asyncio.gather(
                session.commit(commit(0, node("a"), session_id=name, attachments=(ref.id,))),
                other.attachments.sweep(0, gone),
                return_exceptions=True,
            )
            if isinstance(outcomes[0], AttachmentNotFound):
                assert await session.head() is None
            else:
                assert not isinstance(outcomes[0], BaseException)
                assert (await storage.attachments.get(name, digest(content))).content == content

    async def test_a_fork_finds_what_its_messages_refer_to(self, harness: Harness) -> None:
        """A fork has its source's committed attachments, and keeps their bytes after the source is deleted."""
        storage = await harness.open()
        session = await created(storage, "source")
        kept = await storage.attachments.put("source", b"kept", "text/plain")
        loose = await storage.attachments.put("source", b"loose", "text/plain")
        await session.commit(commit(0, node("a"), session_id="source", attachments=(kept.id,)))
        await storage.sessions.fork("source", "fork")
        await storage.sessions.delete("source")

        async def gone(_entry: object) -> bool:
            return True

        assert (await storage.attachments.sweep(0, gone)).deleted == (loose.id,)
        assert (await storage.attachments.get("fork", kept.id)).content == b"kept"
        assert await storage.attachments.entry("fork", loose.id) is None
