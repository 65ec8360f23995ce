"""How the steps of one tool are recorded and tried: ``metadata={"lash": {"once": True}}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from pydantic_ai.toolsets import ToolsetTool

from lash.base.shapes import convert
from lash.errors import ConfigError
from lash.model.value import Value
from lash.runtime.policy import NO_RETRY, Retry
from lash.runtime.processes.context import Context
from lash.runtime.steps.steps import Steps
from lash.runtime.turns.turn import Turn

METADATA: Final = "lash"
"""The key in the metadata of a tool."""


class ToolOptions(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a tool's step, as `lash.Turn.options` has them. A tool that is called ``once`` has no retry."""

    once: bool = False
    retry: Retry = NO_RETRY
    timeout_s: float | None = None
    limit: str | None = None
    limit_key: str = ""

    def __post_init__(self) -> None:
        if self.once and self.retry.max_attempts > 1:
            raise ConfigError("a tool that must not be called twice has no second attempt: leave out once or retry")

    def steps(self, run: Turn | Context, key: str) -> Steps:
        """Return steps of a run with these options, under a key."""
        return run.options(
            key=key,
            once=self.once,
            retry=self.retry,
            timeout_s=self.timeout_s,
            limit=self.limit,
            limit_key=self.limit_key,
        )


DEFAULT: Final = ToolOptions()


def options_of(tool: object, tool_name: str) -> ToolOptions | Literal[False]:
    """Return the options of a tool, or False if it is not a step; raise ConfigError if they are wrong."""
    metadata = tool.tool_def.metadata if isinstance(tool, ToolsetTool) else None
    given: object = (metadata or {}).get(METADATA)
    if given is None or given is True:
        return DEFAULT
    if given is False:
        return False
    if isinstance(given, ToolOptions):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError(f"tool {tool_name!r}: expected a dict or False as metadata {METADATA!r}, got {given!r:.80}")
    try:
        return convert(dict(given), ToolOptions)
    except (msgspec.ValidationError, ConfigError) as error:
        known = ", ".join(ToolOptions.__struct_fields__)
        raise ConfigError(f"tool {tool_name!r}: metadata {METADATA!r}: {error}; known: {known}") from None
