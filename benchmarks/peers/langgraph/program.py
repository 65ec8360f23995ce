"""LangGraph with its checkpointers: a graph of three nodes for each turn, every step saved before the next begins."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from benchmarks.peers.langgraph.agent import agent_task
from benchmarks.peers.protocol import Answer, Question, Watch, all_turns, count_whole, digest, serve


class State(TypedDict):
    """A conversation, and the texts of the present turn."""

    messages: Annotated[list[AnyMessage], add_messages]


def _graph(saver: Any, texts: dict[str, list[dict[str, str]]]) -> Any:  # noqa: ANN401 (LangGraph's own)
    """Return a graph whose nodes answer from prepared texts: ask a tool, run it, reply."""

    def turn(config: dict[str, Any]) -> tuple[int, dict[str, str]]:
        number = config["configurable"]["number"]
        return number, texts[config["configurable"]["thread_id"]][number]

    def model(_state: State, config: dict[str, Any]) -> State:
        number, each = turn(config)
        call = {"name": "search", "args": {"q": each["call"]}, "id": f"call-{number}"}
        return {"messages": [AIMessage(content="", tool_calls=[call])]}

    def tool(_state: State, config: dict[str, Any]) -> State:
        number, each = turn(config)
        return {"messages": [ToolMessage(content=each["result"], tool_call_id=f"call-{number}")]}

    def reply(_state: State, config: dict[str, Any]) -> State:
        return {"messages": [AIMessage(content=turn(config)[1]["reply"])]}

    # LangGraph reads the input type of a node from its annotations, which are strings here.
    for node in (model, tool, reply):
        node.__annotations__ = {}
    graph = StateGraph(State)
    for name, node in (("model", model), ("tool", tool), ("reply", reply)):
        graph.add_node(name, node)
    graph.add_edge(START, "model")
    graph.add_edge("model", "tool")
    graph.add_edge("tool", "reply")
    graph.add_edge("reply", END)
    return graph.compile(checkpointer=saver)


@contextlib.asynccontextmanager
async def _saver(url: str) -> Any:  # noqa: ANN401 (either of two classes)
    if url.startswith("postgresql"):
        async with AsyncPostgresSaver.from_conn_string(url) as saver:
            await saver.setup()
            yield saver
    else:
        async with AsyncSqliteSaver.from_conn_string(url.removeprefix("sqlite:///")) as saver:
            await saver.setup()
            yield saver


async def chat(question: Question) -> Answer:
    """Invoke the graph once for each turn, the sessions at once."""
    numbers, watch = question["sessions"], Watch()
    texts = {f"session-{number}": turns for number, turns in all_turns(numbers, question["turns"]).items()}

    async with _saver(question["url"]) as saver:
        graph = _graph(saver, texts)

        async def converse(thread: str) -> None:
            for number, turn in enumerate(texts[thread]):
                began = time.monotonic()
                config = {"configurable": {"thread_id": thread, "number": number}}
                await graph.ainvoke({"messages": [HumanMessage(content=turn["user"])]}, config, durability="sync")
                watch.note(number, began)

        watch.start(question)
        await asyncio.gather(*(converse(thread) for thread in texts))
        watch.stop()
        return watch.answer(digests=[await _digest(graph, thread) for thread in texts])


async def _digest(graph: Any, thread: str) -> str:  # noqa: ANN401 (LangGraph's own)
    snapshot = await graph.aget_state({"configurable": {"thread_id": thread, "number": 0}})
    return digest(_text(message) for message in snapshot.values["messages"])


def _text(message: AnyMessage) -> str:
    calls = getattr(message, "tool_calls", None)
    return str(calls[0]["args"]["q"] if calls else message.content)


async def reopen(question: Question) -> Answer:
    """Open the checkpointer again and read the state, which is always the whole of it."""
    began = time.monotonic()
    async with _saver(question["url"]) as saver:
        graph = _graph(saver, {})
        found = await _digest(graph, "session-0")
        taken = (time.monotonic() - began) * 1e3
    return {"last_ms": taken, "all_ms": taken, "digests": [found]}


async def delete(question: Question) -> Answer:
    """Delete threads."""
    async with _saver(question["url"]) as saver:
        begin = time.monotonic()
        for session in question["sessions"]:
            await saver.adelete_thread(f"session-{session}")
        return {"begin": begin, "end": time.monotonic()}


async def contend(question: Question) -> Answer:
    """Invoke one thread several times at once, and count the turns that are there, whole and in order."""
    whole = 0
    async with _saver(question["url"]) as saver:
        graph = StateGraph(State)

        async def answer(state: State) -> State:
            await asyncio.sleep(0.01)
            return {"messages": [AIMessage(content=f"answer to {state['messages'][-1].content}")]}

        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        graph.add_edge("answer", END)
        app = graph.compile(checkpointer=saver)
        for number in range(question["rounds"]):
            config = {"configurable": {"thread_id": f"session-{number}"}}
            texts = [f"message {caller}" for caller in range(question["callers"])]
            calls = (app.ainvoke({"messages": [HumanMessage(content=text)]}, config) for text in texts)
            await asyncio.gather(*calls, return_exceptions=True)
            said = [str(each.content) for each in (await app.aget_state(config)).values["messages"]]
            whole += count_whole(said, texts)
    return {"whole": whole}


serve(
    ("langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres"),
    {
        "chat": chat,
        "reopen": reopen,
        "delete": delete,
        "contend": contend,
        "agent_turns": agent_task(_saver),
    },
)
