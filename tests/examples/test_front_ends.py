"""The servers for front ends, used by the official JavaScript clients."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

import lash
from tests.examples.programs import Program, Programs
from tests.protocols.front_end.clients import Client, installed

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)

_WEATHER = "What is the weather in Rome?"
_REPLY = "Here is what I found for you: sunny in Rome"
_BOOKED = "Here is what I found for you: museum booked"


@pytest.fixture(scope="module")
def scripts() -> Path:
    """The JavaScript clients."""
    return installed()


def run(scripts: Path, script: str, run: dict[str, Any]) -> dict[str, Any]:
    """Run a client and return the last thing that it printed."""
    with Client(scripts, script, [run]) as client:
        *_, last = client.lines()
    return last


async def test_an_agui_client_talks_to_the_example(programs: Programs, scripts: Path, backend_url: str) -> None:
    """A front end gets the reply of the model with its tools, books after approvals, and the user has the session."""
    server, address = start(programs, "agui_server.py", backend_url)
    url, message = f"{address}/agui", {"id": "u1", "role": "user", "content": _WEATHER}
    asked = {"name": "a", "url": url, "threadId": "rome", "runId": "r1", "messages": [message]}
    assert run(scripts, "agui.mjs", asked)["end"]["messages"][-1]["content"] == _REPLY
    trip = {**asked, "threadId": "trip", "messages": [{**message, "content": "Plan a trip"}]}
    waiting = run(scripts, "agui.mjs", trip)["end"]
    assert len(waiting["interrupts"]) == 3
    resume = [{"interruptId": each["id"], "status": "resolved", "payload": True} for each in waiting["interrupts"]]
    done = run(scripts, "agui.mjs", {**trip, "messages": waiting["messages"], "resume": resume})["end"]
    assert done["messages"][-1]["content"] == _BOOKED
    assert stop(server) == 0
    async with await lash.open(backend_url) as storage:
        page = await storage.sessions.list()
    assert sorted(each.meta.session_id for each in page.sessions) == ["guest/rome", "guest/trip"]


def test_a_chat_of_the_ai_sdk_talks_to_the_example(programs: Programs, scripts: Path, backend_url: str) -> None:
    """A chat gets the reply with tool parts, its approvals are decided, and the console is beside it."""
    server, address = start(programs, "ai_sdk_server.py", backend_url)
    send = {"send": {"id": "m1", "parts": [{"type": "text", "text": "Plan a trip"}]}}
    acts = [send, {"decide": [{"approved": True}] * 3}]
    last = run(scripts, "vercel.mjs", {"name": "a", "api": f"{address}/api/chat", "id": "trip", "acts": acts})["did"]
    assert last["error"] is None
    parts = last["messages"][1]["parts"]
    assert [each["state"] for each in parts if each["type"] == "tool-book"] == ["output-available"] * 3
    assert parts[-1]["text"] == _BOOKED
    assert "Plan a trip" in httpx.get(f"{address}/lash/sessions", timeout=30).text
    stored = json.loads(httpx.get(f"{address}/api/chat/trip", timeout=30).text)["messages"]
    assert [each["role"] for each in stored] == ["user", "assistant"]
    assert stop(server) == 0


def start(programs: Programs, name: str, url: str) -> tuple[Program, str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = programs.start(name, "--url", url, "--port", str(port))
    server.read_error_until("Uvicorn running")
    return server, f"http://127.0.0.1:{port}"


def stop(server: Program) -> int:
    server.process.send_signal(signal.SIGINT)
    return server.finish()
