"""``lash chat``, ``lash ask``, ``lash start`` and ``lash watch``, with an application and its worker."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.cli.kit import PATIENCE_S, command, environment, run, terminal

APPLICATION = """
import asyncio
import os

import lash

app = lash.App(os.environ["LASH_URL"])


@app.agent
async def parrot(turn: lash.Turn) -> str:
    if turn.text == "fail":
        raise lash.InvalidInput("no parrot says that")
    if turn.text == "wait":
        turn.activity("waiting")
        await asyncio.sleep(600)
    for piece in (turn.text, "\\n", turn.text):
        turn.activity({"text": piece})
    return f"{turn.text}\\n{turn.text}"


@app.process
async def add(ctx: lash.Context, left: int, right: int = 0) -> int:
    return left + right
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APPLICATION)
    return tmp_path


@contextlib.contextmanager
def working(directory: Path, url: str) -> Iterator[None]:
    """Run a worker of the application."""
    variables = {**environment({"LASH_URL": url}), "PYTHONPATH": f"{environment()['PYTHONPATH']}:{directory}"}
    worker = subprocess.Popen(command("worker", "shop", "--log-level", "error"), env=variables, cwd=directory)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(PATIENCE_S)


def test_ask_start_and_watch(backend_url: str, directory: Path) -> None:
    """With a worker elsewhere: a reply, a result, and a session as it goes."""
    assert run("init", url=backend_url).returncode == 0
    with working(directory, backend_url):
        asked = run("ask", "chat-1", "hello", "--agent", "parrot", "--key", "k", url=backend_url)
        assert (asked.returncode, asked.stdout, asked.stderr) == (0, "hello\nhello\n", "")
        again = run("ask", "chat-1", "-", "--key", "k2", "--json", url=backend_url, given="hi")
        assert msgspec.json.decode(again.stdout) == {"session_id": "chat-1", "reply": "hi\nhi"}
        failed = run("ask", "chat-1", "fail", url=backend_url)
        assert failed.returncode == 1
        assert "no parrot says that" in failed.stderr
        late = run("ask", "chat-2", "hi", "--agent", "nobody", "--timeout", "0.2", url=backend_url)
        _check_late(late.stderr, "no reply within 0.2 s", backend_url)
        assert late.returncode == 5

        variables = {"LASH_URL": backend_url}
        started = run("start", "shop", "add", '{"left": 1}', "--id", "a", variables=variables, cwd=directory)
        assert (started.returncode, started.stdout) == (0, "a\n")
        added = run("start", "shop", "add", '{"left": 1, "right": 2}', "--wait", variables=variables, cwd=directory)
        assert (added.returncode, added.stdout) == (0, "3\n")
        for arguments, message in (
            (("nothing",), "unknown process 'nothing'; registered: add"),
            (("add", "[1]"), "expected the arguments as a JSON object"),
            (("add", '{"wrong": 1}'), "missing a required argument: 'left'"),
        ):
            refused = run("start", "shop", *arguments, variables=variables, cwd=directory)
            assert refused.returncode != 0
            assert message in refused.stderr

        with terminal("watch", "chat-1", url=backend_url) as screen:
            screen.read_until("watching chat-1")
            run("ask", "chat-1", "last", url=backend_url)
            screen.read_until("output")
            screen.read_until("  user       last")
            screen.read_until("  assistant  last")
            screen.type("\x03")
            assert screen.end() == 130
    assert run("watch", "unknown", url=backend_url).returncode == 3


def _check_late(text: str, beginning: str, url: str) -> None:
    """Check that a message that got no reply is named, and that its key waits for it again."""
    found = re.fullmatch(
        rf"lash: {beginning}; message (\w+) stays queued; see lash queue ls chat-2 and lash watch chat-2, "
        r"or ask the same again with --key (\w+)\n",
        text,
    )
    assert found, text
    queued = [msgspec.json.decode(line) for line in run("queue", "ls", "--json", url=url).stdout.splitlines()]
    assert [(each["batch_id"], each["source_key"]) for each in queued] == [found.groups()]


def test_ask_without_a_worker(backend_url: str) -> None:
    """Ctrl-C and the time limit leave the message in the queue, say so, and say that no worker runs."""
    assert run("init", url=backend_url).returncode == 0
    with terminal("ask", "chat-2", "hi", "--agent", "parrot", url=backend_url) as screen:
        screen.read_until("waiting for the reply")
        screen.type("\x03")
        assert screen.end() == 130
    # A terminal shows ^C, and a warning about the missing worker if it is slow.
    shown = "lash: interrupted" + screen.text.rpartition("lash: interrupted")[2].rstrip()
    _check_late(f"{shown}\n", "interrupted", backend_url)
    late = run("ask", "chat-2", "ho", "--timeout", "0", url=backend_url)
    assert late.returncode == 5
    assert late.stderr.endswith("; no worker is running: start one with lash worker\n")


def test_chat(backend_url: str, directory: Path) -> None:
    """Lines are messages; the output of a turn is shown as it comes, and not again as its reply."""
    variables = {"LASH_URL": backend_url}
    ended = run("chat", "shop", "--session", "s", variables=variables, given="hello\n\nyou\n", cwd=directory)
    assert (ended.returncode, ended.stdout) == (0, "hello\nhello\nyou\nyou\n"), ended.stderr
    failed = run("chat", "shop", variables=variables, given="fail\nok\n", cwd=directory)
    assert (failed.returncode, failed.stdout) == (1, "ok\nok\n")
    assert "session chat-" in failed.stderr
    assert "no parrot says that" in failed.stderr
    unknown = run("chat", "shop", "--agent", "owl", variables=variables, cwd=directory)
    assert unknown.returncode == 3
    assert "unknown agent 'owl'; registered: parrot" in unknown.stderr


def test_chat_on_a_terminal(backend_url: str, directory: Path) -> None:
    """Ctrl-C cancels a running turn, and Ctrl-D at the prompt ends the conversation."""
    variables = {"PYTHONPATH": f"{environment()['PYTHONPATH']}:{directory}"}
    with terminal("chat", "shop", "--session", "s", url=backend_url, variables=variables) as screen:
        screen.read_until("> ")
        screen.type("wait\n")
        screen.read_until("waiting")
        screen.type("\x03")
        screen.read_until("cancelled\n> ")
        screen.type("hello\n")
        screen.read_until("hello\nhello\nhello\n> ")
        screen.type("\x04")
        assert screen.end() == 1
