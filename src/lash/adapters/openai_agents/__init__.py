"""OpenAI's Agents SDK on a lash storage: install ``lash-runtime[openai-agents]``."""

from __future__ import annotations

from lash.adapters.attached import not_installed

try:
    from lash.adapters.openai_agents.runner import LashRunner, LashStream
    from lash.adapters.openai_agents.session import LashSession
except ModuleNotFoundError as error:
    raise not_installed("OpenAI's Agents SDK", extra="openai-agents") from error

__all__ = ["LashRunner", "LashSession", "LashStream"]
