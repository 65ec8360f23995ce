"""The contract of the list of sessions: its order, its pages and the entry of each session."""

from __future__ import annotations

import pytest

from lash.errors import InvalidInput
from lash.model.session.commit import ReplaceFull
from lash.model.session.message import Message, Part, PartKind, Role
from lash.model.session.node import MessageEntry, Node
from lash.model.session.session import ChildRelation, SessionSummary
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.factories.session import MOMENT, chain, commit, created, node, started

IMAGE = "[Image attached]"


class TestSessionList:
    """Laws of pages and of the entries."""

    async def test_the_newest_session_comes_first(self, harness: Harness) -> None:
        """Sessions are listed newest first by creation; a commit does not move one."""
        storage = await harness.open()
        for session_id in ("b", "c", "a"):
            await created(storage, session_id)
        await storage.session("b").commit(commit(0, session_id="b"))
        assert await _listed(storage) == ["a", "c", "b"]

    async def test_pages_do_not_overlap(self, harness: Harness) -> None:
        """Pages of any size show every session once, and the last page has no cursor."""
        storage = await harness.open()
        names = [f"s{number}" for number in range(7)]
        for name in names:
            await storage.sessions.create(name)
        for limit in (1, 2, 3, 7, 8):
            assert await _all_pages(storage, limit) == names[::-1]
        assert (await storage.sessions.list(limit=7)).next_cursor is None

    async def test_pages_stay_apart_while_sessions_come_and_go(self, harness: Harness) -> None:
        """A session created or deleted between two pages neither repeats nor hides another."""
        storage = await harness.open()
        for number in range(6):
            await storage.sessions.create(f"s{number}")
        first = await storage.sessions.list(limit=2)
        await storage.sessions.create("late")
        await storage.sessions.delete("s5")
        await storage.sessions.delete("s3")
        rest = await storage.sessions.list(limit=10, cursor=first.next_cursor)
        assert [each.meta.session_id for each in first.sessions] == ["s5", "s4"]
        assert [each.meta.session_id for each in rest.sessions] == ["s2", "s1", "s0"]

    async def test_a_cursor_works_on_another_handle(self, harness: Harness) -> None:
        """A cursor is plain text that outlives the storage object that made it."""
        storage = await harness.open()
        for number in range(3):
            await storage.sessions.create(f"s{number}")
        first = await storage.sessions.list(limit=2)
        assert isinstance(first.next_cursor, str)
        rest = await (await harness.open()).sessions.list(cursor=first.next_cursor)
        assert [each.meta.session_id for each in rest.sessions] == ["s0"]

    @pytest.mark.parametrize(
        "cursor",
        ["", " ", "garbage", "AAAA", "czE6", "czE6eA==", "czE6LTE=", "czI6MQ==", "ü", "\0", "czE6MQ", "A" * 300],
    )
    async def test_a_damaged_cursor_is_refused(self, harness: Harness, cursor: str) -> None:
        """An invalid cursor raises InvalidInput, never an empty or a first page."""
        storage = await harness.open()
        await created(storage)
        with pytest.raises(InvalidInput):
            await storage.sessions.list(cursor=cursor)

    async def test_an_empty_storage_has_an_empty_page(self, harness: Harness) -> None:
        """An empty list is an empty page without a cursor."""
        page = await (await harness.open()).sessions.list()
        assert (page.sessions, page.next_cursor) == ((), None)

    async def test_a_session_without_a_commit_has_an_empty_line(self, harness: Harness) -> None:
        """Before the first commit the entry has no text, no messages and the time of creation."""
        storage = await harness.open()
        relation = ChildRelation(parent_session_id="p")
        await storage.sessions.create("s", cwd="/w", relation=relation)
        line = await _line(storage)
        assert (line.first_user_message, line.user_message_count, line.revision) == ("", 0, 0)
        assert line.meta == await storage.session("s").meta()
        assert (line.meta.cwd, line.meta.relation) == ("/w", relation)
        assert line.meta.created_at_ms == line.updated_at_ms == harness.clock.now_ms()

    async def test_the_line_shows_the_first_user_message(self, harness: Harness) -> None:
        """The entry has the first user message, the count of them, the revision and the time of the commit."""
        storage = await harness.open()
        session = await created(storage)
        made_at = harness.clock.now_ms()
        await harness.clock.advance(1_000)
        nodes = (node("a", text="I am the system", role=Role.SYSTEM), node("b", "a", "  hello there \n"))
        await session.commit(commit(0, *nodes))
        await harness.clock.advance(1_000)
        await session.commit(commit(1, node("c", "b", "hi", role=Role.ASSISTANT), node("d", "c", "second")))

        line = await _line(await harness.open())
        assert (line.first_user_message, line.user_message_count, line.revision) == ("hello there", 2, 2)
        assert (line.meta.created_at_ms, line.updated_at_ms) == (made_at, made_at + 2_000)

    async def test_parts_of_the_first_message_are_joined(self, harness: Harness) -> None:
        """Images are named, tool parts and blanks are omitted, the rest is joined by blank lines."""
        storage = await harness.open()
        session = await created(storage)
        parts = (
            Part(id="1", kind=PartKind.TEXT, content="one"),
            Part(id="2", kind=PartKind.TOOL_CALL, content="call"),
            Part(id="3", kind=PartKind.IMAGE, content="ignored"),
            Part(id="4", kind=PartKind.TEXT, content="   "),
            Part(id="5", kind=PartKind.TOOL_RESULT, content="result"),
            Part(id="6", kind=PartKind.CODE, content="two"),
        )
        await session.commit(commit(0, _said("a", *parts)))
        assert (await _line(storage)).first_user_message == f"one\n\n{IMAGE}\n\ntwo"

    async def test_a_wordless_first_message_stays_the_first(self, harness: Harness) -> None:
        """A user message without words still counts as the first, however the messages were committed."""
        storage = await harness.open()
        together = await created(storage, "together")
        await together.commit(commit(0, _said("a"), node("b", "a", "words"), session_id="together"))
        apart = await created(storage, "apart")
        await apart.commit(commit(0, _said("a"), session_id="apart"))
        await apart.commit(commit(1, node("b", "a", "words"), session_id="apart"))
        for line in (await storage.sessions.list()).sessions:
            assert (line.first_user_message, line.user_message_count) == ("", 2)

    async def test_a_long_first_message_is_shortened(self, harness: Harness) -> None:
        """The entry has the beginning of a long message, and the node all of it; NUL breaks neither."""
        storage = await harness.open()
        session = await created(storage)
        text = "word " * 20_000 + "\0"
        await session.commit(commit(0, node("a", text="\0" + text)))
        shown = (await _line(storage)).first_user_message
        assert 100 <= len(shown) < 5_000
        assert text.startswith(shown.strip())
        assert await session.node("a") == node("a", text="\0" + text)

    async def test_the_line_follows_removals(self, harness: Harness) -> None:
        """A removed message no longer counts, and the next one becomes the first."""
        storage = await harness.open()
        session = await started(storage, "s", "first", "second")
        await session.commit(commit(1, node("third")))
        await session.tombstone(["first"])
        line = await _line(storage)
        assert (line.first_user_message, line.user_message_count) == ("second", 2)
        await session.tombstone(["second"])
        await session.commit(commit(2, node("fourth", "third")))
        line = await _line(storage)
        assert (line.first_user_message, line.user_message_count) == ("third", 2)

    async def test_the_line_follows_a_replacement(self, harness: Harness) -> None:
        """After a full replacement the entry covers only the new nodes, in the given order."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        new = (node("y", "x", "why"), node("x", text="ex"))
        await session.commit(commit(1, graph=ReplaceFull(nodes=new, leaf_node_id="y", replaced_node_count=2)))
        line = await _line(storage)
        assert (line.first_user_message, line.user_message_count) == ("why", 2)

        await session.commit(commit(2, graph=ReplaceFull(nodes=(), leaf_node_id=None, replaced_node_count=2)))

        line = await _line(storage)
        assert (line.first_user_message, line.user_message_count) == ("", 0)

    async def test_a_repeated_append_is_not_counted_twice(self, harness: Harness) -> None:
        """Appending nodes that exist does not count their messages again."""
        storage = await harness.open()
        session = await started(storage, "s", "a", "b")
        await session.commit(commit(1, *chain("a", "b", "c")))
        assert (await _line(storage)).user_message_count == 3


def _said(node_id: str, *parts: Part) -> Node:
    message = Message(id=node_id, role=Role.USER, parts=parts)
    return Node(node_id=node_id, timestamp=MOMENT, entry=MessageEntry(message=message))


async def _line(storage: Storage) -> SessionSummary:
    (line,) = (await storage.sessions.list()).sessions
    return line


async def _listed(storage: Storage) -> list[str]:
    return [each.meta.session_id for each in (await storage.sessions.list()).sessions]


async def _all_pages(storage: Storage, limit: int) -> list[str]:
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await storage.sessions.list(limit=limit, cursor=cursor)
        assert len(page.sessions) <= limit
        seen += [each.meta.session_id for each in page.sessions]
        cursor = page.next_cursor
        if cursor is None:
            return seen
