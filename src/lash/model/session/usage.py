"""Token accounting."""

from __future__ import annotations

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
