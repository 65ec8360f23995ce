"""Replies: sending a message to a session, and reading or awaiting what its agent answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from lash.errors import SessionNotFound, TurnFailed, WaitTimedOut
from lash.model.failure import traceback_in
from lash.model.lease import ResourceKind
from lash.model.queue import BatchDraft, BatchState, Enqueued, turn_id_of
from lash.model.session.message import Message
from lash.model.session.node import MessageEntry
from lash.runtime.no_worker import warn_without_worker
from lash.runtime.turns.draft import cancelled_id, reply_id
from lash.runtime.turns.inbox import find_letter
from lash.runtime.turns.messages import text_of
from lash.stores.storage import Storage
from lash.stores.waiter import ReplyWatch


class Sender(Protocol):
    """How messages leave a program."""

    async def send(self, draft: BatchDraft) -> Enqueued:
        """Enqueue a message."""
        ...

    async def send_and_run(self, draft: BatchDraft, on_sent: Callable[[], None]) -> Enqueued | None:
        """Enqueue a message, and return once the turn that begins with it here, if one does, has ended.

        Returns None if no turn can begin here; then the message may or may not be queued. ``on_sent`` is called when it
        is durable.
        """
        ...

    def recall(self, session_id: str, node_id: str) -> Message | None:
        """Return a message that is in memory."""
        ...


class QueueSender:
    """Sends to the queue of a storage, for programs without a worker."""

    def __init__(self, storage: Storage) -> None:
        self._queue = storage.queue

    async def send(self, draft: BatchDraft) -> Enqueued:
        return await self._queue.enqueue(draft)

    async def send_and_run(self, draft: BatchDraft, on_sent: Callable[[], None]) -> Enqueued | None:  # noqa: ARG002
        return None

    def recall(self, session_id: str, node_id: str) -> Message | None:  # noqa: ARG002
        return None


class Replies:
    """The messages that a handle sends to its session, and the replies to them."""

    def __init__(self, storage: Storage, session_id: str, sender: Sender, *, agent: str | None) -> None:
        self._storage = storage
        self._session_id = session_id
        self._sender = sender
        self._agent = agent

    async def send(self, draft: BatchDraft) -> Enqueued:
        """Enqueue a message."""
        try:
            return await self._sender.send(draft)
        except SessionNotFound:
            # The first message creates the session; most messages go to one that exists.
            await self._storage.sessions.create(self._session_id)
            return await self._sender.send(draft)

    async def ask(self, draft: BatchDraft, timeout_s: float | None) -> str:
        """Send a message and return the reply."""
        limit = asyncio.timeout(None)

        def begin_to_count() -> None:
            # Not before: a caller that times out can rely on the message being queued.
            if timeout_s is not None:
                limit.reschedule(asyncio.get_running_loop().time() + timeout_s)

        try:
            async with limit:
                return await self._ask(draft, begin_to_count)
        except TimeoutError:
            if not limit.expired():
                raise
            raise WaitTimedOut(None, f"reply to {draft.source_key!r}", timeout_s or 0) from None

    async def read(self, sent: Enqueued) -> str | None:
        """Return the reply to a message that was in this state, None if it is not there yet."""
        recalled = self._recall(sent)
        if recalled is not None:
            return recalled
        session, turn_id = self._storage.session(self._session_id), turn_id_of(sent.batch_id)
        node = await session.node(reply_id(turn_id))
        if node is not None and isinstance(node.entry, MessageEntry):
            return text_of(node.entry.message)
        match sent.state:
            case BatchState.PENDING:
                return None
            case BatchState.CONSUMED if await session.node(cancelled_id(turn_id)) is None:
                return ""
            case BatchState.DEAD:
                letter = await find_letter(self._storage, self._session_id, sent.batch_id)
                if letter is None:
                    # It was requeued or discarded just now: read again.
                    return None
                raise TurnFailed(self._session_id, sent.batch_id, letter.reason, traceback_in(letter.error))
        raise TurnFailed(self._session_id, sent.batch_id, "it was cancelled")

    async def _ask(self, draft: BatchDraft, on_sent: Callable[[], None]) -> str:
        sent = await self._send_and_run(draft, on_sent)
        recalled = None if sent is None else self._recall(sent)
        if recalled is not None:
            return recalled
        awaited = f"the reply to {draft.source_key!r} in session {self._session_id!r}"
        kind, session_id = ResourceKind.SESSION, self._session_id
        with self._storage.session_waiter.awaiting_reply(session_id) as watch:
            if sent is None:
                sent = await self.send(draft)
                on_sent()
                # A message that was queued just now has no reply yet.
                reply = None if sent.created else await self.read(sent)
            else:
                # Its turn has ended in some other way, or it waits behind other input.
                sent, reply = await self._look(draft, sent)
            with warn_without_worker(self._storage, kind, awaited, agent=self._agent, session_id=session_id):
                return await self._wait(draft, sent, watch) if reply is None else reply

    async def _send_and_run(self, draft: BatchDraft, on_sent: Callable[[], None]) -> Enqueued | None:
        try:
            return await self._sender.send_and_run(draft, on_sent)
        except SessionNotFound:
            await self._storage.sessions.create(self._session_id)
            return await self._sender.send_and_run(draft, on_sent)

    async def _wait(self, draft: BatchDraft, sent: Enqueued, watch: ReplyWatch) -> str:
        reply = None
        while reply is None:
            watch.set_batch(sent.batch_id)
            await watch.changed()
            sent, reply = await self._look(draft, sent)
        return reply

    async def _look(self, draft: BatchDraft, sent: Enqueued) -> tuple[Enqueued, str | None]:
        """Return the state of a message and the reply, None if it is not there yet."""
        reply = await self.read(sent)
        if reply is None and not await self._is_queued(sent):
            # Only now: asking for its state by its key is a write.
            sent = await self.send(draft)
            reply = await self.read(sent)
        return sent, reply

    def _recall(self, sent: Enqueued) -> str | None:
        message = self._sender.recall(self._session_id, reply_id(turn_id_of(sent.batch_id)))
        return None if message is None else text_of(message)

    async def _is_queued(self, sent: Enqueued) -> bool:
        if sent.batch is None:
            return False
        found = await self._storage.queue.list(self._session_id, limit=1, after_seq=sent.batch.seq - 1)
        return bool(found) and found[0].batch_id == sent.batch_id
