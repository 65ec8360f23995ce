"""Tools of an application as operations of modules."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from lash.agents.approvals import approval_question, read_decision, wait_name
from lash.agents.tools import Tool, as_tool
from lash.agents.vocabulary import ToolCall
from lash.errors import (
    ClaimLost,
    ConfigError,
    EffectMismatch,
    InvalidInput,
    LeaseLost,
    OutcomeUnknown,
    SessionDeleted,
    WaitRejected,
)
from lash.lang.host.catalogue import HostCatalogue, Signature
from lash.lang.machine.effects import Operation
from lash.lang.process.schemas import type_of_schema
from lash.lang.syntax.types import ANY, Type
from lash.lang.values.convert import from_json
from lash.lang.values.fault import Fault
from lash.lang.values.value import Value, make_record
from lash.model.value import JSON
from lash.runtime.errors import STORAGE_TROUBLE, Permanent, error_code, error_text
from lash.runtime.steps.values import UNTYPED, json_schema, result_type, to_json
from lash.runtime.steps.waits import Waits

_NOT_THE_TOOLS: Final = (
    ClaimLost,
    ConfigError,
    EffectMismatch,
    LeaseLost,
    OutcomeUnknown,
    SessionDeleted,
    *STORAGE_TROUBLE,
)
"""Errors about the run or the database; they end the attempt and are not results."""


class HostModules:
    """The modules that programs see: dotted paths, each with its tools."""

    def __init__(self, modules: Mapping[str, Iterable[Tool | Callable[..., object]]]) -> None:
        self._tools: dict[tuple[str, str], Tool] = {}
        catalogue = HostCatalogue()
        for path, tools in modules.items():
            catalogue = catalogue.with_module(path)
            for tool in map(as_tool, tools):
                if tool.takes_turn:
                    raise ConfigError(f"tool {tool.name!r} takes a turn, which a program does not have")
                name = tool.name.replace("-", "_")
                catalogue = catalogue.with_operation(path, name, f"{path}.{tool.name}", signature_of(tool))
                self._tools[path, name] = tool
        self.catalogue = catalogue

    def tool(self, alias: str, operation: str) -> Tool | None:
        """Return the tool that an operation of a module is, or None."""
        return self._tools.get((alias, operation))


def signature_of(tool: Tool) -> Signature:
    """Return the types of a tool: a record of its arguments, and what its function declares to return."""
    return Signature(type_of_schema(tool.spec.parameters, takes_floats=True), _output_type(tool))


def _output_type(tool: Tool) -> Type:
    declared = result_type(tool.function)
    try:
        return ANY if declared is UNTYPED else type_of_schema(json_schema(declared))
    except (TypeError, NotImplementedError):
        return ANY


async def call(waits: Waits, tool: Tool, operation: Operation, key: str) -> Value:
    """Call a tool once under a key, and return its result: ``{ok, value}`` or ``{ok, error}``.

    A tool that needs an approval waits for it without memory and worker.
    """
    denied = await _denial(waits, tool, operation, key) if tool.needs_approval else None
    if denied is not None:
        return failed(denied)
    attempt = 0

    async def run(**payload: JSON) -> JSON:
        nonlocal attempt
        attempt += 1
        return await _result(tool, payload, is_last=attempt == tool.retry.max_attempts)

    options = waits.options(key=key, once=tool.once, retry=tool.retry)
    answer = await options.step(tool.name, run, **operation.payload)
    try:
        return from_json(answer)
    except Fault as fault:
        return failed(f"the result of {tool.name} is too large for a program: {fault.message}")


async def _denial(waits: Waits, tool: Tool, operation: Operation, key: str) -> str | None:
    """Return why a call was denied, or None if it was approved."""
    arguments = msgspec.json.encode(operation.payload).decode()
    question = approval_question(ToolCall(id=key, name=tool.name, arguments=arguments))
    try:
        name, timeout_s = wait_name(tool.name, key), tool.approval_timeout_s
        decision = read_decision(await waits.wait(name, timeout_s=timeout_s, ask=question))
    except WaitRejected as rejected:
        return f"The call was denied. {rejected.message}".rstrip()
    except TimeoutError:
        return f"The call was denied. No decision came within {tool.approval_timeout_s:g} s."
    return None if decision.approved else f"The call was denied. {decision.text}".rstrip()


async def _result(tool: Tool, payload: JSON, *, is_last: bool) -> JSON:
    """Call the function of a tool; its error is raised if another attempt follows, and part of the result if not."""
    try:
        given = tool.read(msgspec.json.encode(payload).decode())
        async with asyncio.timeout(tool.timeout_s):
            value = await _call(tool.function, given)
        plain = to_json(value, result_type(tool.function), f"the result of tool {tool.name!r}")
    except _NOT_THE_TOOLS:
        raise
    except Exception as error:
        if not is_last and not isinstance(error, InvalidInput | Permanent):
            raise
        return {"ok": False, "error": f"{error_code(error)}: {error_text(error)}"}
    return {"ok": True, "value": plain}


async def _call(function: Callable[..., Any], given: Mapping[str, object]) -> object:
    if inspect.iscoroutinefunction(function):
        return await function(**given)
    # A plain function may block; the loop, which keeps the leases, must not.
    result = await asyncio.to_thread(function, **given)
    return await result if inspect.isawaitable(result) else result


def succeeded(value: Value) -> Value:
    """Return the result of something that succeeded."""
    return make_record({"ok": True, "value": value})


def failed(error: str) -> Value:
    """Return the result of something that failed."""
    return make_record({"ok": False, "error": error})
