"""An agent whose model calls a tool once and then repeats the tool's result; no network is used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.tool_context import ToolContext
from google.genai import types


class CountingModel(BaseLlm):
    """A stand-in for a model."""

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: FBT001, FBT002 (ADK's signature)
    ) -> AsyncGenerator[LlmResponse, None]:
        """Call the tool after a text, and answer after the tool's result."""
        last = (llm_request.contents[-1].parts or [])[-1]
        if last.function_response is not None:
            part = types.Part(text=f"count is {(last.function_response.response or {})['count']}")
        else:
            part = types.Part(function_call=types.FunctionCall(name="count", args={}))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def counting_agent(marks: Path | None = None) -> LlmAgent:
    """Return the agent; with a directory, its tool leaves the file ``in-tool`` there and never returns."""

    async def count(tool_context: ToolContext) -> dict[str, int]:
        """Count."""
        if marks is not None:
            (marks / "in-tool").touch()
            await asyncio.sleep(600)
        value = tool_context.state.get("count", 0) + 1
        tool_context.state["count"] = value
        tool_context.state["temp:seen"] = value
        for scope in ("user:total", "app:total"):
            tool_context.state[scope] = tool_context.state.get(scope, 0) + 1
        await tool_context.save_artifact("log", types.Part(text=str(value)))
        return {"count": value}

    return LlmAgent(name="counter", model=CountingModel(model="counting"), tools=[count], output_key="answer")
