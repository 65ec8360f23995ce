"""The loop of an agent: every model and tool call is a recorded step of its turn."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

import lash
from lash.agents import (
    Agent,
    LengthReached,
    ModelRefused,
    ModelReply,
    ModelRequest,
    RateLimited,
    ScriptedModel,
    Stop,
    Thought,
    ToolCall,
    call,
    tool,
)
from lash.agents.vocabulary import reasoning_part, text_part
from lash.model import TokenUsage
from lash.runtime.policy import NO_RETRY
from lash.runtime.turns.end import TurnEnd
from tests.runtime.turn_bench import Bench, run_turn, texts


@tool
async def weather(city: str) -> str:
    """Return the weather."""
    return f"{city}: sunny"


def content(messages: list[lash.Message]) -> list[list[tuple[str, str]]]:
    return [[(part.kind.value, part.content) for part in message.parts] for message in messages]


async def test_an_agent_calls_tools_and_replies(bench: Bench) -> None:
    """Calls and results are committed with the reply, in the order of the model, and tokens are booked once."""
    model = ScriptedModel(
        ["Let me look.", call("weather", city="Rome"), call("weather", city="Oslo")],
        "Both are sunny.",
        usage=TokenUsage(input_tokens=10, output_tokens=3, cached_input_tokens=4, reasoning_tokens=2),
    )
    app = await bench.app()
    agent = Agent("assistant", model, instructions="Be brief.", tools=[weather]).declare(app)
    chat = app.session("s", agent=agent)
    await chat.send("Rome or Oslo?")
    await app.drain()
    assert content(await chat.messages()) == [
        [("text", "Rome or Oslo?")],
        [("prose", "Let me look."), ("tool_call", '{"city":"Rome"}'), ("tool_call", '{"city":"Oslo"}')],
        [("tool_result", "Rome: sunny"), ("tool_result", "Oslo: sunny")],
        [("prose", "Both are sunny.")],
    ]
    first, second = model.requests
    assert (first.instructions, [each.name for each in first.tools]) == ("Be brief.", ["weather"])
    assert texts(list(second.messages)) == [("user", "Rome or Oslo?"), ("assistant", "Let me look."), ("assistant", "")]
    read = await app.storage.session("s").load()
    assert read is not None
    assert [(each.model, each.usage) for each in read.usage] == [
        ("scripted", TokenUsage(input_tokens=20, output_tokens=6, cached_input_tokens=8, reasoning_tokens=4))
    ]


async def test_recorded_calls_are_not_made_again(bench: Bench) -> None:
    """A turn that failed behind its calls replays them; each was made once, and the tokens are booked once."""
    model = ScriptedModel([call("count")], lash.StoreUnavailable("away"), "done")
    counted: list[int] = []

    @tool
    def count() -> int:
        counted.append(1)
        return len(counted)

    app = await bench.app()
    chat = app.session("s", agent=Agent("assistant", model, tools=[count]).declare(app))
    await chat.send("go")
    assert await run_turn(app, "s") is TurnEnd.FAILED
    await bench.seconds(60)
    assert await run_turn(app, "s") is TurnEnd.COMMITTED
    assert (len(model.requests), counted) == (3, [1])
    assert (await chat.messages())[-1].text == "done"
    read = await app.storage.session("s").load()
    assert read is not None
    assert [each.usage.total for each in read.usage] == [4]


async def test_calls_run_side_by_side_and_are_kept_in_order(bench: Bench) -> None:
    """The second call may finish first; its result is still the second one. Equal ids are different calls."""
    slow = asyncio.Event()

    @tool
    async def first() -> str:
        await slow.wait()
        return "first"

    @tool
    async def second() -> str:
        slow.set()
        return "second"

    twice = [ToolCall(id="0", name="first"), ToolCall(id="1", name="second")]
    model = ScriptedModel(twice, [ToolCall(id="0", name="second")], "done")
    app = await bench.app()
    chat = app.session("s", agent=Agent("assistant", model, tools=[first, second]).declare(app))
    await chat.send("go")
    await app.drain()
    results = [
        part.content for message in await chat.messages() for part in message.parts if part.kind == "tool_result"
    ]
    assert results == ["first", "second", "second"]


async def test_unknown_tools_and_failing_tools_are_answered() -> None:
    """The model gets the error as the result of its call, and can go on."""
    attempts: list[int] = []

    @tool(retry=lash.Retry(max_attempts=2, first_pause_s=0))
    def flaky() -> str:
        attempts.append(1)
        raise ValueError("broken")

    seen: list[str] = []

    def note(request: ModelRequest) -> str:
        seen.extend(part.content for part in request.messages[-1].parts)
        return "ok"

    model = ScriptedModel([call("nothing"), call("flaky")], note)
    assert await Agent("assistant", model, tools=[flaky]).run("go") == "ok"
    assert seen == ["unknown tool 'nothing'; there are: flaky", "ValueError: broken"]
    assert len(attempts) == 2


async def test_any_async_function_is_a_model() -> None:
    """A function that returns text, or a generator that yields it in pieces."""

    async def plain(request: ModelRequest) -> str:
        return f"You said: {request.messages[-1].text}"

    async def pieces(request: ModelRequest) -> AsyncIterator[str]:
        yield "a"
        yield "b"

    assert await Agent("assistant", plain).run("hi") == "You said: hi"
    assert await Agent("assistant", pieces).run("hi") == "ab"


async def test_pieces_are_shown_and_the_whole_is_recorded(bench: Bench) -> None:
    """Observers see text, reasoning and calls as they come; the conversation has the whole."""

    async def model(request: ModelRequest) -> AsyncIterator[str | Thought | ModelReply]:
        yield Thought(text="hm")
        yield "It is "
        yield "sunny."
        yield ModelReply.of("It is sunny.")

    app = await bench.app()
    chat = app.session("s", agent=Agent("assistant", model).declare(app))
    cursor = await chat.cursor()
    await chat.send("go")
    await app.drain()
    shown = []
    async for observed in chat.observe(cursor):
        if isinstance(observed, lash.Committed):
            break
        if isinstance(observed, lash.TurnActivity):
            shown.append(observed.payload)
    assert shown == [{"model_call": 1}, {"reasoning": "hm"}, {"text": "It is "}, {"text": "sunny."}]
    assert (await chat.messages())[-1].text == "It is sunny."


async def test_raw_blocks_survive_a_replay_and_a_later_turn(bench: Bench) -> None:
    """A reasoning block and its signature come back as they were, in the same turn and in the next one."""
    block = {"form": {"type": "thinking", "thinking": "hm", "signature": "s1gn"}}
    thoughtful = ModelReply(parts=(reasoning_part("hm", block), *ModelReply.of(call("weather", city="Rome")).parts))
    last = ModelReply(parts=(reasoning_part("hm 2", block), text_part("sunny")))
    model = ScriptedModel(thoughtful, last, "again")
    app = await bench.app()
    chat = app.session("s", agent=Agent("assistant", model, tools=[weather]).declare(app))
    for text in ("one", "two"):
        await chat.send(text)
        await app.drain()
    kept = [
        part.tool_replay.opaque
        for message in model.requests[-1].messages
        for part in message.parts
        if part.kind is lash.PartKind.REASONING and part.tool_replay is not None
    ]
    assert kept == [block, block]
    assert (await chat.messages())[-1].text == "again"


async def test_a_busy_provider_is_waited_for(bench: Bench) -> None:
    """The turn is parked for as long as the provider says, and the model is called again."""
    model = ScriptedModel(RateLimited("slow down", retry_after_s=30), "done")
    app = await bench.app()
    chat = app.session("s", agent=Agent("assistant", model).declare(app))
    await chat.send("go")
    assert await run_turn(app, "s") is TurnEnd.PARKED
    await bench.seconds(29)
    await app.drain()
    assert len(model.requests) == 1
    await bench.seconds(2)
    await app.drain()
    assert (await chat.messages())[-1].text == "done"


@pytest.mark.parametrize(
    ("stop", "kind", "said"),
    [(Stop.REFUSED, ModelRefused, "refused to answer: no"), (Stop.LENGTH, LengthReached, "raise the limit")],
)
async def test_unusable_replies_end_the_turn(bench: Bench, stop: Stop, kind: type[Exception], said: str) -> None:
    """A refusal or a length stop is not retried; the caller of the agent can catch it, in every run."""
    model = ScriptedModel(ModelReply(parts=(text_part("no"),), stop=stop))
    app = await bench.app()
    chat = app.session("s", agent=Agent("assistant", model).declare(app))
    await chat.send("go")
    assert await run_turn(app, "s") is TurnEnd.BURIED
    (dead,) = await app.storage.queue.dead()
    assert said in dead.reason

    careful = Agent("inner", ScriptedModel(ModelReply(parts=(text_part("no"),), stop=stop)))

    @app.agent(retry=lash.Retry(max_attempts=2, first_pause_s=0))
    async def outer(turn: lash.Turn) -> str:
        try:
            await careful.reply(turn)
        except kind as error:
            await turn.step("note", str, error)
            if turn.attempt == 1:
                raise ConnectionError from None
            return f"caught: {error}"
        return "nothing was raised"

    chat = app.session("t", agent=outer)
    await chat.send("go")
    assert await run_turn(app, "t") is TurnEnd.FAILED
    await bench.seconds(1)
    assert await run_turn(app, "t") is TurnEnd.COMMITTED
    assert said in (await chat.messages())[-1].text


@dataclasses.dataclass
class Invoice:
    number: int
    total: float


async def test_structured_output(bench: Bench) -> None:
    """The reply fits the declared type; a wrong one is corrected by the model, a few times."""
    model = ScriptedModel("no JSON", '{"number": "x"}', '{"number": 7, "total": 1.5}')
    app = await bench.app(worker=True)
    agent = Agent("assistant", model, output=Invoice)
    reply = await app.session("s", agent=agent.declare(app)).ask("read it", of_type=Invoice, timeout_s=60)
    assert reply == Invoice(number=7, total=1.5)
    assert agent.output_spec is not None
    assert agent.output_spec.json_schema["required"] == ["number", "total"]
    assert "expected JSON" in model.requests[1].messages[-1].text
    assert len(await app.session("s").messages()) == 2
    stubborn = ScriptedModel("a", "b", "c")
    with pytest.raises(lash.TurnFailed, match="OutputMismatch"):
        await Agent("assistant", stubborn, output=Invoice).run("read it")
    with pytest.raises(lash.ConfigError, match="expected an output with fields"):
        Agent("assistant", stubborn, output=list[int])


async def test_rounds_are_limited() -> None:
    """A model that only calls tools stops at the limit, and the turn says so."""
    model = ScriptedModel(*[[call("weather", city="Rome")]] * 3)
    with pytest.raises(lash.TurnFailed, match="called its model 3 times"):
        await Agent("assistant", model, tools=[weather], max_rounds=3).run("go")


async def test_a_tool_can_use_the_turn(bench: Bench) -> None:
    """A tool that takes the turn asks another agent, and the turn is parked meanwhile."""
    app = await bench.app()
    expert = Agent("expert", ScriptedModel("42")).declare(app)

    @tool
    async def ask_expert(turn: lash.Turn, question: str) -> str:
        """Ask the expert."""
        return await turn.ask(expert, question)

    model = ScriptedModel([call("ask_expert", question="why?")], "The answer is 42.")
    chat = app.session("s", agent=Agent("assistant", model, tools=[ask_expert]).declare(app))
    await chat.send("go")
    await app.drain()
    assert content(await chat.messages())[2] == [("tool_result", "42")]


async def test_an_agent_says_what_is_wrong_with_it() -> None:
    """Two tools of one name and a limit below 1 are refused."""
    with pytest.raises(lash.ConfigError, match="two tools of one name"):
        Agent("assistant", ScriptedModel(), tools=[weather, weather])
    with pytest.raises(lash.ConfigError, match="max_rounds"):
        Agent("assistant", ScriptedModel(), max_rounds=0)
    with pytest.raises(lash.TurnFailed, match="the script has 0 lines"):
        await Agent("assistant", ScriptedModel(), retry=NO_RETRY).run("go")
