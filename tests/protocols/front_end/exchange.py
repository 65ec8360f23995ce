"""Requests to routes in the event loop of a test, with streams that the test can leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Message, Scope

Line = dict[str, Any]
JSON_TYPE: Final = "application/json"


class Answer(NamedTuple):
    """A response as it was when it ended or the client left."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def events(self) -> list[Line]:
        """The events of a stream."""
        datas = [line.removeprefix("data: ") for line in self.text.splitlines() if line.startswith("data: ")]
        return [json.loads(data) for data in datas if data != "[DONE]"]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def error(self) -> str:
        """The text of a refusal."""
        found = json.loads(self.text)["error"]
        assert isinstance(found, str)
        return found


async def exchange(
    routes: list[Route],
    method: str,
    path: str,
    body: object = None,
    *,
    media_type: str = JSON_TYPE,
    leave: Callable[[str], bool] = lambda _: False,
    is_lost: bool = False,
) -> Answer:
    """Send a request and return the response; the client leaves when ``leave`` says so of the text up to then.

    With ``is_lost`` it is gone before the response begins, and the server says so as newer ones do.
    """
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4" if is_lost else "2.3"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", media_type.encode())],
    }
    sent, parts, has_left = False, [""], asyncio.Event()
    start: Message = {}

    async def receive() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": content, "more_body": False}
        await has_left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
            return
        if is_lost:
            raise OSError("the client is gone")
        parts.append(message.get("body", b"").decode())
        if message.get("more_body") and leave("".join(parts)):
            has_left.set()
            # A client that has gone takes nothing more.
            await asyncio.Event().wait()

    await Starlette(routes=routes)(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], headers, "".join(parts))
