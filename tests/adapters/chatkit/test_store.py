"""What a ChatKit server relies on beyond ChatKit's own tests."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from chatkit.store import NotFoundError
from chatkit.types import (
    AssistantMessageContent,
    AssistantMessageItem,
    ClientToolCallItem,
    FileAttachment,
    ThreadMetadata,
)

import lash
from lash.adapters.chatkit import AlreadyExists, LashStore

ANN, BOB = SimpleNamespace(user_id="ann"), {"user_id": "bob"}
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def _thread(thread_id: str, seconds: float = 0, title: str = "title") -> ThreadMetadata:
    return ThreadMetadata(id=thread_id, title=title, created_at=BEGAN + timedelta(seconds=seconds))


def _item(item_id: str, seconds: float = 0, text: str = "text") -> Any:  # noqa: ANN401 (one of many kinds)
    return AssistantMessageItem(
        id=item_id,
        thread_id="t",
        created_at=BEGAN + timedelta(seconds=seconds),
        content=[AssistantMessageContent(text=text)],
    )


async def test_pages_in_both_orders(url: str) -> None:
    """Items are in the order of their creation, equal times in the order of the calls, and no page loses one."""
    store = LashStore(url)
    await store.save_thread(_thread("t"), ANN)
    for name, seconds in (("a", 1), ("b", 2), ("c", 2), ("d", 2), ("z", 0)):
        await store.add_thread_item("t", _item(name, seconds), ANN)
    for order, expected in (("asc", "zabcd"), ("desc", "dcbaz")):
        seen, after = "", None
        while True:
            page = await LashStore(url).load_thread_items("t", after, 2, order, ANN)
            seen += "".join(item.id for item in page.data)
            after = page.after
            if not page.has_more:
                break
        assert (seen, after) == (expected, None)
    with pytest.raises(NotFoundError):
        await store.load_thread_items("t", "unknown", 2, "asc", ANN)


async def test_an_existing_id_is_refused_and_save_keeps_the_place(url: str) -> None:
    """One of concurrent adds of an id succeeds; a saved item is replaced where it is, or added if it is new."""
    store = LashStore(url)
    await store.save_thread(_thread("t"), ANN)
    tried = await asyncio.gather(
        *(store.add_thread_item("t", _item("a", 1, str(n)), ANN) for n in range(4)), return_exceptions=True
    )
    assert sum(isinstance(each, AlreadyExists) for each in tried) == 3
    await store.add_thread_item("t", _item("b", 2), ANN)
    await store.save_item("t", _item("a", 9, "new"), ANN)
    await store.save_item("t", _item("c", 3), ANN)
    page = await store.load_thread_items("t", None, 10, "asc", ANN)
    assert [(item.id, item.content[0].text) for item in page.data] == [("a", "new"), ("b", "text"), ("c", "text")]


async def test_users_do_not_see_each_other(url: str) -> None:
    """Threads, items and attachments belong to the user of the context, also under equal ids."""
    store = LashStore(url)
    await store.save_thread(_thread("t", title="of ann"), ANN)
    await store.add_thread_item("t", _item("a"), ANN)
    file = FileAttachment(id="f", name="f.txt", mime_type="text/plain")
    await store.save_attachment(file, ANN)
    await store.delete_thread("t", BOB)
    await store.delete_attachment("f", BOB)
    with pytest.raises(NotFoundError):
        await store.load_thread("t", BOB)
    with pytest.raises(NotFoundError):
        await store.load_attachment("f", BOB)
    await store.save_item("t", _item("b"), BOB)
    await store.save_thread(_thread("t", title="of bob"), BOB)
    assert (await store.load_thread("t", ANN)).title == "of ann"
    assert [thread.title for thread in (await store.load_threads(9, None, "asc", BOB)).data] == ["of bob"]
    for user, items in ((ANN, ["a"]), (BOB, ["b"])):
        assert [item.id for item in (await store.load_thread_items("t", None, 9, "asc", user)).data] == items
    assert await store.load_attachment("f", ANN) == file
    with pytest.raises(lash.ConfigError, match="user_id"):
        await store.load_thread("t", {})


async def test_items_may_come_before_their_thread(url: str) -> None:
    """A thread that is saved later has them; until then it is not listed."""
    store = LashStore(url)
    await store.add_thread_item("t", _item("a", 1), ANN)
    await store.save_item("t", _item("b", 2), ANN)
    assert (await store.load_threads(9, None, "asc", ANN)).data == []
    await store.save_thread(_thread("t"), ANN)
    assert [thread.id for thread in (await store.load_threads(9, None, "asc", ANN)).data] == ["t"]
    assert [item.id for item in (await store.load_thread_items("t", None, 9, "asc", ANN)).data] == ["a", "b"]


async def test_odd_values_and_arguments(url: str) -> None:
    """Integers of any size, NUL and long or blank names come back; an empty cursor is none; orders have no case."""
    store, stranger = LashStore(url), SimpleNamespace(user_id="u" * 300)
    metadata = {"large": 2**70, "nul": "\0", "deep": [[[1.5, None]]]}
    call = ClientToolCallItem(
        id="c", thread_id="t", created_at=BEGAN, call_id="1", name="f", arguments={"large": -(2**80)}
    )
    for user in (stranger, {"user_id": " "}):
        for thread_id in ("t", "t" * 300, " ", "\0/%"):
            thread = _thread(thread_id).model_copy(update={"metadata": metadata})
            await store.save_thread(thread, user)
            await store.add_thread_item(thread_id, call, user)
            assert await store.load_thread(thread_id, user) == thread
            assert await store.load_item(thread_id, "c", user) == call
    assert len((await store.load_threads(9, "", "desc", stranger)).data) == 4
    ordered = [thread.id for thread in (await store.load_threads(9, None, "DESC", stranger)).data]
    assert ordered == ["\0/%", " ", "t" * 300, "t"]


async def test_saves_that_race_with_deletions_leave_nothing_behind(url: str) -> None:
    """What is listed can be loaded and deleted: a late save adds the whole item or thread, and never a part of it."""
    store, other = LashStore(url), LashStore(url)
    for _ in range(5):
        await store.save_thread(_thread("t"), ANN)
        await store.save_item("t", _item("a"), ANN)
        await asyncio.gather(store.save_item("t", _item("a"), ANN), other.delete_thread_item("t", "a", ANN))
        for item in (await store.load_thread_items("t", None, 9, "asc", ANN)).data:
            await store.load_item("t", item.id, ANN)
        await asyncio.gather(store.save_thread(_thread("t"), ANN), other.delete_thread("t", ANN))
        for thread in (await store.load_threads(9, None, "asc", ANN)).data:
            await store.load_thread(thread.id, ANN)
        await store.delete_thread("t", ANN)
        assert (await store.load_threads(9, None, "asc", ANN)).data == []


async def test_a_deleted_thread_takes_no_late_items(url: str) -> None:
    """Its items are gone with it, also under a new thread of the same id."""
    store = LashStore(url)
    await store.save_thread(_thread("t"), ANN)
    await store.add_thread_item("t", _item("a"), ANN)
    await store.delete_thread("t", ANN)
    for late in (store.add_thread_item, store.save_item):
        with pytest.raises(NotFoundError):
            await late("t", _item("b"), ANN)
    await store.save_thread(_thread("t"), ANN)
    assert (await store.load_thread_items("t", None, 9, "asc", ANN)).data == []
    assert [thread.id for thread in (await store.load_threads(9, None, "asc", ANN)).data] == ["t"]


async def test_a_storage_of_the_program(url: str) -> None:
    """It shares its data with an object on the URL, and stays open."""
    async with await lash.open(url) as storage:
        store = LashStore(storage)
        await store.save_thread(_thread("t"), ANN)
        await LashStore(url).add_thread_item("t", _item("a"), ANN)
        await store.add_thread_item("t", _item("b", 1), ANN)
        page = await store.load_thread_items("t", None, 10, "asc", ANN)
        assert [item.id for item in page.data] == ["a", "b"]
