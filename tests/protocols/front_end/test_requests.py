"""What the routes of both protocols accept and refuse, and what a client that leaves costs."""

from __future__ import annotations

import asyncio
import base64
import copy
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from starlette.requests import Request

import lash
from lash.protocols import agui, vercel
from lash.protocols.front_end.follow import follow
from lash.protocols.front_end.turn import UserInput, send
from tests.protocols.front_end.exchange import Answer, exchange
from tests.protocols.front_end.program import application
from tests.web.site import Counted

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)


@pytest_asyncio.fixture
async def app(backend_url: str) -> AsyncIterator[lash.App]:
    """The application, with its worker."""
    async with application(backend_url) as opened:
        yield opened


@pytest_asyncio.fixture
async def idle(backend_url: str) -> AsyncIterator[lash.App]:
    """The application without a worker: nothing that is sent is answered."""
    async with application(backend_url, worker=False) as opened:
        yield opened


async def _sent(app: lash.App) -> None:
    """Wait until a message is queued."""
    while not await app.session("t").pending():  # noqa: ASYNC110 (the database is asked)
        await asyncio.sleep(0.01)


class Protocol:
    """One of the protocols, as a client in the same event loop uses it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_agui = name == "agui"
        self._routes: Any = (agui if self.is_agui else vercel).routes

    def body(self, text: object, message_id: str = "u1", thread: object = "t", **more: object) -> dict[str, Any]:
        if self.is_agui:
            messages = [{"id": message_id, "role": "user", "content": text}]
            return {"threadId": thread, "runId": "r", "messages": messages, **more}
        parts = [{"type": "text", "text": text}] if isinstance(text, str) else text
        return {"id": thread, "messages": [{"id": message_id, "role": "user", "parts": parts}], **more}

    def resume(self, thread: str, wait_id: str, value: object) -> dict[str, Any]:
        if self.is_agui:
            entry = {"interruptId": wait_id, "status": "resolved", "payload": value}
            return {"threadId": thread, "runId": "r", "messages": [], "resume": [entry]}
        return {"id": thread, "messages": [], "answers": [{"id": wait_id, "value": value}]}

    def questions(self, answer: Answer) -> list[str]:
        """Return the ids of the questions that a stream ended with."""
        if self.is_agui:
            return [each["id"] for each in answer.events[-1]["outcome"]["interrupts"]]
        return [event["id"] for event in answer.events if event["type"] == "data-question"]

    def text(self, answer: Answer) -> str:
        kind = "TEXT_MESSAGE_CONTENT" if self.is_agui else "text-delta"
        return "".join(event["delta"] for event in answer.events if event["type"] == kind)

    def file(self, **fields: object) -> list[dict[str, object]]:
        return [{"type": "text", "text": "count 1"}, {"type": "document" if self.is_agui else "file", **fields}]

    async def post(self, app: lash.App, body: object, *, agent: str = "assistant", **options: Any) -> Answer:  # noqa: ANN401
        own = {name: options.pop(name) for name in ("media_type", "leave", "is_lost") if name in options}
        return await exchange(self._routes(app, agent, path="/api", **options), "POST", "/api", body, **own)

    async def get(self, app: lash.App, path: str, **options: Any) -> Answer:  # noqa: ANN401
        return await exchange(self._routes(app, "assistant", path="/api", **options), "GET", path)


@pytest.fixture(params=["agui", "vercel"])
def protocol(request: pytest.FixtureRequest) -> Protocol:
    return Protocol(request.param)


async def test_bad_requests_are_refused_and_named(idle: lash.App, protocol: Protocol) -> None:
    """Each fault is a 4xx with its reason, and nothing is sent to the agent."""
    good = protocol.body("hi")
    name = "threadId" if protocol.is_agui else "id"
    url = "https://example.org/file"
    by_address: dict[str, object] = {"source": {"type": "url", "value": url}} if protocol.is_agui else {"url": url}
    broken = "data:text/plain;base64,***"
    no_base64: dict[str, object] = (
        {"source": {"type": "data", "value": "***", "mimeType": "text/plain"}} if protocol.is_agui else {"url": broken}
    )
    faults: list[tuple[object, int, str]] = [
        (b"{", 400, "the body does not fit"),
        (b"[" * 100_000, 400, "the body does not fit"),
        (b"\xff", 400, "the body does not fit"),
        ({"messages": []}, 400, name),
        ({**good, name: ""}, 400, "length"),
        ({**good, name: 7}, 400, "Expected `str`"),
        ({**good, name: "x" * 256}, 400, "at most 255"),
        ({**good, name: "a\0b"}, 400, "NUL"),
        ({**good, "messages": []}, 400, "expected a message of the user"),
        ({**good, "messages": [{"id": "a", "role": "assistant"}]}, 400, "expected a message of the user"),
        (protocol.body("hi", ""), 400, "the last message of the user does not fit"),
        (protocol.body("hi", "x" * 256), 400, "at most 255"),
        (protocol.body(7), 400, "the last message of the user does not fit"),
        (protocol.body(protocol.file(**by_address)), 400, "with its bytes"),
        (protocol.body(protocol.file(**no_base64)), 400, "not base64"),
        (protocol.resume("t", "f" * 64, True), 400, "unknown question"),
    ]
    for body, status, why in faults:
        answer = await protocol.post(idle, body)
        assert (answer.status, why in answer.error) == (status, True), (body, answer)
    for media_type in ("text/plain", "", "application/x-www-form-urlencoded"):
        answer = await protocol.post(idle, good, media_type=media_type)
        assert (answer.status, answer.error) == (415, "expected a body of type application/json")
    answer = await protocol.post(idle, good, max_body=50)
    assert (answer.status, answer.error) == (413, "expected a body of at most 50 bytes")
    assert (await protocol.get(idle, "/api")).status == 405
    assert await idle.session("t").pending() == ()


async def test_hostile_bodies_are_answered(idle: lash.App, protocol: Protocol) -> None:
    """Whatever stands where in a body, the answer is a stream or a refusal, never an error of the server."""
    chance = random.Random(7)
    odd: list[Any] = [None, 7, -1.5, True, "", "x", "\ud83d\ude00", [], {}, [[]], {"id": []}, ["x"], {"id": {}}]
    tool = {"type": "tool-x", "toolCallId": "c", "state": "", "approval": {"id": "a", "approved": True}}
    call = {"id": "c", "type": "function", "function": {"name": "n", "arguments": "{}"}}
    after = {"id": "a", "role": "assistant", "content": "x", "toolCalls": [call], "parts": [tool]}
    result = {"id": "r", "role": "tool", "toolCallId": "c", "content": "y", "parts": []}
    statuses = set()
    for number in range(60):
        body = protocol.body("count 1", f"u{number}")
        tool["state"] = chance.choice(["approval-responded", "output-available", "input-streaming"])
        body["messages"] = copy.deepcopy([*body["messages"], after, result])
        for _ in range(chance.randint(0, 3)):
            _spoil(body, chance, odd)
        answer = await protocol.post(idle, body, leave=lambda _: True)
        statuses.add(answer.status)
        assert answer.status == 200 or (400 <= answer.status < 500 and answer.error), (body, answer)
    assert statuses >= {200, 400}


def _spoil(body: Any, chance: random.Random, odd: list[Any]) -> None:  # noqa: ANN401 (any JSON)
    """Replace a value somewhere in JSON by an odd one."""
    while True:
        keys = list(body) if isinstance(body, dict) else list(range(len(body)))
        key = chance.choice(keys)
        inner = body[key]
        if not isinstance(inner, dict | list) or not inner or chance.random() < 0.2:
            body[key] = copy.deepcopy(chance.choice(odd))
            return
        body = inner


async def test_the_host_decides_which_session_a_thread_is(app: lash.App, protocol: Protocol) -> None:
    """``session_of`` maps a thread to a session, or refuses the request; it may be async."""

    async def own(request: Request, thread: str) -> str | None:
        await asyncio.sleep(0)
        return None if thread == "secret" else f"tenant/{thread}"

    answer = await protocol.post(app, protocol.body("count 1", thread="secret"), session_of=own)
    assert (answer.status, answer.error) == (404, "unknown thread")
    assert (await protocol.get(app, "/api/secret", session_of=own)).status == 404
    answer = await protocol.post(app, protocol.body("count 2"), session_of=own)
    assert protocol.text(answer) == "0 1 "
    assert [each.text for each in await app.session("tenant/t").messages()] == ["count 2", "0 1 "]
    assert await app.session("t").messages() == []
    assert "0 1 " in (await protocol.get(app, "/api/t", session_of=own)).text


async def test_a_message_id_stands_for_one_message(app: lash.App, protocol: Protocol) -> None:
    """The same id again gives the same reply, also under the stored id; with another text it is a conflict."""
    for _ in range(2):
        assert protocol.text(await protocol.post(app, protocol.body("count 3"))) == "0 1 2 "
    question, _ = await app.session("t").messages()
    stored = await protocol.post(app, protocol.body("count 3", question.id))
    assert protocol.text(stored) == "0 1 2 "
    assert len(await app.session("t").messages()) == 2
    other = await protocol.post(app, protocol.body("count 4"))
    assert other.status == 409
    # Only the session's own ids are found again.
    foreign = await protocol.post(app, protocol.body("count 3", question.id, "other"))
    assert protocol.text(foreign) == "0 1 2 "
    assert len(await app.session("other").messages()) == 2


async def test_only_questions_of_the_session_are_answered(app: lash.App, protocol: Protocol) -> None:
    """The id of a question opens nothing in another thread, and an answer must match its schema."""
    [wait_id] = protocol.questions(await protocol.post(app, protocol.body("ask"), agent="plain"))
    await protocol.post(app, protocol.body("count 1", thread="mine"))
    foreign = await protocol.post(app, protocol.resume("mine", wait_id, "Eve"), agent="plain")
    assert (foreign.status, "unknown question" in foreign.error) == (400, True)
    wrong = await protocol.post(app, protocol.resume("t", wait_id, 7), agent="plain")
    assert wrong.status == 400
    # A later message waits for the same person.
    later = await protocol.post(app, protocol.body("count 2", "u2"), agent="plain")
    assert protocol.questions(later) == [wait_id]
    answered = await protocol.post(app, protocol.resume("t", wait_id, "Ada"), agent="plain")
    assert protocol.text(answered) == "Hello Ada"
    again = await protocol.post(app, protocol.resume("t", wait_id, "Ada"), agent="plain")
    assert protocol.text(again) == "Hello Ada"
    assert protocol.text(await protocol.post(app, protocol.body("count 2", "u2"), agent="plain")) == "0 1 "


async def test_files_come_with_a_message(app: lash.App, protocol: Protocol) -> None:
    """A file that is sent with its bytes is an attachment of the session, once."""
    data = base64.b64encode(b"hello").decode()
    fields: dict[str, object] = {"mediaType": "text/plain", "url": f"data:text/plain;base64,{data}"}
    if protocol.is_agui:
        fields = {"source": {"type": "data", "value": data, "mimeType": "text/plain"}}
    for _ in range(2):
        answer = await protocol.post(app, protocol.body(protocol.file(**fields)))
        assert protocol.text(answer) == "0 "
    question, _ = await app.session("t").messages()
    [file] = [part.attachment for part in question.parts if part.attachment is not None]
    assert (file.media_type, file.byte_len) == ("text/plain", 5)


async def test_a_stream_outlives_its_silence_and_its_client(idle: lash.App, protocol: Protocol) -> None:
    """A silent stream sends comments; a client that leaves ends its stream and nothing else."""
    body = protocol.body("count 1")
    answer = await protocol.post(idle, body, keep_alive_s=0.01, leave=lambda text: text.count(": still here") == 3)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-store", "no")
    assert len(await idle.session("t").pending()) == 1
    await protocol.post(idle, body, cancel_on_disconnect=True, keep_alive_s=0.01, leave=lambda text: "still" in text)
    assert await idle.session("t").pending() == ()
    gone = await protocol.post(idle, body)
    assert gone.types[-1] == ("RUN_FINISHED" if protocol.is_agui else "abort")
    if protocol.is_agui:
        assert gone.events[-1]["outcome"] == {"type": "cancelled"}


async def test_a_client_that_is_gone_is_no_error(idle: lash.App, protocol: Protocol) -> None:
    """A server that reports a lost client as an error of send ends the stream too, and the turn is cancelled."""
    await protocol.post(idle, protocol.body("count 1"), cancel_on_disconnect=True, is_lost=True)
    assert await idle.session("t").pending() == ()


async def test_streams_are_limited(idle: lash.App, protocol: Protocol) -> None:
    """A stream beyond the limit is refused with 503 before anything is sent, and its place is free after the end."""
    module = agui if protocol.is_agui else vercel
    routes = module.routes(idle, "assistant", path="/api", most_streams=1, keep_alive_s=0.01)
    may_leave = asyncio.Event()
    first = asyncio.create_task(
        exchange(routes, "POST", "/api", protocol.body("count 1"), leave=lambda _: may_leave.is_set())
    )
    await _sent(idle)
    refused = await exchange(routes, "POST", "/api", protocol.body("count 2", "u2"))
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert len(await idle.session("t").pending()) == 1
    may_leave.set()
    await first
    await exchange(routes, "POST", "/api", protocol.body("count 2", "u2"), leave=lambda text: "still" in text)
    assert len(await idle.session("t").pending()) == 2


async def test_a_deleted_session_ends_its_stream(idle: lash.App, protocol: Protocol) -> None:
    """A stream whose session is deleted ends with an error, and later requests are refused."""
    body = protocol.body("count 1")
    stream = asyncio.create_task(protocol.post(idle, body))
    await _sent(idle)
    await idle.session("t").delete()
    assert (await stream).types[-1] == ("RUN_ERROR" if protocol.is_agui else "error")
    assert (await protocol.post(idle, body)).status == 404


async def test_a_failure_says_what_the_host_wants(app: lash.App, protocol: Protocol) -> None:
    """Nothing of an error reaches the client, unless ``describe_error`` says it."""
    body = protocol.body("fail")
    assert "secret" not in (await protocol.post(app, body)).text
    told = await protocol.post(app, body, describe_error=lambda error: f"sorry: {error.session_id}")
    assert "sorry: t" in told.text


async def test_a_stream_costs_few_reads(app: lash.App) -> None:
    """A turn of 200 pieces is followed with a few reads, not with one for each piece."""
    calls: list[str] = []
    counted: Any = Counted(app.storage, calls)
    turn = await send(app.session("t", "assistant"), app.storage, UserInput("u", "count 200"))
    events = [event async for event in follow(counted, turn)]
    assert len(events) == 202
    assert calls.count("session_waiter.observing") == 1, "one observer for each stream"
    assert len(calls) <= 60, Counter(calls)
