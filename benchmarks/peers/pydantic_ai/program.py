"""Turns of an agent of pydantic-ai that DBOS makes durable: one workflow for each turn, one step for each call.

pydantic-ai does not store conversations. The caller passes the history to each run, and DBOS stores it with the
arguments of the workflow.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from benchmarks.peers.protocol import Question, serve
from benchmarks.peers.turn_script import (
    INSTRUCTIONS,
    Begin,
    Conversation,
    ScriptedTurn,
    agent_turns,
    result_of,
    turn_of,
)

_TOOL = "search"


async def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Reply with the next text of the script."""
    results = 0
    for message in reversed(messages):
        for part in reversed(message.parts):
            if isinstance(part, UserPromptPart):
                turn = turn_of(str(part.content))
                done = results == len(turn.calls)
                return ModelResponse(parts=[TextPart(turn.reply) if done else _called(turn, results)])
            results += isinstance(part, ToolReturnPart)
    raise AssertionError("the user has said nothing")


def _called(turn: ScriptedTurn, place: int) -> ToolCallPart:
    call = turn.calls[place]
    return ToolCallPart(tool_name=_TOOL, args={"query": call.query}, tool_call_id=call.call_id)


agent = Agent(FunctionModel(answer), name="assistant", instructions=INSTRUCTIONS, capabilities=[DBOSDurability()])


@agent.tool_plain
@DBOS.step()
async def search(query: str) -> str:
    """Search for an answer."""
    return result_of(query)


@DBOS.workflow()
async def converse(user: str, history: list[ModelMessage]) -> list[ModelMessage]:
    """Run one turn, and return what it added to the conversation."""
    return (await agent.run(user, message_history=history)).new_messages()


def _earlier(turns: Sequence[ScriptedTurn]) -> list[ModelMessage]:
    """Return the messages of turns as a run returns them."""
    messages: list[ModelMessage] = []
    for turn in turns:
        messages.append(ModelRequest(parts=[UserPromptPart(turn.user)], instructions=INSTRUCTIONS))
        for place, call in enumerate(turn.calls):
            messages.append(ModelResponse(parts=[_called(turn, place)]))
            result = ToolReturnPart(tool_name=_TOOL, content=call.result, tool_call_id=call.call_id)
            messages.append(ModelRequest(parts=[result], instructions=INSTRUCTIONS))
        messages.append(ModelResponse(parts=[TextPart(turn.reply)]))
    return messages


def _texts(messages: Sequence[ModelMessage]) -> list[str]:
    parts = (part for message in messages for part in message.parts)
    return [str(part.args_as_dict()["query"] if isinstance(part, ToolCallPart) else part.content) for part in parts]


@asynccontextmanager
async def opened(question: Question) -> AsyncIterator[Begin]:
    """Launch DBOS on a database."""
    url = question["url"].replace("postgresql://", "postgresql+psycopg://")
    DBOS(config={"name": "bench-agent", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()

    async def begin(number: int, turns: Sequence[ScriptedTurn]) -> Conversation:
        history, names = _earlier(turns), list[str]()

        async def say(user: str) -> str:
            names.append(f"session-{number}-{len(names)}")
            with SetWorkflowID(names[-1]):
                history.extend(await converse(user, list(history)))
            return str(history[-1].parts[0].content)

        async def texts() -> list[str]:
            first = await DBOS.get_workflow_status_async(names[0])
            results = [await (await DBOS.retrieve_workflow_async(name)).get_result() for name in names]
            stored = [*first.input["args"][1], *(message for result in results for message in result)]
            return _texts(stored)

        return Conversation(say, texts)

    yield begin
    DBOS.destroy()


serve(("pydantic-ai-slim", "dbos"), {"agent_turns": agent_turns(opened)})
