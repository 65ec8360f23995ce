"""Sessions of OpenAI's Agents SDK: lash's and the SDK's own, in the environment of the adapter."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import SQLAlchemySession
from sqlalchemy.ext.asyncio import create_async_engine

import lash
from benchmarks.peers.protocol import Answer, Question, all_turns, digest, serve
from lash.adapters.openai_agents import LashSession

_READS = 10
_OPENINGS = 10
_LIMIT = 20


@contextlib.asynccontextmanager
async def _session(question: Question) -> Any:  # noqa: ANN401 (one of three classes)
    url, variant = question["url"], question["variant"]
    if variant == "LashSession":
        async with await lash.open(url) as storage:
            yield LashSession("chat", storage)
    elif variant == "LashSession by URL":
        yield LashSession("chat", url)
        await lash.shared(url).close()
    elif variant == "SQLiteSession":
        session = SQLiteSession("chat", Path(url.removeprefix("sqlite:///")))
        yield session
        session.close()
    else:
        url = url.replace("sqlite:///", "sqlite+aiosqlite:///").replace("postgresql:", "postgresql+asyncpg:")
        engine = create_async_engine(url)
        yield SQLAlchemySession("chat", engine=engine, create_tables=True)
        await engine.dispose()


def _batches(texts: dict[str, str], number: int) -> list[list[dict[str, Any]]]:
    """Return the items of a turn as the SDK's runner adds them: the input, the call with its result, the reply."""
    call = f"call-{number}"
    return [
        [{"role": "user", "content": texts["user"]}],
        [
            {"type": "function_call", "call_id": call, "name": "search", "arguments": json.dumps({"q": texts["call"]})},
            {"type": "function_call_output", "call_id": call, "output": texts["result"]},
        ],
        [{"role": "assistant", "content": texts["reply"]}],
    ]


async def session(question: Question) -> Answer:
    """Add the items of each turn in three batches; read the last items, all of them, and all after each opening."""
    turns = all_turns([0], question["turns"])[0]
    async with _session(question) as chat:
        # Tables are made by the first use.
        await chat.get_items(limit=1)
        add, last, whole = list[float](), list[float](), list[float]()
        for number, turn in enumerate(turns):
            for batch in _batches(turn, number):
                add.append(await _timed(lambda batch=batch: chat.add_items(batch)))
        for _ in range(_READS):
            last.append(await _timed(lambda: chat.get_items(limit=_LIMIT)))
            whole.append(await _timed(chat.get_items))
        digests = [digest(map(_text, await chat.get_items()))]
    first = list[float]()
    for _ in range(_OPENINGS):
        async with _session(question) as chat:
            await chat.get_items(limit=1)
            first.append(await _timed(chat.get_items))
    return {"add_ms": add, "last_ms": last, "whole_ms": whole, "first_ms": first, "digests": digests}


async def _timed(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1e3


def _text(item: dict[str, Any]) -> str:
    return str(item.get("content") or item.get("output") or json.loads(item["arguments"])["q"])


serve(("openai-agents", "sqlalchemy"), {"session": session}, own={"lash": lash.__version__})
