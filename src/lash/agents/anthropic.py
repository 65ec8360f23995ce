"""Models of Anthropic, through the official client: ``pip install 'lash-runtime[anthropic]'``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import msgspec

from lash.agents.errors import RequestRefused
from lash.agents.provider import ClientErrors, Clients, base64_text, closed_schema, translated
from lash.agents.vocabulary import (
    ModelReply,
    ModelRequest,
    Piece,
    Stop,
    Thought,
    ToolCall,
    call_part,
    other_part,
    raw_of,
    reasoning_part,
    text_part,
)
from lash.errors import ConfigError
from lash.model.session.message import Part, PartKind, Role
from lash.model.session.usage import TokenUsage
from lash.model.value import JSONObject

try:
    import anthropic
except ImportError:
    raise ConfigError(
        "lash.agents.anthropic needs the client of Anthropic: pip install 'lash-runtime[anthropic]'"
    ) from None

FORM: Final = "anthropic"
_ERRORS: Final = ClientErrors(
    timeout=anthropic.APITimeoutError,
    connection=anthropic.APIConnectionError,
    status=anthropic.APIStatusError,
    any=anthropic.APIError,
)
_STOPS: Final = {
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.LENGTH,
    "refusal": Stop.REFUSED,
    "pause_turn": Stop.PAUSED,
}
_CALL_KEYS: Final = frozenset({"type", "id", "name", "input"})
"""The keys of a tool call that can be made again from its part."""


class Messages:
    """A model of Anthropic's Messages API.

    Without a client one is made with the settings of the environment, such as ``ANTHROPIC_API_KEY``. ``settings`` are
    arguments of ``client.messages.stream``, such as ``thinking={"type": "adaptive"}``. Thinking blocks and their
    signatures are kept, and sent back as they came.
    """

    provider: Final = "anthropic"

    def __init__(
        self,
        model: str,
        *,
        client: anthropic.AsyncAnthropic | None = None,
        max_tokens: int = 16_000,
        **settings: Any,  # noqa: ANN401 (those of the client)
    ) -> None:
        self.model = model
        self._clients = Clients(client, _make_client)
        self._settings = {"max_tokens": max_tokens, **settings}

    async def __call__(self, request: ModelRequest) -> AsyncIterator[Piece | ModelReply]:
        client = (await self._clients.get()).with_options(max_retries=0)
        with translated(_ERRORS), _credentials():
            async with client.messages.stream(**self._arguments(request)) as stream:
                async for event in stream:
                    if event.type == "text":
                        yield event.text
                    elif event.type == "thinking":
                        yield Thought(text=event.thinking)
                message = await stream.get_final_message()
        yield _reply(message)

    def _arguments(self, request: ModelRequest) -> dict[str, Any]:
        arguments: dict[str, Any] = {**self._settings, "model": self.model, "messages": _messages(request)}
        if request.instructions:
            arguments["system"] = request.instructions
        if request.tools:
            tools = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
                for tool in request.tools
            ]
            arguments["tools"] = [*self._settings.get("tools", ()), *tools]
        if request.output is not None:
            schema, _ = closed_schema(request.output.json_schema)
            form = {"type": "json_schema", "schema": schema}
            arguments["output_config"] = {**self._settings.get("output_config", {}), "format": form}
        return arguments


def _make_client() -> anthropic.AsyncAnthropic:
    """Return a client with the settings of the environment. It has loaded its modules, which takes a while."""
    client = anthropic.AsyncAnthropic()
    _ = client.messages
    return client


@contextlib.contextmanager
def _credentials() -> Iterator[None]:
    """Raise the client's TypeError about missing credentials as what it is."""
    try:
        yield
    except TypeError as error:
        if "authentication" not in str(error):
            raise
        raise RequestRefused(f"set ANTHROPIC_API_KEY, or give the model a client: {error}") from error


def _messages(request: ModelRequest) -> list[JSONObject]:
    """Return the conversation with alternating roles: results of tools are sent by the user."""
    found: list[JSONObject] = []
    for message in request.messages:
        for part in message.parts:
            is_own = message.role is Role.ASSISTANT and part.kind is not PartKind.TOOL_RESULT
            block = _own_block(part) if is_own else _input_block(part, request)
            if block is None:
                continue
            role = "assistant" if is_own else "user"
            if not found or found[-1]["role"] != role:
                found.append({"role": role, "content": []})
            found[-1]["content"].append(block)
    return found


def _own_block(part: Part) -> JSONObject | None:
    """Return a part of the assistant as a block: as it came, if it came from here."""
    raw = raw_of(part, FORM)
    if raw is not None:
        return raw
    if part.kind is PartKind.TOOL_CALL:
        arguments = msgspec.json.decode(part.content or "{}")
        return {"type": "tool_use", "id": part.tool_call_id, "name": part.tool_name, "input": arguments}
    is_text = part.kind in (PartKind.TEXT, PartKind.PROSE) and part.content.strip()
    return {"type": "text", "text": part.content} if is_text else None


def _input_block(part: Part, request: ModelRequest) -> JSONObject | None:
    if part.kind is PartKind.TOOL_RESULT:
        failed = part.response_meta is not None and part.response_meta.status == "failed"
        result = {"type": "tool_result", "tool_use_id": part.tool_call_id, "content": part.content}
        return {**result, "is_error": True} if failed else result
    if part.attachment is None:
        return {"type": "text", "text": part.content} if part.content.strip() else None
    media_type, content = part.attachment.media_type, request.files[part.attachment.id]
    if media_type.startswith("text/"):
        source = {"type": "text", "media_type": "text/plain", "data": content.decode("utf-8", "replace")}
    else:
        source = {"type": "base64", "media_type": media_type, "data": base64_text(content)}
    return {"type": "image" if part.kind is PartKind.IMAGE else "document", "source": source}


def _reply(message: anthropic.types.Message) -> ModelReply:
    parts = tuple(_part(block) for block in message.content)
    stop = _STOPS.get(message.stop_reason or "", Stop.END)
    return ModelReply(parts=parts, model=message.model, usage=_usage(message.usage), stop=stop)


def _part(block: anthropic.types.ContentBlock) -> Part:
    plain: JSONObject = {name: value for name, value in block.to_dict(mode="json").items() if value is not None}
    if block.type == "text":
        return text_part(block.text, None if plain.keys() <= {"type", "text"} else {FORM: plain})
    if block.type == "tool_use":
        made = ToolCall(id=block.id, name=block.name, arguments=msgspec.json.encode(block.input).decode())
        return call_part(made, None if plain.keys() <= _CALL_KEYS else {FORM: plain})
    if block.type == "thinking":
        return reasoning_part(block.thinking, {FORM: plain})
    if block.type == "redacted_thinking":
        return reasoning_part("", {FORM: plain})
    return other_part(block.type, {FORM: plain})


def _usage(usage: anthropic.types.Usage) -> TokenUsage:
    """Return the tokens; the provider counts input that was read from the cache apart, and thinking as output."""
    thinking = usage.output_tokens_details.thinking_tokens if usage.output_tokens_details else 0
    return TokenUsage(
        input_tokens=usage.input_tokens + (usage.cache_creation_input_tokens or 0),
        output_tokens=usage.output_tokens - thinking,
        cached_input_tokens=usage.cache_read_input_tokens or 0,
        reasoning_tokens=thinking,
    )
