"""Agents whose model calls, tools, hand-offs, guardrails and MCP servers are recorded steps of a turn."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

from agents import (
    Agent,
    GuardrailFunctionOutput,
    Handoff,
    InputGuardrail,
    Model,
    OutputGuardrail,
    RunConfig,
    RunContextWrapper,
    Tool,
    handoff,
)
from agents.mcp import MCPServer
from pydantic_core import to_jsonable_python

from lash.adapters.openai_agents.models import RecordedProvider, recorded_model
from lash.adapters.openai_agents.recording import Recording, current_line
from lash.adapters.openai_agents.tools import recorded_tool
from lash.model.value import JSON

G = TypeVar("G", InputGuardrail[Any], OutputGuardrail[Any])
_ORIGINAL: Final = "_lash_original"
"""The attribute of a recorded copy that holds the agent of the application."""


def recorded_agent(agent: Agent[Any], recording: Recording) -> Agent[Any]:
    """Return a copy of an agent that is recorded, with the agents that it hands off to; one copy for each agent."""
    if hasattr(agent, _ORIGINAL):
        return agent
    known = recording.agents.get(id(agent))
    if known is not None:
        return known[1]
    copy: Agent[Any] = agent.clone(
        model=recorded_model(agent.model) if isinstance(agent.model, Model) else agent.model,
        tools=[recorded_tool(tool) for tool in agent.tools],
        handoffs=[],
        input_guardrails=[_guardrail(each) for each in agent.input_guardrails],
        output_guardrails=[_guardrail(each) for each in agent.output_guardrails],
        mcp_servers=[_server(each) for each in agent.mcp_servers],
    )
    setattr(copy, _ORIGINAL, agent)
    recording.agents[id(agent)] = (agent, copy)
    # The SDK calls it for each turn of the agent; the tools of MCP servers exist only then.
    setattr(copy, "get_mcp_tools", _mcp_tools(copy))  # noqa: B010 (mypy refuses to assign a method)
    copy.handoffs = [_handoff(each, recording) for each in agent.handoffs]
    return copy


def original_agent(agent: Agent[Any]) -> Agent[Any]:
    """Return the agent of the application."""
    original: Agent[Any] = getattr(agent, _ORIGINAL, agent)
    return original


def recorded_config(config: RunConfig) -> RunConfig:
    """Return a configuration whose models and guardrails are recorded."""
    provider = config.model_provider
    return dataclasses.replace(
        config,
        model=recorded_model(config.model) if isinstance(config.model, Model) else config.model,
        model_provider=provider if isinstance(provider, RecordedProvider) else RecordedProvider(provider),
        input_guardrails=[_guardrail(each) for each in config.input_guardrails or ()],
        output_guardrails=[_guardrail(each) for each in config.output_guardrails or ()],
    )


def _handoff(given: Agent[Any] | Handoff[Any, Any], recording: Recording) -> Handoff[Any, Any]:
    """Return a hand-off to the recorded copy of an agent. What the application does at a hand-off is a step."""
    made: Handoff[Any, Any] = handoff(recorded_agent(given, recording)) if isinstance(given, Agent) else given
    inner, copied = made.on_invoke_handoff, _target(made, recording)

    async def invoke(context: RunContextWrapper[Any], arguments: str) -> Any:  # noqa: ANN401 (an agent)
        line = current_line()
        if line is None or copied is None:
            # An agent that is made at the hand-off cannot be read from a record.
            return recorded_agent(await inner(context, arguments), recording)

        async def hand_off() -> JSON:
            line.recording.turn.activity({"hand_off": copied.name})
            await inner(context, arguments)
            return copied.name

        key = line.key(f"handoff.{line.call_id(made.tool_name)}")
        await line.record("handoff", key, hand_off, made.tool_name)
        return copied

    recorded = dataclasses.replace(made, on_invoke_handoff=invoke)
    if copied is not None:
        recorded._agent_ref = weakref.ref(copied)  # noqa: SLF001 (the SDK finds the agents of a run by it)
    return recorded


def _target(made: Handoff[Any, Any], recording: Recording) -> Agent[Any] | None:
    """Return the recorded copy of the agent that a hand-off leads to, if the hand-off knows it beforehand."""
    target: object = None if made._agent_ref is None else made._agent_ref()  # noqa: SLF001 (its only trace)
    return recorded_agent(target, recording) if isinstance(target, Agent) else None


def _guardrail(guardrail: G) -> G:
    """Return a guardrail whose verdict is a step."""
    inner = cast("Callable[..., object]", guardrail.guardrail_function)
    if hasattr(inner, _ORIGINAL):
        return guardrail
    name = guardrail.get_name()

    @functools.wraps(inner)
    async def check(*args: Any, **kwargs: Any) -> GuardrailFunctionOutput:  # noqa: ANN401 (those of the guardrail)
        async def verdict() -> JSON:
            output = inner(*args, **kwargs)
            given = await output if inspect.isawaitable(output) else output
            assert isinstance(given, GuardrailFunctionOutput), f"guardrail {name!r} returned {type(given).__name__}"
            return {
                "output_info": to_jsonable_python(given.output_info, fallback=str),
                "tripwire_triggered": given.tripwire_triggered,
            }

        line = current_line()
        plain = await (verdict() if line is None else line.record("guardrail", line.key(f"guardrail.{name}"), verdict))
        kept = cast("dict[str, Any]", plain)
        return GuardrailFunctionOutput(**kept)

    setattr(check, _ORIGINAL, inner)
    return dataclasses.replace(guardrail, guardrail_function=check)


def _mcp_tools(agent: Agent[Any]) -> Callable[[RunContextWrapper[Any]], Awaitable[list[Tool]]]:
    async def get_mcp_tools(context: RunContextWrapper[Any]) -> list[Tool]:
        return [recorded_tool(tool) for tool in await type(agent).get_mcp_tools(agent, context)]

    return get_mcp_tools


def _server(server: MCPServer) -> MCPServer:
    return server if isinstance(server, _Server) else cast("MCPServer", _Server(server))


class _Server:
    """An MCP server whose list of tools is a step: a later attempt has the same tools, and needs no server for it."""

    def __init__(self, inner: MCPServer) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (the rest of the server)
        return getattr(self._inner, name)

    async def list_tools(self, *args: Any, **kwargs: Any) -> list[Any]:  # noqa: ANN401 (those of the server)
        from mcp import Tool as MCPTool

        line = current_line()
        if line is None:
            return await self._inner.list_tools(*args, **kwargs)

        async def list_tools() -> JSON:
            tools = await self._inner.list_tools(*args, **kwargs)
            return [tool.model_dump(mode="json", by_alias=True, exclude_unset=True) for tool in tools]

        plain = await line.record("mcp_tools", line.key(f"mcp.{self._inner.name}"), list_tools)
        return [MCPTool.model_validate(each) for each in cast("list[Any]", plain)]
