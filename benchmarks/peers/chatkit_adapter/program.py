"""Stores of ChatKit: lash's, and a table of SQLite as an application would write it; ChatKit itself ships none."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from chatkit.types import AssistantMessageContent, AssistantMessageItem, Page, ThreadItem, ThreadMetadata
from pydantic import TypeAdapter

import lash
from benchmarks.peers.protocol import Answer, Question, all_turns, digest, serve
from lash.adapters.chatkit import LashStore

_READS = 10
_LIMIT = 20
_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_USER = SimpleNamespace(user_id="ann")
_items: TypeAdapter[Any] = TypeAdapter(ThreadItem)


class TableStore:
    """The calls of a store that this program needs, blocking and without any check of users."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path)
        self._database.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
            "CREATE TABLE thread (id TEXT PRIMARY KEY, body TEXT NOT NULL);"
            "CREATE TABLE item (thread_id TEXT, place INTEGER PRIMARY KEY, id TEXT, created REAL, body TEXT NOT NULL,"
            " UNIQUE (thread_id, id));"
            "CREATE INDEX item_order ON item (thread_id, created, place);"
        )

    async def save_thread(self, thread: ThreadMetadata, _context: object) -> None:
        with self._database:
            self._database.execute("REPLACE INTO thread VALUES (?, ?)", (thread.id, thread.model_dump_json()))

    async def add_thread_item(self, thread_id: str, item: Any, _context: object) -> None:  # noqa: ANN401 (a ThreadItem)
        row = (thread_id, item.id, item.created_at.timestamp(), _items.dump_json(item).decode())
        with self._database:
            self._database.execute("INSERT INTO item (thread_id, id, created, body) VALUES (?, ?, ?, ?)", row)

    async def load_thread_items(
        self, thread_id: str, _after: str | None, limit: int, order: str, _context: object
    ) -> Page[Any]:
        direction = "DESC" if order == "desc" else "ASC"
        found = self._database.execute(
            f"SELECT body FROM item WHERE thread_id = ? ORDER BY created {direction}, place {direction} LIMIT ?",
            (thread_id, limit + 1),
        ).fetchall()
        data = [_items.validate_json(body) for (body,) in found[:limit]]
        return Page(data=data, has_more=len(found) > limit, after=data[-1].id if len(found) > limit else None)

    def close(self) -> None:
        self._database.close()


@contextlib.asynccontextmanager
async def _store(question: Question) -> Any:  # noqa: ANN401 (one of two classes)
    if question["variant"] == "LashStore":
        async with await lash.open(question["url"]) as storage:
            yield LashStore(storage)
    else:
        store = TableStore(question["url"].removeprefix("sqlite:///"))
        yield store
        store.close()


async def session(question: Question) -> Answer:
    """Add the four items of each turn; read the last items and all of them at the end."""
    add, last, whole, number = list[float](), list[float](), list[float](), 0
    async with _store(question) as store:
        await store.save_thread(ThreadMetadata(id="chat", created_at=_BEGAN), _USER)
        for texts in all_turns([0], question["turns"])[0]:
            for text in texts.values():
                item = _item(text, number)
                add.append(await _timed(lambda item=item: store.add_thread_item("chat", item, _USER)))
                number += 1
        for _ in range(_READS):
            last.append(await _timed(lambda: store.load_thread_items("chat", None, _LIMIT, "desc", _USER)))
            whole.append(await _timed(lambda: store.load_thread_items("chat", None, number, "asc", _USER)))
        page = await store.load_thread_items("chat", None, number, "asc", _USER)
    digests = [digest(item.content[0].text for item in page.data)]
    return {"add_ms": add, "last_ms": last, "whole_ms": whole, "digests": digests}


def _item(text: str, number: int) -> AssistantMessageItem:
    return AssistantMessageItem(
        id=f"item-{number}",
        thread_id="chat",
        created_at=_BEGAN + timedelta(seconds=number),
        content=[AssistantMessageContent(text=text)],
    )


async def _timed(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1e3


serve(("openai-chatkit",), {"session": session}, own={"lash": lash.__version__})
