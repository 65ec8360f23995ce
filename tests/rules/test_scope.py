"""The text of an execution scope."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lash.errors import InvalidInput
from lash.model.effect import (
    ExecutionScope,
    OperationScope,
    ProcessScope,
    TurnScope,
)
from lash.model.scope import check_execution_scope, scope_id, scope_session_id

_IDS = st.text("ab:1", min_size=1, max_size=5)
_SCOPES = st.one_of(
    st.builds(TurnScope, session_id=_IDS, turn_id=_IDS),
    st.builds(ProcessScope, process_id=_IDS),
    st.builds(OperationScope, operation_id=_IDS),
)


@pytest.mark.parametrize(
    ("scope", "text", "session_id"),
    [
        (TurnScope(session_id="s:1", turn_id="t"), "turn:3:s:1:t", "s:1"),
        (ProcessScope(process_id="p:1"), "process:p:1", None),
        (OperationScope(operation_id="o"), "runtime_operation:o", None),
    ],
)
def test_every_kind_has_its_text(scope: ExecutionScope, text: str, session_id: str | None) -> None:
    """The text has kind, session and id; lengths count characters."""
    assert (scope_id(scope), scope_session_id(scope)) == (text, session_id)


@given(_SCOPES, _SCOPES)
def test_only_equal_scopes_have_equal_texts(first: ExecutionScope, second: ExecutionScope) -> None:
    """Texts differ for any ids, even with colons and numbers in them."""
    assert (scope_id(first) == scope_id(second)) == (first == second)


@pytest.mark.parametrize("bad", ["", "  ", "x" * 256, "a\0b", None, 5])
@pytest.mark.parametrize(
    "scope",
    [
        TurnScope(session_id="s", turn_id="t"),
        ProcessScope(process_id="p"),
        OperationScope(operation_id="o"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_bad_ids_are_refused(scope: ExecutionScope, bad: Any) -> None:  # noqa: ANN401 - wrong types are the point
    """The message names the field."""
    for name in scope.__struct_fields__:
        with pytest.raises(InvalidInput, match=f"scope.{name}"):
            scope_id(msgspec.structs.replace(scope, **{name: bad}))


@pytest.mark.parametrize("bad", [None, "turn:1:s:t", {"type": "turn"}, 5])
def test_what_is_no_scope_is_refused(bad: object) -> None:
    """A value of another type is refused."""
    with pytest.raises(InvalidInput, match="execution scope"):
        check_execution_scope(bad)
