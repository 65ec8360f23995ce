"""Models whose replies are recorded steps of a turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar

from agents import Model, ModelProvider
from agents.items import ModelResponse, TResponseStreamEvent
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from agents.usage import Usage
from openai.types.responses import ResponseCompletedEvent, ResponseFailedEvent, ResponseIncompleteEvent
from pydantic import TypeAdapter, ValidationError

from lash.adapters.openai_agents.recording import Line, current_line
from lash.errors import InvalidInput
from lash.model.value import JSON

T = TypeVar("T")
LastEvent = ResponseCompletedEvent | ResponseIncompleteEvent | ResponseFailedEvent
_response: Final[TypeAdapter[ModelResponse]] = TypeAdapter(ModelResponse)
_last_event: Final[TypeAdapter[LastEvent]] = TypeAdapter(LastEvent)
_REASONING: Final = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")


class _Failed(BaseException):
    """Carries the error of a model call out of its step, which then records nothing: the SDK may call again."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class RecordedModel(Model):
    """A model whose replies are steps of the turn that runs here; elsewhere it is the model itself."""

    def __init__(self, inner: Model, name: str | None = None) -> None:
        self._inner = inner
        self._name = str(name or getattr(inner, "model", None) or "unknown")

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (what the SDK asks of a model beyond the interface)
        return getattr(self._inner, name)

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:  # noqa: ANN401 (those of the model)
        """Call the model once, and return the recorded reply in later attempts of the turn."""
        line = current_line()
        if line is None:
            return await self._inner.get_response(*args, **kwargs)

        async def call() -> JSON:
            _show_call(line)
            return _dumped(_response, await self._inner.get_response(*args, **kwargs))

        reply = _response.validate_python(await _record(line, "model", call))
        self._book(line, reply)
        return reply

    async def stream_response(
        self,
        *args: Any,  # noqa: ANN401 (those of the model)
        **kwargs: Any,  # noqa: ANN401
    ) -> AsyncGenerator[TResponseStreamEvent, None]:
        """Call the model once and yield its events; in later attempts of the turn the last event alone."""
        line = current_line()
        if line is None:
            async for event in self._inner.stream_response(*args, **kwargs):
                yield event
            return
        events: asyncio.Queue[TResponseStreamEvent | None] = asyncio.Queue()

        async def call() -> JSON:
            _show_call(line)
            last: LastEvent | None = None
            async with contextlib.aclosing(_closable(self._inner.stream_response(*args, **kwargs))) as stream:
                async for event in stream:
                    _show(line, event)
                    if isinstance(event, LastEvent):
                        last = event
                    else:
                        events.put_nowait(event)
            return None if last is None else _dumped(_last_event, last)

        async def record() -> JSON:
            try:
                return await _record(line, "model_stream", call)
            finally:
                events.put_nowait(None)

        recording = asyncio.create_task(record())
        try:
            while (piece := await events.get()) is not None:
                yield piece
            plain = await recording
        finally:
            await _ended(recording)
        if plain is not None:
            # Recorded before the SDK acts on it.
            last = _last_event.validate_python(plain)
            self._book(line, _reply(last))
            yield last

    async def close(self) -> None:
        await self._inner.close()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        return self._inner.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._inner._cleanup_on_run_end(owner)  # noqa: SLF001 (the SDK calls it on each model)

    def _book(self, line: Line, reply: ModelResponse) -> None:
        line.replied(reply)
        usage = reply.usage
        cached = getattr(usage.input_tokens_details, "cached_tokens", None) or 0
        reasoning = getattr(usage.output_tokens_details, "reasoning_tokens", None) or 0
        if usage.input_tokens or usage.output_tokens:
            line.recording.turn.usage(
                self._name,
                input_tokens=usage.input_tokens - cached,
                output_tokens=usage.output_tokens - reasoning,
                cached_input_tokens=cached,
                reasoning_tokens=reasoning,
            )


class RecordedProvider(ModelProvider):
    """A provider of recorded models."""

    def __init__(self, inner: ModelProvider) -> None:
        self._inner = inner

    def get_model(self, model_name: str | None) -> Model:
        return recorded_model(self._inner.get_model(model_name), model_name)

    async def aclose(self) -> None:
        await self._inner.aclose()


def recorded_model(model: Model, name: str | None = None) -> Model:
    """Return a model whose replies are recorded."""
    return model if isinstance(model, RecordedModel) else RecordedModel(model, name)


async def _record(line: Line, name: str, call: Callable[[], Awaitable[JSON]]) -> JSON:
    """Run a model call as a step. One that fails is not recorded, and the next one has the same key."""

    async def body() -> JSON:
        try:
            return await call()
        except Exception as error:
            raise _Failed(error) from error

    try:
        return await line.record(name, line.next_model_key, body)
    except _Failed as failed:
        raise failed.error from failed.error.__cause__


def _dumped(adapter: TypeAdapter[T], value: T) -> JSON:
    """Return a reply as JSON, or raise InvalidInput if it cannot be read back."""
    plain: JSON = adapter.dump_python(value, mode="json", by_alias=True, exclude_unset=True, warnings=False)
    try:
        adapter.validate_python(plain)
    except ValidationError as error:
        raise InvalidInput(f"the reply of the model cannot be stored: {error}") from None
    return plain


def _reply(last: LastEvent) -> ModelResponse:
    usage = last.response.usage
    counted = (
        Usage()
        if usage is None
        else Usage(
            requests=1,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            total_tokens=usage.total_tokens,
            input_tokens_details=usage.input_tokens_details,
            output_tokens_details=usage.output_tokens_details,
        )
    )
    return ModelResponse(output=last.response.output, usage=counted, response_id=last.response.id)


def _show_call(line: Line) -> None:
    if not line.is_nested:
        line.recording.turn.activity({"model_call": line.next_reply})


def _show(line: Line, event: TResponseStreamEvent) -> None:
    if line.is_nested:
        return
    if event.type == "response.output_text.delta":
        line.recording.turn.activity({"text": event.delta})
    elif event.type in _REASONING:
        line.recording.turn.activity({"reasoning": getattr(event, "delta", "")})


async def _ended(task: asyncio.Task[JSON]) -> None:
    """Cancel a task whose result is not needed any more, and wait until it has ended."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        # Retrieved, so that asyncio does not log it.
        task.exception()


async def _closable(stream: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Return an iterator that can be closed, also if the model's own cannot."""
    try:
        async for each in stream:
            yield each
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
