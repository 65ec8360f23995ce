"""What the parts of one worker share: the running tasks, and the ways to wake and to stop the worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine

from lash.backend.hints import session_tag
from lash.runtime.core import Core
from lash.stores.hints import ANYTHING, Hint, HintListener


class WorkerState:
    """The tasks of one worker, and two events: a reason to poll, and the stop."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.tasks: set[asyncio.Task[None]] = set()
        self.stopping = asyncio.Event()
        self.is_draining = False
        """Whether the worker takes nothing new and stops when all that it runs has ended."""
        self.freed = asyncio.Event()
        """Set when a slot was freed, or there is another reason to poll."""
        self.listener: HintListener | None = None
        """The listener of the poll loop, while it runs."""
        self.polls = 0
        """How many polls have begun."""

    @property
    def is_stopping(self) -> bool:
        return self.stopping.is_set()

    def poll_now(self, hint: Hint = ANYTHING) -> None:
        """End the pause before the next poll, which is for what the hint names."""
        self.freed.set()
        if self.listener is not None:
            self.listener.hint(hint)

    def poll_for(self, session_id: str) -> None:
        """End the pause before the next poll, which is for changes of one session."""
        self.freed.set()
        if self.listener is not None:
            self.listener.hint(Hint(changed=frozenset((session_tag(session_id),))))

    def drain(self) -> None:
        """Stop as soon as nothing runs."""
        if not self.is_draining:
            self.is_draining = True
            self.core.hooks.note("worker.draining", running=len(self.tasks))
        self._stop_if_drained()

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run work in a task that `Worker.run` waits for; an error is noted."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def note_trouble(self, error: BaseException) -> None:
        """Report an error after which the worker continues."""
        self.core.hooks.note("worker.trouble", error=f"{type(error).__qualname__}: {error}")

    async def pause(self, seconds: float) -> None:
        """Sleep, or return early when the worker stops."""
        await either(self.stopping.wait(), asyncio.sleep(seconds))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The lease expires, and the next worker that claims it continues from the records.
            self.note_trouble(error)
        self._stop_if_drained()

    def _stop_if_drained(self) -> None:
        if self.is_draining and not self.tasks and not self.is_stopping:
            self.stopping.set()
            self.poll_now()


async def either(*waits: Coroutine[object, object, object]) -> None:
    """Wait until one of them is over, and cancel the others."""
    tasks = {asyncio.ensure_future(each) for each in waits}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})
