"""Tools that need an approval park the turn until a person has decided."""

from __future__ import annotations

import pytest

import lash
from lash.agents import (
    Agent,
    Approval,
    ApprovalRequest,
    ScriptedModel,
    ToolCall,
    call,
    decide,
    pending_approvals,
    tool,
)
from lash.errors import InvalidInput
from lash.runtime.turns.end import TurnEnd
from tests.runtime.turn_bench import Bench, run_turn


class Shop:
    """An agent with a tool that needs an approval, and the calls that were made."""

    def __init__(self, *lines: list[ToolCall] | str) -> None:
        self.refunds: list[str] = []
        self.looks: list[str] = []
        self.asked: list[ApprovalRequest] = []
        self.model = ScriptedModel(*lines)

    def declare(self, app: lash.App, *, timeout_s: float | None = None) -> lash.AgentDefinition:
        @tool(needs_approval=True, once=True, approval_timeout_s=timeout_s)
        def refund(order: str) -> str:
            self.refunds.append(order)
            return f"{order} refunded"

        @tool
        def look(order: str) -> str:
            self.looks.append(order)
            return f"{order} is late"

        async def ask(request: ApprovalRequest) -> None:
            self.asked.append(request)

        return Agent("shop", self.model, tools=[refund, look], on_approval=ask).declare(app)

    def results(self) -> list[str]:
        return [part.content for part in self.model.requests[-1].messages[-1].parts]


async def test_the_turn_waits_for_a_decision_on_another_worker(bench: Bench) -> None:
    """Days later, another application runs the approved call; the other call of the reply was made at once."""
    shop = Shop([call("refund", order="o1"), call("look", order="o1")], "done")
    first = await bench.app()
    await first.session("s", agent=shop.declare(first)).send("refund it")
    assert await run_turn(first, "s") is TurnEnd.PARKED
    assert (shop.refunds, shop.looks, len(shop.asked)) == ([], ["o1"], 1)
    await bench.seconds(3 * 86_400)
    second = await bench.app() if bench.shared else first
    if bench.shared:
        shop.declare(second)
    (pending,) = await pending_approvals(second.storage)
    assert (pending.session_id, pending.call) == (
        "s",
        ToolCall(id="call-1.1", name="refund", arguments='{"order":"o1"}'),
    )
    assert await pending_approvals(second.storage, session_id="other") == ()
    assert await decide(second.storage, pending, approved=True, text="only this once")
    assert not await decide(second.storage, pending, approved=False)
    await second.drain()
    assert (shop.refunds, shop.looks, len(shop.asked), len(shop.model.requests)) == (["o1"], ["o1"], 1, 2)
    assert shop.results() == ["o1 refunded\n\nApproved with the note: only this once", "o1 is late"]
    assert await pending_approvals(second.storage) == ()


async def test_every_form_of_a_decision(bench: Bench) -> None:
    """The key decides with true or false, and a rejection denies with its text; any other answer is refused."""
    shop = Shop([call("refund", order=name) for name in "abcd"], "done")
    app = await bench.app()
    await app.session("s", agent=shop.declare(app)).send("refund all")
    await app.drain()
    keys = {request.call.arguments[10]: request.key for request in shop.asked}
    assert {each.call.arguments[10] for each in await pending_approvals(app.storage)} == keys.keys()
    await app.resolve(keys["a"], True)
    await app.resolve(keys["b"], False)
    await app.reject(keys["c"], "no", "not today")
    with pytest.raises(InvalidInput, match="Run the tool refund"):
        await app.resolve(keys["d"], "yes, please")
    (asked,) = await app.storage.waits.pending()
    assert asked.ask is not None
    assert asked.ask.text == "Run the tool refund?"
    assert asked.ask.details == {"tool": "refund", "arguments": '{"order":"d"}'}
    await app.resolve(keys["d"], {"approved": False, "text": "never"})
    await app.drain()
    assert shop.refunds == ["a"]
    assert shop.results() == [
        "a refunded",
        "The call was denied.",
        "The call was denied. not today",
        "The call was denied. never",
    ]


async def test_no_decision_in_time_denies(bench: Bench) -> None:
    """The deadline is absolute, and the model gets an answer that no decision came."""
    shop = Shop([call("refund", order="o1")], "done")
    app = await bench.app()
    await app.session("s", agent=shop.declare(app, timeout_s=60)).send("refund it")
    await app.drain()
    await bench.seconds(61)
    await app.storage.waits.expire()
    await app.drain()
    assert shop.refunds == []
    assert shop.results() == ["The call was denied. No decision came within 60 s."]


async def test_run_decides_at_once() -> None:
    """A test gives ``run`` a function that decides."""
    made: list[str] = []

    @tool(needs_approval=True)
    def refund(order: str) -> str:
        made.append(order)
        return "refunded"

    script: tuple[list[ToolCall] | str, ...] = ([call("refund", order="o1")], "done")
    agent = Agent("shop", ScriptedModel(*script), tools=[refund])
    assert await agent.run("go", approve=lambda request: request.call.name == "refund") == "done"
    denied = agent.with_model(ScriptedModel(*script))
    assert await denied.run("go", approve=lambda _: Approval(approved=False, text="no")) == "done"
    assert made == ["o1"]
