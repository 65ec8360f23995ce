"""The agent that a message or a turn names."""

from __future__ import annotations

from collections.abc import Mapping

from lash.base.limits import MAX_IDENTIFIER_LENGTH
from lash.model.session.checkpoint import AGENT_OPTION


def fitting_agent(options: Mapping[str, object]) -> str | None:
    """Return the agent of turn options; None if they name none, or one that does not fit an index."""
    agent = options.get(AGENT_OPTION)
    return agent if isinstance(agent, str) and 0 < len(agent) <= MAX_IDENTIFIER_LENGTH and "\0" not in agent else None
