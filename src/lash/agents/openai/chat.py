"""The Chat Completions API of OpenAI, which many servers speak, as a model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDelta

from lash.agents.errors import ModelUnavailable
from lash.agents.openai.client import ERRORS, OpenAIModel
from lash.agents.provider import closed_schema, data_url, file_name, translated
from lash.agents.vocabulary import (
    ModelReply,
    ModelRequest,
    Piece,
    Stop,
    Thought,
    ToolCall,
    call_part,
    raw_of,
    reasoning_part,
    text_part,
)
from lash.model.session.message import Message, Part, PartKind, Role
from lash.model.session.usage import TokenUsage
from lash.model.value import JSONObject

FORM: Final = "openai.chat"
_REASONING: Final = ("reasoning_content", "reasoning")
"""The fields in which compatible servers send reasoning."""
_STOPS: Final = {"length": Stop.LENGTH, "content_filter": Stop.REFUSED}


class ChatCompletions(OpenAIModel):
    """A model of the Chat Completions API, of OpenAI or of a compatible server.

    For another server give a client: ``AsyncOpenAI(base_url="http://localhost:8000/v1")``. ``settings`` are arguments
    of ``client.chat.completions.create``, such as ``temperature``. What a server adds to the format, such as reasoning
    or signatures of tool calls, is kept and sent back to it.
    """

    async def __call__(self, request: ModelRequest) -> AsyncIterator[Piece | ModelReply]:
        client, answer = await self._client(), _Answer()
        with translated(ERRORS):
            stream = await client.chat.completions.create(**self._arguments(request), stream=True)
            async for chunk in stream:
                for piece in answer.take(chunk):
                    yield piece
        yield answer.reply(self.model)

    def _arguments(self, request: ModelRequest) -> dict[str, Any]:
        system = [{"role": "system", "content": request.instructions}] if request.instructions else []
        arguments: dict[str, Any] = {
            "model": self.model,
            "messages": [*system, *(item for message in request.messages for item in _messages(message, request))],
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            arguments["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
                }
                for tool in request.tools
            ]
        if request.output is not None:
            schema, strict = closed_schema(request.output.json_schema)
            form = {"name": request.output.name, "schema": schema, "strict": strict}
            arguments["response_format"] = {"type": "json_schema", "json_schema": form}
        return {**arguments, **self._settings}


class _Answer:
    """The reply, as its chunks come."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._extra: JSONObject = {}
        self._calls: dict[int, JSONObject] = {}
        self._finish: str | None = None
        self._usage: CompletionUsage | None = None
        self._model = ""

    def take(self, chunk: ChatCompletionChunk) -> list[Piece]:
        """Add a chunk, and return what observers see of it."""
        self._usage = chunk.usage or self._usage
        self._model = chunk.model or self._model
        pieces: list[Piece] = []
        for choice in chunk.choices[:1]:
            self._finish = choice.finish_reason or self._finish
            pieces += self._take_delta(choice.delta)
        return pieces

    def _take_delta(self, delta: ChoiceDelta) -> list[Piece]:
        pieces: list[Piece] = []
        extra: JSONObject = delta.model_extra or {}
        _merge(self._extra, extra)
        thought = next((extra[name] for name in _REASONING if isinstance(extra.get(name), str)), "")
        if thought:
            pieces.append(Thought(text=thought))
        if delta.content:
            self._text.append(delta.content)
            pieces.append(delta.content)
        if delta.refusal:
            self._refusal.append(delta.refusal)
        for call in delta.tool_calls or ():
            _merge(self._calls.setdefault(call.index, {}), call.to_dict(mode="json"))
        return pieces

    def reply(self, model: str) -> ModelReply:
        """Return the whole."""
        if self._finish is None:
            raise ModelUnavailable("the provider ended the stream before the end of the reply")
        parts: list[Part] = []
        extra = {name: value for name, value in self._extra.items() if value}
        if extra:
            text = next((extra[name] for name in _REASONING if isinstance(extra.get(name), str)), "")
            parts.append(reasoning_part(text, {FORM: extra}))
        if text := "".join(self._text or self._refusal):
            parts.append(text_part(text))
        parts += [_call(index, call) for index, call in sorted(self._calls.items())]
        stop = Stop.REFUSED if self._refusal else _STOPS.get(self._finish, Stop.END)
        return ModelReply(parts=tuple(parts), model=self._model or model, usage=_usage(self._usage), stop=stop)


def _merge(whole: JSONObject, piece: JSONObject) -> None:
    """Add a piece of an object that is streamed: texts and lists grow, the rest is replaced."""
    for name, value in piece.items():
        known = whole.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value)
        elif name not in ("id", "type", "index", "role") and isinstance(known, str) and isinstance(value, str):
            whole[name] = known + value
        elif isinstance(known, list) and isinstance(value, list):
            whole[name] = [*known, *value]
        elif value is not None:
            whole[name] = value


def _call(index: int, call: JSONObject) -> Part:
    function: JSONObject = call.get("function") or {}
    made = ToolCall(
        id=call.get("id") or f"call_{index}",
        name=function.get("name") or "",
        arguments=function.get("arguments") or "{}",
    )
    extra = {name: value for name, value in call.items() if name not in ("id", "type", "index", "function")}
    return call_part(made, {FORM: extra} if extra else None)


def _messages(message: Message, request: ModelRequest) -> list[JSONObject]:
    if message.role is not Role.ASSISTANT:
        role = "system" if message.role is Role.SYSTEM else "user"
        return [{"role": role, "content": _content(message, request)}]
    found: list[JSONObject] = []
    for part in message.parts:
        if part.kind is PartKind.TOOL_RESULT:
            found.append({"role": "tool", "tool_call_id": part.tool_call_id or "", "content": part.content})
        elif (own := _own(part)) is not None:
            if not found or found[-1]["role"] != "assistant":
                found.append({"role": "assistant"})
            _merge(found[-1], own)
    return found


def _own(part: Part) -> JSONObject | None:
    """Return what a part adds to a message of the assistant."""
    raw = raw_of(part, FORM)
    if part.kind is PartKind.TOOL_CALL:
        function = {"name": part.tool_name or "", "arguments": part.content}
        call = {**(raw or {}), "id": part.tool_call_id or "", "type": "function", "function": function}
        return {"tool_calls": [call]}
    if part.kind in (PartKind.TEXT, PartKind.PROSE):
        return {"content": part.content}
    return raw


def _content(message: Message, request: ModelRequest) -> str | list[JSONObject]:
    if all(part.attachment is None for part in message.parts):
        return message.text
    return [_input(part, request) for part in message.parts]


def _input(part: Part, request: ModelRequest) -> JSONObject:
    if part.attachment is None:
        return {"type": "text", "text": part.content}
    url = data_url(part, request.files[part.attachment.id])
    if part.kind is PartKind.IMAGE:
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": file_name(part), "file_data": url}}


def _usage(usage: CompletionUsage | None) -> TokenUsage:
    """Return the tokens; the provider counts cached ones as input, and reasoning as output."""
    if usage is None:
        return TokenUsage()
    cached = (usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens) or 0
    reasoning = (usage.completion_tokens_details and usage.completion_tokens_details.reasoning_tokens) or 0
    return TokenUsage(
        input_tokens=usage.prompt_tokens - cached,
        output_tokens=usage.completion_tokens - reasoning,
        cached_input_tokens=cached,
        reasoning_tokens=reasoning,
    )
