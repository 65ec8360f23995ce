"""Sessions of Google's Agent Development Kit: lash's service and ADK's own, in the environment of the adapter."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from google.adk.events.event import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

import lash
from benchmarks.peers.protocol import Answer, Question, all_turns, digest, serve
from lash.adapters.adk import LashSessionService

_NAMES = {"app_name": "bench", "user_id": "user"}
_READS = 10
_LIMIT = 20


async def session(question: Question) -> Answer:
    """Append the four events of each turn; read the last events and all of them at the end."""
    url, variant = question["url"], question["variant"]
    if variant == "LashSessionService":
        async with await lash.open(url) as storage:
            return await _converse(LashSessionService(storage), question["turns"])
    if variant == "SqliteSessionService":
        return await _converse(SqliteSessionService(url.removeprefix("sqlite:///")), question["turns"])
    url = url.replace("sqlite:///", "sqlite+aiosqlite:///").replace("postgresql:", "postgresql+asyncpg:")
    service = DatabaseSessionService(url)
    answer = await _converse(service, question["turns"])
    await service.close()
    return answer


async def _converse(service: Any, turns: int) -> Answer:  # noqa: ANN401 (one of three classes)
    chat = await service.create_session(**_NAMES, session_id="chat")
    add, last, whole = list[float](), list[float](), list[float]()
    for number, texts in enumerate(all_turns([0], turns)[0]):
        for event in _events(texts, number):
            add.append(await _timed(lambda event=event: service.append_event(chat, event)))
    recent = GetSessionConfig(num_recent_events=_LIMIT)
    for _ in range(_READS):
        last.append(await _timed(lambda: service.get_session(**_NAMES, session_id="chat", config=recent)))
        whole.append(await _timed(lambda: service.get_session(**_NAMES, session_id="chat")))
    stored = await service.get_session(**_NAMES, session_id="chat")
    return {"add_ms": add, "last_ms": last, "whole_ms": whole, "digests": [digest(map(_text, stored.events))]}


async def _timed(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1e3


def _events(texts: dict[str, str], number: int) -> list[Event]:
    call = {"id": f"call-{number}", "name": "search"}
    parts = {
        "user": types.Part(text=texts["user"]),
        "call": types.Part(function_call=types.FunctionCall(args={"q": texts["call"]}, **call)),
        "result": types.Part(function_response=types.FunctionResponse(response={"r": texts["result"]}, **call)),
        "reply": types.Part(text=texts["reply"]),
    }
    return [
        Event(
            author="user" if name == "user" else "agent",
            invocation_id=f"turn-{number}",
            content=types.Content(role="user" if name in ("user", "result") else "model", parts=[part]),
        )
        for name, part in parts.items()
    ]


def _text(event: Event) -> str:
    part = event.content.parts[0]
    if part.function_call is not None:
        return str(part.function_call.args["q"])
    if part.function_response is not None:
        return str(part.function_response.response["r"])
    return str(part.text)


serve(("google-adk", "sqlalchemy"), {"session": session}, own={"lash": lash.__version__})
