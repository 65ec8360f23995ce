"""LangGraph with lash's saver, or with its own, in the environment of the adapter."""

from __future__ import annotations

import contextlib
import time
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
    turns, taken = all_turns([0], question["turns"])[0], list[float]()
    async with _saver(question) as saver:
        compiled = _graph(saver, turns)
        for number in range(question["turns"]):
            config = {"configurable": {"thread_id": "1", "number": number}}
            began = time.perf_counter()
            await compiled.ainvoke({"messages": [_messages(turns[number], number)["user"]]}, config, durability="sync")
            taken.append((time.perf_counter() - began) * 1e3)
        state = await compiled.aget_state({"configurable": {"thread_id": "1", "number": 0}})
    return {"taken_ms": taken, "digests": [digest(map(_text, state.values["messages"]))]}


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
        if step:
            writes = [("messages", new[step - 1]), ("branch:to:next", None)]
            await saver.aput_writes(config, writes, f"task-{step}", "")
        changed = ["branch:to:next"]
        if step < len(new):
            messages, changed = [*messages, new[step]], [*changed, "messages"]
        new_versions = {name: saver.get_next_version(versions.get(name), None) for name in changed}
        versions |= new_versions
        put = {
            **empty_checkpoint(),
            "id": str(uuid6(clock_seq=step)),
            "channel_values": {"messages": messages},
            "channel_versions": dict(versions),
        }
        config = await saver.aput(config, put, {"source": "loop", "step": step, "parents": {}}, new_versions)


def _text(message: AnyMessage) -> str:
    calls = getattr(message, "tool_calls", None)
    return str(calls[0]["args"]["q"] if calls else message.content)


serve(
    ("langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres"),
    {"graph": graph, "alone": alone},
    own={"lash": lash.__version__},
)
