"""Turns of an agent of LangGraph: a model and its tools in a graph, with every step saved before the next begins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from benchmarks.peers.protocol import Question
from benchmarks.peers.turn_script import (
    INSTRUCTIONS,
    Begin,
    Conversation,
    ScriptedTurn,
    agent_turns,
    result_of,
    turn_of,
)


@tool
async def search(query: str) -> str:
    """Search for an answer."""
    return result_of(query)


class Scripted(BaseChatModel):
    """A chat model that replies with the next text of the script."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:  # noqa: ANN401, ARG002 (LangChain's own)
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:  # noqa: ANN401, ARG002
        results = 0
        for message in reversed(messages):
            if isinstance(message, HumanMessage):
                break
            results += isinstance(message, ToolMessage)
        turn = turn_of(str(message.content))
        reply = AIMessage(content=turn.reply) if results == len(turn.calls) else _called(turn, results)
        return ChatResult(generations=[ChatGeneration(message=reply)])

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:  # noqa: ANN401
        return self._generate(messages, *args, **kwargs)


def _called(turn: ScriptedTurn, place: int) -> AIMessage:
    call = turn.calls[place]
    return AIMessage(content="", tool_calls=[{"name": search.name, "args": {"query": call.query}, "id": call.call_id}])


def _graph(saver: Any) -> Any:  # noqa: ANN401 (LangGraph's own)
    model = Scripted().bind_tools([search])

    async def assistant(state: MessagesState) -> MessagesState:
        return {"messages": [await model.ainvoke([SystemMessage(content=INSTRUCTIONS), *state["messages"]])]}

    # LangGraph reads the input type of a node from its annotations, which are strings here.
    assistant.__annotations__ = {}
    graph = StateGraph(MessagesState)
    graph.add_node("assistant", assistant)
    graph.add_node("tools", ToolNode([search]))
    graph.add_edge(START, "assistant")
    graph.add_conditional_edges("assistant", tools_condition)
    graph.add_edge("tools", "assistant")
    return graph.compile(checkpointer=saver)


def _earlier(turns: Sequence[ScriptedTurn]) -> list[AnyMessage]:
    """Return the messages of turns as the graph stores them."""
    messages: list[AnyMessage] = []
    for turn in turns:
        messages.append(HumanMessage(content=turn.user))
        for place, call in enumerate(turn.calls):
            messages.append(_called(turn, place))
            messages.append(ToolMessage(content=call.result, name=search.name, tool_call_id=call.call_id))
        messages.append(AIMessage(content=turn.reply))
    return messages


def _text(message: AnyMessage) -> str:
    calls = getattr(message, "tool_calls", None)
    return str(calls[0]["args"]["query"] if calls else message.content)


def agent_task(opened_saver: Callable[[str], AbstractAsyncContextManager[Any]]) -> Callable[[Question], Any]:
    """Return the task with a checkpointer of LangGraph's own."""

    @asynccontextmanager
    async def opened(question: Question) -> AsyncIterator[Begin]:
        async with opened_saver(question["url"]) as saver:
            graph = _graph(saver)

            async def begin(number: int, turns: Sequence[ScriptedTurn]) -> Conversation:
                config = {"configurable": {"thread_id": f"session-{number}"}}
                if turns:
                    await graph.aupdate_state(config, {"messages": _earlier(turns)}, as_node="assistant")

                async def say(user: str) -> str:
                    said = {"messages": [HumanMessage(content=user)]}
                    state = await graph.ainvoke(said, config, durability="sync")
                    return str(state["messages"][-1].content)

                async def texts() -> list[str]:
                    return [_text(message) for message in (await graph.aget_state(config)).values["messages"]]

                return Conversation(say, texts)

            yield begin

    return agent_turns(opened)
