"""Runs of OpenAI's Agents SDK as part of a turn: what has happened is recorded, and does not happen again."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator
from typing import Any, Final, TypeAlias, cast

from agents import Agent, RunConfig, Runner, RunResult, RunResultStreaming, RunState
from agents.items import RunItem, ToolApprovalItem, TResponseInputItem
from agents.models.interface import ModelProvider
from agents.run import AgentRunner, RunOptions, get_default_agent_runner, set_default_agent_runner
from agents.stream_events import StreamEvent
from typing_extensions import Unpack

from lash.adapters.openai_agents.recording import Line, Recording, current_line, recorded_by
from lash.adapters.openai_agents.turn_session import TurnSession
from lash.adapters.openai_agents.wrapped import original_agent, recorded_agent, recorded_config
from lash.agents.approvals import Approval, Notify, ask_approval
from lash.agents.vocabulary import ToolCall
from lash.errors import ConfigError, LashError
from lash.runtime.current import current
from lash.runtime.turns.turn import Turn

Input: TypeAlias = str | list[TResponseInputItem]
_KEPT_BY_THE_STATE: Final = ("context", "previous_response_id", "conversation_id", "auto_previous_response_id")
"""Options that a run which continues after an approval takes from its state."""


class LashRunner:
    """Runs agents of the SDK inside a turn: ``result = await LashRunner.run(turn, agent, turn.text)``.

    Every reply of a model, tool call, hand-off, guardrail and list of MCP tools is a step of the turn. After a crash
    the turn runs again on any worker, and what is recorded is not repeated. A tool that needs an approval parks the
    turn until a person has decided. Outside of a turn both methods raise ConfigError.
    """

    @staticmethod
    async def run(
        turn: Turn,
        starting_agent: Agent[Any],
        input: Input,  # noqa: A002 (the name of the SDK)
        *,
        once: Collection[str] = (),
        on_approval: Notify | None = None,
        approval_timeout_s: float | None = None,
        **options: Unpack[RunOptions[Any]],  # type: ignore[misc, unused-ignore] # Any where the SDK is not installed
    ) -> RunResult:
        """Run an agent as ``Runner.run`` does, with its options, and return its result.

        ``session`` is ``LashSession.of(turn)`` or absent. ``once`` names tools that must not run twice: after a crash
        in the middle of such a call the turn fails with OutcomeUnknown. ``on_approval`` is called once for each tool
        call that waits; without a decision within ``approval_timeout_s`` the call is denied.
        """
        run = _Run(turn, starting_agent, options, once, on_approval, approval_timeout_s)
        async with run.begun():
            result = await run.part(input, run.options)
            while result.interruptions:
                result = await run.part(await run.decided(result), run.options_again)
            result._last_agent = original_agent(result.last_agent)  # noqa: SLF001 (the copy is ours)
            return result

    @staticmethod
    def run_streamed(
        turn: Turn,
        starting_agent: Agent[Any],
        input: Input,  # noqa: A002 (the name of the SDK)
        *,
        once: Collection[str] = (),
        on_approval: Notify | None = None,
        approval_timeout_s: float | None = None,
        **options: Unpack[RunOptions[Any]],  # type: ignore[misc, unused-ignore] # Any where the SDK is not installed
    ) -> LashStream:
        """Run an agent as ``Runner.run_streamed`` does; the run goes on while its events are read.

        Observers of the session see each piece of text as ``{"text": piece}``. Of a reply that is recorded only the
        last event comes again. The other arguments are those of `run`.
        """
        return LashStream(_Run(turn, starting_agent, options, once, on_approval, approval_timeout_s), input)


class LashStream:
    """A run whose events are read: ``async for event in stream.stream_events()``."""

    def __init__(self, run: _Run, given: Input) -> None:
        self._run = run
        self._given = given
        self._result: RunResultStreaming | None = None

    async def stream_events(self) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events of the run to its end. Where a tool needs an approval, the turn is parked."""
        async with self._run.begun():
            given: Input | RunState[Any] = self._given
            options = self._run.options
            while True:
                self._result = result = self._run.streamed_part(given, options)
                try:
                    async for event in result.stream_events():
                        yield event
                finally:
                    if not result.is_complete:
                        result.cancel()
                if not result.interruptions:
                    return
                given, options = await self._run.decided(result), self._run.options_again

    @property
    def result(self) -> RunResultStreaming:
        """The result of the SDK; of the last part of the run if approvals have divided it."""
        if self._result is None:
            raise ConfigError("the run has not begun: read stream_events() first")
        return self._result

    @property
    def final_output(self) -> Any:  # noqa: ANN401 (what the agent returns)
        """The output of the last agent, once all events are read."""
        return self.result.final_output

    @property
    def new_items(self) -> list[RunItem]:
        """The items that the run has made."""
        return self.result.new_items

    @property
    def last_agent(self) -> Agent[Any]:
        """The agent that answered."""
        return original_agent(self.result.last_agent)

    def to_input_list(self) -> list[TResponseInputItem]:
        """Return the input and the new items, for another run."""
        return self.result.to_input_list()


class _Run:
    """One call of `LashRunner`."""

    def __init__(
        self,
        turn: Turn,
        agent: Agent[Any],
        options: RunOptions[Any],
        once: Collection[str],
        notify: Notify | None,
        timeout_s: float | None,
    ) -> None:
        _check_turn(turn)
        self._turn = turn
        self._notify = notify
        self._timeout_s = timeout_s
        self._recording = Recording(turn, once)
        self._line = Line(self._recording, f"{self._recording.run_key}/")
        self._session = _session_of(turn, options)
        self.agent = recorded_agent(agent, self._recording)
        self.options, self._owned = _recorded_options(options)

    @property
    def options_again(self) -> RunOptions[Any]:
        """The options for continuing after an approval."""
        kept = {name: value for name, value in self.options.items() if name not in _KEPT_BY_THE_STATE}
        return cast("RunOptions[Any]", kept)

    @contextlib.asynccontextmanager
    async def begun(self) -> AsyncIterator[None]:
        """Make the items of the session part of the turn at the end of this block, unless it raises."""
        _install()
        if self._session is not None:
            self._session.begin()
        is_done = False
        try:
            with _own_errors():
                yield
            is_done = True
        finally:
            if self._session is not None:
                self._session.end(publish=is_done)
            if self._owned is not None:
                await self._owned.aclose()

    async def part(self, given: Input | RunState[Any], options: RunOptions[Any]) -> RunResult:
        """Run the agent to its end, or to a call that needs an approval."""
        with recorded_by(self._line):
            return await Runner.run(self.agent, given, **options)

    def streamed_part(self, given: Input | RunState[Any], options: RunOptions[Any]) -> RunResultStreaming:
        """Start the agent. Only the tasks of the SDK record: the caller's context is not changed."""
        with recorded_by(self._line):
            return Runner.run_streamed(self.agent, given, **options)

    async def decided(self, result: RunResult | RunResultStreaming) -> RunState[Any]:
        """Return the state to continue with, once there is a decision about every call that waits."""
        state, waiting = result.to_state(), list(result.interruptions)
        decisions: list[Approval] = await self._turn.gather(*(self._decision(item) for item in waiting))
        for item, decision in zip(waiting, decisions, strict=True):
            if decision.approved:
                state.approve(item)
            else:
                text = f"The call was denied. {decision.text}".rstrip()
                state.reject(item, rejection_message=text)
        return state

    async def _decision(self, item: ToolApprovalItem) -> Approval:
        raw: Any = item.raw_item
        fields = raw if isinstance(raw, dict) else vars(raw)
        call_id = str(fields.get("call_id") or fields.get("id") or "call")
        call = ToolCall(id=call_id, name=item.name or "tool", arguments=item.arguments or "{}")
        key = f"{self._line.prefix}{call_id}"
        return await ask_approval(self._turn, call, key, notify=self._notify, timeout_s=self._timeout_s)


class _NestedRunner(AgentRunner):
    """Records runs inside a recorded run, such as those of agents that are tools; others are not changed.

    The SDK starts them with its default runner and the agent of the application.
    """

    def __init__(self, other: AgentRunner) -> None:
        self._other = other

    async def run(
        self,
        starting_agent: Agent[Any],
        input: Input | RunState[Any],  # noqa: A002 (the name of the SDK)
        **kwargs: Any,  # noqa: ANN401 (RunOptions)
    ) -> RunResult:
        line = current_line()
        if line is None:
            return await self._other.run(starting_agent, input, **kwargs)
        options, owned = _recorded_options(cast("RunOptions[Any]", kwargs))
        try:
            return await self._other.run(recorded_agent(starting_agent, line.recording), input, **options)
        finally:
            if owned is not None:
                await owned.aclose()

    def run_sync(
        self,
        starting_agent: Agent[Any],
        input: Input | RunState[Any],  # noqa: A002 (the name of the SDK)
        **kwargs: Any,  # noqa: ANN401 (RunOptions)
    ) -> RunResult:
        return self._other.run_sync(starting_agent, input, **kwargs)

    def run_streamed(
        self,
        starting_agent: Agent[Any],
        input: Input | RunState[Any],  # noqa: A002 (the name of the SDK)
        **kwargs: Any,  # noqa: ANN401 (RunOptions)
    ) -> RunResultStreaming:
        line = current_line()
        if line is None:
            return self._other.run_streamed(starting_agent, input, **kwargs)
        options, _ = _recorded_options(cast("RunOptions[Any]", kwargs))
        return self._other.run_streamed(recorded_agent(starting_agent, line.recording), input, **options)


def _install() -> None:
    """Put the runner that records nested runs in the place of the SDK's default one, once in a process."""
    runner = get_default_agent_runner()
    if not isinstance(runner, _NestedRunner):
        set_default_agent_runner(_NestedRunner(runner))


def _recorded_options(options: RunOptions[Any]) -> tuple[RunOptions[Any], ModelProvider | None]:
    """Return options whose models are recorded, and a provider that is to be closed after the run."""
    given = options.get("run_config")
    config = RunConfig(**given) if isinstance(given, dict) else given or RunConfig()
    is_own = given is None or (isinstance(given, dict) and "model_provider" not in given)
    recorded = dataclasses.replace(recorded_config(config))
    return {**options, "run_config": recorded}, recorded.model_provider if is_own else None


def _check_turn(turn: Turn) -> None:
    if current(None) is not turn:
        raise ConfigError(
            "LashRunner works inside the turn that it is given: call it in an agent of an App, with its turn; outside "
            "of a turn nothing is recorded, so use Runner of the SDK there"
        )


def _session_of(turn: Turn, options: RunOptions[Any]) -> TurnSession | None:
    session = options.get("session")
    if session is None:
        return None
    if not isinstance(session, TurnSession) or session.session_id != turn.session_id:
        raise ConfigError(
            f"expected LashSession.of(turn) as the session of a recorded run, got {type(session).__name__}: other "
            "sessions are written again when the turn runs again"
        )
    return session


@contextlib.contextmanager
def _own_errors() -> Iterator[None]:
    """Raise errors of lash as they are: the SDK wraps what a tool raises."""
    try:
        yield
    except LashError:
        raise
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, LashError):
            cause = cause.__cause__
        if cause is None:
            raise
        raise cause from error
