"""Acts of operators: what can be recorded, and what a row stores."""

from __future__ import annotations

import pytest

from lash.errors import InvalidInput
from lash.model.act import Act, ActOutcome
from lash.plan.act import (
    ActDraft,
    ActFilter,
    ActRow,
    check_act,
    check_before,
    check_error,
    check_filter,
    decode_act,
)

_NOTHING = ActFilter(None, None, None)


def test_the_parts_of_an_act_are_identifiers() -> None:
    """An act has an operator, a verb and a target, and the owner that was checked."""
    owner = ActFilter(None, "s", None)
    assert check_act("a", "ada", "cancel", "p", owner) == ActDraft("a", "ada", "cancel", "p", "s", None)
    assert check_act("a", "ada", "cancel", "p", ActFilter(None, None, "p")).process_id == "p"
    for by, verb, target in (("", "cancel", "p"), ("ada", "", "p"), ("ada", "cancel", "")):
        with pytest.raises(InvalidInput):
            check_act("a", by, verb, target, _NOTHING)


def test_a_filter_names_a_session_or_a_process() -> None:
    """Every part may be absent; what is given is an identifier."""
    assert check_filter(None, None, None) == _NOTHING
    assert check_filter("ada", "s", None) == ActFilter("ada", "s", None)
    assert check_filter("ada", None, "p") == ActFilter("ada", None, "p")
    for by, session_id, process_id in (("", None, None), (None, "", None), (None, None, "")):
        with pytest.raises(InvalidInput):
            check_filter(by, session_id, process_id)
    with pytest.raises(InvalidInput, match="got both"):
        check_filter(None, "s", "p")


def test_pages_begin_before_a_place() -> None:
    """The first page begins before the highest position."""
    assert (check_before(None), check_before(7)) == (2**63 - 1, 7)
    with pytest.raises(InvalidInput):
        check_before("7")


def test_errors_may_be_absent() -> None:
    """The class of an error is an identifier."""
    assert (check_error(None), check_error("Conflict")) == (None, "Conflict")
    with pytest.raises(InvalidInput):
        check_error("")


def test_a_row_is_decoded() -> None:
    """An act has everything that is stored."""
    refused = ActOutcome.REFUSED
    assert decode_act(ActRow(3, "a", "ada", "cancel", "t", "s", "p", 5, refused, "Conflict")) == Act(
        position=3,
        act_id="a",
        by="ada",
        verb="cancel",
        target="t",
        session_id="s",
        process_id="p",
        at_ms=5,
        outcome=refused,
        error="Conflict",
    )
