"""The store of the harness behaves as the harness's own stores do."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_harness.step_persistence import (
    ContinuableSnapshot,
    RunRecord,
    SqliteStepStore,
    StepEvent,
    StepPersistence,
    StepStore,
    ToolEffectRecord,
    continue_run,
)

import lash
from lash.adapters.pydantic_ai_harness import LashStepStore

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def _history(length: int) -> list[ModelMessage]:
    return [
        ModelRequest(
            parts=[UserPromptPart([f"text {n}", BinaryContent(b"\0\1", media_type="image/png")], timestamp=NOW)]
        )
        if n % 2 == 0
        else ModelResponse(parts=[TextPart(f"text {n}")], timestamp=NOW)
        for n in range(length)
    ]


def _snapshot(number: int, **fields: Any) -> ContinuableSnapshot:  # noqa: ANN401 (those of a snapshot)
    given = {"timestamp": NOW, "conversation_id": "c", "agent_name": "a", **fields}
    return ContinuableSnapshot(run_id="r", step_index=number, messages=_history(number), **given)


async def _fill(store: StepStore) -> list[Any]:
    """Use every method of a store, and return what it answers."""
    seen: list[Any] = []
    for n in (2, 0, 1):
        parent = "p" if n else None
        await store.register_run(
            RunRecord(
                run_id=f"r{n}",
                conversation_id=f"c{n % 2}",
                parent_run_id=parent,
                started_at=NOW + timedelta(seconds=n),
                metadata={"k": "v"},
            )
        )
    seen += [await store.get_run(run_id="r1"), await store.get_run(run_id="none"), await store.list_runs()]
    seen += [await store.list_runs(parent_run_id="p"), await store.list_runs(conversation_id="c0")]
    seen.append(await store.list_runs(parent_run_id="p", conversation_id="c0"))
    for n in range(12):
        event = StepEvent(
            run_id="r", kind="tool_call_started", step_index=n, timestamp=NOW, error="e", metadata={"a": "b"}
        )
        await store.append_event(replace(event, idempotency_key=f"k{n // 2}"))
        await store.append_event(replace(event, run_id="r2"))
    seen += [await store.list_events(run_id=run) for run in ("r", "r2", "none")]
    for n in range(1, 6):
        state = "interrupted" if n == 5 else "complete"
        await store.save_snapshot(_snapshot(n, state=state, idempotency_key=f"{n}:x"))
        await store.save_snapshot(_snapshot(n, state=state, idempotency_key=f"{n}:x"))
    await store.save_snapshot(replace(_snapshot(3), run_id="r/2"))
    seen += [
        await store.latest_snapshot(run_id=run, include_interrupted=also)
        for run in ("r", "r/2", "none")
        for also in (False, True)
    ]
    for n in range(4):
        effect = ToolEffectRecord(
            run_id="r", tool_call_id=f"t{n}", tool_name="f", status="started", started_at=NOW + timedelta(seconds=n)
        )
        await store.record_tool_effect(effect)
        if n % 2:
            await store.record_tool_effect(replace(effect, status="completed", ended_at=NOW, effect_summary="s"))
    seen += [await store.get_tool_effect(run_id="r", tool_call_id=call) for call in ("t0", "t1", "none")]
    seen += [await store.list_unresolved_tool_effects(run_id=run) for run in ("r", "r2")]
    return seen


async def test_it_answers_as_the_store_of_the_harness(url: str, tmp_path: Path) -> None:
    """Runs, events, snapshots and effects equal what the harness's SQLite store returns."""
    store = LashStepStore(url)
    assert isinstance(store, StepStore)
    assert await _fill(store) == await _fill(SqliteStepStore(database=tmp_path / "theirs.db"))
    kept = await LashStepStore(url).list_snapshots(run_id="r", include_interrupted=True)
    assert [each.step_index for each in kept] == [1, 2, 3, 4, 5]
    assert [each.step_index for each in await store.list_snapshots(run_id="r")] == [1, 2, 3, 4]


@pytest.mark.parametrize("most", [1, 2])
async def test_older_snapshots_are_removed(url: str, tmp_path: Path, most: int) -> None:
    """The newest ones stay, and the newest complete one; a removed one does not come back by a repeated save."""
    theirs_too = SqliteStepStore(database=tmp_path / "theirs.db", max_snapshots_per_run=most)
    stores = [LashStepStore(url, max_snapshots_per_run=most), theirs_too]
    for store in stores:
        for n, state in enumerate(["complete", "complete", "interrupted", "interrupted", "interrupted"], start=1):
            await store.save_snapshot(_snapshot(n, state=state, idempotency_key=f"{n}:x"))
        await store.save_snapshot(_snapshot(1, idempotency_key="1:x"))
    ours, theirs = [await store.list_snapshots(run_id="r", include_interrupted=True) for store in stores]
    assert ours == theirs
    messages = await lash.shared(url).records.list("harness.message")
    assert len(messages) == 5, "each message once, and none that no snapshot has"


async def test_a_run_id_is_taken_once(url: str) -> None:
    """A repeated registration is the same one; another run with the id is refused."""
    store = LashStepStore(url)
    run = RunRecord(run_id="r", started_at=NOW, registration_id="one")
    await store.register_run(run)
    await store.register_run(run)
    with pytest.raises(ValueError, match="'r' is taken"):
        await store.register_run(replace(run, registration_id="two"))


async def test_concurrent_events_are_all_kept(url: str) -> None:
    """Writers of one run, in any number, lose no event, and an event with a key is stored once."""
    stores = [LashStepStore(url) for _ in range(3)]
    events = [StepEvent(run_id="r", kind="run_started", step_index=n, idempotency_key=f"k{n}") for n in range(8)]
    await asyncio.gather(*(store.append_event(event) for store in stores for event in events))
    assert sorted(event.step_index for event in await stores[0].list_events(run_id="r")) == list(range(8))


async def test_an_agent_is_resumed_from_it(url: str, tmp_path: Path) -> None:
    """A run that failed continues from its snapshot, with the same history as from the harness's SQLite store."""

    async def run(store: Any) -> tuple[list[str], str]:  # noqa: ANN401 (any store)
        fails = True

        async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
            if len(messages) == 1:
                return ModelResponse(parts=[ToolCallPart("add", {"a": 1, "b": 2}, "c1")])
            if fails:
                raise RuntimeError("the model is away")
            return ModelResponse(parts=[TextPart(f"after {len(messages)} messages")])

        agent = Agent(FunctionModel(answer), name="a", capabilities=[StepPersistence(store=store, run_id="first")])

        @agent.tool_plain
        async def add(a: int, b: int) -> int:
            return a + b

        with pytest.raises(RuntimeError, match="away"):
            await agent.run("hi")
        fails = False
        plain = Agent(FunctionModel(answer), name="a", capabilities=[StepPersistence(store=store, run_id="second")])
        plain.tool_plain(add)
        history = await continue_run(store, run_id="first")
        result = await plain.run(message_history=history)
        return [event.kind for event in await store.list_events(run_id="first")], result.output

    assert await run(LashStepStore(url)) == await run(SqliteStepStore(database=tmp_path / "theirs.db"))


async def test_a_storage_of_the_program(url: str) -> None:
    """It shares its data with an object on the URL, and stays open."""
    async with await lash.open(url) as storage:
        await LashStepStore(storage).save_snapshot(_snapshot(1))
        await LashStepStore(url).save_snapshot(_snapshot(2))
        assert [each.step_index for each in await LashStepStore(storage).list_snapshots(run_id="r")] == [1, 2]
