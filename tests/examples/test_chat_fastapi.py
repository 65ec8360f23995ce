from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import lash
from tests.examples.conftest import Model
from tests.examples.programs import Program, Programs

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_QUESTION = "What is the weather in Rome?"
_REPLY = "Here is what I found for you: sunny in Rome"


class Chat:
    """A client of the chat server."""

    def __init__(self, url: str) -> None:
        self.base = url
        self._url = f"{url}/chats/rome"

    def post(self, text: str, key: str) -> None:
        httpx.post(f"{self._url}/messages", json={"text": text, "key": key}, timeout=30).raise_for_status()

    def read(self) -> tuple[str, list[tuple[str, str]]]:
        """Return a cursor and the messages."""
        answer = httpx.get(self._url, timeout=30).raise_for_status().json()
        return answer["cursor"], [(message["role"], message["text"]) for message in answer["messages"]]

    def status_of(self, cursor: str) -> int:
        """Return the status of a request with an invalid cursor."""
        return httpx.get(f"{self._url}/events", params={"cursor": cursor}, timeout=30).status_code

    def events(self, cursor: str, last_event_id: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the id and the content of each event, until the caller stops."""
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        parameters = {"cursor": cursor}
        with httpx.stream("GET", f"{self._url}/events", params=parameters, headers=headers, timeout=30) as answer:
            event_id = ""
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    event_id = line.removeprefix("id: ")
                elif line.startswith("data: "):
                    yield event_id, json.loads(line.removeprefix("data: "))


async def test_a_stream_is_taken_up_where_it_was_lost(programs: Programs, model: Model, backend_url: str) -> None:
    """A client that loses its stream in mid-reply misses no word and sees none twice, and neither does the next."""
    server, chat = _start(programs, backend_url)
    cursor, said = chat.read()
    assert said == []
    chat.post(_QUESTION, "message-1")
    chat.post(_QUESTION, "message-1")

    words, last = _words(chat.events(cursor), limit=3)
    rest, _ = _words(chat.events(cursor, last), limit=None)
    assert "".join(words) + "".join(rest) == _REPLY
    assert len(words) == 3

    conversation = [("user", _QUESTION), ("assistant", _REPLY)]
    assert chat.read()[1] == conversation
    calls = model.calls()
    assert sorted(name.rpartition(":")[2] for name in calls) == ["1", "5"]
    assert set(calls.values()) == {1}

    # After a restart the server still has everything that was shown, for a client that was away.
    assert _stop(server) == 0
    server, chat = _start(programs, backend_url)
    assert chat.read()[1] == conversation
    again, _ = _words(chat.events(cursor, last), limit=None)
    assert again == rest
    assert chat.status_of("nonsense") == 400
    assert _stop(server) == 0
    await _check_storage(backend_url)


def test_the_page_is_served(programs: Programs, backend_url: str) -> None:
    """The page that the docstring names exists and uses the events."""
    _, chat = _start(programs, backend_url)
    page = httpx.get(chat.base, timeout=30)
    assert page.headers["content-type"].startswith("text/html")
    assert "new EventSource" in page.text


async def _check_storage(url: str) -> None:
    """Check that history has the tools and the tokens: a word or a call is a token, and the second request has all."""
    async with await lash.open(url) as storage:
        read = await storage.session("rome").load()
    assert read is not None
    messages = [node.entry.message for node in read.graph.nodes if isinstance(node.entry, lash.model.MessageEntry)]
    tools = [part.tool_name for message in messages for part in message.parts if part.tool_name]
    assert tools == ["clock", "clock", "weather", "weather"]
    [entry] = read.usage
    assert (entry.usage.input_tokens, entry.usage.output_tokens) == (6 + 11, 2 + 10)


def _start(programs: Programs, url: str) -> tuple[Program, Chat]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = programs.start("chat_fastapi.py", "--url", url, "--port", str(port))
    server.read_error_until("Uvicorn running")
    return server, Chat(f"http://127.0.0.1:{port}")


def _stop(server: Program) -> int:
    server.process.send_signal(signal.SIGINT)
    return server.finish()


def _words(events: Iterator[tuple[str, dict[str, Any]]], limit: int | None) -> tuple[list[str], str]:
    """Return this many shown words, or all until the reply was committed, and the last id."""
    words: list[str] = []
    for event_id, event in events:
        assert event["type"] != "gap"
        if event["type"] == "committed":
            return words, event_id
        if event["type"] == "turn_activity" and event["payload"].get("text"):
            words.append(event["payload"]["text"])
            if len(words) == limit:
                return words, event_id
    raise AssertionError(f"the stream ended after {words}")
