"""Messages of sessions as messages of pydantic-ai, and back."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

import lash
from lash.adapters.pydantic_ai import LashDurability, LashHistory, history, reply

NOW = datetime(2026, 11, 16, tzinfo=UTC)
MESSAGES: list[ModelMessage] = [
    ModelRequest(
        parts=[SystemPromptPart("be nice", timestamp=NOW), UserPromptPart("hi", timestamp=NOW)],
        instructions="short",
        run_id="r",
        metadata={"a": [1, None]},
    ),
    ModelResponse(
        parts=[
            ThinkingPart("hm", signature="abc", provider_name="p"),
            TextPart("I look", id="t1"),
            ToolCallPart("look", '{"a":  1}', "c1"),
            ToolCallPart("look", {"b": [2]}, "c2"),
        ],
        usage=RequestUsage(input_tokens=3, output_tokens=4, details={"x": 1}),
        model_name="m",
        timestamp=NOW,
        provider_details={"k": "v"},
        finish_reason="tool_call",
    ),
    ModelRequest(
        parts=[
            ToolReturnPart("look", {"found": [1]}, "c1", metadata={"m": 1}, timestamp=NOW),
            ToolReturnPart("look", "text", "c2", timestamp=NOW),
            UserPromptPart(
                ["see", ImageUrl("https://x/y.png"), BinaryContent(b"\0\1", media_type="image/png")], timestamp=NOW
            ),
        ]
    ),
    ModelResponse(parts=[], timestamp=NOW),
    ModelResponse(parts=[TextPart("bye\nbye")], timestamp=NOW),
]


def _plain(messages: list[ModelMessage]) -> Any:  # noqa: ANN401 (JSON)
    return ModelMessagesTypeAdapter.dump_python(messages, mode="json")


async def test_messages_come_back_as_they_were(url: str) -> None:
    """Every field of every part is the same after a read; messages that are added together are one commit."""
    kept = LashHistory("user-1", url)
    assert await kept.messages() == []
    await kept.add(MESSAGES)
    await kept.add([])
    assert _plain(await LashHistory("user-1", url).messages()) == _plain(MESSAGES)
    assert await lash.shared(url).session("user-1").revision() == 1
    await kept.clear()
    assert await kept.messages() == []
    await kept.add(MESSAGES[:1])
    assert _plain(await kept.messages()) == _plain(MESSAGES[:1])


async def test_people_can_read_them(url: str) -> None:
    """Texts, tool calls and their results are parts of messages of the session."""
    await LashHistory("user-1", url).add(MESSAGES)
    messages = await lash.SessionHandle(lash.shared(url), "user-1").messages()
    assert [message.text for message in messages] == ["be nice\nhi", "I look", "see", "", "bye\nbye"]
    shown = [(part.kind.value, part.content) for part in messages[1].parts]
    assert shown == [
        ("reasoning", "hm"),
        ("prose", "I look"),
        ("tool_call", '{"a":  1}'),
        ("tool_call", '{"b":[2]}'),
    ]
    assert (messages[2].parts[0].content, messages[2].parts[0].tool_call_id) == ('{"found":[1]}', "c1")


async def test_concurrent_runs_keep_their_messages_together(url: str) -> None:
    """The messages of one run stand together, and none is lost."""
    runs = [[ModelRequest(parts=[UserPromptPart(f"q{n}")]), ModelResponse(parts=[TextPart(f"a{n}")])] for n in range(8)]
    await asyncio.gather(*(LashHistory("user-1", url).add(run) for run in runs))
    texts = [message.parts[0].content for message in await LashHistory("user-1", url).messages()]
    assert sorted(zip(texts[::2], texts[1::2], strict=True)) == [(f"q{n}", f"a{n}") for n in range(8)]
    end = await LashHistory("user-1", url).messages(last=3)
    assert [message.parts[0].content for message in end] == texts[-2:], "a reply without its question is left out"


async def test_a_turn_continues_the_conversation(url: str) -> None:
    """Each turn gets the messages of the runs before it, with the system prompt; people see each text once."""
    seen: list[Any] = []
    after: list[Any] = []

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if messages[-1].parts[-1].part_kind == "user-prompt":
            return ModelResponse(parts=[ToolCallPart("look", {"n": len(messages)}, f"c{len(messages)}")])
        return ModelResponse(parts=[TextPart(f"answer {len(messages)}")])

    agent = Agent(FunctionModel(answer), name="a", system_prompt="be nice", capabilities=[LashDurability()])

    @agent.tool_plain
    async def look(n: int) -> list[int]:
        return [n]

    app = lash.App(url)

    @app.agent
    async def chat(turn: lash.Turn) -> lash.Message:
        before = history(turn)
        seen.append(_plain(before))
        result = await agent.run(turn.text, message_history=before)
        after.append(_plain(result.all_messages()))
        return reply(turn, result)

    async with app:
        session = app.session("chat", chat)
        for n, text in enumerate(("one", "two", "three")):
            assert await session.ask(text, timeout_s=60) == f"answer {4 * n + 3}"
        assert await app.storage.session("chat").revision() == 3
        texts = [message.text for message in await session.messages()]
    assert seen == [[], *after[:2]]
    assert texts == ["one", "", "", "answer 3", "two", "", "", "answer 7", "three", "", "", "answer 11"]
    stored = await LashHistory("chat", url).messages()
    assert _plain(stored) == after[2]


async def test_messages_of_other_agents_have_their_text(url: str) -> None:
    """An agent of pydantic-ai continues a conversation that another agent of lash has begun."""
    app = lash.App(url)

    @app.agent
    async def plain(turn: lash.Turn) -> str:
        turn.add_tool_call("c1", "look", {"n": 1}, "found")
        return f"plain {turn.text}"

    async with app:
        await app.session("chat", plain).ask("hello", timeout_s=60)
    kinds = [
        (part.part_kind, getattr(part, "content", None)) for part in _parts(await LashHistory("chat", url).messages())
    ]
    assert kinds == [
        ("user-prompt", "hello"),
        ("tool-call", None),
        ("tool-return", "found"),
        ("text", "plain hello"),
    ]


def _parts(messages: list[ModelMessage]) -> list[Any]:
    return [part for message in messages for part in message.parts]


@pytest.mark.parametrize("output", ["text", "tool"])
async def test_every_kind_of_output(url: str, output: str) -> None:
    """The output is the text of the reply, and the history is whole, also if a function made the output."""

    def shout(text: str) -> str:
        return text.upper()

    async def answer(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if info.output_tools:
            return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {"response": 7}, "c1")])
        return ModelResponse(parts=[TextPart("quiet")])

    from pydantic_ai.output import TextOutput

    kind: Any = int if output == "tool" else TextOutput(shout)
    agent: Agent[None, Any] = Agent(FunctionModel(answer), name="a", output_type=kind, capabilities=[LashDurability()])
    kept: list[Any] = []
    app = lash.App(url)

    @app.agent
    async def chat(turn: lash.Turn) -> lash.Message:
        result = await agent.run(turn.text, message_history=history(turn))
        kept.append(_plain(result.all_messages()))
        return reply(turn, result)

    async with app:
        session = app.session("chat", chat)
        for _ in range(2):
            assert await session.ask("hi", timeout_s=60) == ("7" if output == "tool" else "QUIET")
    assert _plain(await LashHistory("chat", url).messages()) == kept[1]


async def test_a_storage_of_the_program(url: str) -> None:
    """It shares its data with an object on the URL, and stays open."""
    async with await lash.open(url) as storage:
        await LashHistory("user-1", storage).add(MESSAGES[:1])
        await LashHistory("user-1", url).add(MESSAGES[1:])
        assert _plain(await LashHistory("user-1", storage).messages()) == _plain(MESSAGES)
