"""Agents that reply with values: stored as JSON, and read back as their type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

import msgspec
import pytest

import lash
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench

PATIENCE_S = 60.0


@dataclass
class Ticket:
    """What the agent decides."""

    title: str
    urgent: bool = False


async def triage(turn: Turn) -> Ticket | str:
    return "nothing to do" if turn.text == "thanks" else Ticket(turn.text, urgent=True)


async def test_a_reply_is_read_as_its_type(bench: Bench) -> None:
    """The conversation has it as JSON; ``of_type`` makes a value of it, also from another handle and later."""
    app = await bench.app(worker=True)
    app.agent(triage)
    chat = app.session("s", "triage")
    ticket = await chat.ask("it burns", of_type=Ticket, key="k", timeout_s=PATIENCE_S)
    assert_type(ticket, Ticket)
    assert ticket == Ticket("it burns", urgent=True)
    assert await app.session("s", "triage").ask("it burns", of_type=Ticket, key="k", timeout_s=PATIENCE_S) == ticket
    text = lash.text_of((await chat.messages())[-1])
    assert msgspec.json.decode(text) == {"title": "it burns", "urgent": True}
    assert await chat.ask("thanks", timeout_s=PATIENCE_S) == "nothing to do"


async def test_a_reply_of_another_type_is_refused(bench: Bench) -> None:
    """Text that is not JSON, and JSON of another shape, raise an error that shows what came; the turn stands."""
    app = await bench.app(worker=True)
    app.agent(triage)
    chat = app.session("s", "triage")
    with pytest.raises(lash.InvalidInput, match=r"expected JSON of .*Ticket.*, got 'nothing to do'"):
        await chat.ask("thanks", of_type=Ticket, timeout_s=PATIENCE_S)
    with pytest.raises(lash.InvalidInput, match="the reply"):
        await chat.ask("it burns", of_type=int, timeout_s=PATIENCE_S)
    assert len(await chat.messages()) == 4


async def test_a_value_that_cannot_be_stored_is_a_dead_letter(bench: Bench) -> None:
    """A reply that does not fit the declared type of its agent is not retried."""
    app = await bench.app()

    @app.agent
    async def wrong(turn: Turn) -> Ticket:
        return object()  # type: ignore[return-value]

    chat = app.session("s", wrong)
    await chat.send("go")
    await app.drain()
    (letter,) = await chat.dead_letters()
    assert letter.attempts == 1
    assert "the reply of agent 'wrong'" in letter.reason
