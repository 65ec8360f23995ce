"""Sessions of the OpenAI Agents SDK: one ``add_items`` for each turn."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession, SQLAlchemySession
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from benchmarks.peers.openai_agents.agent import agent_task
from benchmarks.peers.protocol import Answer, Question, Watch, all_turns, count_whole, digest, serve

Session = Any


def _items(texts: dict[str, str], number: int) -> list[dict[str, Any]]:
    call = f"call-{number}"
    return [
        {"role": "user", "content": texts["user"]},
        {"type": "function_call", "call_id": call, "name": "search", "arguments": json.dumps({"q": texts["call"]})},
        {"type": "function_call_output", "call_id": call, "output": texts["result"]},
        {"role": "assistant", "content": texts["reply"]},
    ]


def _texts(items: list[dict[str, Any]]) -> list[str]:
    return [item.get("content") or item.get("output") or json.loads(item["arguments"])["q"] for item in items]


class Sessions:
    """Makes the sessions of one variant on one database."""

    def __init__(self, question: Question) -> None:
        self._variant = question["variant"]
        self._url = question["url"]
        self._engine: AsyncEngine | None = None
        if self._variant == "SQLAlchemySession":
            url = self._url.replace("sqlite:///", "sqlite+aiosqlite:///").replace("postgresql:", "postgresql+asyncpg:")
            self._engine = create_async_engine(url)

    def open(self, number: int) -> Session:
        name, path = f"session-{number}", Path(self._url.removeprefix("sqlite:///"))
        if self._variant == "SQLiteSession":
            return SQLiteSession(name, path)
        if self._variant == "AdvancedSQLiteSession":
            return AdvancedSQLiteSession(session_id=name, db_path=path, create_tables=True)
        return SQLAlchemySession(name, engine=self._engine, create_tables=True)

    async def close(self, sessions: list[Session]) -> None:
        for session in sessions:
            if hasattr(session, "close"):
                session.close()
        if self._engine is not None:
            await self._engine.dispose()


async def chat(question: Question) -> Answer:
    """Add four items for each turn, the sessions at once."""
    numbers, turns = question["sessions"], question["turns"]
    texts = all_turns(numbers, turns)
    made = Sessions(question)
    sessions = [made.open(number) for number in numbers]
    for session in sessions:
        # Tables are made by the first use.
        await session.get_items(limit=1)
    watch = Watch()

    async def converse(session: Session, each: list[dict[str, str]]) -> None:
        for number, turn in enumerate(each):
            began = time.monotonic()
            await session.add_items(_items(turn, number))
            watch.note(number, began)

    watch.start(question)
    await asyncio.gather(*(converse(session, texts[number]) for session, number in zip(sessions, numbers, strict=True)))
    watch.stop()
    digests = [digest(_texts(await session.get_items())) for session in sessions]
    await made.close(sessions)
    return watch.answer(digests=digests)


async def reopen(question: Question) -> Answer:
    """Open the session again and read its last twenty items, then all."""
    began = time.monotonic()
    made = Sessions(question)
    session = made.open(0)
    assert len(await session.get_items(limit=20)) == 20
    last = time.monotonic()
    found = digest(_texts(await session.get_items()))
    answer = {"last_ms": (last - began) * 1e3, "all_ms": (time.monotonic() - last) * 1e3, "digests": [found]}
    await made.close([session])
    return answer


async def delete(question: Question) -> Answer:
    """Clear sessions."""
    made = Sessions(question)
    sessions = [made.open(number) for number in question["sessions"]]
    begin = time.monotonic()
    for session in sessions:
        await session.clear_session()
    answer = {"begin": begin, "end": time.monotonic()}
    await made.close(sessions)
    return answer


async def contend(question: Question) -> Answer:
    """Run several turns of one session at once, as the SDK's runner does: read, save the input, save the answer."""
    made, whole = Sessions(question), 0

    async def turn(session: Session, text: str) -> None:
        await session.get_items()
        await session.add_items([{"role": "user", "content": text}])
        await asyncio.sleep(0.01)
        await session.add_items([{"role": "assistant", "content": f"answer to {text}"}])

    for number in range(question["rounds"]):
        session = made.open(number)
        texts = [f"message {caller}" for caller in range(question["callers"])]
        await asyncio.gather(*(turn(session, text) for text in texts), return_exceptions=True)
        whole += count_whole([item["content"] for item in await session.get_items()], texts)
        await made.close([session])
    return {"whole": whole}


serve(
    ("openai-agents", "sqlalchemy"),
    {
        "chat": chat,
        "reopen": reopen,
        "delete": delete,
        "contend": contend,
        "agent_turns": agent_task(Sessions),
    },
)
