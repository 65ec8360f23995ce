"""The Responses API of OpenAI as a model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from openai.types.responses import Response, ResponseOutputItem, ResponseUsage

from lash.agents.errors import ModelUnavailable, RequestRefused
from lash.agents.openai.client import ERRORS, OpenAIModel
from lash.agents.provider import closed_schema, data_url, file_name, stream_error, translated
from lash.agents.vocabulary import (
    ModelReply,
    ModelRequest,
    OutputSpec,
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
from lash.model.session.message import Part, PartKind, Role
from lash.model.session.usage import TokenUsage
from lash.model.value import JSONObject

FORM: Final = "openai.responses"
_ENDS: Final = ("response.completed", "response.incomplete", "response.failed")
_REASONING: Final = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_REFUSED_CODES: Final = frozenset({"invalid_prompt", "context_length_exceeded", "insufficient_quota"})


class Responses(OpenAIModel):
    """A model of OpenAI's Responses API.

    Nothing is stored at the provider: reasoning comes back encrypted, and lash sends it again. Without a client one is
    made with the settings of the environment, such as ``OPENAI_API_KEY``. ``settings`` are arguments of
    ``client.responses.create``, such as ``reasoning={"effort": "low"}`` or ``max_output_tokens``.
    """

    async def __call__(self, request: ModelRequest) -> AsyncIterator[Piece | ModelReply]:
        client, response = await self._client(), None
        with translated(ERRORS):
            stream = await client.responses.create(**self._arguments(request), stream=True)
            async for event in stream:
                if event.type == "response.output_text.delta":
                    yield event.delta
                elif event.type in _REASONING:
                    yield Thought(text=event.delta)
                elif event.type == "error":
                    raise stream_error(event.code, event.message)
                elif event.type in _ENDS:
                    response = event.response
        if response is None:
            raise ModelUnavailable("the provider ended the stream before the end of the reply")
        yield _reply(response)

    def _arguments(self, request: ModelRequest) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": self.model,
            "input": _items(request),
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
        if request.instructions:
            arguments["instructions"] = request.instructions
        if request.tools:
            arguments["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,
                }
                for tool in request.tools
            ]
        if request.output is not None:
            text: dict[str, Any] = self._settings.get("text", {})
            arguments["text"] = {**text, "format": _format(request.output)}
        return {**self._settings, **arguments} | {
            key: value for key, value in self._settings.items() if key in ("store", "include")
        }


def _format(output: OutputSpec) -> JSONObject:
    schema, strict = closed_schema(output.json_schema)
    return {"type": "json_schema", "name": output.name, "schema": schema, "strict": strict}


def _items(request: ModelRequest) -> list[JSONObject]:
    items: list[JSONObject] = []
    for message in request.messages:
        if message.role is Role.ASSISTANT:
            items += [item for part in message.parts if (item := _own_item(part)) is not None]
        elif content := [_input(part, request) for part in message.parts]:
            role = "developer" if message.role is Role.SYSTEM else "user"
            items.append({"role": role, "content": content})
    return items


def _own_item(part: Part) -> JSONObject | None:
    """Return a part of the assistant as an item: as it came, if it came from here."""
    raw = raw_of(part, FORM)
    if raw is not None:
        return raw
    if part.kind is PartKind.TOOL_CALL:
        return {
            "type": "function_call",
            "call_id": part.tool_call_id or "",
            "name": part.tool_name or "",
            "arguments": part.content,
        }
    if part.kind is PartKind.TOOL_RESULT:
        return {"type": "function_call_output", "call_id": part.tool_call_id or "", "output": part.content}
    if part.kind in (PartKind.TEXT, PartKind.PROSE):
        return {"role": "assistant", "content": part.content}
    return None


def _input(part: Part, request: ModelRequest) -> JSONObject:
    if part.attachment is None:
        return {"type": "input_text", "text": part.content}
    url = data_url(part, request.files[part.attachment.id])
    if part.kind is PartKind.IMAGE:
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": file_name(part), "file_data": url}


def _reply(response: Response) -> ModelReply:
    if response.status == "failed":
        code, message = (response.error.code, response.error.message) if response.error else (None, "no reason given")
        if code in _REFUSED_CODES:
            raise RequestRefused(f"the provider does not accept the request: {message}")
        raise stream_error(code, message)
    parts = tuple(_part(item) for item in response.output)
    stop = Stop.REFUSED if _refusals(response.output) else Stop.END
    if response.status == "incomplete":
        reason = response.incomplete_details.reason if response.incomplete_details else None
        stop = Stop.REFUSED if reason == "content_filter" else Stop.LENGTH
    return ModelReply(parts=parts, model=response.model, usage=_usage(response.usage), stop=stop)


def _part(item: ResponseOutputItem) -> Part:
    raw: JSONObject = {FORM: item.to_dict(mode="json")}
    if item.type == "message":
        texts = (content.text if content.type == "output_text" else content.refusal for content in item.content)
        return text_part("".join(texts), raw)
    if item.type == "function_call":
        return call_part(ToolCall(id=item.call_id, name=item.name, arguments=item.arguments or "{}"), raw)
    if item.type == "reasoning":
        texts = (summary.text for summary in item.summary)
        return reasoning_part("\n".join(texts), raw)
    return other_part(item.type, raw)


def _refusals(items: Sequence[ResponseOutputItem]) -> bool:
    messages = (item for item in items if item.type == "message")
    return any(content.type == "refusal" for message in messages for content in message.content)


def _usage(usage: ResponseUsage | None) -> TokenUsage:
    """Return the tokens; the provider counts cached ones as input, and reasoning as output."""
    if usage is None:
        return TokenUsage()
    # Compatible servers leave out the details.
    cached: int = getattr(usage.input_tokens_details, "cached_tokens", None) or 0
    reasoning: int = getattr(usage.output_tokens_details, "reasoning_tokens", None) or 0
    return TokenUsage(
        input_tokens=usage.input_tokens - cached,
        output_tokens=usage.output_tokens - reasoning,
        cached_input_tokens=cached,
        reasoning_tokens=reasoning,
    )
