"""Threads, items and attachments of ChatKit in a lash storage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from chatkit.store import NotFoundError, Store
from chatkit.types import Attachment, Page, ThreadItem, ThreadMetadata
from pydantic import TypeAdapter

from lash.adapters.attached import Attached, LeftOpen, StorageSource
from lash.adapters.chatkit.errors import AlreadyExists
from lash.adapters.chatkit.names import (
    ATTACHMENTS,
    ITEM_IDS,
    ITEMS,
    THREAD_IDS,
    THREADS,
    below,
    part,
    place,
    session_id,
    user_of,
)
from lash.adapters.settled import settled
from lash.base.limits import MAX_PAGE
from lash.errors import RecordConflict, SessionDeleted, SessionNotFound
from lash.model.record import Record, RecordDelete, RecordPut
from lash.model.session.commit import Commit
from lash.model.session.session import Retention
from lash.stores.storage import Storage

T = TypeVar("T")
_GONE: Final = (SessionNotFound, SessionDeleted)
_item: Final[TypeAdapter[ThreadItem]] = TypeAdapter(ThreadItem)
_attachment: Final[TypeAdapter[Attachment]] = TypeAdapter(Attachment)


class LashStore(LeftOpen, Store[Any]):
    """The store of a ChatKit server: ``MyServer(store=LashStore("sqlite:///chat.db"))``.

    It takes a storage URL or an open storage. Everything belongs to the user of the request's context, and no other
    user sees it. An item whose id the thread has is refused; a thread that was deleted takes no late items.
    """

    def __init__(self, source: StorageSource = "sqlite://", *, user: Callable[[Any], str] = user_of) -> None:
        self._attached = Attached(source)
        self._user = user

    # Threads.

    async def load_thread(self, thread_id: str, context: Any) -> ThreadMetadata:  # noqa: ANN401 (the application's)
        user = self._user(context)
        record = await self._attached.run(lambda storage: _thread(storage, user, thread_id))
        if record is None:
            raise NotFoundError(f"Thread {thread_id} not found")
        return ThreadMetadata.model_validate_json(_json(record))

    async def save_thread(self, thread: ThreadMetadata, context: Any) -> None:  # noqa: ANN401 (the application's)
        user = self._user(context)
        await settled(self._attached.run(lambda storage: _save_thread(storage, user, thread)))

    async def load_threads(self, limit: int, after: str | None, order: str, context: Any) -> Page[ThreadMetadata]:  # noqa: ANN401
        user = self._user(context)

        async def load(storage: Storage) -> list[Record]:
            start = None if after is None else await _thread(storage, user, after)
            if after is not None and start is None:
                raise NotFoundError(f"Thread {after} not found")
            return await _page(storage, THREADS, limit + 1, order, start, prefix=below(user))

        threads = [ThreadMetadata.model_validate_json(_json(each)) for each in await self._attached.run(load)]
        return _as_page(threads, limit)

    async def delete_thread(self, thread_id: str, context: Any) -> None:  # noqa: ANN401 (the application's)
        user = self._user(context)
        await settled(self._attached.run(lambda storage: _delete_thread(storage, user, thread_id)))

    # Items.

    async def load_thread_items(
        self,
        thread_id: str,
        after: str | None,
        limit: int,
        order: str,
        context: Any,  # noqa: ANN401
    ) -> Page[ThreadItem]:
        session = session_id(self._user(context), thread_id)

        async def load(storage: Storage) -> list[Record]:
            start = None if after is None else await _found(storage, session, after)
            if after is not None and start is None:
                raise NotFoundError(f"Item {after} not found")
            try:
                return await _page(storage, ITEMS, limit + 1, order, start, session=session)
            except _GONE:
                return []

        items: list[Any] = [_item.validate_json(_json(each)) for each in await self._attached.run(load)]
        return _as_page(items, limit)

    async def add_thread_item(self, thread_id: str, item: ThreadItem, context: Any) -> None:  # noqa: ANN401
        session = session_id(self._user(context), thread_id)
        try:
            await settled(self._attached.run(lambda storage: _add(storage, session, item)))
        except RecordConflict as conflict:
            raise AlreadyExists(thread_id, item.id) from conflict
        except _GONE as gone:
            raise NotFoundError(f"Thread {thread_id} not found") from gone

    async def save_item(self, thread_id: str, item: ThreadItem, context: Any) -> None:  # noqa: ANN401
        session = session_id(self._user(context), thread_id)
        try:
            await settled(self._attached.run(lambda storage: _save_item(storage, session, item)))
        except _GONE as gone:
            raise NotFoundError(f"Thread {thread_id} not found") from gone

    async def load_item(self, thread_id: str, item_id: str, context: Any) -> ThreadItem:  # noqa: ANN401
        session = session_id(self._user(context), thread_id)
        record = await self._attached.run(lambda storage: _found(storage, session, item_id))
        if record is None:
            raise NotFoundError(f"Item {item_id} not found in thread {thread_id}")
        return _item.validate_json(_json(record))

    async def delete_thread_item(self, thread_id: str, item_id: str, context: Any) -> None:  # noqa: ANN401
        session = session_id(self._user(context), thread_id)

        async def delete(storage: Storage) -> None:
            record = await _found(storage, session, item_id)
            if record is not None:
                await storage.records.delete_many(
                    [
                        RecordDelete(collection=ITEM_IDS, key=part(item_id), session_id=session),
                        RecordDelete(collection=ITEMS, key=record.key, session_id=session),
                    ]
                )

        await settled(self._attached.run(delete))

    # Attachments.

    async def save_attachment(self, attachment: Attachment, context: Any) -> None:  # noqa: ANN401
        key = below(self._user(context), attachment.id)
        value = msgspec.json.decode(_attachment.dump_json(attachment))
        await settled(self._attached.run(lambda storage: _put(storage, key, value)))

    async def load_attachment(self, attachment_id: str, context: Any) -> Attachment:  # noqa: ANN401
        key = below(self._user(context), attachment_id)
        record = await self._attached.run(lambda storage: _attachment_record(storage, key))
        if record is None:
            raise NotFoundError(f"File {attachment_id} not found")
        return _attachment.validate_json(_json(record))

    async def delete_attachment(self, attachment_id: str, context: Any) -> None:  # noqa: ANN401
        key = below(self._user(context), attachment_id)
        await settled(self._attached.run(lambda storage: _delete_attachment(storage, key)))


async def _thread(storage: Storage, user: str, thread_id: str) -> Record | None:
    known = await storage.records.get(THREAD_IDS, below(user, thread_id))
    return None if known is None else await storage.records.get(THREADS, str(known.value))


async def _save_thread(storage: Storage, user: str, thread: ThreadMetadata) -> None:
    """Create a thread with its session in one write, or replace its metadata where it is in the order."""
    value, name = msgspec.json.decode(thread.model_dump_json()), below(user, thread.id)
    while True:
        known = await storage.records.get(THREAD_IDS, name)
        if known is not None:
            await storage.records.put(THREADS, str(known.value), value)
            return
        try:
            await _create(storage, user, thread, name, value)
        except RecordConflict:
            # Another request has created the thread meanwhile.
            continue
        return


async def _create(storage: Storage, user: str, thread: ThreadMetadata, name: str, value: Any) -> None:  # noqa: ANN401
    """Create a thread and its session in one write; raise RecordConflict if the thread exists."""
    session, key = session_id(user, thread.id), f"{below(user)}{place(thread.created_at)}"
    puts = (
        RecordPut(collection=THREAD_IDS, key=name, value=key, expected_version=0),
        RecordPut(collection=THREADS, key=key, value=value),
    )
    made = await storage.sessions.create(
        session,
        owner=user,
        labels={"framework": "chatkit"},
        retention=Retention.latest(),
        commit=Commit(session_id=session, expected_revision=0, records=puts),
    )
    if not made.created:
        # Two deletions at the same time as a creation have left the session.
        await storage.records.put_many(puts)


async def _delete_thread(storage: Storage, user: str, thread_id: str) -> None:
    # The items first: a deletion that is interrupted leaves a thread that can be deleted again.
    await storage.sessions.delete(session_id(user, thread_id))
    known = await storage.records.get(THREAD_IDS, below(user, thread_id))
    if known is not None:
        await storage.records.delete_many(
            [
                RecordDelete(collection=THREAD_IDS, key=known.key),
                RecordDelete(collection=THREADS, key=str(known.value)),
            ]
        )


async def _add(storage: Storage, session: str, item: ThreadItem) -> None:
    key = place(item.created_at)
    value = msgspec.json.decode(_item.dump_json(item))
    await storage.records.put_many(
        [
            RecordPut(collection=ITEM_IDS, key=part(item.id), value=key, session_id=session, expected_version=0),
            RecordPut(collection=ITEMS, key=key, value=value, session_id=session),
        ]
    )


async def _save_item(storage: Storage, session: str, item: ThreadItem) -> None:
    value = msgspec.json.decode(_item.dump_json(item))
    while True:
        known = await storage.records.get(ITEM_IDS, part(item.id), session_id=session)
        try:
            if known is None:
                await _add(storage, session, item)
            else:
                await storage.records.put(ITEMS, str(known.value), value, session_id=session)
        except RecordConflict:
            # Another request has added the item meanwhile.
            continue
        return


async def _found(storage: Storage, session: str, item_id: str) -> Record | None:
    try:
        known = await storage.records.get(ITEM_IDS, part(item_id), session_id=session)
        return None if known is None else await storage.records.get(ITEMS, str(known.value), session_id=session)
    except _GONE:
        return None


async def _page(
    storage: Storage,
    collection: str,
    wanted: int,
    order: str,
    start: Record | None,
    *,
    prefix: str = "",
    session: str | None = None,
) -> list[Record]:
    found: list[Record] = []
    after = None if start is None else start.key
    while len(found) < wanted:
        size = min(wanted - len(found), MAX_PAGE)
        page = await storage.records.list(
            collection, session_id=session, prefix=prefix, after=after, limit=size, reverse=order == "desc"
        )
        found += page
        if len(page) < size:
            break
        after = page[-1].key
    return found


async def _put(storage: Storage, key: str, value: Any) -> None:  # noqa: ANN401 (any JSON)
    await storage.records.put(ATTACHMENTS, key, value)


def _attachment_record(storage: Storage, key: str) -> Awaitable[Record | None]:
    return storage.records.get(ATTACHMENTS, key)


def _delete_attachment(storage: Storage, key: str) -> Awaitable[bool]:
    return storage.records.delete(ATTACHMENTS, key)


def _as_page(found: list[Any], limit: int) -> Page[Any]:
    data = found[:limit]
    has_more = len(found) > limit
    return Page(data=data, has_more=has_more, after=data[-1].id if has_more and data else None)


def _json(record: Record) -> bytes:
    return msgspec.json.encode(record.value)
