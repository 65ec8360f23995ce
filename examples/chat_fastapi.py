"""A FastAPI chat with tools, whose streams survive lost connections, reloads and server restarts.

    python examples/chat_fastapi.py [--url postgresql://user@host/database] [--port 8000]

Then open http://127.0.0.1:8000. The ids of the streamed events are cursors: a browser that reconnects sends the last
one as Last-Event-ID, and the stream continues after it. The model is OpenAI's, or the fake one: see
examples/model_server.py.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import uvicorn
from fastapi import Body, FastAPI, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

import lash
from openai_format import Tools, calls_of, for_model

parser = argparse.ArgumentParser(description="A chat with tools.")
parser.add_argument("--url", default="sqlite:///chat_fastapi.db")
parser.add_argument("--port", type=int, default=8000)
options = parser.parse_args()

app = lash.App(options.url)
model = AsyncOpenAI()
MODEL = "gpt-4.1-mini"


def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"sunny in {city}"


def clock() -> str:
    """Return the time of day."""
    return f"{datetime.now(UTC):%H:%M} UTC"


TOOLS = Tools(weather, clock)


async def complete(turn: lash.Turn, messages: list[ChatCompletionMessageParam]) -> ChatCompletion:
    """Call the model, and show its words to observers as they arrive."""
    turn.activity({"type": "begin"})
    name = {"X-Client-Request-Id": f"{turn.turn_id}:{len(messages)}"}
    async with model.chat.completions.stream(
        model=MODEL, messages=messages, tools=TOOLS.params, stream_options={"include_usage": True}, extra_headers=name
    ) as stream:
        async for event in stream:
            if event.type == "content.delta":
                turn.activity({"type": "text", "text": event.delta})
        return ChatCompletion.model_validate((await stream.get_final_completion()).model_dump())


@app.agent
async def assistant(turn: lash.Turn) -> str:
    while True:
        completion = await turn.step("model", complete, turn, for_model(turn.messages()))
        if spent := completion.usage:
            turn.usage(MODEL, input_tokens=spent.prompt_tokens, output_tokens=spent.completion_tokens)
        for call in (calls := calls_of(completion)):
            result = await turn.step("tool", TOOLS.call, call.function.name, call.function.arguments)
            turn.add_tool_call(call.id, call.function.name, call.function.arguments, result)
        if not calls:
            return completion.choices[0].message.content or ""


@contextlib.asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with app:  # the worker runs inside the web server; with App(url, worker=False) other programs do the work
        yield


web = FastAPI(lifespan=lifespan)


@web.post("/chats/{chat_id}/messages", status_code=202)
async def post(chat_id: str, text: Annotated[str, Body()], key: Annotated[str, Body()]) -> None:
    await app.session(chat_id, assistant).send(text, key=key)  # the client's key makes it idempotent


@web.get("/chats/{chat_id}")
async def read(chat_id: str) -> dict[str, object]:
    """Return the conversation, and the cursor from which to observe it."""
    chat = app.session(chat_id)
    cursor = await chat.cursor()  # first: a change before the messages are read is then reported again, not missed
    spoken = [{"role": message.role, "text": message.text} for message in await chat.messages()]
    return {"cursor": cursor, "messages": [each for each in spoken if each["text"]]}


@web.get("/chats/{chat_id}/events")
async def events(chat_id: str, cursor: str, last_event_id: Annotated[str | None, Header()] = None) -> StreamingResponse:
    observed = app.session(chat_id).observe(last_event_id or cursor)
    lines = (f"id: {each.cursor}\ndata: {msgspec.json.encode(each).decode()}\n\n" async for each in observed)
    return StreamingResponse(lines, media_type="text/event-stream")


@web.exception_handler(lash.InvalidInput)
async def refuse(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, status_code=400)


web.mount("/", StaticFiles(directory=Path(__file__).with_name("chat_page"), html=True))

if __name__ == "__main__":
    uvicorn.run(web, port=options.port, timeout_graceful_shutdown=3)
