"""The contract of hints: something may have changed, so a waiting task should read again."""

from __future__ import annotations

from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, TypeAlias

Tags: TypeAlias = frozenset[str] | None
"""Tags of sessions (`lash.backend.hints.session_tag`); None stands for any session."""

NO_TAGS: Final[frozenset[str]] = frozenset()


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

    def merged(self, other: Hint) -> Hint:
        """Return one hint that covers both."""
        return Hint(
            self.process or other.process,
            merge_tags(self.queued, other.queued),
            merge_tags(self.changed, other.changed),
            self.ready if self.ready == other.ready else None,
        )

    def names_session(self, tag: str) -> bool:
        """Return whether the session of this tag may have changed in any way."""
        return self.queued is None or self.changed is None or tag in self.queued or tag in self.changed


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
        """Where a hint reaches this storage alone; None while there is no such place."""
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
        later: bool = False,
    ) -> None:
        """Give a hint. The stores call it after a write that committed and that a task may wait for.

        With ``process=False`` no process changed, and listeners for processes get no hint; with ``work=False`` nothing
        became ready and nothing that runs was asked to stop, and listeners for work get none. ``session_id`` is a
        session with new input that can be claimed now, ``changed`` one that changed in another way. Without a process
        and a session the hint is about any session. With ``later`` other storages may get it some hundredths of a
        second later, together with what follows.
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
