"""A crash in memory: from one write on, nothing that an application does reaches the storage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import lash
from lash.errors import LeaseLost
from lash.model.lease import Resource, ResourceKind
from tests.proof.programs.case import PROCESS

_WRITES: Final = {
    "effects": ("record", "claim", "finish", "fail"),
    "process_leases": ("complete", "park", "continue_as_new", "release"),
    "processes": ("register", "set_wait", "clear_wait"),
    "events": ("append", "signal"),
    "waits": ("open",),
    "occurrences": ("emit",),
    "artifacts": ("put",),
}
"""What a run writes, by store."""


class Point(NamedTuple):
    """One write of a run, and whether the crash comes before it or after it."""

    number: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} write {self.number}"


class Crash:
    """Counts the writes of an application, and ends its reach at a point."""

    def __init__(self, app: lash.App, point: Point | None) -> None:
        self._point = point
        self.writes: list[str] = []
        """The writes so far, by store and call."""
        self.happened = False
        for store, calls in _WRITES.items():
            for call in calls:
                self._watch(getattr(app.storage, store), f"{store}.{call}", call)

    def _watch(self, store: object, name: str, call: str) -> None:
        write: Callable[..., Awaitable[Any]] = getattr(store, call)

        async def watched(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (those of the call)
            self._check_alive()
            self.writes.append(name)
            reached = self._point is not None and len(self.writes) == self._point.number
            if reached and self._point is not None and not self._point.after:
                self._die()
            result = await write(*args, **kwargs)
            # Another write may have been the last meanwhile.
            self._check_alive()
            if reached:
                self._die()
            return result

        setattr(store, call, watched)

    def _check_alive(self) -> None:
        if self.happened:
            raise _dead()

    def _die(self) -> None:
        self.happened = True
        raise _dead()


def _dead() -> LeaseLost:
    # A run that has lost its lease writes nothing more, as one whose worker was killed.
    return LeaseLost(Resource(kind=ResourceKind.PROCESS, id=PROCESS), "the worker is dead")
