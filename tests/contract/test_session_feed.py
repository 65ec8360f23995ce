"""The contract of the feed of sessions: a reader that keeps its cursor gets the last state of every changed session."""

from __future__ import annotations

import asyncio
import base64
from typing import Final

import msgspec
import pytest

from lash.errors import InvalidInput
from lash.model.gap import GapReason
from lash.model.session.change import SessionChange, SessionChangePage
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.factories.session import append, chain, commit, created, node, started

WRITERS: Final = 24


class TestSessionFeed:
    """Laws of the feed of sessions."""

    async def test_every_kind_of_change_moves_the_session(self, harness: Harness) -> None:
        """Creation, commit, append, edit, tombstone, erasure and deletion are changes, each of one session."""
        storage = await harness.open()
        cursor = (await storage.sessions.changes()).cursor
        session = await started(storage, "s", "a", "b")
        await storage.sessions.fork("s", "f")
        shown, cursor = await _read(storage, cursor)
        assert [(each.session_id, each.revision) for each in shown] == [("s", 1), ("f", 1)]
        for change, revision in (
            (session.commit(commit(1, node("c", "b"))), 2),
            (session.append((node("d"),)), 3),
            (session.edit(labels={"env": "prod"}), 3),
            (session.commit(commit(3, graph=append(*chain("e", "f", after="d"), leaf="d"))), 4),
            (session.tombstone(["f"]), 4),
            (session.erase(["c"]), 5),
        ):
            await change
            shown, cursor = await _read(storage, cursor)
            assert [(each.session_id, each.revision) for each in shown] == [("s", revision)]
        assert shown[0].session == (await storage.sessions.list(oldest_first=True)).sessions[0]
        await storage.sessions.delete("s")
        shown, cursor = await _read(storage, cursor)
        assert shown == [SessionChange(session_id="s", revision=5)]
        assert await _read(storage, cursor) == ([], cursor)

    async def test_a_session_is_shown_once_at_its_last_change(self, harness: Harness) -> None:
        """A reader that is behind gets the newest revision of each session, in the order of the last changes."""
        storage = await harness.open()
        for name in ("a", "b", "c"):
            await started(storage, name)
        await storage.session("a").append((node("x"),))
        await storage.sessions.delete("b")
        await storage.session("c").append((node("x"),))
        for limit in (1, 2, 9):
            shown, _ = await _read(storage, None, limit=limit)
            assert [(each.session_id, each.revision) for each in shown] == [("a", 2), ("b", 1), ("c", 2)]

    async def test_a_deleted_id_can_be_used_again(self, harness: Harness) -> None:
        """The new session follows its deleted predecessor, above its revision; the deletion is not shown any more."""
        storage = await harness.open()
        await started(storage)
        await storage.sessions.delete("s")
        gone, cursor = await _read(storage, None)
        await created(storage)
        fresh, _ = await _read(storage, cursor)
        assert [(each.revision, each.session is None) for each in (*gone, *fresh)] == [(1, True), (2, False)]
        assert await _read(storage, None) == (fresh, _)

    async def test_a_reader_can_begin_at_the_end(self, harness: Harness) -> None:
        """The cursor of the end leaves out what was before it, in another storage of the same database too."""
        storage = await harness.open()
        assert await _read(storage, await storage.sessions.changes_cursor()) == (
            [],
            await storage.sessions.changes_cursor(),
        )
        await started(storage, "old")
        end = await storage.sessions.changes_cursor()
        await started(storage, "new")
        shown, _ = await _read(await harness.open(), end)
        assert [each.session_id for each in shown] == ["new"]

    async def test_a_cursor_of_another_feed_begins_again(self, harness: Harness) -> None:
        """A cursor of another epoch, or of a change that was lost, gets a gap and the whole feed."""
        storage = await harness.open()
        await started(storage, "a")
        await started(storage, "b")
        whole = await storage.sessions.changes(limit=9)
        version, epoch, place, late = msgspec.json.decode(base64.urlsafe_b64decode(whole.cursor))
        for foreign in (
            (version, "another", place, late),
            (version, epoch, (2**60, "b"), late),
            (version, epoch, (place[0], "x"), late),
        ):
            page = await storage.sessions.changes(_text(foreign), limit=9)
            assert page == msgspec.structs.replace(whole, gap=GapReason.UNAVAILABLE)
        assert (await storage.sessions.changes(whole.cursor)).gap is None

    async def test_foreign_text_is_refused(self, harness: Harness) -> None:
        """What is not a cursor of this feed, and a limit below 1, raise InvalidInput."""
        storage = await harness.open()
        good = (await storage.sessions.changes()).cursor
        other = (await storage.events.changes()).cursor
        nul, negative = ("sc1", "", (0, "\0"), ()), ("sc1", "", (-1, ""), ())
        for bad in ("?", "é", good[:-4], other, _text(nul), _text(negative)):
            with pytest.raises(InvalidInput):
                await storage.sessions.changes(bad)
        with pytest.raises(InvalidInput):
            await storage.sessions.changes(good, limit=0)

    async def test_a_follower_gets_what_changes(self, harness: Harness) -> None:
        """It yields what is there, and then each later change, by hints of another storage too."""
        storage, writer = await harness.open(), await harness.open()
        await started(storage, "a")
        following = storage.sessions.follow()
        try:
            assert [each.session_id for each in (await anext(following)).changes] == ["a"]
            await started(writer, "b")
            page = await asyncio.wait_for(anext(following), 60)
            while page.changes[-1].revision == 0:
                page = await asyncio.wait_for(anext(following), 60)
            assert [(each.session_id, each.revision) for each in page.changes] == [("b", 1)]
            await writer.session("a").edit(name="renamed")
            page = await asyncio.wait_for(anext(following), 60)
            assert [_name(each) for each in page.changes] == ["renamed"]
        finally:
            await following.aclose()  # type: ignore[attr-defined]

    async def test_many_writers_hide_nothing(self, harness: Harness) -> None:
        """Beside 24 writers a reader of two changes at a time sees the last revision of each session."""
        storages = [await harness.open() for _ in range(4)]
        reader, seen = await harness.open(), dict[str, list[int]]()
        reading = asyncio.create_task(_read_until(reader, seen, 4))
        try:
            await asyncio.gather(*(_write(storages[each % 4], f"s{each}") for each in range(WRITERS)))
            await asyncio.wait_for(reading, 60)
        finally:
            reading.cancel()
        assert sorted(seen) == sorted(f"s{each}" for each in range(WRITERS))
        for revisions in seen.values():
            assert revisions == sorted(set(revisions))
            assert revisions[-1] == 4


async def _read(storage: Storage, cursor: str | None, limit: int = 9) -> tuple[list[SessionChange], str]:
    """Return the changes after a cursor, in pages, and the cursor at the end."""
    shown: list[SessionChange] = []
    while True:
        page: SessionChangePage = await storage.sessions.changes(cursor, limit=limit)
        assert page.gap is None
        shown += page.changes
        cursor = page.cursor
        if len(page.changes) < limit:
            return shown, cursor


def _name(change: SessionChange) -> str | None:
    return None if change.session is None else change.session.meta.name


def _text(cursor: tuple[object, ...]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode()


async def _write(storage: Storage, session_id: str) -> None:
    session = await started(storage, session_id)
    for number in range(3):
        await session.append((node(f"n{number}"),))


async def _read_until(storage: Storage, seen: dict[str, list[int]], last: int) -> None:
    """Follow the feed two changes at a time until every session was seen at its last revision."""
    cursor: str | None = None
    while len(seen) < WRITERS or any(revisions[-1] < last for revisions in seen.values()):
        page = await storage.sessions.changes(cursor, limit=2)
        cursor = page.cursor
        for change in page.changes:
            seen.setdefault(change.session_id, []).append(change.revision)
        await asyncio.sleep(0)
