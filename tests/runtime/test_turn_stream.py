"""Streams of a turn: pieces are shown, the whole is recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator

import lash
from lash.model.session.message import Part, PartKind
from lash.runtime.errors import Permanent
from lash.runtime.processes.context import Context
from lash.runtime.turns.end import TurnEnd
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench, run_turn


async def test_pieces_are_shown_and_the_whole_is_recorded(bench: Bench) -> None:
    """A second attempt gets the whole from the record, without the generator, and shows nothing again."""
    app = await bench.app()
    begun: list[str] = []

    async def words(text: str) -> AsyncIterator[str]:
        begun.append(text)
        for word in text.split():
            yield f"{word} "

    @app.agent(retry=lash.Retry(max_attempts=2, first_pause_s=0))
    async def agent(turn: Turn) -> str:
        first = await turn.stream("model", words, turn.text)
        second = await turn.stream("model", words("once more"))
        if turn.attempt == 1:
            raise ConnectionError
        return first + second

    chat = app.session("s", agent=agent)
    cursor = await chat.cursor()
    await chat.send("it is")
    assert await run_turn(app, "s") is TurnEnd.FAILED
    await bench.seconds(1)
    assert await run_turn(app, "s") is TurnEnd.COMMITTED
    assert begun == ["it is", "once more"]
    shown = []
    async for observed in chat.observe(cursor):
        if isinstance(observed, lash.TurnActivity):
            shown.append(observed.payload)
        if isinstance(observed, lash.Committed):
            break
    first = [{"stream": "model"}, {"text": "it "}, {"text": "is "}]
    assert shown == [*first, {"stream": "model#2"}, {"text": "once "}, {"text": "more "}]
    assert (await chat.messages())[-1].text == "it is once more "


async def test_only_text_is_streamed(bench: Bench) -> None:
    """Pieces of another type are refused."""
    app = await bench.app()

    async def numbers() -> AsyncIterator[int]:
        yield 1

    @app.agent
    async def agent(turn: Turn) -> str:
        return await turn.stream("model", numbers)  # type: ignore[arg-type]

    await app.session("s", agent=agent).send("go")
    assert await run_turn(app, "s") is TurnEnd.BURIED
    (dead,) = await app.storage.queue.dead()
    assert "expected pieces of text from stream 'model', got int" in dead.reason


async def test_parts_are_added_and_files_are_read(bench: Bench) -> None:
    """Parts become one message, whose id is that of its node; a named file can be read in the turn."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        (message,) = turn.messages(last=1)
        attached = next(part.attachment for part in message.parts if part.attachment is not None)
        parts = [Part(id="a", kind=PartKind.REASONING, content="hm"), Part(id="b", kind=PartKind.PROSE, content="so")]
        turn.add(parts)
        return (await turn.read_attachment(attached.id)).decode()

    chat = app.session("s", agent=agent)
    await app.storage.sessions.create("s")
    await chat.send("read", attachments=[await chat.attach(b"content", "text/plain")])
    await app.drain()
    messages = await chat.messages()
    assert [[part.content for part in message.parts] for message in messages[1:]] == [["hm", "so"], ["content"]]
    assert await app.storage.session("s").node(messages[1].id) is not None


async def test_a_permanent_error_of_the_agent_is_not_retried(bench: Bench) -> None:
    """The input is a dead letter after one attempt, and a process fails after one."""
    app = await bench.app()

    @app.agent
    async def agent(turn: Turn) -> str:
        raise Permanent("no use")

    @app.process
    async def job(ctx: Context) -> None:
        raise Permanent("no use")

    await app.session("s", agent=agent).send("go")
    assert await run_turn(app, "s") is TurnEnd.BURIED
    handle = await app.start(job)
    await app.drain()
    assert (await handle.status()) is lash.ProcessStatus.FAILED
