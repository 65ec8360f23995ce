"""Rules of dead letters: which claims may be buried, and the stored form."""

import msgspec
import pytest

from lash.errors import ClaimLost, CorruptData, InvalidInput
from lash.model.queue import Batch, Claim, DeadLetter, Delivery, Slot, TurnInput
from lash.model.value import JSON
from lash.plan.queue.dead_letter import (
    DeadLetterRow,
    check_after,
    check_one_choice,
    decode_dead_letter,
    plan_burial,
    prepare_burial,
)
from lash.plan.session.page import IdRange
from tests.rules.kit import SESSION

replace = msgspec.structs.replace

BATCH = Batch(
    session_id=SESSION,
    batch_id="b",
    seq=9,
    payloads=(TurnInput.of_text("hello"),),
    source_key="host:1",
    delivery=Delivery.AFTER_CURRENT_TURN_COMMIT,
    slot=Slot.JOIN,
    merge_key="g",
    available_at_ms=0,
    enqueued_at_ms=5,
    attempts=2,
    failures=1,
    priority=6,
)
CLAIM = Claim(
    session_id=SESSION,
    claim_id="c",
    token="t",
    lease_fencing=1,
    claimed_at_ms=1,
    expires_at_ms=2,
    batches=(BATCH, replace(BATCH, batch_id="b2")),
)
ROW = DeadLetterRow(
    3,
    SESSION,
    9,
    "b",
    "host:1",
    "after_current_turn_commit",
    "join",
    "g",
    5,
    2,
    1,
    6,
    '{"payloads":[{"kind":"turn_input","items":[{"type":"text","text":"hello"}]}]}',
    "it fails",
    '{"error":{"type":"ValueError"}}',
    77,
)


@pytest.mark.parametrize(
    ("error", "written"), [(None, '{"error":null}'), ("boom", '{"error":"boom"}'), ({"k": [1]}, '{"error":{"k":[1]}}')]
)
def test_a_burial_is_written_with_its_reason(error: JSON, written: str) -> None:
    """Any error is stored as JSON, and the batches are those of the claim."""
    burial = prepare_burial(CLAIM, reason=" it fails ", error=error)
    assert (burial.claim, burial.reason, burial.error, burial.batch_ids) == (CLAIM, " it fails ", written, ["b", "b2"])


@pytest.mark.parametrize(
    ("claim", "reason", "error", "message"),
    [
        ("c", "r", None, "expected a Claim, got str"),
        (replace(CLAIM, batches=()), "r", None, "names no batch"),
        (CLAIM, "", None, "reason is blank"),
        (CLAIM, "\n ", None, "reason is blank"),
        (CLAIM, 5, None, "reason must be text, not int"),
        (CLAIM, "r" * 4_097, None, "at most 4,096"),
        (CLAIM, "r", object(), "error"),
        (CLAIM, "r", {1: 2}, "error"),
        (CLAIM, "r", "\ud800", "lone surrogate"),
    ],
)
def test_a_burial_that_cannot_be_written_is_refused(claim: object, reason: object, error: object, message: str) -> None:
    """An invalid burial is refused before any read, with the reason."""
    with pytest.raises(InvalidInput, match=message):
        prepare_burial(claim, reason=reason, error=error)


def test_a_claim_is_buried_once() -> None:
    """A claim that holds all its batches is buried; if all were buried under it before, nothing is done."""
    burial = prepare_burial(CLAIM, reason="r", error=None)
    assert plan_burial(burial, ["b2", "b"], []) is True
    assert plan_burial(burial, [], ["b2", "b"]) is False


@pytest.mark.parametrize(
    ("held", "buried"),
    [
        ([], []),
        (["b"], []),
        (["b"], ["b2"]),
        (["b", "b2", "b3"], []),
        (["b", "b3"], []),
        ([], ["b"]),
        (["b"], ["b", "b2"]),
    ],
)
def test_a_claim_that_lost_something_is_not_buried(held: list[str], buried: list[str]) -> None:
    """A claim is buried whole or not at all."""
    with pytest.raises(ClaimLost) as lost:
        plan_burial(prepare_burial(CLAIM, reason="r", error=None), held, buried)
    assert (lost.value.session_id, lost.value.claim_id) == (SESSION, "c")


def test_a_stored_letter_is_read_back() -> None:
    """A row decodes to its letter, with the attempts of its batch."""
    letter = decode_dead_letter(ROW)
    expected = DeadLetter(position=3, batch=BATCH, reason="it fails", error={"type": "ValueError"}, died_at_ms=77)
    assert letter == expected
    assert letter.attempts == 2
    assert decode_dead_letter(replace(ROW, error='{"error":null}')).error is None


@pytest.mark.parametrize("damage", [{"delivery": "soon"}, {"payloads": "{"}, {"error": "{"}])
def test_a_row_that_cannot_be_read_is_corrupt(damage: dict[str, str]) -> None:
    """The error names the batch."""
    with pytest.raises(CorruptData, match="'b' cannot be read"):
        decode_dead_letter(replace(ROW, **damage))


def test_a_page_begins_behind_a_place() -> None:
    """No cursor is the beginning; a cursor is an integer, zero or more."""
    assert [check_after(each) for each in (None, 0, 7)] == [0, 0, 7]
    for wrong in (-1, "1", True, 1.0):
        with pytest.raises(InvalidInput, match="after must"):
            check_after(wrong)


def test_a_list_is_of_a_session_or_of_a_prefix() -> None:
    """Naming both is refused."""
    ids = IdRange("a", "b")
    assert check_one_choice(None, ids) is ids
    assert check_one_choice("s", None) is None
    with pytest.raises(InvalidInput, match="expected session_id or prefix, got both; leave one out"):
        check_one_choice("s", ids)
