"""A capability that makes the runs of an agent durable inside a turn or a process of lash."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.capabilities.abstract import WrapRunHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    conversation_id_from_run_id,
)
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT, DeferredToolRequests, DeferredToolResults, RunContext, ToolDefinition

from lash.adapters.names import short
from lash.adapters.pydantic_ai.backend import LashBackend
from lash.adapters.pydantic_ai.deferred import Deferred, OnDeferred
from lash.adapters.pydantic_ai.options import METADATA, ToolOptions
from lash.adapters.pydantic_ai.runs import inside_call, is_durable_here, is_inside_step, runs_here
from lash.adapters.pydantic_ai.streaming import showing
from lash.errors import ConfigError
from lash.runtime.errors import Permanent
from lash.runtime.policy import NO_RETRY, Retry


def _not_storable(error: Exception) -> Exception:
    return Permanent(f"the result cannot be recorded as JSON: {error}")


class LashDurability(BaseDurabilityCapability[AgentDepsT]):
    """Makes every run of an agent durable: ``Agent("openai:gpt-5", name="helper", capabilities=[LashDurability()])``.

    Run the agent inside a turn or a process of a `lash.App`. Its model calls, MCP calls and function tools are recorded
    steps: a run that another worker continues repeats none of them. Tools run in parallel. A deferred tool call parks
    the turn until it is resolved. Tokens are booked in the turn's ledger.

    Outside of a turn or process a run raises ConfigError, unless ``required`` is False. Inside a step, for example in a
    tool that runs another agent, a run is part of that step.
    """

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="lash",
        durable_unit_noun="step",
        durable_container_noun="turn",
        codec=JSON_CODEC,
        serialization_failure=_not_storable,
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        tool_config_key=METADATA,
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model[Any]] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        stream: bool = False,
        required: bool = True,
        deferred: bool = True,
        on_deferred: OnDeferred | None = None,
        deferred_timeout_s: float | None = None,
        model_retry: Retry = NO_RETRY,
        model_timeout_s: float | None = None,
        model_limit: str | None = None,
    ) -> None:
        """Make the capability.

        ``models`` are further models by id, for ``agent.run(model="id")``. ``name`` is the first part of the names of
        steps, by default the agent's name: keep it as long as turns are under way. ``stream`` calls the model with
        streaming in every run, so that observers of the session see the pieces.

        ``deferred`` makes a wait of each tool call that needs an approval or is executed elsewhere; without it the
        run returns DeferredToolRequests, as without lash. ``on_deferred`` is called once for each such call.
        A call without an answer within ``deferred_timeout_s`` is denied, or failed.

        ``model_retry``, ``model_timeout_s`` and ``model_limit`` are options of the steps that call a model; those of a
        tool stand in its metadata: ``metadata={"lash": {"once": True}}``.
        """
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._stream = stream
        self._required = required
        self._deferred = deferred
        self._on_deferred = on_deferred
        self._deferred_timeout_s = deferred_timeout_s
        self._model = ToolOptions(retry=model_retry, timeout_s=model_timeout_s, limit=model_limit)

    @property
    def in_durable_context(self) -> bool:
        return is_durable_here()

    def get_durable_operation_backend(self) -> LashBackend:
        return LashBackend(self.name, self.default_model_id, self._model)

    # The identity of a run, the same in every attempt.

    def get_default_run_id(self) -> str | None:
        return runs_here()[1].begin(self.name) if self.in_durable_context else None

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        if not self.in_durable_context:
            return None

        async def began() -> str:
            return datetime.now(UTC).isoformat()

        run, runs = runs_here()
        key = short(f"{runs.label(run_id)}/began", 180)
        return datetime.fromisoformat(await run.options(key=key).step("began", began))

    # Hooks of a run.

    async def before_run(self, ctx: RunContext[AgentDepsT]) -> None:
        if not self.in_durable_context and self._required and not is_inside_step():
            raise ConfigError(
                f"agent {self.name!r} has LashDurability and runs outside of a turn and a process, where nothing is "
                "recorded; run it in an agent or a process of a lash App, or use LashDurability(required=False)"
            )
        await super().before_run(ctx)
        if self.in_durable_context and ctx.run_id is not None:
            _, runs = runs_here()
            if not runs.knows(ctx.run_id):
                runs.begin(self.name, ctx.run_id)

    async def wrap_run(
        self,
        ctx: RunContext[AgentDepsT],  # noqa: ARG002 (their signature)
        *,
        handler: WrapRunHandler,
    ) -> AgentRunResult[Any]:
        if self.agent is None or not self.in_durable_context:
            return await handler()
        # Tools run in parallel, and their events come in the order of the calls in every attempt.
        with self.agent.parallel_tool_call_execution_mode("parallel_ordered_events"):
            return await handler()

    async def wrap_tool_execute(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,  # noqa: ARG002 (their signature)
        args: dict[str, Any],
        handler: Any,  # noqa: ANN401 (theirs)
    ) -> Any:  # noqa: ANN401 (what the tool returns)
        if not self.in_durable_context:
            return await handler(args)
        _, runs = runs_here()
        token = inside_call.set(f"{runs.label(ctx.run_id)}/{call.tool_call_id}/")
        try:
            return await handler(args)
        finally:
            inside_call.reset(token)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[AgentDepsT], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        if not self._deferred or not self.in_durable_context:
            return None
        return await Deferred(self._on_deferred, self._deferred_timeout_s).results(ctx.run_id, requests)

    # Streaming.

    @property
    def has_wrap_run_event_stream(self) -> bool:
        return super().has_wrap_run_event_stream or (self._stream and self.in_durable_context)

    def _model_stream_event_handler(self) -> EventStreamHandler[AgentDepsT] | None:
        return showing(super()._model_stream_event_handler())
