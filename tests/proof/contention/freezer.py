"""A process that stops itself with SIGSTOP inside a transaction, and goes on when it gets SIGCONT.

``python -m tests.proof.contention.freezer URL NAME`` runs the operation of that name and prints its result.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

import lash
from lash.errors import LashError
from tests.factories.trigger import trigger


class Frozen(NamedTuple):
    """An operation, and the statement before which its process stops."""

    run: Callable[[lash.Storage], Awaitable[object]]
    before: str


OPERATIONS: Final[Mapping[str, Frozen]] = {
    "fire": Frozen(lambda storage: storage.schedules.fire_due(), "schedule_advance"),
    "register": Frozen(
        lambda storage: storage.triggers.register(trigger("new"), operation_id="o"), "trigger_keep_receipt"
    ),
    "delete": Frozen(lambda storage: storage.sessions.delete("s"), "session_bury"),
    "fork": Frozen(lambda storage: storage.sessions.fork("s", "f"), "fork_fill"),
    "commit": Frozen(lambda storage: storage.sessions.delete("s"), "commit"),
}
"""Transactions of several statements, by name."""


async def freeze(url: str, name: str) -> None:
    """Run the operation, stop in the middle of it, and print how it ended."""
    operation = OPERATIONS[name]
    armed = False

    def stop(statement: str) -> None:
        if armed and statement == operation.before:
            os.kill(os.getpid(), signal.SIGSTOP)

    async with await lash.open(url, on_statement=stop) as storage:
        armed = True
        try:
            result: object = await operation.run(storage)
        except LashError as error:
            result = f"{type(error).__name__} {getattr(error, 'outcome_unknown', None)}"
        sys.stdout.write(f"{result}\n")


if __name__ == "__main__":
    asyncio.run(freeze(*sys.argv[1:3]))
