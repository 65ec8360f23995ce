"""The adapters, through the real client libraries, against a server that speaks each protocol and checks requests."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any

import anthropic
import openai
import pytest

import lash
from lash.agents import (
    Agent,
    LengthReached,
    Model,
    ModelError,
    ModelRefused,
    ModelReply,
    ModelRequest,
    ModelTimedOut,
    ModelUnavailable,
    RateLimited,
    RequestRefused,
    Thought,
    tool,
)
from lash.agents.anthropic import Messages
from lash.agents.openai import ChatCompletions, Responses
from lash.agents.provider import closed_schema, retry_after
from lash.model import TokenUsage
from lash.model.session.message import Message, Role
from tests.agents.stand_in import Body, Reply, StandIn, stand_in

FORMS = ("responses", "chat", "messages")
Connect = Callable[..., Model]


@tool
async def weather(city: str) -> str:
    """Return the weather."""
    return f"{city}: sunny"


@tool
def fail() -> str:
    """Fail."""
    raise ValueError("broken")


@contextlib.asynccontextmanager
async def served(form: str, *replies: Reply) -> AsyncIterator[tuple[StandIn, Connect]]:
    """Serve replies one after the other, and yield what makes a model that is connected to them."""
    left = list(replies)

    def script(body: Body) -> Reply:
        return left.pop(0)

    async with stand_in(script) as server, contextlib.AsyncExitStack() as clients:

        def connect(timeout: float = 60, url: str = server.url, **settings: Any) -> Model:  # noqa: ANN401 (any)
            if form == "messages":
                client = anthropic.AsyncAnthropic(api_key="k", base_url=url, timeout=timeout)
                clients.push_async_callback(client.close)
                return Messages("m", client=client, **settings)
            other = openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", timeout=timeout)
            clients.push_async_callback(other.close)
            return (Responses if form == "responses" else ChatCompletions)("m", client=other, **settings)

        yield server, connect


async def called(model: Model, text: str = "hi") -> list[object]:
    """Call a model with one message, and return its pieces and its reply."""
    request = ModelRequest(messages=(Message.of_text("m", Role.USER, text),))
    answer = model(request)
    assert isinstance(answer, AsyncIterator)
    return [piece async for piece in answer]


@pytest.mark.parametrize("form", FORMS)
async def test_the_tool_loop(form: str) -> None:
    """Calls and results are sent back in the provider's form, pieces are streamed, and all tokens are booked."""
    first = Reply(
        text=("Let me ", "look."),
        calls=(("c1", "weather", {"city": "Rome"}), ("c2", "fail", {})),
        thinking="Two calls.",
    )
    async with served(form, first, Reply(text=("Sunny.",), thinking="Done."), Reply(text=("Yes.",))) as (
        server,
        connect,
    ):
        app = lash.App("sqlite://", worker=False)
        agent = Agent("assistant", connect(), instructions="Be brief.", tools=[weather, fail]).declare(app)
        async with app:
            chat = app.session("s", agent=agent)
            cursor = await chat.cursor()
            for text in ("Rome?", "Sure?"):
                await chat.send(text)
                await app.drain()
            assert [message.text for message in await chat.messages()] == [
                "Rome?",
                "Let me look.",
                "",
                "Sunny.",
                "Sure?",
                "Yes.",
            ]
            shown: list[Any] = []
            async for observed in chat.observe(cursor):
                if isinstance(observed, lash.Committed):
                    break
                if isinstance(observed, lash.TurnActivity):
                    shown.append(observed.payload)
            read = await app.storage.session("s").load()
    assert server.problems == []
    assert [each for each in shown if "text" in each] == [{"text": "Let me "}, {"text": "look."}, {"text": "Sunny."}]
    assert "".join(each["reasoning"] for each in shown if "reasoning" in each) == "Two calls.Done."
    assert read is not None
    assert [(each.model, each.usage) for each in read.usage] == [
        (
            "stand-in-1",
            TokenUsage(input_tokens=180, output_tokens=45, cached_input_tokens=120, reasoning_tokens=15),
        )
    ]
    # The last request has the whole conversation, with the reasoning of the first turn as it came.
    assert "broken" in str(server.requests[-1])
    assert len(server.requests) == 3
    signs = {"responses": "'encrypted_content':", "chat": "'signature':", "messages": "'signature':"}
    assert str(server.requests[-1]).count(signs[form]) == 2


@dataclasses.dataclass
class Place:
    city: str
    people: int


@pytest.mark.parametrize("form", FORMS)
async def test_structured_output(form: str) -> None:
    """The schema of the type is sent to the provider, and the reply is read as a value of it."""
    async with served(form, Reply(text=('{"city": "Rome", ', '"people": 3}'))) as (server, connect):
        app = lash.App("sqlite://")
        agent = Agent("assistant", connect(), output=Place).declare(app)
        async with app:
            assert await app.session("s", agent=agent).ask("Rome?", of_type=Place) == Place("Rome", 3)
    (body,) = server.requests
    places: dict[str, Callable[[], Any]] = {
        "responses": lambda: body["text"]["format"]["schema"],
        "chat": lambda: body["response_format"]["json_schema"]["schema"],
        "messages": lambda: body["output_config"]["format"]["schema"],
    }
    schema = places[form]()
    assert (schema["required"], schema["additionalProperties"]) == (["city", "people"], False)
    if form != "messages":
        assert "'strict': True" in str(body)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(status=429, error="slow down", headers={"Retry-After": "7"}), RateLimited),
        (Reply(status=429, error="insufficient_quota"), RequestRefused),
        (Reply(status=503, error="busy"), ModelUnavailable),
        (Reply(status=401, error="no key"), RequestRefused),
        (Reply(text=("a", "b", "c", "d"), breaks=True), ModelUnavailable),
    ],
    ids=["rate", "quota", "busy", "key", "broken"],
)
async def test_errors_are_distinguished(form: str, reply: Reply, kind: type[ModelError]) -> None:
    """Each trouble has its class, and the server's retry-after is kept; the client itself does not try again."""
    if form == "messages" and reply.error == "insufficient_quota":
        kind = RateLimited
    async with served(form, reply) as (server, connect):
        with pytest.raises(kind) as raised:
            await called(connect())
        assert len(server.requests) == 1
    if reply.headers:
        assert isinstance(raised.value, RateLimited)
        assert raised.value.retry_after_s == 7
    assert raised.value.__cause__ is not None


@pytest.mark.parametrize("form", FORMS)
async def test_a_provider_that_hangs_or_is_away(form: str) -> None:
    """The timeout of the client, and a port without a server, are errors of their own."""
    async with served(form, Reply(hangs=True)) as (_, connect):
        with pytest.raises(ModelTimedOut):
            await called(connect(timeout=0.05))
        with pytest.raises(ModelUnavailable):
            await called(connect(url="http://127.0.0.1:1"))


@pytest.mark.parametrize("form", FORMS)
async def test_stops(form: str) -> None:
    """A refusal and a length stop are read from each protocol."""
    async with served(form, Reply(text=("no",), stop="refused"), Reply(text=("a",), stop="length")) as (_, connect):
        agent = Agent("assistant", connect())
        with pytest.raises(lash.TurnFailed, match=f"{ModelRefused.__name__}.*no"):
            await agent.run("hi")
        with pytest.raises(lash.TurnFailed, match=LengthReached.__name__):
            await agent.run("hi")


async def test_a_pause_of_the_provider_is_continued() -> None:
    """Anthropic pauses long work of its own tools: the reply is sent back, and the model continues."""
    async with served("messages", Reply(text=("I ",), stop="paused"), Reply(text=("am done.",))) as (server, connect):
        assert await Agent("assistant", connect()).run("hi") == "am done."
    assert [each["role"] for each in server.requests[1]["messages"]] == ["user", "assistant"]


@pytest.mark.parametrize("form", FORMS)
async def test_files_are_sent(form: str) -> None:
    """Images and other files of a message reach the provider as its blocks."""
    async with served(form, Reply(text=("ok",))) as (server, connect):
        app = lash.App("sqlite://")
        agent = Agent("assistant", connect()).declare(app)
        async with app:
            chat = app.session("s", agent=agent)
            await app.storage.sessions.create("s")
            files = [
                await chat.attach(b"png", "image/png"),
                await chat.attach(b"pdf", "application/pdf", label="a.pdf"),
            ]
            assert await chat.ask("what?", attachments=files) == "ok"
    sent = str(server.requests[0])
    assert "cG5n" in sent
    assert "cGRm" in sent


async def test_settings_reach_the_client() -> None:
    """What the client takes can be set; the model's own name is sent."""
    async with served("responses", Reply(text=("ok",))) as (server, connect):
        *pieces, reply = await called(connect(temperature=0.5, max_output_tokens=99))
    assert pieces == ["ok"]
    assert isinstance(reply, ModelReply)
    assert (server.requests[0]["temperature"], server.requests[0]["max_output_tokens"]) == (0.5, 99)
    assert not any(isinstance(piece, Thought) for piece in pieces)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after-ms": "250", "retry-after": "3"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], expected: float | None) -> None:
    """Seconds, milliseconds and dates are understood."""
    assert retry_after(headers) == expected


def test_closed_schemas() -> None:
    """Objects take no further keys; a schema with optional keys is not strict."""
    inner = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    closed, strict = closed_schema({"anyOf": [inner, {"type": "null"}]})
    assert strict
    assert closed["anyOf"][0]["additionalProperties"] is False
    assert not closed_schema({**inner, "required": []})[1]
    assert not closed_schema({"type": "object"})[1]


async def test_a_client_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model without credentials fails its turn at once, and says what is missing."""
    for name, model in (("OPENAI_API_KEY", Responses("m")), ("ANTHROPIC_API_KEY", Messages("m"))):
        monkeypatch.delenv(name, raising=False)
        with pytest.raises(lash.TurnFailed, match=name):
            await Agent("assistant", model).run("hi")
