"""LangGraph with lash's saver, or with its own, in the environment of the adapter."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

import lash
from benchmarks.peers.protocol import Answer, Question, all_turns, digest, serve
from lash.adapters.langgraph import LashSaver

_BASE: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


class State(TypedDict):
    """A conversation."""

    messages: Annotated[list[AnyMessage], add_messages]


@contextlib.asynccontextmanager
async def _saver(question: Question) -> Any:  # noqa: ANN401 (one of three classes)
    url, variant = question["url"], question["variant"]
    if variant.startswith("LashSaver"):
        async with await lash.open(url) as storage:
            yield LashSaver(storage, frozen_items="frozen" in variant)
    elif url.startswith("postgresql"):
        async with AsyncPostgresSaver.from_conn_string(url) as saver:
            await saver.setup()
            yield saver
    else:
        async with AsyncSqliteSaver.from_conn_string(url.removeprefix("sqlite:///")) as saver:
            await saver.setup()
            yield saver


def _messages(turn: dict[str, str], number: int) -> dict[str, AnyMessage]:
    call = {"name": "search", "args": {"q": turn["call"]}, "id": f"call-{number}"}
    return {
        "user": HumanMessage(content=turn["user"], id=f"{number}-user"),
        "model": AIMessage(content="", tool_calls=[call], id=f"{number}-model"),
        "tool": ToolMessage(content=turn["result"], tool_call_id=f"call-{number}", id=f"{number}-tool"),
        "reply": AIMessage(content=turn["reply"], id=f"{number}-reply"),
    }


def _graph(saver: Any, turns: list[dict[str, str]]) -> Any:  # noqa: ANN401 (LangGraph's own)
    """Return a graph of three nodes: ask a tool, run it, reply."""
    builder = StateGraph(State)
    names = ("model", "tool", "reply")
    for name in names:

        async def node(_state: State, config: Any, name: str = name) -> State:  # noqa: ANN401 (a RunnableConfig)
            number = config["configurable"]["number"]
            return {"messages": [_messages(turns[number], number)[name]]}

        # LangGraph reads the input type of a node from its annotations, which are strings here.
        node.__annotations__ = {}
        builder.add_node(name, node)
    for before, after in zip((START, *names), (*names, END), strict=True):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)


async def graph(question: Question) -> Answer:
    """Invoke the graph once for each turn, every step stored before the next begins."""
    turns, taken, saving = all_turns([0], question["turns"])[0], list[float](), list[float]()
    async with _saver(question) as saver:
        spent = _watched(saver)
        compiled = _graph(saver, turns)
        for number in range(question["turns"]):
            config = {"configurable": {"thread_id": "1", "number": number}}
            spent[0], began = 0.0, time.perf_counter()
            await compiled.ainvoke({"messages": [_messages(turns[number], number)["user"]]}, config, durability="sync")
            taken.append((time.perf_counter() - began) * 1e3)
            saving.append(spent[0] * 1e3)
        state = await compiled.aget_state({"configurable": {"thread_id": "1", "number": 0}})
    digests = [digest(map(_text, state.values["messages"]))]
    return {"taken_ms": taken, "saving_ms": saving, "digests": digests}


def _watched(saver: Any) -> list[float]:  # noqa: ANN401 (one of three classes)
    """Make the calls of a saver add their time to the one number that is returned."""
    spent = [0.0]

    def timed(call: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def watched(*arguments: object, **named: object) -> object:
            began = time.perf_counter()
            try:
                return await call(*arguments, **named)
            finally:
                spent[0] += time.perf_counter() - began

        return watched

    for name in ("aget_tuple", "aput", "aput_writes"):
        setattr(saver, name, timed(getattr(saver, name)))
    return spent


async def alone(question: Question) -> Answer:
    """Call the saver as the graph does, one call after the other, without the work of LangGraph in between."""
    turns, taken = all_turns([0], question["turns"])[0], list[float]()
    async with _saver(question) as saver:
        for number, turn in enumerate(turns):
            messages = list(_messages(turn, number).values())
            began = time.perf_counter()
            await _calls_of_a_turn(saver, messages)
            taken.append((time.perf_counter() - began) * 1e3)
        stored = (await saver.aget_tuple(_BASE)).checkpoint["channel_values"]["messages"]
    return {"taken_ms": taken, "digests": [digest(map(_text, stored))]}


async def _calls_of_a_turn(saver: Any, new: list[AnyMessage]) -> None:  # noqa: ANN401 (one of three classes)
    latest = await saver.aget_tuple(_BASE)
    checkpoint: Any = empty_checkpoint() if latest is None else latest.checkpoint
    config = _BASE if latest is None else latest.config
    messages, versions = checkpoint["channel_values"].get("messages", []), dict(checkpoint["channel_versions"])
    # The saver hands out objects that nothing else refers to.
    del latest, checkpoint
    for step in range(len(new) + 1):
        # The input, then a checkpoint after each node: while a node follows, the channel that starts it has a value.
        values: dict[str, Any] = {"__start__": {"messages": new[0]}} if step == 0 else {}
        if 0 < step < len(new):
            values["branch:to:next"] = None
        changed = ["__start__", "branch:to:next"]
        if step:
            writes = [("messages", new[step - 1]), ("branch:to:next", None)]
            await saver.aput_writes(config, writes, f"task-{step}", "")
            messages, changed = [*messages, new[step - 1]], ["messages", "branch:to:next"]
        new_versions = {name: saver.get_next_version(versions.get(name), None) for name in changed}
        versions |= new_versions
        put = {
            **empty_checkpoint(),
            "id": str(uuid6(clock_seq=step)),
            "channel_values": {"messages": messages, **values},
            "channel_versions": dict(versions),
        }
        about = {"source": "loop" if step else "input", "step": step, "parents": {}}
        config = await saver.aput(config, put, about, new_versions)


def _text(message: AnyMessage) -> str:
    calls = getattr(message, "tool_calls", None)
    return str(calls[0]["args"]["q"] if calls else message.content)


serve(
    ("langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres"),
    {"graph": graph, "alone": alone},
    own={"lash": lash.__version__},
)
