"""The options of one step."""

from __future__ import annotations

from lash.errors import InvalidInput
from lash.model.value import Value
from lash.runtime.policy import STEP_RETRY, Retry
from lash.runtime.steps.limit import LimitOf


class StepOptions(Value, frozen=True, kw_only=True):
    """How one step is recorded and tried. ``once`` is for a step that must not run twice, such as a payment."""

    key: str | None = None
    once: bool = False
    retry: Retry = STEP_RETRY
    timeout_s: float | None = None
    limit: str | None = None
    """The declared limit under which each attempt starts."""
    limit_key: str = ""
    """Steps of one limit and different keys, such as tenants, do not wait for each other."""

    def __post_init__(self) -> None:
        if self.limit is None and self.limit_key:
            raise InvalidInput("limit_key needs a limit: options(limit=..., limit_key=...)")
        if self.once and self.retry.max_attempts > 1:
            raise InvalidInput("a step that must not happen twice has no second attempt: leave out once or retry")
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise InvalidInput(f"the time limit of a step is above 0, not {self.timeout_s}")

    @property
    def limit_of(self) -> LimitOf | None:
        """The limit and the key in it; None without a limit."""
        return None if self.limit is None else LimitOf(self.limit, self.limit_key)
