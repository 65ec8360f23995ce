"""A conversation from the handle: times, pending input, cancelled messages, attachments, description."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import lash
from lash.model.session.session import SessionFilter
from lash.runtime.policy import Retry
from lash.runtime.turns.transcript import MessageState
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench, run_turn, texts


async def agent(turn: Turn) -> str:
    if turn.text == "fail":
        raise OSError("away")
    return "ok"


async def test_pending_input_follows_the_conversation(bench: Bench) -> None:
    """Queued input, and input whose turn has started, is there with its state; it is not repeated once committed."""
    app = await bench.app()
    app.agent(retry=Retry(max_attempts=2, first_pause_s=60))(agent)
    chat = app.session("s", "agent")
    assert await chat.transcript() == []
    await chat.send("a")
    (queued,) = await chat.transcript()
    assert queued.state is MessageState.QUEUED
    assert queued.at == datetime.fromtimestamp(bench.clock.now_ms() / 1_000, UTC)
    await app.drain()
    await chat.send("fail")
    second = await chat.send("b")
    await run_turn(app, "s")
    entries = await chat.transcript()
    assert [(lash.text_of(entry.message), entry.state.value) for entry in entries] == [
        ("a", "committed"),
        ("ok", "committed"),
        ("fail", "running"),
        ("b", "queued"),
    ]
    assert [entry.batch_id for entry in entries][3] == second.batch_id
    assert [entry.message for entry in entries[:2]] == await chat.messages()
    assert [lash.text_of(entry.message) for entry in await chat.transcript(last=1)] == ["ok", "fail", "b"]
    assert len(await chat.transcript(last=0)) == 2


async def test_a_queued_message_is_cancelled(bench: Bench) -> None:
    """It never becomes a turn; a committed one is not cancelled, and a started one when its next attempt begins."""
    app = await bench.app()
    app.agent(retry=Retry(max_attempts=2, first_pause_s=60))(agent)
    chat = app.session("s", "agent")
    first, second = await chat.send("a"), await chat.send("b")
    assert await chat.cancel(batch_id=second.batch_id)
    assert not await chat.cancel(batch_id=second.batch_id)
    await app.drain()
    assert texts(await chat.messages()) == [("user", "a"), ("assistant", "ok")]
    assert not await chat.cancel(batch_id=first.batch_id)

    started = await chat.send("fail")
    await run_turn(app, "s")
    assert await chat.cancel("enough", batch_id=started.batch_id)
    await bench.seconds(61)
    await app.drain()
    assert await chat.pending() == ()
    assert await chat.dead_letters() == ()
    assert texts(await chat.messages())[-1] == ("user", "fail")


async def test_files_are_attached_before_the_first_message(bench: Bench) -> None:
    """A file is stored with the session, and a message or a question can name it."""
    app = await bench.app(worker=True)
    seen: list[str] = []

    @app.agent
    async def reader(turn: Turn) -> str:
        (message,) = turn.messages(last=1)
        names = [part.attachment.id for part in message.parts if part.attachment is not None]
        stored = [await app.storage.attachments.get(turn.session_id, name) for name in names]
        seen.extend(each.content.decode() for each in stored)
        return "read"

    chat = app.session("s", reader)
    reference = await chat.attach(b"a report", "text/plain", label="report.txt")
    assert await chat.ask("read this", attachments=[reference], timeout_s=60) == "read"
    assert seen == ["a report"]
    with pytest.raises(lash.AttachmentNotFound):
        await app.session("other", reader).ask("read this", attachments=[reference], timeout_s=60)


async def test_a_session_is_described_before_and_after_its_first_message(bench: Bench) -> None:
    """Owner, labels and metadata are set from the handle, and lists find the session by them."""
    app = await bench.app()
    chat = app.session("s")
    assert await chat.meta() is None
    await chat.describe(owner="ada", labels={"env": "prod"})
    await chat.describe(metadata={"theme": "dark"}, name="weather")
    meta = await chat.meta()
    assert meta is not None
    assert (meta.owner, meta.labels, meta.metadata, meta.name) == (
        "ada",
        {"env": "prod"},
        {"theme": "dark"},
        "weather",
    )
    page = await app.storage.sessions.list(SessionFilter(owner="ada", labels={"env": "prod"}))
    assert [each.meta.session_id for each in page.sessions] == ["s"]
