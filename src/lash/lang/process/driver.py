"""Runs a machine on the context of a process: each effect is an operation of the runtime, recorded once."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from lash.errors import InvalidInput, NotFound, ProcessFailed, ProcessTerminal
from lash.lang.machine import effects
from lash.lang.machine.effects import Batch, Broken, Done, Effect, Failed, Operation, OutOfSteps
from lash.lang.machine.limits import SLICE
from lash.lang.machine.machine import Machine
from lash.lang.machine.outer import process_handle
from lash.lang.process.modules import Module
from lash.lang.process.operations import Operations
from lash.lang.process.tools import failed, succeeded
from lash.lang.values.convert import display, from_json, to_json
from lash.lang.values.fault import Fault, FaultKind
from lash.lang.values.value import Value
from lash.model.causal import ProcessCause
from lash.model.process.process import ProcessRecord
from lash.model.value import JSON
from lash.runtime.processes.context import Context
from lash.stores.storage import Storage

if TYPE_CHECKING:
    from lash.lang.process.engine import Lashlang


class EffectHost(Protocol):
    """Does what a machine asks for."""

    async def perform(self, effect: Effect) -> Value:
        """Return the answer to an effect, or raise Fault if the program cannot continue."""
        ...

    async def perform_batch(self, batch: Batch) -> list[Value]:
        """Return the results of operations that run side by side, in their order."""
        ...


async def drive(
    machine: Machine, host: EffectHost, *, checkpoint: Callable[[JSON], Awaitable[Any]] | None = None
) -> Done | Failed | Broken:
    """Run a machine to its end. Other tasks of the event loop run every thousand steps, and a cancellation ends it.

    ``checkpoint`` is called with the state after as many effects as the limits say, and does not return.
    """
    began = machine.effects
    while True:
        pause = machine.run(SLICE)
        if isinstance(pause, Done | Failed | Broken):
            return pause
        if isinstance(pause, OutOfSteps):
            await asyncio.sleep(0)
            continue
        if checkpoint is not None and machine.effects - began >= machine.limits.checkpoint_every:
            await checkpoint(machine.state())
        try:
            if isinstance(pause, Batch):
                machine.answer_batch(await host.perform_batch(pause))
            else:
                machine.answer(await host.perform(pause))
        except Fault as fault:
            return machine.break_off(fault)


def host_fault(error: Exception) -> Fault:
    """Return the end of a program whose host refused an effect."""
    return Fault(FaultKind.HOST, str(error))


class ProcessHost:
    """The effects of a process."""

    def __init__(self, context: Context, engine: Lashlang, module: Module, storage: Storage) -> None:
        self._context = context
        self._storage = storage
        self._engine = engine
        self._module = module
        self._operations = Operations(engine, storage, context, context.session_id)
        self._children: set[str] = set()
        """The processes that this run has started; others are looked up before they are waited for."""

    async def perform(self, effect: Effect) -> Value:
        try:
            return await self._perform(effect)
        except (InvalidInput, NotFound, ProcessTerminal) as error:
            raise host_fault(error) from error

    async def perform_batch(self, batch: Batch) -> list[Value]:
        return await self._context.gather(*(self._operation(each) for each in batch.operations))

    async def _perform(self, effect: Effect) -> Value:
        context = self._context
        match effect:
            case effects.Operation():
                return await self._operation(effect)
            case effects.Sleep():
                await self._operations.sleep(effect)
                return None
            case effects.WaitSignal():
                return from_json(await context.wait_signal(effect.name))
            case effects.ProcessEvent():
                payload: JSON = {"value": to_json(effect.value), "text": display(effect.value)}
                await context.event(effect.kind, payload)
                return effect.value
            case effects.StartProcess():
                return await self._start(effect)
            case effects.AwaitProcess():
                return await self._await(effect.process_id)
            case effects.CancelProcess():
                await self._check_reachable(effect.process_id)
                await context.child(effect.process_id).cancel(f"cancelled by process {context.process_id}")
                return "cancel_requested"
            case effects.SendSignal():
                await self._signal(effect)
                return None
        raise Fault(FaultKind.HOST, f"a process cannot do this: {type(effect).__name__}")

    async def _operation(self, operation: Operation) -> Value:
        return await self._operations.perform(operation, operation.site.key)

    async def _start(self, effect: effects.StartProcess) -> Value:
        program = self._engine.program(self._module, effect.process, stored_in=self._storage)
        arguments = {name: to_json(value) for name, value in effect.arguments.items()}
        child = await self._context.start(program, **arguments)
        self._children.add(child.process_id)
        return process_handle(child.process_id)

    async def _await(self, process_id: str) -> Value:
        if process_id not in self._children and not await self._is_child(process_id):
            return failed(f"process {process_id!r} was not started by this process, so it cannot be awaited")
        try:
            return succeeded(from_json(await self._context.child(process_id).result()))
        except ProcessFailed as error:
            return failed(str(error))

    async def _signal(self, effect: effects.SendSignal) -> None:
        await self._check_reachable(effect.process_id)
        sender = f"{self._context.process_id}\0{effect.site.key}"
        signal_id = f"lashlang:{hashlib.sha256(sender.encode()).hexdigest()}"
        child, payload = self._context.child(effect.process_id), to_json(effect.payload)
        await child.signal(effect.name, payload, signal_id=signal_id)

    async def _is_child(self, process_id: str) -> bool:
        return await self._looked_up("is_child", process_id, self._own)

    async def _check_reachable(self, process_id: str) -> None:
        """Raise Fault unless a process belongs to the same family or the same session."""
        if process_id in self._children or await self._looked_up("is_reachable", process_id, self._related):
            return
        raise Fault(FaultKind.HOST, f"process {process_id!r} belongs neither to this process nor to its session")

    async def _looked_up(self, name: str, process_id: str, test: Callable[[ProcessRecord], Awaitable[bool]]) -> bool:
        get = self._storage.processes.get

        async def look_up(asked: str) -> bool:
            record = await get(asked)
            return record is not None and await test(record)

        return await self._context.step(name, look_up, process_id)

    async def _own(self, record: ProcessRecord) -> bool:
        return record.registration.provenance.caused_by == ProcessCause(process_id=self._context.process_id)

    async def _related(self, record: ProcessRecord) -> bool:
        if await self._own(record):
            return True
        session_id = self._context.session_id
        if session_id is not None and record.wake_session_id == session_id:
            return True
        mine = await self._storage.processes.get(self._context.process_id)
        parent = None if mine is None else mine.registration.provenance.caused_by
        is_parent = parent == ProcessCause(process_id=record.process_id)
        is_sibling = isinstance(parent, ProcessCause) and record.registration.provenance.caused_by == parent
        return is_parent or is_sibling
