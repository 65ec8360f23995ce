"""A process of a lashlang module, as the runtime starts and runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lash.errors import InvalidInput, InvalidProgram
from lash.lang.diagnostic import Diagnostic, render
from lash.lang.machine.effects import Broken, Done, Failed
from lash.lang.machine.machine import Machine
from lash.lang.machine.types import schema_of_type
from lash.lang.module.store import ModuleStore
from lash.lang.process.driver import ProcessHost, drive
from lash.lang.process.modules import Module
from lash.lang.syntax.program import Parameter
from lash.lang.values.convert import display, from_json, shown, to_json
from lash.lang.values.fault import Fault
from lash.lang.values.value import Resource, Value, make_record
from lash.model.process.event import SIGNAL_PREFIX, EventType
from lash.model.value import JSON
from lash.runtime.engine import WAKE_EVENT, Program
from lash.runtime.errors import ProgramFailed
from lash.runtime.processes.context import Context
from lash.runtime.steps.values import UNTYPED
from lash.runtime.steps.values import to_json as to_plain
from lash.stores.storage import Storage

if TYPE_CHECKING:
    from lash.lang.process.engine import Lashlang

ENGINE: Final = "lashlang"
YIELD: Final = "yield"
"""The event of a process that reports progress."""
_SHORT_REF: Final = 12
"""Hex digits of a module's hash that name the version of its processes."""


class LashlangProcess(Program[..., Any]):
    """One process of a module; ``app.start(program, root="docs")`` starts it."""

    def __init__(self, engine: Lashlang, module: Module, name: str, *, stored_in: Storage | None = None) -> None:
        declaration = module.artifact.process(name)
        if declaration is None:
            known = ", ".join(each.name for each in module.artifact.program.processes) or "none"
            raise InvalidInput(f"unknown process {name!r}; the module declares: {known}")
        super().__init__(ENGINE, name, module.artifact.module_ref.rpartition(":")[2][:_SHORT_REF], retry=engine.retry)
        self.module = module
        self._engine = engine
        self._declaration = declaration
        self._stored_in = stored_in

    @property
    def parameters(self) -> Mapping[str, bool]:
        return {each.name: True for each in self._declaration.parameters}

    def reference(self) -> dict[str, JSON]:
        """Return the four refs that identify the definition."""
        artifact = self.module.artifact
        return {
            "module_ref": str(artifact.module_ref),
            "process_ref": str(artifact.exports[self.name]),
            "host_requirements_ref": str(artifact.requirements_ref),
            "process_name": self.name,
        }

    async def check_start(
        self, storage: Storage, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> dict[str, JSON]:
        """Return the arguments, the module stored; raise InvalidInput if they or the host do not fit."""
        self._engine.check_requirements(self.module)
        given = self._bound(args, kwargs)
        arguments = {each.name: self._argument(each, given[each.name]) for each in self._declaration.parameters}
        await self.store(storage)
        return arguments

    async def store(self, storage: Storage) -> None:
        """Store the module, so that any worker can run the process. Idempotent."""
        if self._stored_in is not storage:
            await ModuleStore(storage.artifacts).put(self.module.artifact)
            self._stored_in = storage

    def argument(self, name: str, value: object) -> JSON:
        parameter = next(each for each in self._declaration.parameters if each.name == name)
        return self._argument(parameter, value)

    def event_types(self) -> tuple[EventType, ...]:
        types = self.module.types
        signals = (
            EventType(name=SIGNAL_PREFIX + each.name, payload_schema=schema_of_type(each.type, types))
            for each in self._declaration.signals
        )
        return (WAKE_EVENT, EventType(name=YIELD), *signals)

    async def run(self, context: Context, arguments: Mapping[str, Any]) -> JSON:
        """Run the body from its beginning, or from the state of its last checkpoint."""
        machine = self._machine(arguments)
        assert self._stored_in is not None, "the engine has loaded it from a storage"
        host = ProcessHost(context, self._engine, self.module, self._stored_in)
        ended = await drive(machine, host, checkpoint=context.continue_as_new)
        match ended:
            case Done():
                return to_json(ended.value)
            case Failed():
                raise ProgramFailed("process_failed", _text(ended.value), to_json(ended.value))
            case Broken():
                raise ProgramFailed("process_runtime_error", *_described(ended))

    def _machine(self, arguments: Mapping[str, Any]) -> Machine:
        code, state, limits = self.module.code(self.name), arguments.get("state"), self._engine.limits
        if state is not None:
            return Machine.restore(code, state, limits)
        try:
            return Machine(code, self._variables(arguments["args"]), limits)
        except Fault as fault:
            raise ProgramFailed("process_payload_invalid", f"the arguments are too large: {fault.message}") from None

    def locate(self, raw: JSON) -> str | None:
        """Return the diagnostic of a failed run with its line, from the details of its failure; None if it has none.

        Needs a program that was compiled from its source.
        """
        if self.module.source is None or not isinstance(raw, dict) or "path" not in raw:
            return None
        node = self.module.code(self.name).op(str(raw["path"])).node
        problem = Diagnostic("run", str(raw.get("kind")), str(raw.get("message")), node.span, raw.get("hint"))
        return render(problem, self.module.source)

    def _bound(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        names = [each.name for each in self._declaration.parameters]
        if len(args) > len(names):
            raise InvalidInput(f"process {self.name!r} takes {len(names)} arguments, got {len(args)}")
        given = dict(zip(names, args, strict=False))
        twice = sorted(set(given) & set(kwargs))
        unknown = sorted(set(kwargs) - set(names))
        if twice or unknown:
            problem = f"got {twice[0]!r} twice" if twice else f"takes no argument {unknown[0]!r}"
            raise InvalidInput(f"process {self.name!r} {problem}")
        given |= kwargs
        for each in self._declaration.parameters:
            if each.name not in given:
                given[each.name] = self._only_module(each)
        return given

    def _only_module(self, parameter: Parameter) -> object:
        """Return the only module that fits an authority that was not given."""
        wanted = self.module.authority(parameter)
        modules = self._engine.environment.resources.modules.values()
        fitting = [each.alias for each in modules if wanted is not None and each.resource_type == wanted]
        if len(fitting) != 1:
            raise InvalidInput(f"process {self.name!r} needs argument {parameter.name!r}")
        return fitting[0]

    def _argument(self, parameter: Parameter, value: object) -> JSON:
        wanted = self.module.authority(parameter)
        if wanted is None:
            return to_plain(value, UNTYPED, f"argument {parameter.name!r} of process {self.name!r}")
        alias = value.get("alias") if isinstance(value, dict) else value
        self._resource(parameter, wanted, alias)
        return {"__resource__": True, "type": wanted, "alias": str(alias)}

    def _resource(self, parameter: Parameter, wanted: str, alias: object) -> Resource:
        found = self._engine.environment.resources.modules.get(str(alias))
        if found is None or found.resource_type != wanted:
            got = f"module {alias!r}" if found is None else f"{found.resource_type} module {alias!r}"
            raise InvalidInput(f"argument {parameter.name!r} of process {self.name!r}: expected a {wanted}, got {got}")
        return Resource(wanted, found.alias)

    def _variables(self, stored: Mapping[str, JSON]) -> dict[str, Value]:
        """Return what the body can name when it begins."""
        values = {each.name: self._value(each, stored.get(each.name)) for each in self._declaration.parameters}
        inputs = make_record(values)
        whole = next(iter(values.values())) if len(values) == 1 else inputs if values else None
        return {"input": whole, "inputs": inputs, **values}

    def _value(self, parameter: Parameter, stored: JSON) -> Value:
        wanted = self.module.authority(parameter)
        if wanted is None:
            return from_json(stored)
        alias = stored.get("alias") if isinstance(stored, dict) else stored
        try:
            return self._resource(parameter, wanted, alias)
        except InvalidInput as error:
            raise ProgramFailed("process_payload_invalid", str(error)) from None


def incompatible(missing: tuple[str, ...]) -> InvalidProgram:
    """Return the error of a module that this host cannot run."""
    shown_parts = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")  # noqa: PLR2004
    return InvalidProgram(
        "process_host_environment_incompatible", f"this host lacks what the program requires: {shown_parts}"
    )


def _text(value: Value) -> str:
    try:
        return display(value)
    except Fault:
        return shown(value)


def _described(ended: Broken) -> tuple[str, JSON]:
    fault = ended.fault
    text = fault.message if fault.hint is None else f"{fault.message} (hint: {fault.hint})"
    return text, {"kind": fault.kind.value, "message": fault.message, "hint": fault.hint, "path": ended.path}
