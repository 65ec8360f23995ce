"""The frameworks whose databases can be imported."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final, cast

from lash.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from lash.adapters.importing.found import FrameworkReader

READERS: Final = {
    "langgraph": "lash.adapters.langgraph.importing:LangGraphReader",
    "openai-agents": "lash.adapters.importing.openai_agents:OpenAIAgentsReader",
    "adk": "lash.adapters.importing.adk:ADKReader",
}
"""``framework -> module:class``; the module is imported on demand, because it may need the framework."""


def reader_of(framework: str) -> FrameworkReader:
    """Return a new reader; raise ConfigError if it needs its framework and that is not installed."""
    target = READERS.get(framework)
    if target is None:
        raise InvalidInput(f"unknown framework {framework!r}; known: {', '.join(READERS)}")
    module, _, name = target.partition(":")
    return cast("Callable[[], FrameworkReader]", getattr(importlib.import_module(module), name))()
