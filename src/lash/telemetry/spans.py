"""What the spans of OpenTelemetry are called, and their attributes, by its conventions for generative AI.

The conventions are still in development, and their Python package marks these names as moved; so they are written here.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from lash.runtime.hooks import TURN, Attributes
from lash.telemetry.figures import step_kind

Values: TypeAlias = "dict[str, str | int | float | bool]"

PREFIX: Final = "lash."
_OWN: Final = "lash"
"""The provider of a turn or model that does not name one."""
_USAGE: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_input_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
    "model": "gen_ai.request.model",
}
_CONTENT: Final = {"input": "gen_ai.input.messages", "output": "gen_ai.output.messages"}


class SpanText(NamedTuple):
    """The name of a span and its attributes. ``is_call`` is true for a request to another service."""

    name: str
    attributes: Values
    is_call: bool = False


def run_span(kind: str, attributes: Attributes) -> SpanText:
    """Return the span of one attempt of a turn, or of one run of a process."""
    if kind == TURN:
        agent = str(attributes["agent"])
        found: Values = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": _OWN,
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": str(attributes["session_id"]),
        }
        return SpanText(f"invoke_agent {agent}", found | named(attributes))
    name = str(attributes["process"])
    found = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": name}
    return SpanText(f"invoke_workflow {name}", found | named(attributes))


def step_span(attributes: Attributes, *, with_model: bool) -> SpanText:
    """Return the span of one attempt of a step; the call of a model is a plain step without ``with_model``."""
    kind = step_kind(attributes)
    if kind == "tool":
        tool = str(attributes["tool"])
        found: Values = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.type": "function",
        }
        if "call_id" in attributes:
            found["gen_ai.tool.call.id"] = str(attributes["call_id"])
        return SpanText(f"execute_tool {tool}", found | named(attributes))
    if kind == "model" and with_model:
        model = str(attributes["model"])
        found = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": str(attributes.get("provider", _OWN)),
            "gen_ai.request.model": model,
        }
        return SpanText(f"chat {model}", found | named(attributes), is_call=True)
    return SpanText(f"step {attributes['name']}", named(attributes))


def committed(attributes: Attributes) -> Values:
    """Return the tokens and the reply of a committed turn as attributes of its span."""
    names = _USAGE | _CONTENT
    return {names[name]: value for name, value in attributes.items() if name in names}


def named(attributes: Attributes) -> Values:
    """Return the attributes of a hook under their own names."""
    return {_CONTENT.get(name, PREFIX + name): value for name, value in attributes.items() if name != "traceparent"}
