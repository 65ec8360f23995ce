"""A program that is crashed everywhere, and what is expected of it; engines add their own to `cases.CASES`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import lash
from lash.model.value import JSON
from lash.runtime.engine import Program

PROCESS: Final = "program"
"""The id of the process that a case starts."""


class Calls:
    """Counts the real calls of functions, in a file that survives a kill."""

    def __init__(self, file: Path, *, pause_s: float) -> None:
        self._file = file
        self.pause_s = pause_s
        """How long the pauses of the program are: long ones park it, and need a clock that the test moves."""

    def count(self, name: str) -> None:
        """Note a call before it does anything."""
        with os.fdopen(os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "w") as file:
            file.write(f"{name}\n")

    def counted(self) -> Counter[str]:
        """Return how often each function was called."""
        return Counter(self._file.read_text().splitlines()) if self._file.exists() else Counter()


class Start(NamedTuple):
    """A program, and the arguments with which it is started."""

    program: Program[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}


class Case(NamedTuple):
    """One program of one engine."""

    engine: str
    name: str
    declare: Callable[[lash.App, Calls], Start]
    """Declares the program on an application; called for each application that runs it."""
    result: JSON = None
    """The result, written by hand."""
    failure: str | None = None
    """The code of the failure with which it ends instead."""
    calls: Mapping[str, int] = {}
    """How often each function is called without a crash, by the names that it counts."""
    answers: Mapping[str, JSON] = {}
    """The answers to the questions of its waits, by their texts."""
    signals: tuple[tuple[str, JSON], ...] = ()
    """Signals that are sent to it before it runs, in this order."""

    @property
    def id(self) -> str:
        """The name of the case among all engines."""
        return f"{self.engine}-{self.name}"


async def start(app: lash.App, case: Case, calls: Calls) -> None:
    """Declare and start the program of a case; starting it again changes nothing."""
    given = case.declare(app, calls)
    await app.starting(process_id=PROCESS).start(given.program, *given.args, **given.kwargs)
    for number, (name, payload) in enumerate(case.signals):
        await app.signal(PROCESS, name, payload, key=str(number))


async def answer(storage: lash.Storage, case: Case) -> None:
    """Answer the questions that are open."""
    for wait in await storage.waits.pending():
        if wait.ask is not None:
            await storage.waits.resolve_id(wait.key_id, lash.model.Resolved(value=case.answers[wait.ask.text]))
