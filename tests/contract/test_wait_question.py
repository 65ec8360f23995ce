"""The contract of questions: a wait shows what it asks, and refuses an answer that does not match."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lash.errors import InvalidInput
from lash.model.value import JSON
from lash.model.wait import (
    Accepted,
    AlreadyResolved,
    Cancelled,
    Question,
    Rejected,
    Resolution,
    Resolved,
    UnknownOrRevoked,
)
from lash.testing.harness import Harness
from tests.factories.wait import SCOPES, YES, key_of, placed

REFUND = Question(
    text="Refund 50 euros?",
    schema={"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]},
    details={"order": 7},
)


async def test_the_first_question_stands(harness: Harness) -> None:
    """Every read of the wait has the question of the first open that asks one; later opens do not change it."""
    storage = await placed(await harness.open())
    for number, scope in enumerate(SCOPES):
        key = await key_of(storage, str(number), scope)
        assert (await storage.waits.open(key)).ask is None
        opened = await storage.waits.open(key, ask=REFUND)
        assert (opened.ask, opened.deadline_ms) == (REFUND, None)
        again = await storage.waits.open(key, ask=Question(text="Another?"), timeout_ms=1_000)
        assert (again.ask, again.deadline_ms) == (REFUND, harness.clock.now_ms() + 1_000)
        assert await storage.waits.get(key) == await storage.waits.get_id(key.key_id) == again
        assert again in await storage.waits.pending()
    assert await storage.waits.get_id("0" * 64) is None


@pytest.mark.parametrize("value", [None, True, {"approved": "yes"}, {}, {"approved": True, "more": 1}])
async def test_an_answer_that_does_not_match_is_refused(harness: Harness, value: JSON) -> None:
    """Under the key and under the id, a wrong answer raises with the question, and the wait stays open."""
    storage = await placed(await harness.open())
    key = await key_of(storage)
    opened = await storage.waits.open(key, ask=REFUND)
    with pytest.raises(InvalidInput, match=r"the answer to 'Refund 50 euros\?': value"):
        await storage.waits.resolve(key, Resolved(value=value))
    with pytest.raises(InvalidInput, match=r"the answer to 'Refund 50 euros\?': value"):
        await storage.waits.resolve_id(key.key_id, Resolved(value=value))
    assert await storage.waits.get(key) == opened


async def test_an_answer_that_matches_is_accepted(harness: Harness) -> None:
    """An operator resolves by the id; a second answer gets the first one, whether or not it matches."""
    storage = await placed(await harness.open())
    key = await key_of(storage)
    await storage.waits.open(key, ask=REFUND)
    assert await storage.waits.resolve_id(key.key_id, YES) == Accepted()
    assert await storage.waits.resolve(key, Resolved(value="wrong")) == AlreadyResolved(terminal=YES)


async def test_what_is_not_an_answer_needs_no_match(harness: Harness) -> None:
    """A rejection and a cancellation end a wait whatever it asks, and so does any value without a schema."""
    storage = await placed(await harness.open())
    ends: tuple[tuple[Question, Resolution], ...] = (
        (REFUND, Rejected(code="no", message="")),
        (REFUND, Cancelled()),
        (Question(text="Which?"), Resolved(value=[1])),
    )
    for number, (ask, resolution) in enumerate(ends):
        key = await key_of(storage, str(number))
        await storage.waits.open(key, ask=ask)
        assert await storage.waits.resolve(key, resolution) == Accepted()
    early = await key_of(storage, "early")
    assert await storage.waits.resolve(early, Resolved(value="unchecked")) == Accepted()
    assert (await storage.waits.open(early, ask=REFUND)).ask is None


async def test_an_id_outlives_nothing(harness: Harness) -> None:
    """After a revocation, the id of a wait gets the answer of an unknown one."""
    storage = await placed(await harness.open())
    key = await key_of(storage)
    await storage.waits.open(key, ask=REFUND)
    await storage.waits.revoke("s")
    assert await storage.waits.resolve_id(key.key_id, YES) == UnknownOrRevoked()
    assert await storage.waits.get_id(key.key_id) is None


@pytest.mark.parametrize(
    "ask",
    [
        "text",
        Question(text=cast(Any, 1)),
        Question(text="t" * 5_000),
        Question(text="t", schema=cast(Any, "object")),
        Question(text="t", schema={"type": "nothing"}),
        Question(text="t", details="d" * 70_000),
    ],
    ids=["text", "number", "long", "schema", "type", "details"],
)
async def test_an_invalid_question_is_refused(harness: Harness, ask: object) -> None:
    """A question is a text with a usable schema, within its limits; nothing is opened with another one."""
    storage = await placed(await harness.open())
    key = await key_of(storage)
    with pytest.raises(InvalidInput, match=r"ask|Question"):
        await storage.waits.open(key, ask=cast(Any, ask))
    assert await storage.waits.get(key) is None
