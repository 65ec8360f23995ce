"""The engine of lashlang: it loads verified modules from the storage and runs their processes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from lash.agents.tools import Tool
from lash.errors import ArtifactNotFound, CorruptData, InvalidInput, InvalidProgram
from lash.lang.host.environment import full_environment
from lash.lang.link import link
from lash.lang.machine.limits import Limits
from lash.lang.module.artifact import ModuleArtifact
from lash.lang.module.refs import ModuleRef
from lash.lang.module.store import ModuleStore
from lash.lang.parse import parse
from lash.lang.process.cells import run_cell
from lash.lang.process.modules import Module
from lash.lang.process.program import ENGINE, LashlangProcess, incompatible
from lash.lang.process.sources import Sources
from lash.lang.process.tools import HostModules
from lash.lang.values.convert import display, from_json
from lash.model.value import JSON
from lash.runtime.engine import Engine, Host, Loaded, Program
from lash.runtime.policy import PROCESS_RETRY, Retry
from lash.runtime.turns.cell import CellResult
from lash.runtime.turns.turn import Turn
from lash.stores.storage import Storage

_KEPT: Final = 64
"""Modules that stay prepared in memory."""


class Lashlang(Engine):
    """Runs processes that are written in lashlang: ``app.engine(Lashlang({"web": [fetch]}))``.

    ``modules`` are dotted paths with their tools: a program calls ``web.fetch({url: "…"})``, and nothing else of the
    host. ``events`` are the types of payloads by source type: programs can register triggers for them, and for the
    clock. ``limits`` bound one program; ``retry`` is for errors of the host, since those of a program are final.
    """

    name = ENGINE
    version = "1"

    def __init__(
        self,
        modules: Mapping[str, Iterable[Tool | Callable[..., object]]] | None = None,
        *,
        events: Mapping[str, object] | None = None,
        limits: Limits | None = None,
        retry: Retry = PROCESS_RETRY,
    ) -> None:
        self.modules = HostModules(modules or {})
        self.sources = Sources(events or {})
        self.limits = Limits() if limits is None else limits
        self.retry = retry
        self.environment = full_environment(self.sources.add_to(self.modules.catalogue))
        self._loaded: OrderedDict[str, Module] = OrderedDict()

    def compile(self, source: str) -> Module:
        """Return the linked module of a source text; raise ProgramError with the place of the first mistake."""
        return Module(link(parse(source), self.environment, source=source).artifact, source)

    def program(self, module: Module, process: str, *, stored_in: Storage | None = None) -> LashlangProcess:
        """Return a process of a module as a program that can be started; ``stored_in`` has the module already."""
        return LashlangProcess(self, module, process, stored_in=stored_in)

    def process(self, source: str, name: str | None = None) -> LashlangProcess:
        """Compile a source text and return one of its processes, by default the only one."""
        module = self.compile(source)
        names = [each.name for each in module.artifact.program.processes]
        if name is None and len(names) != 1:
            raise InvalidInput(f"expected a module with one process, got {len(names)}; name the one to start")
        return self.program(module, names[0] if name is None else name)

    def check_requirements(self, module: Module) -> None:
        """Raise InvalidProgram if this host lacks what a module requires."""
        missing = self.environment.missing(module.artifact.requirements)
        if missing:
            raise incompatible(missing)

    async def load(self, payload: Mapping[str, JSON], host: Host) -> Loaded:
        ref, name = payload.get("module_ref"), payload.get("process_name")
        if not isinstance(ref, str) or not isinstance(name, str):
            raise InvalidProgram("process_payload_invalid", "the input of the process names no module and process")
        module = await self._module(host.storage, ref)
        _check_refs(module.artifact, payload, name)
        self.check_requirements(module)
        arguments: dict[str, Any] = {"args": payload.get("args") or {}, "state": payload.get("state")}
        return Loaded(self.program(module, name, stored_in=host.storage), arguments)

    async def continuation(
        self,
        program: Program[Any, Any],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        host: Host,
    ) -> JSON:
        """Return the payload of the next run: the same program, in the state of a checkpoint."""
        del kwargs, host
        (state,) = args
        return {**program.reference(), "state": state}

    async def run_cell(self, turn: Turn, source: str, host: Host) -> CellResult:
        """Run a main block in a turn; see `lash.Turn.run_cell`."""
        return await run_cell(self, host.storage, turn, source)

    def cell_tool(self) -> Tool:
        """Return a tool with which the model of an agent runs cells: ``Agent(tools=[engine.cell_tool()])``."""

        async def run_program(turn: Turn, source: str) -> str:
            """Run a lashlang program. Variables are kept between calls; print shows values, submit gives the result."""
            result = await turn.run_cell(source)
            if result.outcome == "submitted":
                return f"{result.text}\nsubmitted: {display(from_json(result.value))}".strip()
            return result.text

        return Tool(run_program)

    def remember(self, module: Module) -> None:
        """Keep a module in memory, so that its processes are found before they are stored."""
        self._loaded[str(module.artifact.module_ref)] = module
        if len(self._loaded) > _KEPT:
            self._loaded.popitem(last=False)

    async def stored_program(self, storage: Storage, definition: Mapping[str, JSON]) -> LashlangProcess:
        """Return the program of a process definition that a program holds as a value, its module stored."""
        module = await self._module(storage, str(definition.get("module_ref")))
        program = self.program(module, str(definition.get("process_name")))
        self.check_requirements(module)
        await program.store(storage)
        return program

    async def _module(self, storage: Storage, ref: str) -> Module:
        known = self._loaded.get(ref)
        if known is None:
            known = Module(await _artifact(storage, ref))
            self.remember(known)
        self._loaded.move_to_end(ref)
        return known


async def _artifact(storage: Storage, ref: str) -> ModuleArtifact:
    try:
        return await ModuleStore(storage.artifacts).get(ModuleRef(ref))
    except ArtifactNotFound:
        raise InvalidProgram("process_module_artifact_missing", f"the storage has no module {ref}") from None
    except CorruptData as error:
        raise InvalidProgram("process_module_artifact_load_failed", str(error)) from error


def _check_refs(artifact: ModuleArtifact, payload: Mapping[str, JSON], name: str) -> None:
    """Raise InvalidProgram unless the four refs of a definition belong together."""
    if payload.get("host_requirements_ref") != artifact.requirements_ref:
        raise InvalidProgram("process_host_requirements_mismatch", "the requirements are not those of the module")
    if name not in artifact.exports or payload.get("process_ref") != str(artifact.exports[name]):
        raise InvalidProgram("process_ref_mismatch", f"the module has no process {name!r} of this definition")
