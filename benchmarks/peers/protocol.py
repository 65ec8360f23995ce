"""How the runner and the program of a contender talk: one JSON object per line, a question in and an answer out.

Programs of peers import this file in environments of their own, so it needs the standard library only.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.kit.text import prose

Question = dict[str, Any]
Answer = dict[str, Any]
Task = Callable[[Question], Answer | Awaitable[Answer]]

USER, CALL, RESULT, REPLY = "user", "call", "result", "reply"
_SIZES = {USER: 200, CALL: 100, RESULT: 2000, REPLY: 1000}


def serve(packages: Sequence[str], tasks: Mapping[str, Task], own: Mapping[str, str] | None = None) -> None:
    """Answer questions until there are no more. What else the program prints goes to stderr.

    The answer to "hello" has the versions of the installed packages, and those in ``own``.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    versions = {**(own or {}), **{name: importlib.metadata.version(name) for name in packages}}
    while line := sys.stdin.readline():
        question = json.loads(line)
        try:
            if question["do"] == "hello":
                answer: Answer = {"versions": versions}
            else:
                answer = _done(tasks[question["do"]](question))
        except BaseException:  # noqa: BLE001 (the runner reports what failed here)
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    # Some libraries leave threads behind that would keep the program alive.
    os._exit(0)


def _done(result: Answer | Awaitable[Answer]) -> Answer:
    if isinstance(result, dict):
        return result

    async def wait() -> Answer:
        return await result

    return asyncio.run(wait())


def turn_texts(session: int, number: int) -> dict[str, str]:
    """Return the four texts of one turn: what the user says, a tool call, its result, and the reply."""
    return {part: prose((session, number, part), size) for part, size in _SIZES.items()}


def all_turns(sessions: Iterable[int], turns: int) -> dict[int, list[dict[str, str]]]:
    """Return the turns of each session, made before any clock starts."""
    return {session: [turn_texts(session, number) for number in range(turns)] for session in sessions}


def digest(texts: Iterable[str]) -> str:
    """Return a hash by which the runner sees whether the texts are all there, in their order."""
    total = hashlib.sha256()
    for text in texts:
        total.update(text.encode() + b"\0")
    return total.hexdigest()


def expected_digest(session: int, turns: int) -> str:
    """Return the hash of a whole session."""
    return digest(text for number in range(turns) for text in turn_texts(session, number).values())


def count_whole(said: Sequence[str], texts: Sequence[str]) -> int:
    """Return how many of the texts are there, each with its answer right behind it."""
    behind = dict(zip(said, [*said[1:], ""], strict=True))
    return sum(behind.get(text) == f"answer to {text}" for text in texts)


class Watch:
    """Takes the time of each turn; the clock is the machine's, so that several programs can be put together."""

    def __init__(self) -> None:
        self._taken: dict[int, list[float]] = {}
        self._lock = threading.Lock()
        self._begin = self._end = time.monotonic()

    def start(self, question: Question | None = None) -> None:
        """Start the clock; a question may name the moment, at which several programs then begin together."""
        at = (question or {}).get("at", 0.0)
        time.sleep(max(0.0, at - time.monotonic()))
        self._begin = time.monotonic()

    def stop(self) -> None:
        self._end = time.monotonic()

    def note(self, number: int, began: float) -> None:
        """Note how long turn ``number`` of some session took that began at a moment of ``time.monotonic``."""
        taken = time.monotonic() - began
        with self._lock:
            self._taken.setdefault(number, []).append(taken)

    def answer(self, **more: object) -> Answer:
        """Return the times, in the order of the turns."""
        taken = [each * 1e3 for number in sorted(self._taken) for each in self._taken[number]]
        return {"begin": self._begin, "end": self._end, "taken_ms": taken, **more}


class Hang:
    """A job of two steps that leave a line each, of which the second hangs as long as a file is there."""

    def __init__(self, question: Question) -> None:
        self._directory = Path(question["directory"])

    def first(self) -> str:
        """Leave the line of the first step."""
        return self._note("first")

    def second(self) -> str:
        """Leave the line of the second step, and hang if this is the run that will be killed."""
        moment = self._note("second")
        while (self._directory / "hang").exists():
            time.sleep(0.01)
        return moment

    def _note(self, name: str) -> str:
        moment = repr(time.monotonic())
        with (self._directory / name).open("a") as file:
            file.write(moment + "\n")
        return moment


class Crew:
    """Files by which the runner directs the programs of a fleet, and by which it sees what they have done."""

    def __init__(self, question: Question) -> None:
        self._directory = Path(question["directory"])
        self._name = question["name"]

    def begin(self) -> None:
        """Say that this program is ready."""
        (self._directory / f"ready-{self._name}").touch()

    def may_go(self) -> bool:
        """Return whether the sender of jobs may begin."""
        return (self._directory / "go").exists()

    def must_end(self) -> bool:
        """Return whether the workers are to end."""
        return (self._directory / "end").exists()

    def done(self, number: int) -> None:
        """Note that a job is done."""
        with (self._directory / "done").open("a") as file:
            file.write(f"{number}\n")
