"""Turns that fail: back-off, dead letters, and requeueing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

import lash
from lash.model.queue import BatchDraft, Boundary, Slot, TurnInput
from lash.model.session.message import Message
from lash.runtime.policy import NO_RETRY, Retry
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench, take_session, texts


async def test_a_failing_turn_is_tried_again_later_and_later(bench: Bench) -> None:
    """The pause grows, later messages wait, and attempts are counted from 1."""
    app = await bench.app()
    calls: list[tuple[str, int]] = []

    @app.agent(retry=Retry(max_attempts=3, first_pause_s=10, factor=6))
    async def agent(turn: Turn) -> str:
        calls.append((turn.text, turn.attempt))
        if turn.text == "bad" and turn.attempt < 3:
            raise ValueError("not yet")
        return "ok"

    chat = app.session("s", agent)
    await chat.send("bad")
    await chat.send("good")
    await app.drain()
    assert calls == [("bad", 1)]
    await bench.seconds(9.9)
    await app.drain()
    assert calls == [("bad", 1)]
    await bench.seconds(0.2)
    await app.drain()
    assert calls == [("bad", 1), ("bad", 2)]
    await bench.seconds(59.8)
    await app.drain()
    assert calls == [("bad", 1), ("bad", 2)]
    await bench.seconds(0.3)
    await app.drain()
    assert calls == [("bad", 1), ("bad", 2), ("bad", 3), ("good", 1)]
    assert [text for _, text in texts(await chat.messages())] == ["bad", "ok", "good", "ok"]
    assert [(note["attempt"], note["error"]) for note in bench.notes.of("turn.retried")] == [
        (1, "ValueError: not yet"),
        (2, "ValueError: not yet"),
    ]


@pytest.mark.parametrize("trouble", [lash.StoreUnavailable, lash.StorageFailure])
async def test_trouble_of_the_database_costs_no_attempt(bench: Bench, trouble: type[lash.StoreError]) -> None:
    """Storage errors cost no attempt: the message is answered once the storage works; pauses do not grow."""
    app = await bench.app()
    attempts: list[int] = []

    @app.agent(retry=Retry(max_attempts=2, first_pause_s=10))
    async def agent(turn: Turn) -> str:
        attempts.append(turn.attempt)
        if len(attempts) < 6:
            raise trouble("away or full")
        return "ok"

    chat = app.session("s", agent)
    await chat.send("patient")
    for _ in range(6):
        await app.drain()
        await bench.seconds(10)
    assert attempts == [1] * 6
    assert texts(await chat.messages()) == [("user", "patient"), ("assistant", "ok")]
    assert await chat.dead_letters() == ()


async def test_the_last_attempt_makes_a_dead_letter(bench: Bench) -> None:
    """The letter holds the message, the reason, the attempts and the origin; the session continues."""
    app = await bench.app()

    @app.agent(retry=Retry(max_attempts=2, first_pause_s=0))
    async def agent(turn: Turn) -> str:
        if turn.text == "bad":
            raise LookupError("no such thing")
        return "ok"

    chat = app.session("s", agent)
    sent = await chat.send("bad")
    await chat.send("good")
    await app.drain()
    (letter,) = await chat.dead_letters()
    assert letter.batch.batch_id == sent.batch_id
    assert letter.reason == "LookupError: no such thing"
    assert letter.attempts == 2
    assert isinstance(letter.error, dict)
    assert letter.error["attempts"] == 2
    assert 'raise LookupError("no such thing")' in str(letter.error["traceback"])
    assert texts(await chat.messages()) == [("user", "good"), ("assistant", "ok")]
    assert await app.storage.leases.holder("s") is None
    assert [note["turn_id"] for note in bench.notes.of("turn.buried")] == [f"turn:{sent.batch_id}"]


async def test_requeue_runs_only_the_step_that_failed(bench: Bench) -> None:
    """Recorded steps are replayed, even after later turns; the reply is appended at the end."""
    app = await bench.app()
    calls: list[str] = []
    broken = True

    async def model(messages: list[Message]) -> str:
        calls.append("model")
        return f"model saw {len(messages)}"

    async def tool() -> str:
        calls.append("tool")
        if broken:
            raise ConnectionError("down")
        return "tool"

    @app.agent(retry=NO_RETRY)
    async def agent(turn: Turn) -> str:
        if turn.text == "good":
            return "ok"
        said = await turn.step("model", model, turn.messages())
        return f"{said}, {await turn.step('tool', tool)}"

    chat = app.session("s", agent)
    sent = await chat.send("bad")
    await chat.send("good")
    await app.drain()
    assert calls == ["model", "tool"]
    broken = False
    await chat.requeue(sent.batch_id)
    await app.drain()
    assert calls == ["model", "tool", "tool"]
    assert await chat.dead_letters() == ()
    assert [text for _, text in texts(await chat.messages())] == ["good", "ok", "bad", "model saw 1, tool"]


async def test_requeue_after_early_input_was_answered_elsewhere(bench: Bench) -> None:
    """Early input of the failed turn got its own turn; the requeued turn still sees it as before."""
    app = await bench.app()
    seen: list[list[str]] = []
    broken = True

    async def note(messages: list[Message]) -> int:
        return len(messages)

    @app.agent(retry=NO_RETRY)
    async def agent(turn: Turn) -> str:
        if turn.text == "early":
            return "answered alone"
        await app.session("s").send("early", key="e", early=True)
        joined = await turn.join_early_input()
        seen.append([text for _, text in texts(joined)])
        await turn.step("note", note, turn.messages())
        if broken:
            raise ValueError("broken")
        return "done"

    chat = app.session("s", agent)
    sent = await chat.send("first")
    await app.drain()
    expected = [("user", "early"), ("assistant", "answered alone")]
    assert texts(await chat.messages()) == expected
    broken = False
    await chat.requeue(sent.batch_id)
    await app.drain()
    assert await chat.dead_letters() == ()
    assert seen == [["early"], ["early"]]
    assert texts(await chat.messages()) == [*expected, ("user", "first"), ("assistant", "done")]


async def test_any_error_text_can_be_kept(bench: Bench) -> None:
    """An error whose text cannot be stored, or cannot be computed, still makes a readable letter."""
    app = await bench.app()

    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not even this")

    @app.agent(retry=NO_RETRY)
    async def agent(turn: Turn) -> str:
        if turn.text == "mute":
            raise Unspeakable
        raise ValueError("nul \0 surrogate \ud800" + "x" * 5_000)

    chat = app.session("s", agent)
    await chat.send("loud")
    await chat.send("mute")
    await app.drain()
    loud, mute = await chat.dead_letters()
    assert loud.reason.startswith("ValueError: nul \\0 surrogate \\ud800xxx")
    assert len(loud.reason) <= 1_000
    assert "Unspeakable" in mute.reason


async def test_an_agent_that_cancels_itself_has_failed(bench: Bench) -> None:
    """A cancellation without a request is an error like any other."""
    app = await bench.app()

    @app.agent(retry=NO_RETRY)
    async def agent(turn: Turn) -> str:
        raise asyncio.CancelledError

    chat = app.session("s", agent)
    await chat.send("x")
    await app.drain()
    (letter,) = await chat.dead_letters()
    assert "Cancelled" in letter.reason


async def test_trouble_with_another_session_is_a_failure_of_the_turn(bench: Bench) -> None:
    """An agent that reads an unknown session fails; its own session is not taken for lost."""
    app = await bench.app()

    @app.agent(retry=NO_RETRY)
    async def agent(turn: Turn) -> str:
        return str(await app.storage.session("nowhere").load())

    chat = app.session("s", agent)
    await chat.send("x")
    await app.drain()
    (letter,) = await chat.dead_letters()
    assert "nowhere" in letter.reason
    assert await app.storage.leases.holder("s") is None


async def test_input_that_kills_every_worker_is_given_up(bench: Bench) -> None:
    """Crashing attempts are bounded too; a few of them do not count against a turn without retries."""
    app = await bench.app()
    calls: list[int] = []

    @app.agent(retry=NO_RETRY)
    async def agent(turn: Turn) -> str:
        calls.append(turn.attempt)
        return "ok"

    chat = app.session("s", agent)
    sent = await chat.send("patient", key="p")
    await _die_with(bench, app, times=3)
    await app.drain()
    assert calls == [4]
    assert (await chat.send("patient", key="p")).state is lash.model.BatchState.CONSUMED
    poison = await chat.send("poison", key="q")
    assert poison.batch_id != sent.batch_id
    await _die_with(bench, app, times=21)
    await app.drain()
    assert calls == [4]
    (letter,) = await chat.dead_letters()
    assert letter.batch.batch_id == poison.batch_id
    assert "21 attempts crashed without reporting an error" in letter.reason


async def test_killed_attempts_use_up_none_that_may_fail(bench: Bench) -> None:
    """Two kills and a failure leave two of three attempts; the third failure is the last."""
    app = await bench.app()
    calls: list[int] = []

    @app.agent(retry=Retry(max_attempts=3, first_pause_s=0))
    async def agent(turn: Turn) -> str:
        calls.append(turn.attempt)
        raise ValueError("flaky")

    chat = app.session("s", agent)
    await chat.send("patient")
    await _die_with(bench, app, times=2)
    await app.drain()
    assert calls == [3, 4, 5]
    assert [(note["attempt"], note["max_attempts"]) for note in bench.notes.of("turn.retried")] == [(1, 3), (2, 3)]
    (letter,) = await chat.dead_letters()
    assert (letter.attempts, letter.batch.failures) == (5, 2)
    assert isinstance(letter.error, dict)
    assert letter.error["attempts"] == 3


async def test_a_requeued_group_is_the_group_that_failed(bench: Bench) -> None:
    """Messages merged into one turn fail and are replayed as the same group, whatever could join by then."""
    app = await bench.app()
    seen: list[str] = []
    broken = True

    async def note(text: str) -> str:
        return text

    @app.agent(retry=NO_RETRY, name="agent")
    async def agent(turn: Turn) -> str:
        seen.append(turn.text)
        await turn.step("note", note, turn.text)
        if broken:
            raise ValueError("broken")
        return f"re {turn.text}"

    await app.storage.sessions.create("s")
    first, second = [await _merging(app, text) for text in ("one", "two")]
    await app.drain()
    assert seen == ["one\ntwo"]
    broken = False
    chat = app.session("s")
    for batch_id in (first, second):
        await chat.requeue(batch_id)
    await _merging(app, "three")
    await app.drain()
    assert seen == ["one\ntwo", "one\ntwo", "three"]
    assert [text for _, text in texts(await chat.messages())] == ["one", "two", "re one\ntwo", "three", "re three"]


async def test_a_dead_letter_is_discarded_or_unknown(bench: Bench) -> None:
    """Requeueing an unknown letter raises, with its id."""
    app = await bench.app()
    await app.storage.sessions.create("s")
    with pytest.raises(lash.errors.DeadLetterNotFound, match="nothing"):
        await app.session("s").requeue("nothing")


async def test_a_delayed_message_waits_for_its_time(bench: Bench) -> None:
    """at= delays one message, and later ones overtake it; a time without a zone is refused."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> None:
        pass

    chat = app.session("s", agent)
    due = datetime.fromtimestamp(bench.clock.now_ms() / 1_000 + 60, UTC)
    await chat.send("later", at=due)
    await chat.send("now")
    with pytest.raises(lash.InvalidInput, match="time zone"):
        await chat.send("x", at=due.replace(tzinfo=None))
    await app.drain()
    assert [text for _, text in texts(await chat.messages())] == ["now"]
    await bench.seconds(60)
    await app.drain()
    assert [text for _, text in texts(await chat.messages())] == ["now", "later"]


async def _die_with(bench: Bench, app: lash.App, times: int) -> None:
    """Claim the head of the queue as a worker does that is killed afterwards."""
    for _ in range(times):
        lease = await take_session(app.storage, "s", ttl_ms=1_000)
        await app.storage.queue.claim(lease.fence, boundary=Boundary.IDLE, ttl_ms=1_000)
        await bench.seconds(2)


async def _merging(app: lash.App, text: str) -> str:
    draft = BatchDraft(session_id="s", payloads=(TurnInput.of_text(text),), slot=Slot.JOIN, merge_key="m")
    return (await app.storage.queue.enqueue(draft)).batch_id


async def test_a_permanent_failure_buries_at_once_and_runs_again_when_requeued(bench: Bench) -> None:
    """A permanent failure is not retried; when its letter is requeued, the step runs and is not replayed."""
    app = await bench.app()
    funds = [0, 5]

    async def pay() -> int:
        if not (left := funds.pop(0)):
            raise lash.Permanent("the account is empty")
        return left

    @app.agent(retry=Retry(max_attempts=5, first_pause_s=0))
    async def agent(turn: Turn) -> str:
        return str(await turn.step(pay))

    chat = app.session("s", agent)
    sent = await chat.send("buy")
    await app.drain()
    (letter,) = await chat.dead_letters()
    assert (letter.attempts, funds) == (1, [5])
    await chat.requeue(sent.batch_id)
    await app.drain()
    assert texts(await chat.messages())[-1] == ("assistant", "5")
