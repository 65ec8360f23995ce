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
    owner_of,
    part,
    place,
    session_id,
    user_of,
)
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
        return ThreadMetadata.model_validate_json(json_of(record))

    async def save_thread(self, thread: ThreadMetadata, context: Any) -> None:  # noqa: ANN401 (the application's)
        user = self._user(context)
        await self._attached.settle(lambda storage: _save_thread(storage, user, thread))

    async def load_threads(self, limit: int, after: str | None, order: str, context: Any) -> Page[ThreadMetadata]:  # noqa: ANN401
        user = self._user(context)

        async def load(storage: Storage) -> list[Record]:
            start = await _thread(storage, user, after) if after else None
            if after and start is None:
                raise NotFoundError(f"Thread {after} not found")
            return await _page(storage, THREADS, limit + 1, order, start, prefix=below(user))

        threads = [ThreadMetadata.model_validate_json(json_of(each)) for each in await self._attached.run(load)]
        return _as_page(threads, limit)

    async def delete_thread(self, thread_id: str, context: Any) -> None:  # noqa: ANN401 (the application's)
        user = self._user(context)
        await self._attached.settle(lambda storage: _delete_thread(storage, user, thread_id))

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
            start = await _found(storage, session, after) if after else None
            if after and start is None:
                raise NotFoundError(f"Item {after} not found")
            try:
                return await _page(storage, ITEMS, limit + 1, order, start, session=session)
            except _GONE:
                return []

        items: list[Any] = [_item.validate_json(json_of(each)) for each in await self._attached.run(load)]
        return _as_page(items, limit)

    async def add_thread_item(self, thread_id: str, item: ThreadItem, context: Any) -> None:  # noqa: ANN401
        user = self._user(context)
        try:
            await self._attached.settle(lambda storage: _add(storage, user, thread_id, item))
        except RecordConflict as conflict:
            raise AlreadyExists(thread_id, item.id) from conflict
        except SessionDeleted as gone:
            raise NotFoundError(f"Thread {thread_id} not found") from gone

    async def save_item(self, thread_id: str, item: ThreadItem, context: Any) -> None:  # noqa: ANN401
        user = self._user(context)
        try:
            await self._attached.settle(lambda storage: _save_item(storage, user, thread_id, item))
        except SessionDeleted as gone:
            raise NotFoundError(f"Thread {thread_id} not found") from gone

    async def load_item(self, thread_id: str, item_id: str, context: Any) -> ThreadItem:  # noqa: ANN401
        session = session_id(self._user(context), thread_id)
        record = await self._attached.run(lambda storage: _found(storage, session, item_id))
        if record is None:
            raise NotFoundError(f"Item {item_id} not found in thread {thread_id}")
        return _item.validate_json(json_of(record))

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

        await self._attached.settle(delete)

    # Attachments.

    async def save_attachment(self, attachment: Attachment, context: Any) -> None:  # noqa: ANN401
        key = below(self._user(context), attachment.id)
        value = _attachment.dump_json(attachment).decode()
        await self._attached.settle(lambda storage: _put(storage, key, value))

    async def load_attachment(self, attachment_id: str, context: Any) -> Attachment:  # noqa: ANN401
        key = below(self._user(context), attachment_id)
        record = await self._attached.run(lambda storage: _attachment_record(storage, key))
        if record is None:
            raise NotFoundError(f"File {attachment_id} not found")
        return _attachment.validate_json(json_of(record))

    async def delete_attachment(self, attachment_id: str, context: Any) -> None:  # noqa: ANN401
        key = below(self._user(context), attachment_id)
        await self._attached.settle(lambda storage: _delete_attachment(storage, key))


async def _thread(storage: Storage, user: str, thread_id: str) -> Record | None:
    known = await storage.records.get(THREAD_IDS, below(user, thread_id))
    return None if known is None else await storage.records.get(THREADS, str(known.value))


async def _save_thread(storage: Storage, user: str, thread: ThreadMetadata) -> None:
    """Create a thread with its session in one write, or replace its metadata where it is in the order."""
    value, name = thread.model_dump_json(), below(user, thread.id)
    while True:
        known = await storage.records.get(THREAD_IDS, name)
        try:
            if known is None:
                await _create(storage, user, thread, name, value)
            else:
                put = RecordPut(collection=THREADS, key=str(known.value), value=value)
                await storage.records.put_many([_same(known), put])
        except RecordConflict:
            # Another request has created or deleted the thread meanwhile.
            continue
        return


async def _create(storage: Storage, user: str, thread: ThreadMetadata, name: str, value: str) -> None:
    """Create a thread and its session in one write; raise RecordConflict if the thread exists."""
    key = f"{below(user)}{place(thread.created_at)}"
    puts = (
        RecordPut(collection=THREAD_IDS, key=name, value=key, expected_version=0),
        RecordPut(collection=THREADS, key=key, value=value),
    )
    if not await _create_session(storage, user, thread.id, puts):
        # Its items came before it, or two deletions at the same time as a creation have left the session.
        await storage.records.put_many(puts)


async def _create_session(storage: Storage, user: str, thread_id: str, puts: tuple[RecordPut, ...] = ()) -> bool:
    """Create the session of a thread with records in one write; return False if it exists."""
    session = session_id(user, thread_id)
    created = await storage.sessions.create(
        session,
        owner=owner_of(user),
        labels={"framework": "chatkit"},
        retention=Retention.latest(),
        commit=Commit(session_id=session, expected_revision=0, records=puts) if puts else None,
    )
    return created.created


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


async def _add(storage: Storage, user: str, thread_id: str, item: ThreadItem) -> None:
    """Add an item; raise RecordConflict if its id exists, and SessionDeleted if the thread was deleted."""
    session, key = session_id(user, thread_id), place(item.created_at)
    puts = [
        RecordPut(collection=ITEM_IDS, key=part(item.id), value=key, session_id=session, expected_version=0),
        RecordPut(collection=ITEMS, key=key, value=_item.dump_json(item).decode(), session_id=session),
    ]
    while True:
        try:
            await storage.records.put_many(puts)
        except SessionNotFound:
            # The item comes before its thread.
            await _create_session(storage, user, thread_id)
            continue
        return


async def _save_item(storage: Storage, user: str, thread_id: str, item: ThreadItem) -> None:
    session, value = session_id(user, thread_id), _item.dump_json(item).decode()
    while True:
        known = await _item_id(storage, session, item.id)
        try:
            if known is None:
                await _add(storage, user, thread_id, item)
            else:
                put = RecordPut(collection=ITEMS, key=str(known.value), value=value, session_id=session)
                await storage.records.put_many([_same(known), put])
        except RecordConflict:
            # Another request has added or deleted the item meanwhile.
            continue
        return


def _same(known: Record) -> RecordPut:
    """Return a write that changes nothing, and fails if the record was deleted or changed."""
    return RecordPut(
        collection=known.collection,
        key=known.key,
        value=known.value,
        session_id=known.session_id,
        expected_version=known.version,
    )


async def _item_id(storage: Storage, session: str, item_id: str) -> Record | None:
    try:
        return await storage.records.get(ITEM_IDS, part(item_id), session_id=session)
    except _GONE:
        return None


async def _found(storage: Storage, session: str, item_id: str) -> Record | None:
    known = await _item_id(storage, session, item_id)
    try:
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
            collection, session_id=session, prefix=prefix, after=after, limit=size, reverse=order.lower() == "desc"
        )
        found += page
        if len(page) < size:
            break
        after = page[-1].key
    return found


async def _put(storage: Storage, key: str, value: str) -> None:
    await storage.records.put(ATTACHMENTS, key, value)


def _attachment_record(storage: Storage, key: str) -> Awaitable[Record | None]:
    return storage.records.get(ATTACHMENTS, key)


def _delete_attachment(storage: Storage, key: str) -> Awaitable[bool]:
    return storage.records.delete(ATTACHMENTS, key)


def _as_page(found: list[Any], limit: int) -> Page[Any]:
    data = found[:limit]
    has_more = len(found) > limit
    return Page(data=data, has_more=has_more, after=data[-1].id if has_more and data else None)


def json_of(record: Record) -> bytes:
    """Return the JSON of a record: text, which has integers of any size, or a value in records of earlier releases."""
    return record.value.encode() if isinstance(record.value, str) else msgspec.json.encode(record.value)
