"""The turn or process that runs here, also for code in tasks and threads that a framework creates."""

from __future__ import annotations

import contextvars
import enum
from typing import TYPE_CHECKING, Final, TypeVar, overload

from lash.errors import ConfigError

if TYPE_CHECKING:
    from lash.runtime.processes.context import Context
    from lash.runtime.turns.turn import Turn

D = TypeVar("D")


class RunHere:
    """Marks the calling task, and what it starts from now on, as part of a run until `end`."""

    def __init__(self, run: Turn | Context) -> None:
        self.run: Turn | Context | None = run
        _run_here.set(self)

    def end(self) -> None:
        """Let go of the run: tasks that outlive it, such as those of a connection pool, must not keep it in memory."""
        self.run = None


class _Missing(enum.Enum):
    DEFAULT = enum.auto()


_run_here: Final[contextvars.ContextVar[RunHere]] = contextvars.ContextVar("lash_run")


@overload
def current() -> Turn | Context: ...


@overload
def current(default: D, /) -> Turn | Context | D: ...


def current(default: D | _Missing = _Missing.DEFAULT, /) -> Turn | Context | D:
    """Return the turn or the process context of the run that this code belongs to.

    It follows the context variables of Python: `asyncio.create_task`, task groups of asyncio and anyio,
    `asyncio.to_thread` and `anyio.to_thread` copy them; `threading.Thread` and ``loop.run_in_executor`` do not, unless
    they run ``contextvars.copy_context().run``. Inside a step it is the run of the step.

    Outside of a run it returns the default, or raises ConfigError if there is none. After the end of the run it raises
    ConfigError, also with a default: a task that outlives its run must not go on without records.

    In tasks that the run did not start with ``gather``, every step needs a key: ``current().options(key=...)``.
    """
    here = _run_here.get(None)
    if here is None:
        if not isinstance(default, _Missing):
            return default
        raise ConfigError(
            "no turn and no process runs here; call this inside an agent or a process, or in a task or thread that "
            "copies its context variables: asyncio.create_task and asyncio.to_thread do, and run_in_executor with "
            "contextvars.copy_context().run"
        )
    if here.run is None:
        raise ConfigError(
            "the turn or process that started this task has ended; await the task before the function returns"
        )
    return here.run
