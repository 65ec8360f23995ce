"""OpenAI's Agents SDK on a lash storage: install ``lash-runtime[openai-agents]``."""

from __future__ import annotations

from lash.adapters.openai_agents.session import LashSession

__all__ = ["LashSession"]
