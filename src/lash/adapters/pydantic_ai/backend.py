"""The operations of an agent as steps of a turn or process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeVar

from pydantic_ai.durable_exec import (
    BoundDurableOperation,
    DurableOperation,
    DurableOperationBackend,
    JournalOperationNamer,
    ModelCompactMessagesId,
    ModelRequestId,
    ToolsetCallToolId,
    ToolsetValidateToolArgumentsId,
    durable_unit_scope,
)
from pydantic_ai.exceptions import ModelAPIError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelResponse
from pydantic_ai.tools import RunContext

from lash.adapters.names import short
from lash.adapters.pydantic_ai.failures import ModelFailed, error_of
from lash.adapters.pydantic_ai.options import DEFAULT, ToolOptions, options_of
from lash.adapters.pydantic_ai.runs import runs_here
from lash.errors import StepFailed
from lash.model.value import JSON
from lash.runtime.processes.context import Context
from lash.runtime.steps.steps import Steps
from lash.runtime.turns.turn import Turn

ParamsT = TypeVar("ParamsT")
WireT = TypeVar("WireT")
ResultT = TypeVar("ResultT")

_LONGEST_KEY: Final = 180
"""Keys of steps have at most 255 characters, with what the journal puts before them."""


class LashBackend(DurableOperationBackend[ToolOptions]):
    """Runs each operation as a step under a key that is the same in every attempt, whichever task calls it."""

    def __init__(self, agent_name: str, default_model_id: str | None, model: ToolOptions) -> None:
        self._namer = JournalOperationNamer(agent_name, default_model_id=default_model_id or "default")
        self._model = model

    def bind(
        self, operation: DurableOperation[ParamsT, WireT, ResultT]
    ) -> BoundDurableOperation[ParamsT, WireT, ResultT]:
        return _Operation(operation, self._namer, self._model)

    def config_for_tool(
        self, operation: DurableOperation[ParamsT, WireT, ResultT], *, tool: object | None, tool_name: str
    ) -> ToolOptions | Literal[False]:
        options = options_of(tool, tool_name)
        is_check = isinstance(operation.operation_id, ToolsetValidateToolArgumentsId)
        return DEFAULT if is_check and options is not False else options

    def registrations(self) -> Sequence[Callable[..., object]]:
        return ()


class _Operation(BoundDurableOperation[ParamsT, WireT, ResultT]):
    """One kind of operation of an agent: calls of its model, of the tools in a toolset, …."""

    def __init__(
        self, operation: DurableOperation[ParamsT, WireT, ResultT], namer: JournalOperationNamer, model: ToolOptions
    ) -> None:
        self._operation = operation
        self._namer = namer
        self._model = model

    @property
    def operation(self) -> DurableOperation[ParamsT, WireT, ResultT]:
        return self._operation

    async def __call__(self, params: ParamsT, *, config: object | None = None) -> ResultT:
        """Return the recorded result, or run the operation and record it."""
        operation, (run, runs) = self._operation, runs_here()
        called = _Call(run, operation.operation_id, params)
        label = operation.invocation_label(params) if operation.invocation_label is not None else None
        name = self._namer.invocation_name(operation.operation_id, label=label).operation_name
        key = short(runs.numbered(f"{runs.label(called.run_id)}/{called.key(name)}"), _LONGEST_KEY)

        async def body() -> Any:  # noqa: ANN401 (JSON, as the codec makes it)
            called.began()
            try:
                with durable_unit_scope():
                    result = await operation.handler(params)
            except (ModelAPIError, UnexpectedModelBehavior) as error:
                raise ModelFailed(error) from error
            called.ended()
            return operation.result_codec.dump(result)

        try:
            recorded = await self._steps(run, key, config).step(short(name, 200), body)
        except ModelFailed as failed:
            raise failed.error from failed.error.__cause__
        except StepFailed as failed:
            raise error_of(failed) from failed.__cause__
        loaded = operation.result_codec.load(recorded)
        called.book(loaded)
        return loaded

    def _steps(self, run: Turn | Context, key: str, config: object) -> Steps:
        if isinstance(config, ToolOptions):
            return config.steps(run, key)
        return (self._model if self._operation.config_role == "model" else DEFAULT).steps(run, key)


class _Call:
    """One call of an operation: what identifies it, and what observers see of it."""

    def __init__(self, run: Turn | Context, operation_id: object, params: object) -> None:
        self._turn = run if isinstance(run, Turn) else None
        self._id = operation_id
        self._params = params
        context = getattr(params, "run_context", None) or getattr(params, "ctx", None)
        self._context = context if isinstance(context, RunContext) else None

    @property
    def run_id(self) -> str | None:
        return None if self._context is None else self._context.run_id

    def key(self, name: str) -> str:
        """Return what identifies the call in its run: the id of a tool call; others come one after the other."""
        call_id = None if self._context is None else self._context.tool_call_id
        return name if call_id is None else f"{name}:{call_id}"

    def began(self) -> None:
        """Show observers that the operation runs; a replayed one is not shown."""
        if isinstance(self._id, ModelRequestId):
            self._show({"model_call": 0 if self._context is None else self._context.run_step})
        elif isinstance(self._id, ToolsetCallToolId):
            self._show({"tool_call": self._tool_call()})

    def ended(self) -> None:
        if isinstance(self._id, ToolsetCallToolId):
            self._show({"tool_result": self._tool_call()})

    def book(self, result: object) -> None:
        """Add the tokens of a model's response to the turn, in every attempt; they are committed once."""
        if self._turn is None or not isinstance(result, ModelResponse):
            return
        if not isinstance(self._id, ModelRequestId | ModelCompactMessagesId):
            return
        usage = result.usage
        # They count cached tokens as input, and reasoning as output.
        reasoning = usage.details.get("reasoning_tokens", 0)
        if usage.input_tokens or usage.output_tokens:
            self._turn.usage(
                result.model_name or "unknown",
                input_tokens=max(usage.input_tokens - usage.cache_read_tokens, 0),
                output_tokens=max(usage.output_tokens - reasoning, 0),
                cached_input_tokens=usage.cache_read_tokens,
                reasoning_tokens=reasoning,
                source="compaction" if isinstance(self._id, ModelCompactMessagesId) else "turn",
            )

    def _tool_call(self) -> JSON:
        call_id = None if self._context is None else self._context.tool_call_id
        return {"id": call_id, "name": getattr(self._params, "name", "")}

    def _show(self, payload: JSON) -> None:
        if self._turn is not None:
            self._turn.activity(payload)
