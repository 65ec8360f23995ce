"""The loop of one turn: the model is called, the tools that it calls are called, until it replies with text."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

import msgspec

from lash.agents.approvals import ask_approval, call_key
from lash.agents.context import cut, summary_message, summary_request, to_compact, visible
from lash.agents.errors import (
    LengthReached,
    ModelError,
    ModelRefused,
    ModelTimedOut,
    ModelUnavailable,
    OutputMismatch,
    RateLimited,
    RequestRefused,
    ToolsUnavailable,
    TooManyRounds,
)
from lash.agents.source import CallableTool
from lash.agents.tools import ToolAnswer
from lash.agents.vocabulary import ModelReply, ModelRequest, Piece, Stop, Thought, ToolCall, text_part
from lash.errors import InvalidInput, StepFailed
from lash.model.session.message import Message, Part, PartKind, ResponseMeta, Role
from lash.model.session.usage import UsageSum
from lash.model.value import JSON, Value
from lash.runtime.hooks import about_steps
from lash.runtime.turns.messages import read_reply
from lash.runtime.turns.turn import Turn

if TYPE_CHECKING:
    from lash.agents.agent import Agent

_MOST_CORRECTIONS: Final = 2
"""How often a model is asked to correct an output that does not fit its type."""
_LONGEST_PAUSE_S: Final = 3_600.0
"""The longest pause that a provider is granted by its retry-after."""
_MODEL_ERRORS: Final = (RequestRefused, ModelRefused, LengthReached, RateLimited, ModelTimedOut, ModelUnavailable)
_SHOWN_BYTES: Final = 16_384
"""The longest result of a tool that is shown to observers; activity is kept for all of them."""
BUDGET_REACHED: Final = "budget_reached"
"""The status of a reply that says that the budget is used up."""
FAILED: Final = "failed"
"""The status of a tool result that is an error."""


class Trouble(Value, frozen=True, kw_only=True, tag_field="kind", tag="trouble"):
    """A call of the model that failed and is made again after a pause; recorded, as the pause is."""

    error: str
    message: str
    pause_s: float


class Loop:
    """One turn of an agent."""

    def __init__(self, agent: Agent, turn: Turn) -> None:
        self._agent = agent
        self._turn = turn
        self._seen_calls: dict[str, int] = {}
        self._round = 0
        self._corrections: list[Message] = []
        self._used: list[UsageSum] = []
        self._session_used: list[UsageSum] = []
        self._day_used: list[UsageSum] = []

    async def run(self) -> Message:
        """Run the loop and return the reply."""
        while self._round < self._agent.max_rounds:
            self._round += 1
            if (reason := await self._reached()) is not None:
                return self._over_budget(reason)
            reply = await self._call_model()
            self._book(reply)
            parts = self._named(reply.parts)
            if reply.calls:
                self._turn.add(parts)
                self._turn.add(await self._call_tools(reply.calls))
                if self._agent.early_input:
                    await self._turn.join_early_input()
            elif reply.stop is Stop.PAUSED:
                self._turn.add(parts)
            elif self._is_valid(reply, parts):
                return Message(id="reply", role=Role.ASSISTANT, parts=parts)
        raise TooManyRounds(
            f"agent {self._agent.name!r} called its model {self._agent.max_rounds} times without a reply; raise "
            "max_rounds, or change its instructions"
        )

    # The budget.

    async def _reached(self) -> str | None:
        """Return which limit of the budget is reached, the same in every run."""
        budget, turn = self._agent.budget, self._turn
        if budget is None:
            return None
        if self._round == 1 and budget.reads_session:
            self._session_used = await turn.tokens_used(session_id=turn.session_id)
        if self._round == 1 and budget.reads_day:
            today = (await turn.now()).replace(hour=0, minute=0, second=0, microsecond=0)
            self._day_used = await turn.tokens_used(agent=self._agent.name, since=today)
        return budget.reached(self._used, self._session_used, self._day_used)

    def _over_budget(self, reason: str) -> Message:
        """Return the reply that ends the turn; what it used up to here is booked."""
        self._turn.activity({"budget": reason})
        text = f"The budget of agent {self._agent.name!r} is used up: {reason}."
        part = Part(id="budget", kind=PartKind.PROSE, content=text, response_meta=ResponseMeta(status=BUDGET_REACHED))
        return Message(id="reply", role=Role.ASSISTANT, parts=(part,))

    # The model.

    async def _call_model(self) -> ModelReply:
        retry = self._agent.model_retry
        for attempt in range(1, retry.max_attempts + 1):
            is_last = attempt == retry.max_attempts
            outcome = await self._step_model(retry.pause_s(attempt), is_last=is_last)
            if isinstance(outcome, ModelReply):
                return outcome
            await self._turn.sleep(outcome.pause_s)
        raise AssertionError("the last attempt returns or raises")

    async def _step_model(self, pause_s: float, *, is_last: bool) -> ModelReply | Trouble:
        messages = (*await self._conversation(), *self._corrections)

        async def model() -> ModelReply | Trouble:
            try:
                return _whole(await self._stream(await self._request(messages)))
            except (RateLimited, ModelTimedOut, ModelUnavailable, ToolsUnavailable) as error:
                if is_last:
                    raise
                return Trouble(error=type(error).__name__, message=str(error), pause_s=_pause(error, pause_s))

        try:
            with self._about_model():
                return await self._turn.step("model", model)
        except StepFailed as failed:
            raise _typed(failed) from failed.__cause__

    def _about_model(self) -> AbstractContextManager[None]:
        """Let hooks know which model a step calls."""
        model = self._agent.model
        return about_steps(provider=getattr(model, "provider", None), model=getattr(model, "model", "unknown"))

    async def _conversation(self) -> list[Message]:
        """Return what the model gets of the conversation; an older part that is too long is summarized before."""
        context = self._agent.context
        older = to_compact(visible(self._turn.messages()), context) if context.compact_at is not None else []
        if older:
            await self._compact(older)
        if context.compact_at is not None:
            return cut(visible(self._turn.messages()), context)
        return cut(self._turn.messages(max_tokens=context.max_tokens, count=context.count), context)

    async def _compact(self, older: list[Message]) -> None:
        """Let the model summarize older messages, once, and add the summary, which stands for them from now on."""

        async def compact() -> ModelReply:
            request = summary_request(older, self._agent.context)
            answer = self._agent.model(request)
            if inspect.isawaitable(answer):
                return _whole(_as_reply(await answer))
            pieces = [piece async for piece in answer]
            last = pieces[-1] if pieces else ""
            text = "".join(piece for piece in pieces if isinstance(piece, str))
            return _whole(last if isinstance(last, ModelReply) else _as_reply(text))

        with self._about_model():
            reply = await self._turn.step("compact", compact)
        self._book(reply, source="compaction")
        self._turn.add(summary_message(reply, older))

    async def _request(self, messages: tuple[Message, ...]) -> ModelRequest:
        agent, turn = self._agent, self._turn
        return ModelRequest(
            messages=messages,
            instructions=agent.instructions(turn) if callable(agent.instructions) else agent.instructions,
            tools=await agent.tool_specs(turn),
            output=agent.output_spec,
            files={each: await turn.read_attachment(each) for each in _attachments(messages)},
        )

    async def _stream(self, request: ModelRequest) -> ModelReply:
        """Call the model, show the pieces to observers, and return the whole reply."""
        turn, text = self._turn, list[str]()
        turn.activity({"model_call": self._round})
        answer = self._agent.model(request)
        if inspect.isawaitable(answer):
            return _as_reply(await answer)
        async for piece in answer:
            if isinstance(piece, ModelReply):
                return piece
            turn.activity(_shown(piece))
            if isinstance(piece, str):
                text.append(piece)
        return _as_reply("".join(text))

    def _book(self, reply: ModelReply, source: str = "turn") -> None:
        usage = reply.usage
        if usage.total or usage.cached_input_tokens:
            self._used.append(UsageSum(model=reply.model or "unknown", usage=usage))
            self._turn.usage(
                reply.model or "unknown",
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_input_tokens=usage.cached_input_tokens,
                reasoning_tokens=usage.reasoning_tokens,
                source=source,
            )

    def _is_valid(self, reply: ModelReply, parts: tuple[Part, ...]) -> bool:
        """Return whether the reply fits the type of the output; if not, the model is asked to correct it."""
        if self._agent.output is None:
            return True
        try:
            read_reply(reply.text, self._agent.output)
        except InvalidInput as error:
            if len(self._corrections) // 2 == _MOST_CORRECTIONS:
                raise OutputMismatch(f"agent {self._agent.name!r}: {error}") from None
            ask = f"{error}. Reply again with JSON that fits the schema, and nothing else."
            self._corrections += (
                Message(id=f"wrong:{self._round}", role=Role.ASSISTANT, parts=parts),
                Message.of_text(f"correction:{self._round}", Role.USER, ask),
            )
            return False
        return True

    # Tools.

    async def _call_tools(self, calls: Sequence[ToolCall]) -> list[Part]:
        """Call the tools side by side, and return their results in the order of the calls."""
        keys = [call_key(call, self._seen_calls) for call in calls]
        answers = await self._turn.gather(*(self._call(call, key) for call, key in zip(calls, keys, strict=True)))
        return [_result(call, key, answer) for call, key, answer in zip(calls, keys, answers, strict=True)]

    async def _call(self, call: ToolCall, key: str) -> ToolAnswer:
        tool = self._agent.find_tool(call.name, self._turn)
        if tool is None:
            return await self._step(call, key, None)
        note = ""
        if tool.needs_approval:
            notify, timeout_s = self._agent.on_approval, tool.approval_timeout_s
            decision = await ask_approval(self._turn, call, key, notify=notify, timeout_s=timeout_s)
            if not decision.approved:
                return ToolAnswer(text=f"The call was denied. {decision.text}".rstrip(), failed=True)
            note = decision.text
        answer = await (
            tool.answer(call.arguments, turn=self._turn) if tool.takes_turn else self._step(call, key, tool)
        )
        return (
            msgspec.structs.replace(answer, text=f"{answer.text}\n\nApproved with the note: {note}") if note else answer
        )

    async def _step(self, call: ToolCall, key: str, tool: CallableTool | None) -> ToolAnswer:
        turn, attempt = self._turn, 0

        async def run(arguments: str) -> ToolAnswer:
            nonlocal attempt
            attempt += 1
            turn.activity({"tool_call": {"id": call.id, "name": call.name, "arguments": arguments}})
            if tool is None:
                known = ", ".join(self._agent.tools) or "none"
                answer = ToolAnswer(text=f"unknown tool {call.name!r}; there are: {known}", failed=True)
            else:
                answer = await tool.answer(arguments, is_last=attempt == tool.retry.max_attempts)
            turn.activity({"tool_result": _shown_result(call, answer)})
            return answer

        with about_steps(tool=call.name, call_id=call.id):
            if tool is None:
                return await turn.options(key=f"tool.{key}").step("tool", run, call.arguments)
            options = turn.options(key=f"tool.{key}", once=tool.once, retry=tool.retry)
            return await options.step(tool.name, run, call.arguments)

    def _named(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Return the parts of a reply with ids that are unique in the turn."""
        return tuple(
            msgspec.structs.replace(part, id=f"{self._turn.turn_id}:{self._round}.{index}")
            for index, part in enumerate(parts)
        )


def _as_reply(answer: ModelReply | str) -> ModelReply:
    if isinstance(answer, str):
        return ModelReply(parts=(text_part(answer),) if answer else ())
    if not isinstance(answer, ModelReply):
        raise InvalidInput(f"expected text or a ModelReply from the model, got {type(answer).__name__}")
    return answer


def _whole(reply: ModelReply) -> ModelReply:
    """Return a reply that is complete, or raise why it is not: such a reply is not recorded."""
    if reply.stop is Stop.REFUSED:
        raise ModelRefused(f"the model refused to answer: {reply.text or 'it gave no reason'}")
    if reply.stop is Stop.LENGTH:
        raise LengthReached(
            f"the reply was cut off after {reply.usage.output_tokens + reply.usage.reasoning_tokens} tokens; raise the "
            "limit of output tokens of the model, or send it less"
        )
    return reply


def _shown(piece: Piece) -> JSON:
    return {"reasoning": piece.text} if isinstance(piece, Thought) else {"text": piece}


def _shown_result(call: ToolCall, answer: ToolAnswer) -> JSON:
    """Return a tool's result as observers see it; they get a long one with the commit only."""
    shown: dict[str, JSON] = {"id": call.id, "name": call.name, "failed": answer.failed}
    is_short = len(msgspec.json.encode(answer.text)) <= _SHOWN_BYTES
    return {**shown, "text": answer.text} if is_short else shown


def _pause(error: ModelError, pause_s: float) -> float:
    wanted = getattr(error, "retry_after_s", None)
    return pause_s if wanted is None else min(max(float(wanted), 0.0), _LONGEST_PAUSE_S)


def _typed(failed: StepFailed) -> Exception:
    """Return the error of the model that a failed step stands for, so that callers can catch its class."""
    kinds = {kind.__name__: kind for kind in (*_MODEL_ERRORS, ToolsUnavailable)}
    return kinds[failed.code](failed.message) if failed.code in kinds else failed


def _result(call: ToolCall, key: str, answer: ToolAnswer) -> Part:
    return Part(
        id=f"{key}:result",
        kind=PartKind.TOOL_RESULT,
        content=answer.text,
        tool_call_id=call.id,
        tool_name=call.name,
        response_meta=ResponseMeta(status=FAILED) if answer.failed else None,
    )


def _attachments(messages: Sequence[Message]) -> list[str]:
    parts = (part for message in messages for part in message.parts)
    return list(dict.fromkeys(part.attachment.id for part in parts if part.attachment is not None))
