from __future__ import annotations

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam

from tests.examples.conftest import Model

_HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello model"}]
_WEATHER: list[ChatCompletionMessageParam] = [{"role": "user", "content": "how is the weather?"}]
_TOOLS: list[ChatCompletionFunctionToolParam] = [{"type": "function", "function": {"name": "weather"}}]


async def test_whole_answers(model: Model) -> None:
    """The client reads text, tool calls and token counts from a complete answer, the same each time."""
    async with AsyncOpenAI(base_url=model.url, api_key="none") as client:
        for _ in range(2):
            completion = await client.chat.completions.create(model="any", messages=_HELLO)
            assert completion.choices[0].message.content == "You said: hello model"
            assert completion.choices[0].finish_reason == "stop"
            assert completion.usage is not None
            assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (2, 4)
            assert completion.usage.total_tokens == 6
        completion = await client.chat.completions.create(model="any", messages=_WEATHER, tools=_TOOLS)
    calls = completion.choices[0].message.tool_calls or []
    assert [(call.function.name, call.function.arguments) for call in calls if call.type == "function"] == [
        ("clock", "{}"),
        ("weather", '{"city": "Rome"}'),
    ]
    assert len({call.id for call in calls}) == 2
    assert completion.choices[0].finish_reason == "tool_calls"


async def test_streamed_answers(model: Model) -> None:
    """The client assembles the same answers from a stream: text by words, calls in pieces, tokens at the end."""
    async with AsyncOpenAI(base_url=model.url, api_key="none") as client:
        chunks = await client.chat.completions.create(
            model="any", messages=_HELLO, stream=True, stream_options={"include_usage": True}
        )
        words, total = [], 0
        async for chunk in chunks:
            words += [choice.delta.content for choice in chunk.choices if choice.delta.content]
            total = chunk.usage.total_tokens if chunk.usage else total
        assert words == ["You", " said:", " hello", " model"]
        assert total == 6
        async with client.chat.completions.stream(model="any", messages=_WEATHER, tools=_TOOLS) as stream:
            final = await stream.get_final_completion()
    calls = final.choices[0].message.tool_calls or []
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("clock", "{}"),
        ("weather", '{"city": "Rome"}'),
    ]


async def test_calls_are_counted_by_request(model: Model) -> None:
    """A test can read how often each request was made."""
    async with AsyncOpenAI(base_url=model.url, api_key="none") as client:
        for request in ("first", "second", "first"):
            headers = {"X-Client-Request-Id": request}
            await client.chat.completions.create(model="any", messages=_HELLO, extra_headers=headers)
    assert model.calls() == {"first": 2, "second": 1}


async def test_rules_of_ones_own(model: Model) -> None:
    """The first rule that matches the last message answers; without a match there is a default answer."""
    model.stop()
    model.start(
        [
            {"role": "user", "contains": "hello", "text": "first"},
            {"role": "user", "contains": "hello model", "text": "second"},
        ]
    )
    async with AsyncOpenAI(base_url=model.url, api_key="none") as client:
        answers = [
            (await client.chat.completions.create(model="any", messages=messages)).choices[0].message.content
            for messages in (_HELLO, _WEATHER)
        ]
    assert answers == ["first", "I have nothing to say about that."]
