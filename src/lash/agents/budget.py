"""Budgets: how many tokens, and how much money, an agent may use in a turn, a session and a day."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from lash.errors import ConfigError
from lash.model.session.usage import TokenUsage, UsageSum
from lash.model.value import Value

_MILLION: Final = 1_000_000


class Price(Value, frozen=True, kw_only=True):
    """What a million tokens of a model cost. Reasoning costs as output, and cached input as input, unless given."""

    input: float
    output: float
    cached: float | None = None
    reasoning: float | None = None

    def of(self, usage: TokenUsage) -> float:
        """Return what these tokens cost."""
        cached = self.input if self.cached is None else self.cached
        reasoning = self.output if self.reasoning is None else self.reasoning
        parts = (
            usage.input_tokens * self.input,
            usage.cached_input_tokens * cached,
            usage.output_tokens * self.output,
            usage.reasoning_tokens * reasoning,
        )
        return sum(parts) / _MILLION


class Budget(Value, frozen=True, kw_only=True):
    """Limits of an agent. A model is called as long as less was used; the call that reaches a limit is the last.

    ``turn``, ``session`` and ``day`` are tokens without cached input. ``turn_cost``, ``session_cost`` and ``day_cost``
    are money by ``prices``, which has a price for each model, or for the beginning of its name. A day is one of UTC,
    and counts all sessions of the agent. Turns that run at the same time do not see each other's tokens.
    """

    turn: int | None = None
    session: int | None = None
    day: int | None = None
    turn_cost: float | None = None
    session_cost: float | None = None
    day_cost: float | None = None
    prices: Mapping[str, Price] = {}

    def __post_init__(self) -> None:
        costs = (self.turn_cost, self.session_cost, self.day_cost)
        if any(limit is not None and limit < 0 for limit in (self.turn, self.session, self.day, *costs)):
            raise ConfigError(f"expected limits that are not negative, got {self!r}")
        if any(cost is not None for cost in costs) and not self.prices:
            raise ConfigError("a budget of money needs prices: Budget(prices={'gpt-5': Price(input=1.25, output=10)})")

    @property
    def reads_session(self) -> bool:
        return self.session is not None or self.session_cost is not None

    @property
    def reads_day(self) -> bool:
        return self.day is not None or self.day_cost is not None

    def reached(self, turn: list[UsageSum], session: list[UsageSum], day: list[UsageSum]) -> str | None:
        """Return which limit is reached, or None; session and day are without this turn."""
        scopes = (
            ("turn", self.turn, self.turn_cost, turn),
            ("session", self.session, self.session_cost, [*session, *turn]),
            ("day", self.day, self.day_cost, [*day, *turn]),
        )
        for name, tokens, cost, used in scopes:
            total = sum(each.usage.total for each in used)
            if tokens is not None and total >= tokens:
                return f"{total:,} of {tokens:,} tokens of the {name} are used"
            if cost is not None and (spent := self._cost(used)) >= cost:
                return f"{spent:.4f} of {cost:.4f} of the {name} is spent"
        return None

    def _cost(self, used: Iterable[UsageSum]) -> float:
        return sum(self._price(each.model or "").of(each.usage) for each in used)

    def _price(self, model: str) -> Price:
        """Return the price of a model: of the longest beginning of its name that has one."""
        names = [name for name in self.prices if model.startswith(name)]
        if not names:
            raise ConfigError(f"no price for model {model!r}; known: {', '.join(sorted(self.prices))}")
        return self.prices[max(names, key=len)]
