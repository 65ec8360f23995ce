"""Limits of grants."""

import pytest

from lash.errors import InvalidInput
from lash.model.process.process import AgentScope, Grant
from lash.plan.process.grant import check_grant

SCOPE = AgentScope(session_id="s")


def test_the_longest_kind_and_label_fit() -> None:
    """255 characters are allowed for each, one more is not."""
    longest = Grant(scope=SCOPE, process_id="p", kind="k" * 255, label="l" * 255)
    assert check_grant(longest) is longest
    for name in ("kind", "label"):
        with pytest.raises(InvalidInput, match=f"grant.{name} has 256 characters"):
            check_grant(Grant(scope=SCOPE, process_id="p", **{name: "x" * 256}))
