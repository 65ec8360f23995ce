"""One message that a program sends to its own worker, and what its sender waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lash.model.queue import BatchDraft, Enqueued


class Sending:
    """A message on its way to the queue, and perhaps into a turn that begins with it."""

    def __init__(self, draft: BatchDraft, on_sent: Callable[[], None] | None) -> None:
        """With ``on_sent`` the sender waits for the end of the turn; without it, until the message is durable."""
        self.draft = draft
        self.has_begun = False
        """Whether its task has made its first step."""
        self._on_sent = on_sent
        self._enqueued: Enqueued | None = None
        self._done: asyncio.Future[Enqueued | None] = asyncio.get_running_loop().create_future()

    @property
    def is_for_turn(self) -> bool:
        """Whether the sender waits for the end of the turn."""
        return self._on_sent is not None

    async def wait(self) -> Enqueued | None:
        """Return the message as it was queued; None if that is not known because the worker was stopped."""
        return await self._done

    def note_sent(self, enqueued: Enqueued) -> None:
        """Note that the message is durable."""
        self._enqueued = enqueued
        if self._on_sent is None:
            self.finish()
        elif not self._done.done():
            self._on_sent()

    def finish(self) -> None:
        """Let the sender go on."""
        # A sender that was cancelled while it waited has cancelled the future.
        if not self._done.done():
            self._done.set_result(self._enqueued)

    def fail(self, error: Exception) -> None:
        """Raise an error in the sender."""
        if not self._done.done():
            self._done.set_exception(error)
