"""Where logging, metrics and tracing are told what happens."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, TypeAlias

from lash.model.effect import ExecutionScope, ProcessScope, TurnScope

Attributes: TypeAlias = Mapping[str, str | int | float | bool]

TURN: Final = "turn"
PROCESS: Final = "process"
STEP: Final = "step"

_log: Final = logging.getLogger("lash")


class Hook:
    """The base of hooks: every method does nothing. What a hook raises ends what it watches, so let it not raise."""

    def span(self, kind: str, attributes: Attributes) -> AbstractContextManager[None]:  # noqa: ARG002 (a base)
        """Surround a turn, a process's run or a step; an error that ends it passes through the manager."""
        return contextlib.nullcontext()

    def note(self, kind: str, attributes: Attributes) -> None:
        """Hear of a moment, such as ``step.replayed``, ``turn.retried``, ``turn.buried`` or ``lease.lost``."""

    def statement(self, name: str) -> None:
        """Hear of a statement before it is sent to the database."""


class LoggingHook(Hook):
    """Writes moments that somebody should know about to the logger ``lash``, the others at debug level."""

    _LOUD: Final = frozenset(
        {"turn.retried", "turn.buried", "process.retried", "lease.lost", "loop.blocked", "definition.unknown"}
    )

    def note(self, kind: str, attributes: Attributes) -> None:
        level = logging.WARNING if kind in self._LOUD else logging.DEBUG
        if _log.isEnabledFor(level):
            _log.log(level, "%s %s", kind, " ".join(f"{name}={value!r}" for name, value in attributes.items()))


class Hooks:
    """All hooks of an application as one."""

    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        self._hooks = tuple(hooks)

    @contextlib.contextmanager
    def span(self, kind: str, **attributes: str | float | bool) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for hook in self._hooks:
                stack.enter_context(hook.span(kind, attributes))
            yield

    def note(self, kind: str, **attributes: str | float | bool) -> None:
        for hook in self._hooks:
            hook.note(kind, attributes)

    def statement(self, name: str) -> None:
        for hook in self._hooks:
            hook.statement(name)

    def step(self, scope: ExecutionScope, name: str, attempt: int) -> AbstractContextManager[None]:
        return self.span(STEP, step=name, attempt=attempt, **scope_attributes(scope))

    def step_replayed(self, scope: ExecutionScope, name: str) -> None:
        self.note("step.replayed", step=name, **scope_attributes(scope))


def scope_attributes(scope: ExecutionScope) -> dict[str, str]:
    """Return the ids that a scope names."""
    match scope:
        case TurnScope():
            return {"session_id": scope.session_id, "turn_id": scope.turn_id}
        case ProcessScope():
            return {"process_id": scope.process_id}
    return {}
