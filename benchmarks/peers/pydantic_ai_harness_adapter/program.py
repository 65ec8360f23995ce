"""Step stores of pydantic-ai's harness: lash's and the harness's own, in the environment of the adapter."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai_harness.step_persistence import ContinuableSnapshot, RunRecord, SqliteStepStore, StepEvent

import lash
from benchmarks.peers.protocol import Answer, Question, all_turns, digest, serve
from lash.adapters.pydantic_ai_harness import LashStepStore

_READS = 10


@contextlib.asynccontextmanager
async def _store(question: Question) -> Any:  # noqa: ANN401 (one of two classes)
    if question["variant"] == "LashStepStore":
        async with await lash.open(question["url"]) as storage:
            yield LashStepStore(storage)
    else:
        yield SqliteStepStore(database=question["url"].removeprefix("sqlite:///"))


async def steps(question: Question) -> Answer:
    """Store four events and a snapshot for each turn of a run, whose history grows; read the end of it."""
    taken, latest, events, history = list[float](), list[float](), list[float](), list[ModelMessage]()
    async with _store(question) as store:
        await store.register_run(RunRecord(run_id="run", conversation_id="chat", started_at=datetime.now(UTC)))
        for number, texts in enumerate(all_turns([0], question["turns"])[0]):
            history.extend(_messages(texts, number))
            taken.append(await _timed(lambda number=number: _store_turn(store, number, history)))
        for _ in range(_READS):
            latest.append(await _timed(lambda: store.latest_snapshot(run_id="run")))
            events.append(await _timed(lambda: store.list_events(run_id="run")))
        snapshot = await store.latest_snapshot(run_id="run")
    digests = [digest(map(_text, snapshot.messages))]
    return {"taken_ms": taken, "latest_ms": latest, "events_ms": events, "digests": digests}


async def _store_turn(store: Any, number: int, history: list[ModelMessage]) -> None:  # noqa: ANN401 (one of two classes)
    now = datetime.now(UTC)
    for kind in ("model_request_started", "tool_call_started", "tool_call_completed", "model_request_completed"):
        await store.append_event(StepEvent(run_id="run", kind=kind, step_index=number, timestamp=now))
    snapshot = ContinuableSnapshot(
        run_id="run", step_index=number, timestamp=now, conversation_id="chat", agent_name="agent", messages=history
    )
    await store.save_snapshot(snapshot)


async def _timed(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1e3


def _messages(texts: dict[str, str], number: int) -> list[ModelMessage]:
    call = f"call-{number}"
    return [
        ModelRequest(parts=[UserPromptPart(texts["user"])]),
        ModelResponse(parts=[ToolCallPart("search", {"q": texts["call"]}, tool_call_id=call)]),
        ModelRequest(parts=[ToolReturnPart("search", texts["result"], tool_call_id=call)]),
        ModelResponse(parts=[TextPart(texts["reply"])]),
    ]


def _text(message: ModelMessage) -> str:
    part: Any = message.parts[0]
    return str(part.args["q"] if isinstance(part, ToolCallPart) else part.content)


serve(("pydantic-ai-harness",), {"steps": steps}, own={"lash": lash.__version__})
