"""Token accounting."""

from __future__ import annotations

import enum

from lash.model.value import Count, Value


class TokenUsage(Value, frozen=True, kw_only=True):
    """Tokens of one or more model calls. Cached input is counted separately, not in the total."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens + self.reasoning_tokens


class UsageEntry(Value, frozen=True, kw_only=True):
    """Tokens spent by one source (``turn``, ``subagent``, ``compaction``, …) on one model."""

    source: str
    model: str
    usage: TokenUsage


class PromptUsage(Value, frozen=True, kw_only=True):
    """How full the context was at the last prompt."""

    prompt_context_tokens: Count = 0
    input_tokens: Count = 0
    cached_input_tokens: Count = 0
    context_budget_tokens: Count = 0


class UsageGroup(enum.StrEnum):
    """What token usage can be summed by, in the order of the sums."""

    DAY = "day"
    MODEL = "model"
    AGENT = "agent"
    SESSION = "session"
    SOURCE = "source"


class UsageSum(Value, frozen=True, kw_only=True):
    """The tokens of one group of the ledger. A field that the sum was not grouped by is None.

    ``day`` is a day of UTC such as ``2026-11-16``. It is None for tokens that were booked before lash stored the time,
    and ``agent`` is None for tokens of a session without one.
    """

    day: str | None = None
    model: str | None = None
    agent: str | None = None
    session_id: str | None = None
    source: str | None = None
    usage: TokenUsage


class UsagePage(Value, frozen=True, kw_only=True):
    """Sums of token usage. ``next_cursor`` continues the list; None at its end."""

    sums: tuple[UsageSum, ...]
    next_cursor: str | None = None
