"""The contract of the retention of a session: how many checkpoints it keeps, whatever its storage keeps."""

from __future__ import annotations

import pytest

from lash.errors import InvalidInput
from lash.model.maintenance import GarbageReport
from lash.model.session.session import Retention
from lash.stores.session import Session
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.factories.session import commit, created, draft, node


async def commits(session: Session, first: int, count: int) -> None:
    """Commit a checkpoint each at these revisions; two components, one of which changes."""
    for revision in range(first, first + count):
        state = draft(revision, {"a": b"%d" % revision, "same": b"same"})
        await session.commit(commit(revision, session_id=session.session_id, checkpoint=state))


async def kept(session: Session, last: int) -> list[int]:
    """Return the revisions whose checkpoints are kept, each of them whole."""
    found = [await session.checkpoint(revision) for revision in range(1, last + 1)]
    for each in found:
        assert each is None or each.components == {"a": b"%d" % (each.revision - 1), "same": b"same"}
    return [each.revision for each in found if each is not None]


async def sound(storage: Storage) -> None:
    """No row is damaged, missing or superfluous."""
    assert await storage.maintenance.find_damage() == ()
    found = await storage.maintenance.collect_garbage(dry_run=True)
    assert found == GarbageReport(dry_run=True)


class TestRetention:
    """Laws of the retention of a session."""

    async def test_sessions_of_one_storage_keep_different_numbers(self, harness: Harness) -> None:
        """All, the last n and only the newest, chosen at creation; without a choice, what the storage keeps."""
        storage = await harness.open(retention=Retention.last(2))
        wanted = {"all": Retention.all(), "three": Retention.last(3), "one": Retention.latest(), "plain": None}
        for name, retention in wanted.items():
            await storage.sessions.create(name, retention=retention)
            await commits(storage.session(name), 0, 5)
            assert (await storage.session(name).meta()).retention == retention
        found = {name: await kept(storage.session(name), 5) for name in wanted}
        assert found == {"all": [1, 2, 3, 4, 5], "three": [3, 4, 5], "one": [5], "plain": [4, 5]}
        (listed,) = (await storage.sessions.list(limit=1)).sessions
        assert listed.meta.retention is None
        await sound(storage)

    async def test_a_session_can_change_its_retention(self, harness: Harness) -> None:
        """A wider one keeps from now on; a narrower one drops with the next commit; None is that of the storage."""
        storage = await harness.open()
        session = await created(storage)
        await commits(session, 0, 2)
        await session.edit(retention=Retention.all())
        await commits(session, 2, 3)
        assert await kept(session, 5) == [2, 3, 4, 5]
        await session.edit(retention=Retention.last(2))
        assert await kept(session, 5) == [2, 3, 4, 5]
        await commits(session, 5, 1)
        assert await kept(session, 6) == [5, 6]
        await session.edit(retention=None)
        await commits(session, 6, 1)
        assert await kept(session, 7) == [7]
        await commits(session, 7, 1)
        assert await kept(session, 8) == [8]
        await sound(storage)

    async def test_another_storage_sees_a_change_at_once(self, harness: Harness) -> None:
        """A writer that knows the session from before follows a retention that another one set meanwhile."""
        first, second = await harness.open(), await harness.open()
        session = await created(first)
        await commits(session, 0, 2)
        await second.session("s").edit(retention=Retention.all())
        await commits(session, 2, 2)
        assert await kept(session, 4) == [2, 3, 4]
        await second.session("s").edit(retention=Retention.latest())
        await commits(session, 4, 2)
        assert await kept(session, 6) == [6]
        await sound(first)

    async def test_appends_and_erasures_follow_it(self, harness: Harness) -> None:
        """Their revisions have checkpoints too, of which as many are kept."""
        storage = await harness.open()
        await storage.sessions.create("s", retention=Retention.last(3))
        session = storage.session("s")
        for name in "abcd":
            await session.append([node(name)])
        assert [revision for revision in range(1, 5) if await session.checkpoint(revision)] == [2, 3, 4]
        await session.erase(["a"])
        assert [revision for revision in range(1, 6) if await session.checkpoint(revision)] == [3, 4, 5]
        await session.edit(retention=Retention.all())
        await session.append([node("e")])
        assert [revision for revision in range(1, 7) if await session.checkpoint(revision)] == [3, 4, 5, 6]
        await sound(storage)

    async def test_it_begins_with_the_first_commit_and_is_not_forked(self, harness: Harness) -> None:
        """A session that is created with its commit keeps from there on; a fork has the retention that it is given."""
        storage = await harness.open()
        first = commit(0, node("n"), checkpoint=draft(0, {"a": b"0", "same": b"same"}))
        await storage.sessions.create("s", retention=Retention.all(), commit=first)
        await commits(storage.session("s"), 1, 2)
        assert await kept(storage.session("s"), 3) == [1, 2, 3]
        await storage.sessions.fork("s", "plain")
        await storage.sessions.fork("s", "keeping", retention=Retention.last(2))
        assert (await storage.session("plain").meta()).retention is None
        assert (await storage.session("keeping").meta()).retention == Retention.last(2)
        await sound(storage)

    async def test_saving_metadata_saves_the_retention(self, harness: Harness) -> None:
        """Metadata that was read and is saved again keeps the retention; a number is refused."""
        storage = await harness.open()
        await storage.sessions.create("s", retention=Retention.last(4))
        session = storage.session("s")
        await session.save_meta(await session.meta())
        assert (await session.meta()).retention == Retention.last(4)
        await session.edit(name="other")
        assert (await session.meta()).retention == Retention.last(4)
        with pytest.raises(InvalidInput, match="expected a Retention as retention, got int"):
            await session.edit(retention=4)  # type: ignore[arg-type]
