"""Builders of valid values for tests of waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from lash.model.effect import (
    ExecutionScope,
    OperationScope,
    ProcessScope,
    TurnScope,
)
from lash.model.wait import (
    CustomIdentity,
    Resolution,
    Resolved,
    SignalIdentity,
    ToolCompletion,
    WaitIdentity,
    WaitKey,
    WaitRecord,
)
from lash.stores.storage import Storage
from tests.factories.process import registered
from tests.factories.session import created

T = TypeVar("T")

TURN: Final = TurnScope(session_id="s", turn_id="t")
TURNS: Final = (TURN, TurnScope(session_id="s", turn_id="u"), TurnScope(session_id="s", turn_id="v"))
PROCESS: Final = ProcessScope(process_id="p")
OPERATION: Final = OperationScope(operation_id="o")
SCOPES: Final[tuple[ExecutionScope, ...]] = (TURN, PROCESS, OPERATION)
"""One of each kind; `placed` makes their owners."""

TOOL: Final = ToolCompletion(tool_call_id="c")
SIGNAL: Final = SignalIdentity(process_id="p", signal_name="go", ordinal=1)
CUSTOM: Final = CustomIdentity(key="k")
IDENTITIES: Final[tuple[WaitIdentity, ...]] = (TOOL, SIGNAL, CUSTOM)
"""One of each kind."""

YES: Final = Resolved(value={"approved": True})
"""How most waits here end."""


async def placed(storage: Storage) -> Storage:
    """Create session ``s`` and process ``p``, the owners of these scopes."""
    await created(storage)
    await registered(storage)
    return storage


async def key_of(storage: Storage, name: str = "k", scope: ExecutionScope = TURN) -> WaitKey:
    """Return the key of a wait for anything."""
    return await storage.waits.key(scope, CustomIdentity(key=name))


def waiting(storage: Storage, key: WaitKey | str, timeout_ms: int | None = None) -> asyncio.Task[Resolution]:
    """Wait in a task of its own."""
    return asyncio.create_task(storage.waits.wait(key, timeout_ms=timeout_ms))


async def parked(storage: Storage, *keys: WaitKey) -> None:
    """Return once all these waits are open, so that their waiters have begun."""

    async def look() -> None:
        while not {key.key_id for key in keys} <= {each.key_id for each in await pending_all(storage)}:  # noqa: ASYNC110
            await asyncio.sleep(0.002)

    await soon(look())


async def pending_all(storage: Storage) -> list[WaitRecord]:
    """Return all pending waits, page after page."""
    found: list[WaitRecord] = []
    while page := await storage.waits.pending(limit=500, after=found[-1].key_id if found else None):
        found += page
    return found


async def soon(work: Awaitable[T]) -> T:
    """Return the result of the work; a hang fails the test."""
    return await asyncio.wait_for(work, 60)
