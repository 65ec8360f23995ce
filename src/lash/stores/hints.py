"""The contract of hints: something may have changed, so a waiting task should read again."""

from __future__ import annotations

from collections.abc import Collection
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, TypeAlias

Tags: TypeAlias = frozenset[str] | None
"""Tags of sessions (`lash.backend.hints.session_tag`); None stands for any session."""

NO_TAGS: Final[frozenset[str]] = frozenset()


class Assigned(NamedTuple):
    """Work that was meant for one worker."""

    sessions: frozenset[str] = NO_TAGS
    """Ids of sessions."""
    processes: frozenset[str] = NO_TAGS
    """Ids of processes."""

    def merged(self, other: Assigned) -> Assigned:
        return Assigned(self.sessions | other.sessions, self.processes | other.processes)


NOTHING_ASSIGNED: Final = Assigned()
"""There is nothing to poll for."""


class Hint(NamedTuple):
    """The union of the hints since a listener's last wait; the default is no hint.

    Two sessions can share a tag, so a hint may name a session that did not change.
    """

    process: bool = False
    """A process may have changed."""
    queued: Tags = NO_TAGS
    """Sessions that may have new input."""
    changed: Tags = NO_TAGS
    """Sessions whose commits, queue, activity or existence may have changed in another way."""
    ready: str | None = None
    """The tag of one session, if every hint was about input for it that can be claimed now."""
    processes: Tags = None
    """Processes that may have changed, if ``process`` is true (`lash.backend.hints.process_tag`)."""
    ended: Tags = None
    """Those of them that may have ended."""
    assigned: Assigned | None = None
    """The work that a worker should claim without a poll, if every hint was about such work; None asks for a poll."""
    dispatched: frozenset[str] = NO_TAGS
    """Work that workers were assigned, for the duty worker: the kind, the tag, a colon, and the tag of the worker."""
    taken: frozenset[str] = NO_TAGS
    """Signs that work was taken, for the duty worker: the kind and the tag."""
    beat: bool = False
    """The fleet has changed: a worker should beat at once."""

    def merged(self, other: Hint) -> Hint:
        """Return one hint that covers both."""
        return Hint(
            self.process or other.process,
            merge_tags(self.queued, other.queued),
            merge_tags(self.changed, other.changed),
            self.ready if self.ready == other.ready else None,
            self._merged_processes(other, self.processes, other.processes),
            self._merged_processes(other, self.ended, other.ended),
            None if self.assigned is None or other.assigned is None else self.assigned.merged(other.assigned),
            self.dispatched | other.dispatched,
            self.taken | other.taken,
            self.beat or other.beat,
        )

    def _merged_processes(self, other: Hint, mine: Tags, theirs: Tags) -> Tags:
        """Return the processes of both; those of a hint that is not about processes do not count."""
        if not other.process:
            return mine
        return merge_tags(mine, theirs) if self.process else theirs

    @property
    def is_news(self) -> bool:
        """Whether anything may have changed."""
        return self.process or self.queued != NO_TAGS or self.changed != NO_TAGS

    def names_session(self, tag: str) -> bool:
        """Return whether the session of this tag may have changed in any way."""
        return self.queued is None or self.changed is None or tag in self.queued or tag in self.changed


NO_HINT: Final = Hint()
"""What a wait returns after its timeout."""
ANYTHING: Final = Hint(process=True, queued=None, changed=None)
"""Anything may have changed."""
_MOST_TAGS: Final = 256
"""Beyond this many names a hint stops counting: reading everything is then as cheap."""


class HintListener(Protocol):
    """One listener for hints. Each listener gets every hint; waking one does not consume it for the others."""

    async def wait(self, timeout_s: float) -> Hint:
        """Return at a hint, or after the timeout; hints given since this listener's last wait count.

        One task waits at a time. Raises StorageClosed when the storage is closed, and InvalidInput if this listener
        was closed.
        """
        ...

    def hint(self, hint: Hint = ANYTHING) -> None:
        """Wake this listener alone; the caller learned of the change elsewhere."""
        ...

    def close(self) -> None:
        """Stop listening; idempotent."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class HintSource(Protocol):
    """The part of `Hints` that a waiting task needs."""

    def listen(self, *, everything: bool = False, work: bool = False, by_session: bool = False) -> HintListener: ...


class Hints(Protocol):
    """Hints that this storage, or another one on the same database, may have changed something.

    A hint means that a read may find something new; it has no content. Hints can be late, spurious or lost, so a
    waiting task also reads at intervals. No task runs, and no connection is held, while there are no listeners.
    """

    @property
    def is_receiving(self) -> bool:
        """Whether hints of other storages arrive now; without them a task sees changes at its next read only."""
        ...

    @property
    def channel(self) -> str | None:
        """The address at which hints reach only this storage; None while it cannot be addressed."""
        ...

    def listen(self, *, everything: bool = False, work: bool = False, by_session: bool = False) -> HintListener:
        """Start listening: for changes of processes; for everything, such as queued input and commits; or for work.

        Work is everything that a worker polls for. ``by_session`` is for everything too, and its hints name the
        sessions where that is known: what a hint does not name has not changed, or another hint follows. Without it a
        task must read everything that it waits for after each hint. Spurious hints are possible.

        Changes from this moment on are hints, also those made before the first wait, which may return without one.
        """
        ...

    def notify(
        self,
        *,
        process: bool = True,
        work: bool = True,
        session_id: str | None = None,
        changed: str | None = None,
        process_id: str | None = None,
        ended: bool = False,
        timed: bool = False,
        later: bool = False,
    ) -> None:
        """Give a hint. The stores call it after a write that committed and that a task may wait for.

        With ``process=False`` no process changed, and listeners for processes get no hint; with ``work=False`` nothing
        became ready and nothing that runs was asked to stop, and listeners for work get none. ``session_id`` is a
        session with new input that can be claimed now, ``changed`` one that changed in another way. ``process_id`` is
        the one process that changed, if the caller knows it, and ``ended`` whether it may have ended. Without a process
        and a session the hint is about any session. With ``later`` other storages may get it some tenths of a second
        later, together with what follows.

        Work that a hint names is assigned to one worker, where the backend can reach one alone. Work that it does not
        name is left to the duty worker, and so is work that becomes ready at a later time (``timed``).
        """
        ...

    async def pass_on(self, sessions: Collection[str], processes: Collection[str], *, is_full: bool = False) -> None:
        """Assign ready work that this worker cannot take to others; what no worker has a slot for is left.

        With ``is_full`` no further session is assigned to this worker until its next beat.
        """
        ...

    async def suspect(self, workers: Collection[str]) -> None:
        """Assign nothing more to these workers until their next beat, and let them beat; the names are their tags."""
        ...

    def greet(self) -> None:
        """Let the duty workers of other storages beat, because a worker came or left."""
        ...

    def serve(self, worker_id: str | None, *, duty: bool = False, draining: bool = False) -> None:
        """Let the listeners for work get hints as this worker; None ends that.

        A duty worker gets the hints about work of all other storages. Any other worker gets those of its own storage,
        and the work that it is assigned. Storages without a worker of this name get all hints. What a draining worker
        leaves is assigned to others.
        """
        ...

    async def close(self) -> None:
        """Stop the tasks and connections behind the hints, and end every wait with StorageClosed; idempotent."""
        ...


def merge_tags(left: Tags, right: Tags) -> Tags:
    """Return the tags of both, or None if that is any session."""
    if left is None or right is None:
        return None
    both = left | right
    return None if len(both) > _MOST_TAGS else both
