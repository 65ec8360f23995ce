"""How much of a conversation a model gets."""

from __future__ import annotations

import asyncio

import pytest

import lash
from lash.agents import Agent, Context, ScriptedModel, call, tool
from lash.model import TokenUsage
from lash.model.session.message import Message, Part, PartKind, Role
from lash.runtime.turns.messages import estimate_tokens, newest_within
from lash.runtime.turns.turn import Turn
from tests.runtime.turn_bench import Bench


def words(message: Message) -> int:
    return sum(len(part.content.split()) for part in message.parts)


def said(messages: tuple[Message, ...]) -> list[str]:
    return [part.content for message in messages for part in message.parts]


async def test_messages_by_tokens(bench: Bench) -> None:
    """The newest messages that fit are returned, by any counter, and a short conversation is whole."""
    app = await bench.app()
    seen: list[list[str]] = []

    @app.agent
    async def agent(turn: Turn) -> str:
        seen.append([message.text for message in turn.messages(max_tokens=5, count=words)])
        seen.append([message.text for message in turn.messages(max_tokens=10_000)])
        seen.append([message.text for message in turn.messages(last=1, max_tokens=10_000)])
        return "my reply"

    chat = app.session("s", agent=agent)
    for text in ("one two", "three four", "five"):
        await chat.send(text)
        await app.drain()
    assert seen[-3:] == [
        ["three four", "my reply", "five"],
        ["one two", "my reply", "three four", "my reply", "five"],
        ["five"],
    ]


async def test_a_long_conversation_is_read_as_far_as_it_fits(bench: Bench) -> None:
    """More messages than one read has are found; only what fits is returned."""
    app = await bench.app()
    seen: list[int] = []

    @app.agent
    async def agent(turn: Turn) -> None:
        if turn.text == "fill":
            for number in range(200):
                turn.add(str(number), role=Role.USER)
        else:
            seen.append(len(turn.messages(max_tokens=150, count=words)))

    chat = app.session("s", agent=agent)
    for text in ("fill", "count"):
        await chat.send(text)
        await app.drain()
    assert seen == [150]


def test_calls_and_results_are_not_parted() -> None:
    """What is left begins with a message of a user; the last message is always there."""
    part = Part(id="p", kind=PartKind.TOOL_RESULT, content="a b c")
    answer = Message(id="2", role=Role.ASSISTANT, parts=(part,))
    conversation = [Message.of_text("1", Role.USER, "x " * 50), answer, Message.of_text("3", Role.USER, "y")]
    assert newest_within(conversation, 4, words) == (conversation[2:], True)
    assert newest_within(conversation[:1], 4, words) == (conversation[:1], False)
    assert newest_within(conversation, 100, words) == (conversation, False)
    assert estimate_tokens(conversation[0]) == 4 + 100 // 4


async def test_compaction(bench: Bench) -> None:
    """Older messages are summarized once, in a recorded step; the summary stands for them until one goes back."""
    model = ScriptedModel(
        "first reply",
        "They said hello.",
        "second reply",
        "third reply",
        "reply on the branch",
        usage=TokenUsage(input_tokens=10),
    )
    app = await bench.app()
    context = Context(compact_at=13, keep=4, count=words)
    chat = app.session("s", agent=Agent("assistant", model, context=context).declare(app))
    for text in ("one two three four five six seven eight nine ten", "and now?", "so?"):
        await chat.send(text)
        await app.drain()
    first, summary, second, third, *_ = (said(request.messages) for request in model.requests)
    assert first == ["one two three four five six seven eight nine ten"]
    assert summary[:2] == [*first, "first reply"]
    assert "Summarize the conversation" in summary[2]
    assert second == ["Summary of the earlier conversation:\n\nThey said hello.", "and now?"]
    assert third == [*second, "second reply", "so?"]
    messages = await chat.messages()
    assert [message.text for message in messages][2:5] == ["and now?", "They said hello.", "second reply"]
    read = await app.storage.session("s").load()
    assert read is not None
    assert {each.source: each.usage.input_tokens for each in read.usage} == {"turn": 30, "compaction": 10}
    # The older nodes are in the graph; without the summary on its path, the conversation is whole again.
    edited = asyncio.create_task(chat.edit(messages[0].id, "hello", timeout_s=60))
    while not edited.done():
        await app.drain()
        await asyncio.sleep(0.01)
    assert await edited == "reply on the branch"
    assert said(model.requests[-1].messages) == ["hello"]
    assert await app.storage.session("s").node(messages[3].id) is not None


async def test_long_results_are_cut_for_the_model(bench: Bench) -> None:
    """The model gets the beginning and the end; the session has the whole."""

    @tool
    def read() -> str:
        return "a" * 50 + "b" * 50

    model = ScriptedModel([call("read")], "done")
    app = await bench.app()
    chat = app.session("s", agent=Agent("assistant", model, tools=[read], context=Context(max_result=40)).declare(app))
    await chat.send("go")
    await app.drain()
    assert said(model.requests[1].messages)[-1] == f"{'a' * 30}\n[… 60 characters left out …]\n{'b' * 10}"
    assert said(tuple(await chat.messages()))[2] == "a" * 50 + "b" * 50


def test_what_a_context_refuses() -> None:
    """Limits are above 0, and something must be left to compact."""
    with pytest.raises(lash.ConfigError, match="above 0"):
        Context(max_tokens=0)
    with pytest.raises(lash.ConfigError, match="keep below compact_at"):
        Context(compact_at=100)
