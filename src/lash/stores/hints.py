"""The contract of hints: that something may have changed, for those who wait for it."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self


class HintListener(Protocol):
    """One who waits for hints, apart from all others: a hint that wakes one of them is not lost to the rest."""

    async def wait(self, timeout_s: float) -> str | None:
        """Return at a hint, or when the time is over; a hint given since the last wait of this listener counts.

        Where all hints were about work for one session, its tag (`lash.backend.hints.session_tag`) is returned;
        others have the same.
        One task waits at a time. Raises StorageClosed when the storage is closed, and InvalidInput if this listener
        was.
        """
        ...

    def hint(self, tag: str | None = None) -> None:
        """Give this listener alone a hint: who waits has learnt of something in another way."""
        ...

    def close(self) -> None:
        """Listen no more; a second close is harmless."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Hints(Protocol):
    """Hints that something may have changed, by this storage or another one on the same database.

    A hint says when to look, never what there is to see. It may be late, needless or lost: whoever waits looks anew
    after a while all the same. Nothing runs, and no connection is held, while nobody listens.
    """

    def listen(self, *, everything: bool = False, work: bool = False) -> HintListener:
        """Begin to listen: for changes of processes, for everything, such as queued work and commits too, or for work.

        Work is whatever a worker has to look for. A hint that is none may come all the same.

        Changes from this moment on are hints, also those made before the first wait, which may return without one.
        """
        ...

    def notify(
        self, *, process: bool = True, work: bool = True, session_id: str | None = None, later: bool = False
    ) -> None:
        """Give a hint. The stores call it after a write that succeeded and that somebody may wait for.

        With ``process=False`` no process was changed, and only those who listen for everything or for work get the
        hint; with ``work=False`` nothing became ready or was asked of what runs, and those who listen for work do not.
        ``session_id`` is that of a session to which work came that is ready. With ``later`` other storages may hear of
        it some hundredths of a second later, together with what follows.
        """
        ...

    async def close(self) -> None:
        """End what runs for the hints, and every wait with StorageClosed; a second close is harmless."""
        ...
