"""A session as application code uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from lash.errors import InvalidInput, SessionNotFound, TurnFailed, WaitTimedOut
from lash.ids import new_id
from lash.model.message import AttachmentRef, Message
from lash.model.node import MessageEntry
from lash.model.queue import (
    AttachmentItem,
    Batch,
    BatchDraft,
    BatchState,
    DeadLetter,
    Delivery,
    Enqueued,
    SessionCommand,
    TextItem,
    TurnInput,
)
from lash.model.session import ActivePath
from lash.model.usage import UsageEntry
from lash.runtime.run_turn import AGENT_OPTION, CANCEL_TURN
from lash.runtime.turn import text_of
from lash.stores.storage import Storage

_LOOK_EVERY_S: Final = 1.0


class SessionHandle:
    """One durable conversation. It holds no state: every call asks the storage."""

    def __init__(self, storage: Storage, session_id: str, *, agent: str | None = None) -> None:
        self._storage = storage
        self.session_id = session_id
        self._agent = agent

    def __repr__(self) -> str:
        return f"<session {self.session_id}>"

    async def send(
        self,
        text: str,
        *,
        key: str | None = None,
        early: bool = False,
        attachments: Sequence[AttachmentRef] = (),
        at: datetime | None = None,
    ) -> Enqueued:
        """Send a message to the agent; it is durable once this returns.

        The key makes a resend harmless: the answer then tells of the first one. An ``early`` message may join a turn
        that is running, at its next checkpoint; others get a turn of their own. ``at`` delays it.
        """
        return await self._enqueue(self._draft(text, key or new_id(), early=early, attachments=attachments, at=at))

    async def ask(self, text: str, *, key: str | None = None, timeout_s: float | None = None) -> str:
        """Send a message and return the text of the reply, once its turn was committed.

        Raises TurnFailed if the message became a dead letter or was cancelled, and WaitTimedOut when the time is over
        first: the message stays where it is, and asking again with the same key goes on waiting for it.
        """
        draft = self._draft(text, key or new_id())
        with self._storage.signals.listen(everything=True) as hints:
            try:
                async with asyncio.timeout(timeout_s):
                    while True:
                        reply = await self._reply(draft)
                        if reply is not None:
                            return reply
                        await hints.wait(_LOOK_EVERY_S)
            except TimeoutError:
                raise WaitTimedOut(self.session_id, f"reply to {draft.source_key!r}", timeout_s or 0) from None

    async def messages(self, last: int | None = None) -> list[Message]:
        """Return the conversation as it stands, or its last nodes' messages."""
        read = await self._storage.session(self.session_id).load(ActivePath(last=last))
        nodes = () if read is None else read.graph.nodes
        return [node.entry.message for node in nodes if isinstance(node.entry, MessageEntry)]

    async def usage(self) -> tuple[UsageEntry, ...]:
        """Return the tokens spent, in all."""
        read = await self._storage.session(self.session_id).load(ActivePath(last=1))
        return () if read is None else read.usage

    async def pending(self) -> tuple[Batch, ...]:
        """Return what is queued, claimed or not."""
        return await self._storage.queue.list(self.session_id)

    async def cancel(self, reason: str = "") -> None:
        """Cancel the running turn, if there is one; its input is consumed and the session goes on."""
        command = SessionCommand(command=CANCEL_TURN, reason=reason)
        await self._enqueue(BatchDraft(session_id=self.session_id, payloads=(command,), source_key=new_id()))

    async def dead_letters(self) -> tuple[DeadLetter, ...]:
        """Return the input whose turns failed for good."""
        return await self._storage.queue.dead(session_id=self.session_id)

    async def requeue(self, batch_id: str) -> Batch:
        """Give a dead letter another try, behind what is queued now; its recorded steps are not run again."""
        return await self._storage.queue.requeue(self.session_id, batch_id)

    async def delete(self) -> bool:
        """Delete the session with all it owns."""
        return await self._storage.sessions.delete(self.session_id)

    def _draft(
        self,
        text: str,
        key: str,
        *,
        early: bool = False,
        attachments: Sequence[AttachmentRef] = (),
        at: datetime | None = None,
    ) -> BatchDraft:
        if not isinstance(text, str):
            raise InvalidInput(f"a message is text, not {type(text).__name__}")
        if at is not None and at.tzinfo is None:
            raise InvalidInput(f"{at} has no time zone")
        items: tuple[TextItem | AttachmentItem, ...] = (
            TextItem(text=text),
            *(AttachmentItem(attachment=reference) for reference in attachments),
        )
        options = {} if self._agent is None else {AGENT_OPTION: self._agent}
        return BatchDraft(
            session_id=self.session_id,
            payloads=(TurnInput(items=items, protocol_turn_options=options),),
            source_key=key,
            delivery=Delivery.EARLIEST_SAFE_BOUNDARY if early else Delivery.AFTER_CURRENT_TURN_COMMIT,
            available_at_ms=0 if at is None else max(0, round(at.timestamp() * 1_000)),
        )

    async def _enqueue(self, draft: BatchDraft) -> Enqueued:
        try:
            return await self._storage.queue.enqueue(draft)
        except SessionNotFound:
            # Whoever speaks first to a session makes it; most messages go to one that is there.
            await self._storage.sessions.create(self.session_id)
            return await self._storage.queue.enqueue(draft)

    async def _reply(self, draft: BatchDraft) -> str | None:
        """Return the reply to a message if it is there; enqueueing it again says what became of it."""
        sent = await self._enqueue(draft)
        node = await self._storage.session(self.session_id).node(f"turn:{sent.batch_id}:reply")
        if node is not None and isinstance(node.entry, MessageEntry):
            return text_of(node.entry.message)
        if sent.state is BatchState.CONSUMED:
            return ""
        if sent.state is BatchState.CANCELLED:
            raise TurnFailed(self.session_id, sent.batch_id, "it was cancelled")
        for letter in await self._storage.queue.dead(session_id=self.session_id):
            if letter.batch.batch_id == sent.batch_id:
                raise TurnFailed(self.session_id, sent.batch_id, letter.reason)
        return None
