"""Assigned work: the duty worker polls if another worker does not claim what it was assigned."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from lash.backend.hints import process_tag, session_tag
from lash.stores.hints import Hint


class Assignments:
    """Work that was assigned to other workers and shows no sign of a claim yet.

    An entry is the kind, the tag of the session or process, a colon, and the tag of the worker. A commit or a claim is
    the sign that the worker has taken it. A long turn shows none in time; it costs one poll.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}

    def note(self, hint: Hint, watch_s: float | None) -> None:
        """Forget what shows a sign, and watch over what was assigned; None means that others do that."""
        if watch_s is None:
            self._due.clear()
            return
        if self._due:
            signs = {f"s{tag}" for tag in hint.changed or ()} | hint.taken
            if hint.process and hint.processes:
                signs |= {f"p{tag}" for tag in hint.processes}
            self._forget(signs)
        due = self._clock() + watch_s
        for entry in hint.dispatched:
            self._due.setdefault(entry, due)

    @property
    def due_s(self) -> float:
        """The seconds until the first entry is due."""
        return min(self._due.values(), default=float("inf")) - self._clock()

    def take_due(self) -> frozenset[str]:
        """Return the entries that are due, and forget them."""
        now = self._clock()
        due = frozenset(entry for entry, at in self._due.items() if at <= now)
        for entry in due:
            del self._due[entry]
        return due

    def _forget(self, names: set[str]) -> None:
        for entry in [entry for entry in self._due if entry.partition(":")[0] in names]:
            del self._due[entry]


def idle_workers(due: frozenset[str], session_ids: Iterable[str], process_ids: Iterable[str]) -> frozenset[str]:
    """Return the tags of the workers that were assigned some of this work, which is still unclaimed."""
    unclaimed = {f"s{session_tag(each)}" for each in session_ids} | {f"p{process_tag(each)}" for each in process_ids}
    return frozenset(worker for name, _, worker in (entry.partition(":") for entry in due) if name in unclaimed)
