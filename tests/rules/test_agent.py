"""Rules of the agent that a message or a turn names."""

from __future__ import annotations

import pytest

from lash.base.limits import MAX_IDENTIFIER_LENGTH
from lash.plan.agent import fitting_agent

LONGEST = "x" * MAX_IDENTIFIER_LENGTH


@pytest.mark.parametrize("name", ["clerk", "a clerk", LONGEST])
def test_a_name_that_fits(name: str) -> None:
    """A name that fits an index is the agent."""
    assert fitting_agent({"agent": name, "other": 1}) == name


@pytest.mark.parametrize("options", [{}, {"agent": ""}, {"agent": 1}, {"agent": "a\0b"}, {"agent": LONGEST + "x"}])
def test_a_name_that_fits_no_index(options: dict[str, object]) -> None:
    """Without a name, and with one that no index can hold, no agent is known."""
    assert fitting_agent(options) is None
