"""Runs of agents inside one turn or process: what the keys of their steps begin with."""

from __future__ import annotations

import contextvars
from typing import Final
from weakref import WeakKeyDictionary

from lash.adapters.names import short
from lash.runtime.current import current
from lash.runtime.processes.branch import current_branch
from lash.runtime.processes.context import Context
from lash.runtime.turns.turn import Turn

inside_call: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("lash_pydantic_ai_call", default="")
"""The tool call whose function runs here: agents that it runs belong to it."""


class Runs:
    """The runs of agents in one run of a turn or process. They are counted, so each attempt finds the same ones."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._labels: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def begin(self, agent: str, run_id: str | None = None) -> str:
        """Return the id of a run that begins, the one that it was given or one that every attempt gives it."""
        label = self.numbered(f"{inside_call.get()}{current_branch.get().prefix}{agent}")
        run_id = run_id or f"{self._scope}:{label}"
        self._labels[run_id] = label
        return run_id

    def knows(self, run_id: str) -> bool:
        return run_id in self._labels

    def label(self, run_id: str | None) -> str:
        """Return the label of a run."""
        return self._labels.get(run_id or "", "") or short(run_id or "run", 100)

    def numbered(self, name: str) -> str:
        """Return the name, with its number from the second time on."""
        number = self._counts[name] = self._counts.get(name, 0) + 1
        return name if number == 1 else f"{name}#{number}"


_runs: Final[WeakKeyDictionary[Turn | Context, Runs]] = WeakKeyDictionary()


def runs_here() -> tuple[Turn | Context, Runs]:
    """Return the turn or process that runs here, and the runs of agents in it."""
    run = current()
    known = _runs.get(run)
    if known is None:
        known = _runs[run] = Runs(run.turn_id if isinstance(run, Turn) else run.process_id)
    return run, known


def is_durable_here() -> bool:
    """Return whether a step can be recorded here: inside a turn or process, and not inside one of its steps."""
    branch = current_branch.get(None)
    return current(None) is not None and branch is not None and branch.inside is None


def is_inside_step() -> bool:
    """Return whether this code is part of a step, which is recorded as a whole."""
    branch = current_branch.get(None)
    return branch is not None and branch.inside is not None
