"""The contract of acts: recorded before they are done, with their outcome, until they are pruned."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lash.errors import DeadLetterNotFound, InvalidInput, StoreUnavailable
from lash.model.act import Act, ActOutcome
from lash.runtime.acting import acting
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.factories.session import created


async def test_an_act_is_recorded_before_it_is_done(harness: Harness) -> None:
    """An act has its operator, time and target at once, and its outcome when it is over; the first outcome stands."""
    storage, other = await harness.open(), await harness.open()
    act = await storage.acts.record("ada", "cancel", "p", session_id="s")
    assert (act.by, act.verb, act.target, act.session_id, act.process_id) == ("ada", "cancel", "p", "s", None)
    assert (act.at_ms, act.outcome, act.error) == (harness.clock.now_ms(), None, None)
    assert await other.acts.list() == (act,)
    assert await storage.acts.settle(act.act_id)
    assert not await storage.acts.settle(act.act_id, error="Conflict")
    (done,) = await storage.acts.list()
    assert (done.outcome, done.error) == (ActOutcome.DONE, None)
    assert not await storage.acts.settle("unknown")


async def test_what_happens_decides_the_outcome(harness: Harness) -> None:
    """Around a call, an error is the reason of the refusal, and is raised; an act that was cut off has no outcome."""
    storage = await harness.open()
    await created(storage)
    async with acting(storage, "ada", "delete", "s", session_id="s"):
        await storage.sessions.delete("s")
    await created(storage)
    with pytest.raises(DeadLetterNotFound):
        async with acting(storage, "bob", "requeue", "b", session_id="s"):
            await storage.queue.requeue("s", "b")
    # The call may have been done before it was cancelled, or before its reply was lost.
    for error in (asyncio.CancelledError(), StoreUnavailable("the connection was lost")):
        with pytest.raises(type(error)):
            async with acting(storage, "bob", "cancel", "p"):
                raise error
    shown = [(act.by, act.verb, act.outcome, act.error) for act in await storage.acts.list()]
    assert shown == [
        ("bob", "cancel", None, None),
        ("bob", "cancel", None, None),
        ("bob", "requeue", ActOutcome.REFUSED, "DeadLetterNotFound"),
        ("ada", "delete", ActOutcome.DONE, None),
    ]


async def test_acts_are_listed_in_pages(harness: Harness) -> None:
    """The last act comes first; an operator, a session and a process choose among them."""
    storage = await harness.open()
    made = [
        await storage.acts.record(by, "cancel", "x", session_id=session_id, process_id=process_id)
        for by, session_id, process_id in (
            ("ada", "s", None),
            ("bob", "s", None),
            ("ada", None, "s"),
            ("ada", "t", None),
            ("bob", "t", None),
            ("bob", None, None),
        )
    ]
    chosen: tuple[tuple[dict[str, str], list[Act]], ...] = (
        ({}, made[::-1]),
        ({"by": "ada"}, [made[3], made[2], made[0]]),
        ({"session_id": "s"}, [made[1], made[0]]),
        ({"process_id": "s"}, [made[2]]),
    )
    for wanted, expected in chosen:
        assert await _all(storage, wanted) == expected
    assert await storage.acts.list(by="bob", session_id="t") == (made[4],)
    assert await storage.acts.list(by="bob", process_id="s") == ()
    assert await storage.acts.list(by="eve") == ()


async def _all(storage: Storage, wanted: dict[str, str]) -> list[Act]:
    """Return all acts of a filter, read in pages of two."""
    found: list[Act] = []
    while True:
        after = found[-1].position if found else None
        page = await storage.acts.list(
            by=wanted.get("by"),
            session_id=wanted.get("session_id"),
            process_id=wanted.get("process_id"),
            limit=2,
            after=after,
        )
        found.extend(page)
        if len(page) < 2:
            return found


async def test_old_acts_are_pruned(harness: Harness) -> None:
    """Acts from before a moment are removed, the oldest first, a page at a time."""
    storage = await harness.open()
    made = []
    for number in range(3):
        made.append(await storage.acts.record("ada", "cancel", str(number)))
        await harness.clock.advance(10)
    assert await storage.acts.prune(before_ms=made[2].at_ms, limit=1) == 1
    assert await storage.acts.list() == (made[2], made[1])
    assert await storage.acts.prune(before_ms=made[2].at_ms) == 1
    assert await storage.acts.prune(before_ms=made[2].at_ms) == 0
    assert await storage.acts.list() == (made[2],)


@pytest.mark.parametrize(
    "bad",
    [
        {"by": ""},
        {"by": None},
        {"verb": "a\0"},
        {"target": "t" * 256},
        {"session_id": ""},
        {"session_id": "s", "process_id": "p"},
    ],
    ids="-".join,
)
async def test_bad_acts_are_refused(harness: Harness, bad: dict[str, Any]) -> None:
    """Every part of an act is an identifier; nothing is recorded with another value."""
    storage = await harness.open()
    with pytest.raises(InvalidInput):
        await storage.acts.record(**({"by": "ada", "verb": "cancel", "target": "p"} | bad))
    assert await storage.acts.list() == ()


async def test_an_outage_after_the_act_leaves_its_outcome_unknown(harness: Harness) -> None:
    """The caller gets the result of the act if only its outcome cannot be written."""
    storage, other = await harness.open(), await harness.open()
    async with acting(storage, "ada", "cancel", "p") as act:
        await storage.close()
    if harness.durable:
        assert await other.acts.list() == (act,)
