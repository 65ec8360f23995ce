"""The store answers as lists in memory do, over long series of random calls of several users."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from chatkit.store import NotFoundError
from chatkit.types import (
    AssistantMessageContent,
    AssistantMessageItem,
    Attachment,
    ClientToolCallItem,
    FileAttachment,
    HiddenContextItem,
    ImageAttachment,
    LockedStatus,
    Page,
    ThreadItem,
    ThreadMetadata,
)
from pydantic import AnyUrl, BaseModel

from lash.adapters.chatkit import AlreadyExists, LashStore

_CALLS = 400
_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_USERS = (SimpleNamespace(user_id="ann"), {"user_id": "bob"})


class _User:
    """The threads, items and attachments of one user, each kind in the order of creation."""

    def __init__(self) -> None:
        self.threads: dict[str, ThreadMetadata] = {}
        self.items: dict[str, dict[str, ThreadItem]] = {}
        self.attachments: dict[str, Attachment] = {}


class _Lists:
    """What a store of ChatKit promises, with dictionaries: they keep the order of the first save."""

    def __init__(self) -> None:
        self._users = (_User(), _User())

    def call(self, name: str, user: int, *arguments: Any) -> object:  # noqa: ANN401 (any method)
        return getattr(self, name)(self._users[user], *arguments)

    def save_thread(self, user: _User, thread: ThreadMetadata) -> None:
        user.threads[thread.id] = thread
        user.items.setdefault(thread.id, {})

    def load_thread(self, user: _User, thread_id: str) -> ThreadMetadata:
        return _found(user.threads, thread_id)

    def load_threads(self, user: _User, limit: int, after: str | None, order: str) -> Page[Any]:
        return _page(user.threads, limit, after, order)

    def delete_thread(self, user: _User, thread_id: str) -> None:
        user.threads.pop(thread_id, None)
        user.items.pop(thread_id, None)

    def add_thread_item(self, user: _User, thread_id: str, item: ThreadItem) -> None:
        if item.id in user.items[thread_id]:
            raise AlreadyExists(thread_id, item.id)
        user.items[thread_id][item.id] = item

    def save_item(self, user: _User, thread_id: str, item: ThreadItem) -> None:
        user.items[thread_id][item.id] = item

    def load_item(self, user: _User, thread_id: str, item_id: str) -> ThreadItem:
        return _found(user.items.get(thread_id, {}), item_id)

    def load_thread_items(self, user: _User, thread_id: str, after: str | None, limit: int, order: str) -> Page[Any]:
        return _page(user.items.get(thread_id, {}), limit, after, order)

    def delete_thread_item(self, user: _User, thread_id: str, item_id: str) -> None:
        user.items.get(thread_id, {}).pop(item_id, None)

    def save_attachment(self, user: _User, attachment: Attachment) -> None:
        user.attachments[attachment.id] = attachment

    def load_attachment(self, user: _User, attachment_id: str) -> Attachment:
        return _found(user.attachments, attachment_id)

    def delete_attachment(self, user: _User, attachment_id: str) -> None:
        user.attachments.pop(attachment_id, None)

    def has_thread(self, user: int, thread_id: str) -> bool:
        return thread_id in self._users[user].threads


def _found(known: dict[str, Any], name: str) -> Any:  # noqa: ANN401 (a thread, an item or an attachment)
    if name not in known:
        raise NotFoundError
    return known[name]


def _page(known: dict[str, Any], limit: int, after: str | None, order: str) -> Page[Any]:
    names = list(known) if order == "asc" else list(reversed(known))
    if after is not None:
        _found(known, after)
        names = names[names.index(after) + 1 :]
    shown, has_more = names[:limit], len(names) > limit
    return Page(data=[known[name] for name in shown], has_more=has_more, after=shown[-1] if has_more else None)


class _Calls:
    """Random calls of the store and the lists; every answer must be equal.

    Items are added to threads that exist: a thread that was deleted takes no items here. Each new thing is created
    later than all before it.
    """

    def __init__(self, seed: int, store: LashStore) -> None:
        self._random = random.Random(seed)
        self._store = store
        self._lists = _Lists()
        self._seconds = 0

    async def run(self, calls: int) -> None:
        ways = [self._threads] * 3 + [self._items] * 6 + [self._pages] * 4 + [self._attachments, self._missing]
        for _ in range(calls):
            self._seconds += 1
            await self._random.choice(ways)(self._random.randrange(2))

    async def _same(self, name: str, user: int, *arguments: Any) -> None:  # noqa: ANN401 (passed on)
        try:
            expected = self._lists.call(name, user, *arguments)
        except (NotFoundError, AlreadyExists) as error:
            with pytest.raises(type(error)):
                await getattr(self._store, name)(*arguments, _USERS[user])
            return
        answer = await getattr(self._store, name)(*arguments, _USERS[user])
        assert _plain(answer) == _plain(expected), (name, user, arguments)

    async def _threads(self, user: int) -> None:
        thread_id = self._thread_id()
        if self._random.random() < 0.15:
            await self._same("delete_thread", user, thread_id)
        elif self._random.random() < 0.5:
            await self._same("save_thread", user, self._thread(thread_id))
        await self._same("load_thread", user, thread_id)

    async def _items(self, user: int) -> None:
        thread_id, item_id = self._thread_id(), self._item_id()
        if self._lists.has_thread(user, thread_id):
            way = self._random.choice(("add_thread_item", "add_thread_item", "save_item"))
            await self._same(way, user, thread_id, self._item(thread_id, item_id))
        if self._random.random() < 0.2:
            await self._same("delete_thread_item", user, thread_id, item_id)
        await self._same("load_item", user, thread_id, item_id)

    async def _pages(self, user: int) -> None:
        limit, order = self._random.choice((1, 2, 3, 50)), self._random.choice(("asc", "desc"))
        if self._random.random() < 0.3:
            await self._same("load_threads", user, limit, self._random.choice((None, self._thread_id())), order)
        else:
            after = self._random.choice((None, self._item_id()))
            await self._same("load_thread_items", user, self._thread_id(), after, limit, order)

    async def _attachments(self, user: int) -> None:
        name = self._random.choice(("x", "y"))
        image = ImageAttachment(
            id=name, name=f"{self._seconds}.png", mime_type="image/png", preview_url=AnyUrl("https://a/b")
        )
        file = FileAttachment(id=name, name=f"{self._seconds}.txt", mime_type="text/plain", metadata={"n": [None]})
        if self._random.random() < 0.6:
            await self._same("save_attachment", user, self._random.choice((image, file)))
        elif self._random.random() < 0.4:
            await self._same("delete_attachment", user, name)
        await self._same("load_attachment", user, name)

    async def _missing(self, user: int) -> None:
        await self._same("load_thread", user, "never")
        await self._same("load_item", user, "never", self._item_id())
        await self._same("load_thread_items", user, "never", None, 5, "asc")
        await self._same("delete_thread", user, "never")
        await self._same("delete_thread_item", user, "never", "never")
        await self._same("load_attachment", user, "never")
        await self._same("delete_attachment", user, "never")

    def _thread_id(self) -> str:
        return self._random.choice(("t", "u", "ö/u"))

    def _item_id(self) -> str:
        return self._random.choice(("a", "b", "c", "d", "e/f"))

    def _thread(self, thread_id: str) -> ThreadMetadata:
        return ThreadMetadata(
            id=thread_id,
            title=self._random.choice((None, f"title {self._seconds}")),
            created_at=self._now(),
            status=self._random.choice(
                (
                    LockedStatus(reason="closed"),
                    ThreadMetadata.model_fields["status"].get_default(call_default_factory=True),
                )
            ),
            metadata={"n": [self._seconds, None]},
        )

    def _item(self, thread_id: str, item_id: str) -> Any:  # noqa: ANN401 (one of many kinds)
        common: dict[str, Any] = {"id": item_id, "thread_id": thread_id, "created_at": self._now()}
        return self._random.choice(
            (
                AssistantMessageItem(**common, content=[AssistantMessageContent(text=f"text {self._seconds}")]),
                ClientToolCallItem(**common, call_id="c", name="f", arguments={"n": [None, 2**70]}, status="pending"),
                HiddenContextItem(**common, content={"any": ["thing", None]}),
            )
        )

    def _now(self) -> datetime:
        return _BEGAN + timedelta(seconds=self._seconds)


def _plain(value: Any) -> object:  # noqa: ANN401 (any answer)
    return value.model_dump() if isinstance(value, BaseModel) else value


@pytest.mark.parametrize("seed", range(4))
async def test_store(url: str, seed: int) -> None:
    """Saves, adds, loads, pages in both orders, deletions, and all of what is missing."""
    await _Calls(seed, LashStore(url)).run(_CALLS)
