"""The engine of sandboxed Python: durable processes whose source is given when they start."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from lash.agents.tools import Tool, as_tool
from lash.code.interpreter import Interpreter
from lash.code.limits import CodeLimits
from lash.code.sandbox import Sandboxes, sandbox_version
from lash.code.source import ENGINE, NAMESPACE
from lash.code.stubs import ASK, stubs_of
from lash.code.values import plain
from lash.errors import ArtifactNotFound, ConfigError, InvalidInput, InvalidProgram
from lash.model.artifact import ArtifactRef
from lash.model.value import JSON
from lash.runtime.engine import DeclaredEngine, Host, Loaded, Program
from lash.runtime.errors import ProgramFailed
from lash.runtime.place import declaring_place, is_run_again
from lash.runtime.policy import PROCESS_RETRY, Retry
from lash.runtime.processes.context import Context
from lash.stores.storage import Storage

DEFAULT_NAME: Final = "program"
_MOST_SANDBOXES: Final = 16
"""How many sandboxes a worker has at once; each takes about 12 MB and what its program uses."""


class CodeEngine(DeclaredEngine):
    """Runs programs in sandboxes; ``app.code_process`` adds one to its application.

    Add your own before that to choose how many sandboxes there may be: ``app.engine(CodeEngine(sandboxes=4))``.
    """

    def __init__(self, *, sandboxes: int = _MOST_SANDBOXES) -> None:
        super().__init__(ENGINE, sandbox_version())
        self.sandboxes = Sandboxes(sandboxes)

    async def load(self, payload: Mapping[str, JSON], host: Host) -> Loaded:
        program, arguments = await super().load(payload, host)
        ref = arguments.get("artifact")
        if ref is None:
            return Loaded(program, arguments)
        try:
            content = await host.storage.artifacts.get(NAMESPACE, ArtifactRef(str(ref)))
        except ArtifactNotFound:
            raise InvalidProgram("program_missing", f"the source {ref} is not in this storage") from None
        return Loaded(program, {**arguments, "source": content.decode()})

    async def close(self) -> None:
        await self.sandboxes.close()


@functools.cache
def shared_engine() -> CodeEngine:
    """Return the engine that applications and tools share if they have none of their own."""
    return CodeEngine()


class CodeProcess(Program[..., Any]):
    """Processes that run sandboxed Python, with the functions and limits that all of them share.

    Start one with its source: ``await app.start(program, source, inputs={"city": "Bonn"})``. The inputs are variables
    of the program. Its result is the value of the last expression.
    """

    def __init__(
        self,
        engine: CodeEngine,
        name: str,
        version: str,
        *,
        tools: Sequence[Tool | Any] = (),
        limits: CodeLimits | None = None,
        retry: Retry = PROCESS_RETRY,
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(ENGINE, name, version, retry=retry, timeout_s=timeout_s)
        self.limits = limits or CodeLimits()
        self.tools = checked_tools(tools)
        self._sandboxes = engine.sandboxes
        self.place = declaring_place()
        self._stubs = stubs_of(self.tools.values())

    @property
    def stubs(self) -> str:
        """The functions of the program with their types and docstrings, for the prompt of a model that writes it."""
        return stubs_of(self.tools.values(), with_docs=True)

    @property
    def parameters(self) -> Mapping[str, bool]:
        return {"source": False, "inputs": False, "artifact": False}

    def is_redeclared_by(self, other: Program[Any, Any]) -> bool:
        return self is other or (isinstance(other, CodeProcess) and is_run_again(self.place, other.place))

    async def check_start(
        self, storage: Storage, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> dict[str, JSON]:
        """Check source and inputs, store the source, and return the arguments; raise InvalidProgram for a mistake."""
        source, inputs = _start_arguments(*args, **kwargs)
        problem = await self._sandboxes.check(source, self._stubs, inputs, self.limits)
        if problem is not None:
            raise problem
        ref = await storage.artifacts.put(NAMESPACE, source.encode())
        return {"artifact": ref, "inputs": inputs}

    async def run(self, context: Context, arguments: Mapping[str, Any]) -> JSON:
        source, inputs = _start_arguments(arguments.get("source"), arguments.get("inputs"))
        if "artifact" not in arguments:
            # A subscription started it; nothing has checked the source.
            problem = await self._sandboxes.check(source, self._stubs, inputs, self.limits)
            if problem is not None:
                raise ProgramFailed(problem.code, str(problem))

        def show(text: str) -> None:
            if not context.is_replaying:
                context.activity({"print": text})

        interpreter = Interpreter(context, self.tools, self.limits, self._sandboxes, show)
        return await interpreter.execute(source, inputs)


def checked_tools(tools: Sequence[Tool | Any]) -> dict[str, Tool]:
    """Return tools by name, or raise ConfigError if a program could not call one."""
    found: dict[str, Tool] = {}
    for tool in map(as_tool, tools):
        if not tool.name.isidentifier() or tool.name == ASK or tool.name in found:
            raise ConfigError(f"expected tools with different names of Python functions, got {tool.name!r}")
        if tool.takes_turn:
            raise ConfigError(f"tool {tool.name!r} takes a turn; a program calls tools that are one step each")
        found[tool.name] = tool
    return found


def _start_arguments(source: object = None, inputs: object = None) -> tuple[str, dict[str, JSON]]:
    if not isinstance(source, str) or not source.strip():
        raise InvalidInput("expected the source of the program as text")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise InvalidInput(f"expected the inputs of the program by name, got {type(inputs).__name__}")
    given: dict[str, JSON] = {}
    for name, value in (inputs or {}).items():
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidInput(f"expected names of variables as inputs of the program, got {name!r:.80}")
        try:
            given[name] = plain(value, f"input {name!r}")
        except TypeError as error:
            raise InvalidInput(str(error)) from None
    return source, given
