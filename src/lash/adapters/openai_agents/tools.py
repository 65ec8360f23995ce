"""Tools whose calls are recorded steps of a turn."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from agents import ApplyPatchTool, ComputerTool, CustomTool, FunctionTool, LocalShellTool, ShellTool, Tool
from agents.tool import (
    ShellCommandRequest,
    ShellResult,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    _FailureHandlingFunctionToolInvoker,
    invoke_function_tool,
)
from agents.tool_context import ToolContext
from pydantic import TypeAdapter

from lash.adapters.openai_agents.recording import Line, current_line, recorded_by
from lash.errors import ConfigError
from lash.model.value import JSON

Invoke = Callable[[ToolContext[Any], str], Awaitable[Any]]
_OUTPUTS: Final = (ToolOutputText, ToolOutputImage, ToolOutputFileContent)
_PLAIN: Final = (type(None), bool, int, float, str)
_shell_result: Final[TypeAdapter[str | ShellResult]] = TypeAdapter(str | ShellResult)


def recorded_tool(tool: Tool) -> Tool:
    """Return a tool whose calls are steps. Tools of the provider run inside the model call and stay as they are."""
    if isinstance(tool, FunctionTool):
        return tool if isinstance(tool.on_invoke_tool, _Invoker) else _function_tool(tool)
    if isinstance(tool, CustomTool):
        return _custom_tool(tool)
    if isinstance(tool, ShellTool):
        return tool if tool.executor is None else _shell_tool(tool)
    if isinstance(tool, LocalShellTool):
        return _local_shell_tool(tool)
    if isinstance(tool, ComputerTool | ApplyPatchTool):
        raise ConfigError(
            f"tool {tool.name!r} changes this machine by calls that cannot be recorded one by one; use a function tool"
        )
    return tool


class _Invoker(_FailureHandlingFunctionToolInvoker):
    """Calls a tool as a step. Of the SDK's own class, so that approval policies still see checked arguments."""

    def __init__(self, tool: FunctionTool, invoke: Invoke) -> None:
        inner = tool.on_invoke_tool
        if isinstance(inner, _FailureHandlingFunctionToolInvoker):
            inner = inner._invoke_tool_impl  # noqa: SLF001 (it knows how the SDK checks arguments)
        super().__init__(inner, _ignore, function_tool=tool)
        self._invoke = invoke

    def __agents_bind_function_tool__(self, function_tool: FunctionTool) -> _Invoker:
        """Stay bound to the original tool, which the step calls."""
        return self

    async def __call__(self, ctx: ToolContext[Any], input: str) -> Any:  # noqa: A002, ANN401 (names and types of the SDK)
        return await self._invoke(ctx, input)


def _function_tool(tool: FunctionTool) -> FunctionTool:
    async def invoke(context: ToolContext[Any], arguments: str) -> Any:  # noqa: ANN401 (the result of any tool)
        line = current_line()
        if line is None:
            return await invoke_function_tool(function_tool=tool, context=context, arguments=arguments)
        if tool._is_agent_tool:  # noqa: SLF001 (the only sign of an agent as a tool)
            # Its own model calls and tools are steps.
            with recorded_by(line.below(context.tool_call_id)):
                return await invoke_function_tool(function_tool=tool, context=context, arguments=arguments)

        async def call() -> JSON:
            result = await invoke_function_tool(function_tool=tool, context=context, arguments=arguments)
            return _as_json(result, tool._output_type_adapter)  # noqa: SLF001 (the declared type of its result)

        return await _record(line, tool.name, context.tool_call_id, arguments, call)

    recorded = copy.copy(tool)
    recorded.on_invoke_tool = _Invoker(tool, invoke)
    # The time limit is inside the step, so that a call that took too long is recorded too.
    recorded.timeout_seconds = None
    return recorded


def _custom_tool(tool: CustomTool) -> CustomTool:
    inner = tool.on_invoke_tool

    async def invoke(context: ToolContext[Any], text: str) -> Any:  # noqa: ANN401 (the result of any tool)
        async def call() -> JSON:
            return _as_json(await _awaited(inner(context, text)))

        line = current_line()
        return await (call() if line is None else _record(line, tool.name, context.tool_call_id, text, call))

    return dataclasses.replace(tool, on_invoke_tool=invoke)


def _shell_tool(tool: ShellTool) -> ShellTool:
    inner = tool.executor
    assert inner is not None, "a shell tool of this machine has an executor"

    async def execute(request: ShellCommandRequest) -> str | ShellResult:
        async def call() -> JSON:
            result = inner(request)
            plain: JSON = _shell_result.dump_python(
                await result if inspect.isawaitable(result) else result, mode="json"
            )
            return plain

        line = current_line()
        plain = await (call() if line is None else _record(line, tool.name, request.data.call_id, "", call))
        return _shell_result.validate_python(plain)

    return dataclasses.replace(tool, executor=execute)


def _local_shell_tool(tool: LocalShellTool) -> LocalShellTool:
    inner = tool.executor

    async def execute(request: Any) -> str:  # noqa: ANN401 (what the SDK passes to an executor)
        async def call() -> JSON:
            return str(await _awaited(inner(request)))

        line = current_line()
        return str(await (call() if line is None else _record(line, tool.name, request.data.call_id, "", call)))

    return dataclasses.replace(tool, executor=execute)


async def _record(line: Line, name: str, call_id: str, arguments: str, call: Callable[[], Awaitable[JSON]]) -> JSON:
    turn = line.recording.turn

    async def shown() -> JSON:
        turn.activity({"tool_call": {"id": call_id, "name": name, "arguments": arguments}})
        result = await call()
        turn.activity({"tool_result": {"id": call_id, "name": name, "failed": False}})
        return result

    return await line.record(name, line.key(f"tool.{call_id}"), shown, arguments, once=name in line.recording.once)


def _as_json(value: object, declared: TypeAdapter[Any] | None = None) -> JSON:
    """Return the result of a tool as JSON. Any other object becomes the text that the SDK sends to the model."""
    plain: JSON
    if declared is not None:
        plain = declared.dump_python(value, mode="json")
        return plain
    if isinstance(value, _OUTPUTS):
        plain = value.model_dump(mode="json", exclude_none=True)
        return plain
    if isinstance(value, list | tuple) and any(isinstance(each, _OUTPUTS) for each in value):
        return [_as_json(each) for each in value]
    return cast("JSON", value) if _is_plain(value) else str(value)


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    return type(value) in _PLAIN and value == value  # noqa: PLR0124 (JSON has no NaN)


async def _awaited(value: object) -> object:
    return await value if inspect.isawaitable(value) else value


def _ignore(*_args: object) -> None:
    """The original tool reports its errors."""
