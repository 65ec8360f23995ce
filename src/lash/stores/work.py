"""The contract of the work list."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from lash.model.lease import LeaseOwner
from lash.model.work import WorkList
from lash.model.worker import Beat

if TYPE_CHECKING:
    from lash.plan.work import WorkAnswer, WorkPoll


class WorkStore(Protocol):
    """The sessions and processes that a worker can run, found in one query however much is queued or parked."""

    async def poll(
        self,
        *,
        sessions: int,
        processes: int,
        owner: LeaseOwner,
        running_sessions: Collection[str] = (),
        running_processes: Collection[str] = (),
        beat: Beat | None = None,
        process_names: Collection[str] | None = None,
        agents: Collection[str] | None = None,
        labels: dict[str, str] | None = None,
    ) -> WorkList:
        """Return what the caller can claim now, and commands and cancellations for what it runs already.

        At most ``processes`` are returned, and at most ``sessions`` in each lane, a fourth of that in the newest one; a
        session may be in several. Of each other holder on the caller's machine, as many suspect leases are returned.
        A process that is bound to another owner is left out. ``next_at_ms`` does not foresee the expiry of leases, so
        a worker has to poll from time to time even if nothing is announced.

        ``process_names`` are the labels of the processes that the caller takes; without it, it takes all. A poll reads
        past ready processes of other labels.

        ``agents`` are those whose input the caller takes; without it, it takes all. Input is for the agent that it
        names, or else for that of the session's last turn; without either it is left to callers that take all. Ready
        and due input of other agents is not read.

        A session must have all of the ``labels``; without any, the caller takes all sessions. A process has the labels
        of the session that it works for. A poll reads a bounded part of what is ready or due for other sessions, from
        a random place on: if those are a thousand and more, it may leave a session to a later poll. It reads past
        ready parked turns and ready processes of others.

        With a ``beat`` the call also registers the owner as a worker, or shows that it lives, and removes the workers
        that missed their last four beats, all in one transaction; the answer then has the place of the worker in the
        fleet. A poll without a beat writes nothing.

        Raises `NewerSchema` once another program has migrated the storage past this version of lash.
        """
        ...

    async def wake(self, *, limit: int = 1_000) -> tuple[str, ...]:
        """Count at most ``limit`` reasons to continue turns, and return the sessions whose parked turns are now ready.

        A reason is written together with its cause: a batch with a ``wake_session_id`` left the queue, a process ended
        that works for the session, a wait of the session was resolved, or a command was enqueued. Workers call this
        when a poll shows ``wakes_due``; it is safe if several do so at once.
        """
        ...

    async def check_schema(self) -> None:
        """Raise `NewerSchema` if another program has migrated the storage past this version of lash."""
        ...


class WorkRows(Protocol):
    """The queries of the work list in one database; `lash.backend.work.Work` makes a `WorkStore` of them."""

    async def poll(self, poll: WorkPoll) -> WorkAnswer:
        """Return what there is at one moment: one statement on PostgreSQL, one snapshot on SQLite.

        A beat is written in the same statement or transaction.
        """
        ...

    async def wake(self, limit: int) -> list[str]:
        """Remove so many reasons and count them in the leases of their sessions, all or nothing.

        Return the sessions in which a turn is parked.
        """
        ...

    async def schema(self) -> int:
        """Return the number of the last migration that was applied."""
        ...
