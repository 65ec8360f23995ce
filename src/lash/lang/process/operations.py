"""What processes and cells do in the same way: operations of modules, and pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lash.lang.host.environment import TRIGGERS
from lash.lang.machine.effects import Operation, Sleep
from lash.lang.process.durations import read_duration, read_moment
from lash.lang.process.tools import call, failed
from lash.lang.process.triggers import ProgramTriggers
from lash.lang.values.value import Value
from lash.runtime.steps.waits import Waits
from lash.stores.storage import Storage

if TYPE_CHECKING:
    from lash.lang.process.engine import Lashlang


class Operations:
    """The operations of one turn or process, which works for a session or for none."""

    def __init__(self, engine: Lashlang, storage: Storage, waits: Waits, session_id: str | None) -> None:
        self._engine = engine
        self._waits = waits
        self._triggers = ProgramTriggers(engine, storage, waits, session_id)

    async def perform(self, operation: Operation, key: str) -> Value:
        """Return the result of an operation, done once under a key."""
        alias, name = operation.receiver.alias, operation.name
        if alias == TRIGGERS:
            return await self._triggers.perform(operation, key)
        tool = self._engine.modules.tool(alias, name)
        if tool is None:
            return failed(f"this host has no operation {alias}.{name}")
        return await call(self._waits, tool, operation, key)

    async def sleep(self, effect: Sleep) -> None:
        """Pause as a program says; raise Fault if it is neither a duration nor a moment."""
        if effect.how == "for":
            await self._waits.sleep(read_duration(effect.value))
        else:
            await self._waits.sleep_until(read_moment(effect.value))
