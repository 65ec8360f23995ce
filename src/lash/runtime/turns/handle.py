"""A session as application code uses it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime
from typing import TypeVar, overload

from msgspec import UNSET, UnsetType

from lash.base.ids import new_id
from lash.errors import AttachmentNotFound, InvalidInput, SessionNotFound
from lash.model.activity import Observed
from lash.model.queue import (
    AttachmentItem,
    Batch,
    BatchDraft,
    DeadLetter,
    Delivery,
    Enqueued,
    TextItem,
    TurnInput,
    turn_id_of,
)
from lash.model.session.checkpoint import AGENT_OPTION, FRAME_PREFIX
from lash.model.session.message import AttachmentRef, Message
from lash.model.session.session import ActivePath, SessionMeta
from lash.model.session.usage import UsageEntry
from lash.model.value import JSON, JSONObject
from lash.runtime.observe.stream import current_cursor, observe
from lash.runtime.turns.branches import BranchPoint, again, alternatives, branch_instead_of, switch
from lash.runtime.turns.draft import State
from lash.runtime.turns.inbox import cancel_command, command_of, queued_batches
from lash.runtime.turns.messages import check_last, last_of, read_reply, read_tail
from lash.runtime.turns.reply import QueueSender, Replies, Sender
from lash.runtime.turns.transcript import TranscriptEntry, read_transcript
from lash.stores.storage import Storage

T = TypeVar("T")


class SessionHandle:
    """One durable conversation. The handle holds no state: every call reads the storage."""

    def __init__(
        self,
        storage: Storage,
        session_id: str,
        *,
        agent: str | None = None,
        traceparent: Callable[[], str | None] = lambda: None,
        sender: Sender | None = None,
    ) -> None:
        """``sender`` sends messages, by default to the queue of the storage."""
        self._storage = storage
        self._sender = sender or QueueSender(storage)
        self._replies = Replies(storage, session_id, self._sender, agent=agent)
        self.session_id = session_id
        self._agent = agent
        self._traceparent = traceparent

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
        priority: int = 0,
        instead_of: str | None = None,
    ) -> Enqueued:
        """Send a message to the agent; it is durable once this returns.

        The key makes it idempotent: a resend returns the first message. An ``early`` message may join a running turn
        where its agent calls `lash.Turn.join_early_input`; others get their own turn. ``at`` delays it.
        Sessions with a message of a higher ``priority``, 0 to 9, come before others; the order within a session stays.
        ``instead_of`` is the id of an earlier message of the user, which it replaces as `edit` does.
        """
        branch = None if instead_of is None else await branch_instead_of(self._storage, self.session_id, instead_of)
        draft = self._draft(
            text, self._key(key), early=early, attachments=attachments, at=at, branch=branch, priority=priority
        )
        if attachments:
            await self._check_attachments(attachments)
        return await self._replies.send(draft)

    @overload
    async def ask(
        self,
        text: str,
        *,
        key: str | None = None,
        timeout_s: float | None = None,
        attachments: Sequence[AttachmentRef] = (),
        priority: int = 0,
    ) -> str: ...

    @overload
    async def ask(
        self,
        text: str,
        *,
        of_type: type[T],
        key: str | None = None,
        timeout_s: float | None = None,
        attachments: Sequence[AttachmentRef] = (),
        priority: int = 0,
    ) -> T: ...

    async def ask(
        self,
        text: str,
        *,
        of_type: type[T] | None = None,
        key: str | None = None,
        timeout_s: float | None = None,
        attachments: Sequence[AttachmentRef] = (),
        priority: int = 0,
    ) -> T | str:
        """Send a message and return the text of the reply, once its turn was committed; ``priority`` is that of `send`.

        With ``of_type``, the reply is read as JSON of that type: what an agent returns that is neither text nor
        a message. Raises InvalidInput if the reply is not of that type.

        Raises TurnFailed if the message became a dead letter or was cancelled, and WaitTimedOut when there is no reply
        within ``timeout_s``: the message stays where it is, and asking again with the same key waits for it again.
        """
        draft = self._draft(text, self._key(key), attachments=attachments, priority=priority)
        if attachments:
            await self._check_attachments(attachments)
        reply = await self._ask(draft, timeout_s)
        return reply if of_type is None else read_reply(reply, of_type)

    async def edit(self, message_id: str, text: str, *, key: str | None = None, timeout_s: float | None = None) -> str:
        """Send a message instead of an earlier one of the user, and return the reply, as `ask` does.

        It starts a branch where the earlier message stands; what followed that one is kept on its own branch. The agent
        sees the conversation up to there, with the current state. Raises NodeNotFound for an unknown message.
        """
        point = await branch_instead_of(self._storage, self.session_id, message_id)
        return await self._ask(self._draft(text, self._key(key), branch=point), timeout_s)

    async def regenerate(
        self, message_id: str | None = None, *, key: str | None = None, timeout_s: float | None = None
    ) -> str:
        """Have a message of the user answered again, and return the new reply, as `ask` does.

        ``message_id`` is the message or its reply, by default the last message of the user. The new reply starts
        a branch beside the earlier one.
        """
        wanted, point = await again(self._storage.session(self.session_id), message_id)
        return await self._ask(self._batch(wanted.items, self._key(key), branch=point), timeout_s)

    async def branches(self, message_id: str) -> tuple[Message, ...]:
        """Return the alternatives to a message, itself included, the earliest first: edits, or replies to one message.

        It reads the whole graph of the session.
        """
        return await alternatives(self._storage.session(self.session_id), message_id)

    async def switch(self, message_id: str) -> None:
        """Make the branch that a message is on the conversation, up to the last message that was added to it.

        Raises SessionBusy while a turn is between its start and its commit. It reads the whole graph of the session.
        """
        await switch(self._storage, self.session_id, message_id)

    async def fork(self, session_id: str | None = None, *, at: str | None = None) -> SessionHandle:
        """Create a session that continues from a message of this one, by default from its end, and return its handle.

        Without ``session_id`` it gets a new one; with it, a repeated call returns the fork that exists. See
        `lash.stores.session.SessionStore.fork`.
        """
        forked = session_id or new_id()
        await self._storage.sessions.fork(self.session_id, forked, node_id=at)
        return SessionHandle(
            self._storage,
            forked,
            agent=self._agent,
            traceparent=self._traceparent,
            sender=self._sender,
        )

    async def state(self) -> dict[str, JSON]:
        """Return the state that the last turn saved: what its agent sees as ``turn.state``."""
        try:
            checkpoint = await self._storage.session(self.session_id).checkpoint()
        except SessionNotFound:
            return {}
        if checkpoint is None:
            return {}
        saved = {name: ref for name, ref in checkpoint.manifest.components.items() if not name.startswith(FRAME_PREFIX)}
        return dict(State(saved, checkpoint.components))

    def _key(self, key: str | None) -> str:
        """Return the source key of a message: the caller's, or a new one."""
        return key or new_id()

    async def _ask(self, draft: BatchDraft, timeout_s: float | None) -> str:
        return await self._replies.ask(draft, timeout_s)

    async def messages(self, last: int | None = None) -> list[Message]:
        """Return the conversation as it stands, or its last so many messages; none before the first was sent."""
        try:
            tail = await read_tail(self._storage.session(self.session_id), check_last(last))
        except SessionNotFound:
            # No message was sent yet. A deleted session raises SessionDeleted instead.
            return []
        return [] if tail is None else last_of(tail.messages, last)

    async def transcript(self, last: int | None = None) -> list[TranscriptEntry]:
        """Return the conversation with times, followed by the input that is queued or running.

        ``last`` is how many committed messages are returned at most.
        """
        return await read_transcript(self._storage, self.session_id, last)

    async def attach(self, content: bytes, media_type: str, *, label: str | None = None) -> AttachmentRef:
        """Store a file with the session, and return the reference for ``attachments`` of `send` and `ask`.

        A file that no message names is deleted by a sweep, after a day by default.
        """
        put = self._storage.attachments.put
        try:
            return await put(self.session_id, content, media_type, label=label)
        except SessionNotFound:
            await self._storage.sessions.create(self.session_id)
            return await put(self.session_id, content, media_type, label=label)

    async def describe(
        self,
        *,
        name: str | UnsetType = UNSET,
        owner: str | None | UnsetType = UNSET,
        labels: dict[str, str] | UnsetType = UNSET,
        metadata: JSONObject | UnsetType = UNSET,
    ) -> None:
        """Set what lists of sessions show and filter by; create the session if it does not exist.

        What is not given stays as it is. Labels and metadata are replaced as a whole.
        """
        edit = self._storage.session(self.session_id).edit
        try:
            await edit(name=name, owner=owner, labels=labels, metadata=metadata)
        except SessionNotFound:
            await self._storage.sessions.create(self.session_id)
            await edit(name=name, owner=owner, labels=labels, metadata=metadata)

    async def meta(self) -> SessionMeta | None:
        """Return name, owner, labels and metadata; None before the session exists."""
        try:
            return await self._storage.session(self.session_id).meta()
        except SessionNotFound:
            return None

    async def usage(self) -> tuple[UsageEntry, ...]:
        """Return the tokens spent, in all."""
        try:
            read = await self._storage.session(self.session_id).load(ActivePath(last=1))
        except SessionNotFound:
            return ()
        return () if read is None else read.usage

    async def pending(self, *, limit: int = 1_000, after: int = 0) -> tuple[Batch, ...]:
        """Return the queued batches, claimed or not, in order: at most ``limit``, which is at most 1,000.

        If there are as many, there may be more: pass the ``seq`` of the last one as ``after``.
        """
        try:
            return await self._storage.queue.list(self.session_id, limit=limit, after_seq=after)
        except SessionNotFound:
            return ()

    async def cancel(self, reason: str = "", *, batch_id: str | None = None) -> bool:
        """Cancel the running turn, or the message that `send` returned with this id; return whether there was one.

        A message whose turn has not started is removed from the queue. The agent of a running turn gets CancelledError
        at its current await. Then its input is consumed and the session continues; nothing else of it is committed.
        A turn that waits for its next attempt is cancelled when that starts.
        """
        async for batch in queued_batches(self._storage, self.session_id):
            if command_of(batch) is not None or (batch_id is not None and batch.batch_id != batch_id):
                continue
            if not batch.attempts:
                if batch_id is None:
                    continue
                if await self._storage.queue.cancel(self.session_id, batch_id) is not None:
                    return True
            command = cancel_command(turn_id_of(batch.batch_id), reason)
            await self._replies.send(BatchDraft(session_id=self.session_id, payloads=(command,)))
            return True
        return False

    async def dead_letters(self, *, limit: int = 100, after: int | None = None) -> tuple[DeadLetter, ...]:
        """Return the dead letters, the oldest first: input whose turns failed permanently.

        At most ``limit``, which is at most 1,000. If there are as many, there may be more: pass the ``position`` of the
        last one as ``after``.
        """
        try:
            return await self._storage.queue.dead(session_id=self.session_id, limit=limit, after=after)
        except SessionNotFound:
            return ()

    async def requeue(self, batch_id: str) -> Batch:
        """Move a dead letter to the end of the queue; its recorded steps are not run again."""
        return await self._storage.queue.requeue(self.session_id, batch_id)

    def observe(self, cursor: str | None = None) -> AsyncGenerator[Observed, None]:
        """Yield what happens in the session, from now on or after a cursor: activity, commits, changes.

        Any process can continue after a value with its cursor; a `lash.Gap` reports lost values.
        """
        return observe(self._storage, self.session_id, cursor)

    async def cursor(self) -> str:
        """Return the current cursor: take it, load the messages, then observe from it, and nothing is missed."""
        return await current_cursor(self._storage, self.session_id)

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
        branch: BranchPoint | None = None,
        priority: int = 0,
    ) -> BatchDraft:
        if not isinstance(text, str):
            raise InvalidInput(f"expected text, got {type(text).__name__}")
        if at is not None and at.tzinfo is None:
            raise InvalidInput(f"{at} has no time zone")
        items: tuple[TextItem | AttachmentItem, ...] = (
            TextItem(text=text),
            *(AttachmentItem(attachment=reference) for reference in attachments),
        )
        return self._batch(items, key, early=early, at=at, branch=branch, priority=priority)

    def _batch(
        self,
        items: tuple[TextItem | AttachmentItem, ...],
        key: str,
        *,
        early: bool = False,
        at: datetime | None = None,
        branch: BranchPoint | None = None,
        priority: int = 0,
    ) -> BatchDraft:
        options: dict[str, JSON] = {} if self._agent is None else {AGENT_OPTION: self._agent}
        if branch is not None:
            options |= branch.option()
        return BatchDraft(
            session_id=self.session_id,
            payloads=(TurnInput(items=items, protocol_turn_options=options, traceparent=self._traceparent()),),
            source_key=key,
            delivery=Delivery.EARLIEST_SAFE_BOUNDARY if early else Delivery.AFTER_CURRENT_TURN_COMMIT,
            available_at_ms=0 if at is None else max(0, round(at.timestamp() * 1_000)),
            priority=priority,
        )

    async def _check_attachments(self, attachments: Sequence[AttachmentRef]) -> None:
        for reference in attachments:
            try:
                found = await self._storage.attachments.entry(self.session_id, reference.id)
            except SessionNotFound:
                found = None
            if found is None:
                raise AttachmentNotFound(self.session_id, reference.id)
