"""Converts conversations and tools to OpenAI's chat-completions format; shared by the examples, free to copy."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import get_type_hints

import msgspec
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionFunctionToolParam,
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionMessageParam,
)

import lash


class Tools:
    """Functions that a model may call."""

    def __init__(self, *functions: Callable[..., str]) -> None:
        self._functions = {function.__name__: function for function in functions}

    @property
    def params(self) -> list[ChatCompletionFunctionToolParam]:
        """What the model must know: the name, the docstring and the types of the arguments of each."""
        return [_param(function) for function in self._functions.values()]

    def call(self, name: str, arguments: str) -> str:
        """Call a function as the model wants it; what is wrong with that is an answer, too."""
        try:
            return self._functions[name](**json.loads(arguments))
        except (KeyError, TypeError, ValueError) as error:
            return f"This did not work: {error!r}"


def for_model(messages: list[lash.Message]) -> list[ChatCompletionMessageParam]:
    """Return a conversation as the model wants to have it."""
    return [_part(message.role, part) for message in messages for part in message.parts]


def calls_of(completion: ChatCompletion) -> list[ChatCompletionMessageFunctionToolCall]:
    """Return the tools that the model wants to be called."""
    return [call for call in completion.choices[0].message.tool_calls or () if call.type == "function"]


def _param(function: Callable[..., str]) -> ChatCompletionFunctionToolParam:
    hints = get_type_hints(function)
    properties = {name: msgspec.json.schema(hints[name]) for name in inspect.signature(function).parameters}
    return {
        "type": "function",
        "function": {
            "name": function.__name__,
            "description": inspect.getdoc(function) or "",
            "parameters": {"type": "object", "properties": properties, "required": list(properties)},
        },
    }


def _part(role: lash.Role, part: lash.Part) -> ChatCompletionMessageParam:
    call_id, name = part.tool_call_id or "", part.tool_name or ""
    if part.kind is lash.PartKind.TOOL_CALL:
        return {
            "role": "assistant",
            "tool_calls": [{"id": call_id, "type": "function", "function": {"name": name, "arguments": part.content}}],
        }
    if part.kind is lash.PartKind.TOOL_RESULT:
        return {"role": "tool", "tool_call_id": call_id, "content": part.content}
    if role is lash.Role.ASSISTANT:
        return {"role": "assistant", "content": part.content}
    return {"role": "user", "content": part.content}
