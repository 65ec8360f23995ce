"""Runs the demo: start workers, kill one, and check every claim against the database and the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import lash
from lash.demo.screen import Screen
from lash.demo.trip import INPUT_TOKENS, LEDGER, OUTPUT_TOKENS, TOOLS, URL
from lash.runtime.turns.handle import SessionHandle

_PATIENCE_S: Final = 60.0
_KILL_AFTER: Final = 2
REQUEST: Final = "Book me a weekend in Rome: a flight, a hotel and a museum."
THANKS: Final = "And thanks already!"


def run(url: str | None, *, web: bool = False) -> int:
    """Run the demo on a temporary file or on the given storage, and return 0 if every claim holds.

    With ``web`` the console is served beside it; the demo starts when a browser has opened it.
    """
    with tempfile.TemporaryDirectory(prefix="lash-demo-") as directory:
        ledger = Path(directory) / "ledger.txt"
        ledger.touch()
        return asyncio.run(_show(url or f"sqlite:///{Path(directory) / 'demo.db'}", ledger, web=web))


async def _show(url: str, ledger: Path, *, web: bool) -> int:
    screen = Screen()
    environment = {**os.environ, URL: url, LEDGER: str(ledger)}
    async with await lash.open(url) as storage:
        chat = SessionHandle(storage, f"demo-{time.time_ns()}", agent="travel_agent")
        async with _console(screen, storage, chat) if web else contextlib.nullcontext():
            await _perform(screen, chat, environment)
            code = await _check(screen, storage, chat, ledger)
            if not web:
                screen.title("The same in a browser: lash demo --web")
        return code


def _console(screen: Screen, storage: lash.Storage, chat: SessionHandle) -> AbstractAsyncContextManager[None]:
    # Imported here: the demo runs without the extra.
    from lash.demo.browser import shown

    return shown(screen, storage, chat.session_id)


async def _perform(screen: Screen, chat: SessionHandle, environment: dict[str, str]) -> None:
    cursor = await chat.cursor()
    screen.title("Two messages are sent; no worker runs yet")
    for number, text in enumerate((REQUEST, THANKS), start=1):
        await chat.send(text, key=f"message-{number}")
        screen.line(f"you    {text}")
    async with asyncio.timeout(_PATIENCE_S):
        cursor = await _until_killed(screen, chat, cursor, environment)
        await _until_answered(screen, chat, cursor, environment)


async def _until_killed(screen: Screen, chat: SessionHandle, cursor: str, environment: dict[str, str]) -> str:
    """Start a worker, and kill it after it has called two of three tools."""
    screen.title("A worker starts")
    async with _worker(screen, environment) as worker, contextlib.aclosing(chat.observe(cursor)) as stream:
        async for seen in stream:
            cursor = seen.cursor
            if not isinstance(seen, lash.TurnActivity) or not isinstance(seen.payload, dict):
                continue
            screen.line(str(seen.payload["says"]))
            if seen.payload.get("tools") == _KILL_AFTER:
                worker.send_signal(signal.SIGKILL)
                await worker.wait()
                screen.blow(f"kill -9 {worker.pid}   (in the middle of the turn)")
                break
    return cursor


async def _until_answered(screen: Screen, chat: SessionHandle, cursor: str, environment: dict[str, str]) -> None:
    """Start another worker, and wait until both messages and the wake of the process are answered."""
    screen.title("Another worker takes over")
    async with _worker(screen, environment), contextlib.aclosing(chat.observe(cursor)) as stream:
        async for seen in stream:
            if isinstance(seen, lash.TurnActivity) and isinstance(seen.payload, dict):
                screen.line(str(seen.payload["says"]))
            elif isinstance(seen, lash.Committed):
                said = await chat.messages()
                screen.line(f"agent  {lash.text_of(said[-1])}")
                if sum(message.role is lash.Role.USER for message in said) == 2 and any(  # noqa: PLR2004 (the messages sent)
                    message.role is lash.Role.EVENT for message in said
                ):
                    return


@contextlib.asynccontextmanager
async def _worker(screen: Screen, environment: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    command = (sys.executable, "-m", "lash", "worker", "lash.demo.trip:app", "--log-level", "error")
    worker = await asyncio.create_subprocess_exec(*command, env=environment)
    screen.line(f"worker {worker.pid} started")
    try:
        yield worker
    finally:
        if worker.returncode is None:
            worker.terminate()
        await worker.wait()


async def _check(screen: Screen, storage: lash.Storage, chat: SessionHandle, ledger: Path) -> int:
    """Check every claim before it is printed."""
    written = await asyncio.to_thread(ledger.read_text, encoding="utf-8")
    happened = Counter(line.partition(" by ")[0] for line in written.splitlines())
    said = await chat.messages()
    users = [lash.text_of(message) for message in said if message.role is lash.Role.USER]
    usage = await chat.usage()
    spent = sum(entry.usage.total for entry in usage)
    ended = [each.status for each in (await storage.processes.list(_of(chat))).processes]
    replies = len(TOOLS) + 1
    screen.title("Checked against the database and the ledger of outside calls")
    claims = {
        f"every tool was called once: {', '.join(f'{tool} {happened[tool]}' for tool in TOOLS)}": (
            all(happened[tool] == 1 for tool in TOOLS)
        ),
        f"at most the interrupted model call was repeated: {happened['model']} calls for {replies} answers": (
            replies <= happened["model"] <= replies + 1
        ),
        "both messages are in the conversation once, in order": users == [REQUEST, THANKS],
        f"the weather process ran once and woke the conversation: {happened['forecast']} forecast": (
            happened["forecast"] == 1 and ended == [lash.ProcessStatus.COMPLETED]
        ),
        "the queue is empty and there are no dead letters": (
            not await chat.pending() and not await chat.dead_letters()
        ),
        f"tokens were counted once: {spent} for {replies} answers": (spent == replies * (INPUT_TOKENS + OUTPUT_TOKENS)),
    }
    for text, holds in claims.items():
        screen.claim(text, holds=holds)
    screen.title("Token ledger")
    for entry in usage:
        screen.line(f"{entry.model} ({entry.source}): {entry.usage.input_tokens} in, {entry.usage.output_tokens} out")
    return 0 if all(claims.values()) else 1


def _of(chat: SessionHandle) -> lash.ProcessFilter:
    return lash.ProcessFilter(wake_session_id=chat.session_id)
