"""Starting processes with options: a fixed id, or a session to wake."""

from __future__ import annotations

from typing import Any, ParamSpec, Protocol, TypeVar

from lash.model.value import Value
from lash.runtime.engine import Program
from lash.runtime.processes.handle import ProcessHandle

P = ParamSpec("P")
R = TypeVar("R")


class StartOptions(Value, frozen=True, kw_only=True):
    """How a process is started: under which id, and which session it wakes."""

    process_id: str | None = None
    wake_session_id: str | None = None


class StartProcess(Protocol):
    """The function of an application that starts a process."""

    async def __call__(
        self, options: StartOptions, process: Program[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ProcessHandle[Any]: ...


class Starter:
    """Starts processes with given options."""

    def __init__(self, start: StartProcess, options: StartOptions) -> None:
        self._start = start
        self._options = options

    async def start(self, process: Program[P, R], /, *args: P.args, **kwargs: P.kwargs) -> ProcessHandle[R]:
        """Start a process and return a handle on it."""
        return await self._start(self._options, process, args, kwargs)
