"""Budgets of agents."""

from __future__ import annotations

import pytest

import lash
from lash.agents import Agent, Budget, Price, ScriptedModel, call, tool
from lash.model import TokenUsage, UsageSum
from tests.runtime.turn_bench import Bench

EACH = TokenUsage(input_tokens=60, output_tokens=40, cached_input_tokens=500)
DAY_S = 86_400


@tool
def look() -> str:
    return "nothing"


async def replies(app: lash.App, agent: lash.AgentDefinition, *sessions: str) -> list[str]:
    found = []
    for session_id in sessions:
        chat = app.session(session_id, agent=agent)
        await chat.send("go")
        await app.drain()
        found.append((await chat.messages())[-1].text)
    return found


async def test_the_budget_of_a_turn(bench: Bench) -> None:
    """The call that reaches the limit is the last one, the turn says so, and its tokens are booked."""
    model = ScriptedModel(*[[call("look")]] * 3, usage=EACH)
    app = await bench.app()
    agent = Agent("assistant", model, tools=[look], budget=Budget(turn=150)).declare(app)
    said = "The budget of agent 'assistant' is used up: 200 of 150 tokens of the turn are used."
    assert await replies(app, agent, "s") == [said]
    assert len(model.requests) == 2
    (used,) = (await app.storage.usage.sum([])).sums
    assert used.usage.total == 200


async def test_the_budgets_of_a_session_and_of_a_day(bench: Bench) -> None:
    """A session has its own limit, the day one for all sessions of the agent; the next day begins with nothing."""
    model = ScriptedModel(*["ok"] * 9, usage=EACH)
    app = await bench.app()
    agent = Agent("assistant", model, budget=Budget(session=150, day=350)).declare(app)
    other = Agent("other", ScriptedModel("ok", usage=EACH)).declare(app)
    assert await replies(app, other, "x") == ["ok"]
    assert await replies(app, agent, "a", "a") == ["ok", "ok"]
    (over,) = await replies(app, agent, "a")
    assert "200 of 150 tokens of the session are used" in over
    assert await replies(app, agent, "b", "c") == ["ok", "ok"]
    (over,) = await replies(app, agent, "d")
    assert "400 of 350 tokens of the day are used" in over
    await bench.seconds(DAY_S)
    assert await replies(app, agent, "d") == ["ok"]


def test_money() -> None:
    """Each kind of token has its price, by the longest beginning of the model's name."""
    prices = {"m": Price(input=1, output=10), "m-large": Price(input=2, output=20, cached=0.2, reasoning=5)}
    usage = TokenUsage(
        input_tokens=1_000_000, output_tokens=100_000, cached_input_tokens=1_000_000, reasoning_tokens=100_000
    )
    small, large = UsageSum(model="m-small", usage=usage), UsageSum(model="m-large-2", usage=usage)
    budget = Budget(turn_cost=4.7, session_cost=8.69, day_cost=100, prices=prices)
    # 1 + 1 + 1 + 1 for the small one; 2 + 2 + 0.2 + 0.5 for the large one.
    assert budget.reached([small], [], []) is None
    assert budget.reached([small], [large], []) == "8.7000 of 8.6900 of the session is spent"
    assert budget.reached([large], [], []) == "4.7000 of 4.7000 of the turn is spent"
    with pytest.raises(lash.ConfigError, match="no price for model 'other'"):
        budget.reached([UsageSum(model="other", usage=usage)], [], [])


def test_what_a_budget_refuses() -> None:
    """Negative limits, and money without prices."""
    with pytest.raises(lash.ConfigError, match="not negative"):
        Budget(turn=-1)
    with pytest.raises(lash.ConfigError, match="needs prices"):
        Budget(day_cost=5)
