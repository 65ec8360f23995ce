"""An agent: a model, its tools, and the loop between them, of which every call is a recorded step."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeGuard

from lash.agents.approvals import Approval, ApprovalRequest, Notify
from lash.agents.budget import Budget
from lash.agents.context import WHOLE, Context
from lash.agents.loop import Loop
from lash.agents.source import CallableTool, ToolSource
from lash.agents.tools import Tool, as_tool, object_schema
from lash.agents.vocabulary import Model, OutputSpec, ToolSpec
from lash.errors import ConfigError
from lash.model.session.message import Message
from lash.runtime.app import App
from lash.runtime.declarations import Declarations
from lash.runtime.definition import AgentDefinition
from lash.runtime.errors import Permanent
from lash.runtime.policy import NO_RETRY, TURN_RETRY, Retry
from lash.runtime.steps.values import check_type
from lash.runtime.turns.turn import Turn

MODEL_RETRY: Final = Retry(max_attempts=5, first_pause_s=1, longest_pause_s=60)
"""How often a busy or failing provider is asked. The turn is parked meanwhile, for as long as the provider says."""
Decide = Callable[[ApprovalRequest], bool | Approval]


class Agent:
    """A model that answers the messages of sessions, with tools.

    ``declare`` makes it an agent of an application. ``reply`` runs it inside a turn of your own agent function.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        *,
        instructions: str | Callable[[Turn], str] = "",
        tools: Sequence[Tool | ToolSource | Callable[..., object]] = (),
        output: Any = None,  # noqa: ANN401 (any type)
        max_rounds: int = 32,
        context: Context = WHOLE,
        budget: Budget | None = None,
        early_input: bool = False,
        on_approval: Notify | None = None,
        model_retry: Retry = MODEL_RETRY,
        retry: Retry = TURN_RETRY,
        timeout_s: float | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.instructions = instructions
        self.sources = tuple(each for each in tools if _is_source(each))
        self.tools = {each.name: each for each in _own_tools(tools)}
        self.output = output
        self.max_rounds = max_rounds
        self.context = context
        self.budget = budget
        self.early_input = early_input
        self.on_approval = on_approval
        self.model_retry = model_retry
        self.retry = retry
        self.timeout_s = timeout_s
        if len(self.tools) + len(self.sources) < len(tools):
            raise ConfigError(f"agent {name!r} has two tools of one name; rename one of them")
        _check_prefixes(name, self.sources, self.tools)
        if max_rounds < 1:
            raise ConfigError(f"expected max_rounds of at least 1, got {max_rounds}")
        self.output_spec = None if output is None else _output_spec(name, output)

    def __repr__(self) -> str:
        return f"<agent {self.name} with {len(self.tools)} tools and {len(self.sources)} sources of tools>"

    def declare(self, app: Declarations) -> AgentDefinition:
        """Declare the agent on an application or a router."""
        return app.agent(name=self.name, retry=self.retry, timeout_s=self.timeout_s)(self.reply)

    async def reply(self, turn: Turn) -> Message:
        """Answer the input of a turn, and return the reply: ``return await agent.reply(turn)``.

        Every model call is a step ``model``, every tool call a step under the id of the call. What they add to the
        conversation, and the tokens that they took, are committed with the turn.
        """
        return await Loop(self, turn).run()

    def find_tool(self, name: str) -> CallableTool | None:
        """Return the tool that a call names: one of the agent, or one of the source whose prefix the name has."""
        own = self.tools.get(name)
        return own or next((each.find(name) for each in self.sources if name.startswith(each.prefix)), None)

    async def tool_specs(self, turn: Turn) -> tuple[ToolSpec, ...]:
        """Return all tools as the model sees them; raise ToolsUnavailable if a source cannot say what it has."""
        found = [tool.spec for tool in self.tools.values()]
        for source in self.sources:
            found += await source.specs(turn)
        return tuple(found)

    def with_model(self, model: Model) -> Agent:
        """Return the same agent with another model, such as a `ScriptedModel` in a test."""
        agent = copy.copy(self)
        agent.model = model
        return agent

    async def run(
        self, text: str, *, approve: Decide | None = None, url: str = "sqlite://", session_id: str = "run"
    ) -> str:
        """Run one turn and return the text of the reply; for tests and scripts.

        The storage is in memory unless a URL is given. ``approve`` decides about tool calls that need an approval;
        without it such a call fails the turn. Raises TurnFailed with the reason.
        """
        app = App(url)
        agent = copy.copy(self)
        agent.retry = NO_RETRY
        agent.on_approval = _decide_at_once(app, approve)
        async with app:
            return await app.session(session_id, agent=agent.declare(app)).ask(text)


def _decide_at_once(app: App, approve: Decide | None) -> Callable[[ApprovalRequest], Awaitable[None]]:
    async def decide(request: ApprovalRequest) -> None:
        if approve is None:
            raise Permanent(f"tool {request.call.name!r} needs an approval: give run() a function as approve")
        decision = approve(request)
        await app.resolve(request.key, decision if isinstance(decision, bool) else _plain(decision))

    return decide


def _plain(decision: Approval) -> dict[str, Any]:
    return {"approved": decision.approved, "text": decision.text}


def _is_source(given: object) -> TypeGuard[ToolSource]:
    return isinstance(getattr(given, "prefix", None), str)


def _own_tools(given: Iterable[Tool | ToolSource | Callable[..., object]]) -> Iterator[Tool]:
    for each in given:
        if not _is_source(each):
            assert isinstance(each, Tool) or callable(each)
            yield as_tool(each)


def _check_prefixes(name: str, sources: tuple[ToolSource, ...], tools: Iterable[str]) -> None:
    """Raise ConfigError if it is not clear from its name alone where a tool comes from."""
    for number, source in enumerate(sources):
        others = [each.prefix for each in sources[:number] + sources[number + 1 :]]
        clash = next((each for each in [*tools, *others] if each.startswith(source.prefix)), None)
        if clash is not None:
            raise ConfigError(
                f"agent {name!r}: {clash!r} begins with {source.prefix!r}, as the tools of another source do; rename it"
            )


def _output_spec(name: str, output: object) -> OutputSpec:
    check_type(output, f"agent {name!r}: the type of its output")
    schema = object_schema(output)
    if schema.get("type") != "object":
        raise ConfigError(f"agent {name!r}: expected an output with fields, such as a dataclass, got {output}")
    return OutputSpec(name=getattr(output, "__name__", "output"), json_schema=schema)
