"""Sessions of Google's Agent Development Kit: four events for each turn, as its runner appends them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from google.adk.events.event import Event
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from benchmarks.peers.protocol import Answer, Question, Watch, all_turns, count_whole, digest, serve

_APP, _USER = "bench", "user"


def _service(question: Question) -> Any:  # noqa: ANN401 (either of two classes)
    url = question["url"]
    if question["variant"] == "SqliteSessionService":
        return SqliteSessionService(url.removeprefix("sqlite:///"))
    return DatabaseSessionService(
        url.replace("sqlite:///", "sqlite+aiosqlite:///").replace("postgresql:", "postgresql+asyncpg:")
    )


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


async def chat(question: Question) -> Answer:
    """Append four events for each turn, the sessions at once."""
    numbers = question["sessions"]
    texts = all_turns(numbers, question["turns"])
    service, watch = _service(question), Watch()
    sessions = {
        number: await service.create_session(app_name=_APP, user_id=_USER, session_id=f"session-{number}")
        for number in numbers
    }

    async def converse(session: Any, turns: list[dict[str, str]]) -> None:  # noqa: ANN401 (ADK's session)
        for number, turn in enumerate(turns):
            began = time.monotonic()
            for event in _events(turn, number):
                await service.append_event(session, event)
            watch.note(number, began)

    watch.start(question)
    await asyncio.gather(*(converse(sessions[number], texts[number]) for number in numbers))
    watch.stop()
    digests = [await _digest(service, number) for number in numbers]
    await _close(service)
    return watch.answer(digests=digests)


async def _digest(service: Any, number: int) -> str:  # noqa: ANN401 (either of two classes)
    session = await service.get_session(app_name=_APP, user_id=_USER, session_id=f"session-{number}")
    return digest(_text(event) for event in session.events)


async def _close(service: Any) -> None:  # noqa: ANN401 (either of two classes)
    if hasattr(service, "close"):
        await service.close()


async def reopen(question: Question) -> Answer:
    """Open the session again and read its last twenty events, then all."""
    from google.adk.sessions.base_session_service import GetSessionConfig

    began = time.monotonic()
    service = _service(question)
    recent = GetSessionConfig(num_recent_events=20)
    session = await service.get_session(app_name=_APP, user_id=_USER, session_id="session-0", config=recent)
    assert len(session.events) == 20
    last = time.monotonic()
    found = await _digest(service, 0)
    answer = {"last_ms": (last - began) * 1e3, "all_ms": (time.monotonic() - last) * 1e3, "digests": [found]}
    await _close(service)
    return answer


async def contend(question: Question) -> Answer:
    """Run several turns of one session at once, as ADK's runner does: load, append the input, append the answer."""
    service, whole = _service(question), 0

    async def turn(name: str, text: str) -> None:
        session = await service.get_session(app_name=_APP, user_id=_USER, session_id=name)
        await service.append_event(session, _said("user", text))
        await asyncio.sleep(0.01)
        await service.append_event(session, _said("model", f"answer to {text}"))

    for number in range(question["rounds"]):
        name = f"session-{number}"
        await service.create_session(app_name=_APP, user_id=_USER, session_id=name)
        texts = [f"message {caller}" for caller in range(question["callers"])]
        await asyncio.gather(*(turn(name, text) for text in texts), return_exceptions=True)
        session = await service.get_session(app_name=_APP, user_id=_USER, session_id=name)
        whole += count_whole([_text(event) for event in session.events], texts)
    await _close(service)
    return {"whole": whole}


def _said(role: str, text: str) -> Event:
    return Event(author=role, content=types.Content(role=role, parts=[types.Part(text=text)]))


serve(("google-adk", "sqlalchemy"), {"chat": chat, "reopen": reopen, "contend": contend})
