"""Deferred tools: a call waits, without memory and worker, for a person or another program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied

from lash.adapters.names import short
from lash.adapters.pydantic_ai.runs import runs_here
from lash.agents.approvals import Approval, approval_question, call_key, read_decision, wait_name
from lash.agents.vocabulary import ToolCall
from lash.base.replay_key import replay_key
from lash.errors import WaitRejected
from lash.model.value import JSON, Value
from lash.model.wait import Question
from lash.runtime.turns.turn import Turn

CALL: Final = "call"
"""The first part of the name of a wait for the result of a call."""
_SHOWN: Final = 1_000
"""Longer arguments are not part of the question."""


class DeferredCall(Value, frozen=True, kw_only=True):
    """A tool call that waits. With ``key`` any program can end the wait: ``app.resolve(key, True)``.

    An ``approval`` is resolved with True, False or an Approval, a ``call`` with what the tool returns, as JSON.
    """

    kind: Literal["approval", "call"]
    call: ToolCall
    key: str


OnDeferred = Callable[[DeferredCall], Awaitable[None]]


class Deferred:
    """The waits of one batch of deferred calls."""

    def __init__(self, on_deferred: OnDeferred | None, timeout_s: float | None) -> None:
        self._run, self._runs = runs_here()
        self._on_deferred = on_deferred
        self._timeout_s = timeout_s

    async def results(self, run_id: str | None, requests: DeferredToolRequests) -> DeferredToolResults:
        """Return the results of all calls; the turn or process is parked until each has one."""
        seen: dict[str, int] = {}
        approvals = [(part, self._key(part, seen)) for part in requests.approvals]
        calls = [(part, self._key(part, seen)) for part in requests.calls]
        group = self._runs.numbered(f"{self._runs.label(run_id)}/deferred")
        found = await self._run.options(key=short(group, 180)).gather(
            *(self._approval(part, key) for part, key in approvals), *(self._result(part, key) for part, key in calls)
        )
        ids = [part.tool_call_id for part, _ in (*approvals, *calls)]
        answers = list(zip(ids, found, strict=True))
        return DeferredToolResults(approvals=dict(answers[: len(approvals)]), calls=dict(answers[len(approvals) :]))

    def _key(self, part: ToolCallPart, seen: dict[str, int]) -> str:
        """Return what identifies a call in the turn, also if the model has used its id before."""
        return self._runs.numbered(f"deferred:{call_key(_call(part), seen)}").removeprefix("deferred:")

    async def _approval(self, part: ToolCallPart, key: str) -> ToolApproved | ToolDenied:
        name = wait_name(part.tool_name, key)
        try:
            decision = read_decision(await self._wait("approval", name, part))
        except WaitRejected as rejected:
            decision = Approval(approved=False, text=rejected.message)
        except TimeoutError:
            decision = Approval(approved=False, text=f"No decision came within {self._timeout_s:g} s.")
        return ToolApproved() if decision.approved else ToolDenied(f"The call was denied. {decision.text}".rstrip())

    async def _result(self, part: ToolCallPart, key: str) -> Any:  # noqa: ANN401 (what the tool returns)
        try:
            return await self._wait("call", replay_key(CALL, part.tool_name, key), part)
        except WaitRejected as rejected:
            return ToolFailed(rejected.message)
        except TimeoutError:
            return ToolFailed(f"No result came within {self._timeout_s:g} s.")

    async def _wait(self, kind: Literal["approval", "call"], name: str, part: ToolCallPart) -> JSON:
        run, call = self._run, _call(part)

        async def ask() -> ToolCall:
            if isinstance(run, Turn):
                run.activity({kind: {"id": call.id, "name": call.name, "arguments": call.arguments}})
            if self._on_deferred is not None:
                await self._on_deferred(DeferredCall(kind=kind, call=call, key=await run.wait_key(name)))
            return call

        # Recorded, so that a person is asked once, and that the call can be found from its wait.
        await run.options(key=name).step(kind, ask)
        question = approval_question(call) if kind == "approval" else _question(call)
        answer: JSON = await run.wait(name, timeout_s=self._timeout_s, ask=question)
        return answer


def _question(call: ToolCall) -> Question:
    is_short = len(call.arguments) <= _SHOWN
    details: JSON = {"tool": call.name, "arguments": call.arguments if is_short else None}
    return Question(text=f"What does the tool {call.name} return?", details=details)


def _call(part: ToolCallPart) -> ToolCall:
    return ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=part.args_as_json_str())
