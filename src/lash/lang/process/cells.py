"""Cells of a turn: the main blocks of modules, with variables that are kept with the session."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from lash.errors import CorruptData, InvalidInput, NotFound, ProcessFailed, ProcessTerminal
from lash.lang.diagnostic import Diagnostic, ProgramError, render
from lash.lang.link import link
from lash.lang.machine import effects
from lash.lang.machine.effects import Batch, Broken, Done, Effect, Operation
from lash.lang.machine.frames import value_to_json, variables_from_json
from lash.lang.machine.machine import Machine
from lash.lang.machine.outer import process_handle
from lash.lang.parse import parse
from lash.lang.process.driver import drive, host_fault
from lash.lang.process.modules import Module
from lash.lang.process.operations import Operations
from lash.lang.process.tools import failed, succeeded
from lash.lang.values.convert import display, from_json, to_json
from lash.lang.values.fault import Fault, FaultKind
from lash.lang.values.value import Value
from lash.model.value import JSON
from lash.runtime.turns.cell import CellResult
from lash.runtime.turns.turn import Turn
from lash.stores.storage import Storage

if TYPE_CHECKING:
    from lash.lang.process.engine import Lashlang

_STATE: Final = "lashlang"
_VERSION: Final = 1
"""The format of stored variables."""
_MOST_PRINTED: Final = 20_000
"""Characters of one printed value; a model has no use for more."""


async def run_cell(engine: Lashlang, storage: Storage, turn: Turn, source: str) -> CellResult:
    """Run one cell. Mistakes of its author are part of the result; variables that it has set stay."""
    key = turn.key("cell")
    variables = _variables(turn)
    try:
        module = Module(link(parse(source), engine.environment, source=source, variables=variables).artifact)
        machine = Machine(module.main(), variables, engine.limits)
    except (ProgramError, Fault) as error:
        return CellResult(outcome="failed", error=str(error))
    engine.remember(module)
    host = CellHost(engine, storage, turn, module, key)
    ended = await drive(machine, host)
    turn.state[_STATE] = {
        "version": _VERSION,
        "variables": [[name, value_to_json(value)] for name, value in machine.variables.items()],
    }
    printed = tuple(host.printed)
    if isinstance(ended, Broken):
        problem = Diagnostic("run", ended.fault.kind.value, ended.fault.message, ended.span, ended.fault.hint)
        return CellResult(outcome="failed", printed=printed, error=render(problem, source))
    if isinstance(ended, Done) and ended.how == "submit":
        return CellResult(outcome="submitted", printed=printed, value=to_json(ended.value))
    return CellResult(outcome="continued", printed=printed)


def _variables(turn: Turn) -> dict[str, Value]:
    stored = turn.state.get(_STATE)
    if stored is None:
        return {}
    if not isinstance(stored, dict) or stored.get("version") != _VERSION:
        raise CorruptData(f"expected variables of lashlang, version {_VERSION}, in the state of the session")
    return variables_from_json(stored.get("variables"))


class CellHost:
    """The effects of a cell."""

    def __init__(self, engine: Lashlang, storage: Storage, turn: Turn, module: Module, key: str) -> None:
        self._engine = engine
        self._storage = storage
        self._turn = turn
        self._module = module
        self._key = key
        self._operations = Operations(engine, storage, turn, turn.session_id)
        self.printed: list[str] = []

    async def perform(self, effect: Effect) -> Value:
        try:
            return await self._perform(effect)
        except (InvalidInput, NotFound, ProcessTerminal) as error:
            raise host_fault(error) from error

    async def perform_batch(self, batch: Batch) -> list[Value]:
        return await self._turn.gather(*(self._operation(each) for each in batch.operations))

    async def _perform(self, effect: Effect) -> Value:
        match effect:
            case effects.Operation():
                return await self._operation(effect)
            case effects.Print():
                self._print(effect.value)
                return None
            case effects.StartProcess():
                return await self._start(effect)
            case effects.AwaitProcess():
                return await self._await(effect)
            case effects.CancelProcess():
                return await self._act(effect, effect.process_id, "cancel", self._cancel(effect.process_id))
            case effects.SendSignal():
                await self._act(effect, effect.process_id, "signal", self._signal(effect))
                return None
            case effects.Sleep():
                await self._operations.sleep(effect)
                return None
        raise Fault(FaultKind.HOST, f"a cell cannot do this: {type(effect).__name__}")

    def _site(self, key: str) -> str:
        return f"{self._key}:{key}"

    async def _operation(self, operation: Operation) -> Value:
        return await self._operations.perform(operation, self._site(operation.site.key))

    def _print(self, value: Value) -> None:
        text = display(value)
        self.printed.append(
            text if len(text) <= _MOST_PRINTED else f"{text[:_MOST_PRINTED]}… ({len(text):,} characters)"
        )

    async def _start(self, effect: effects.StartProcess) -> Value:
        program = self._engine.program(self._module, effect.process)
        arguments = {name: to_json(value) for name, value in effect.arguments.items()}
        return process_handle((await self._turn.start(program, **arguments)).process_id)

    async def _await(self, effect: effects.AwaitProcess) -> Value:
        if not await self._is_own(effect.site.key, effect.process_id):
            return failed(f"process {effect.process_id!r} does not work for this session, so it cannot be awaited")
        try:
            return succeeded(from_json(await self._turn.process(effect.process_id).result()))
        except ProcessFailed as error:
            return failed(str(error))

    async def _act(self, effect: Effect, process_id: str, name: str, body: Callable[[], Awaitable[JSON]]) -> Value:
        """Do something to a process of the session, once."""
        assert not isinstance(effect, Batch)
        key = effect.site.key
        if not await self._is_own(key, process_id):
            raise Fault(FaultKind.HOST, f"process {process_id!r} does not work for this session")
        return from_json(await self._turn.options(key=self._site(key)).step(name, body))

    async def _is_own(self, key: str, process_id: str) -> bool:
        processes, session_id = self._storage.processes, self._turn.session_id

        async def is_own(asked: str) -> bool:
            record = await processes.get(asked)
            return record is not None and record.wake_session_id == session_id

        return await self._turn.options(key=f"{self._site(key)}:own").step("is_own", is_own, process_id)

    def _cancel(self, process_id: str) -> Callable[[], Awaitable[JSON]]:
        async def cancel() -> JSON:
            reason = f"cancelled by a program of session {self._turn.session_id}"
            await self._storage.processes.request_cancel(process_id, reason=reason)
            return "cancel_requested"

        return cancel

    def _signal(self, effect: effects.SendSignal) -> Callable[[], Awaitable[JSON]]:
        sender = f"{self._turn.session_id}\0{self._turn.turn_id}\0{self._site(effect.site.key)}"
        signal_id = f"lashlang:{hashlib.sha256(sender.encode()).hexdigest()}"
        payload = to_json(effect.payload)

        async def signal() -> JSON:
            events = self._storage.events
            await events.signal(effect.process_id, effect.name, signal_id=signal_id, payload=payload)
            return None

        return signal
