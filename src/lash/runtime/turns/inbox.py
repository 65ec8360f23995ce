"""What a turn takes from the queue of its session: its input, early input that joins it, and commands to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from lash.model.lease import LeaseFence
from lash.model.queue import (
    AttachmentItem,
    Batch,
    Boundary,
    Claim,
    DeadLetter,
    EmptyReason,
    ProcessWake,
    SessionCommand,
    Slot,
    TextItem,
    TurnInput,
)
from lash.model.session.checkpoint import AGENT_OPTION, TurnState
from lash.model.session.message import Message, Part, PartKind, ProcessOrigin, Role
from lash.model.session.node import MessageEntry
from lash.model.value import JSON
from lash.runtime.outage import HeldLease
from lash.stores.storage import Storage

_CANCEL: Final = "cancel_turn "
_PAGE: Final = 100


class Inbox:
    """The claims of one run, all made under its lease. A commit completes them; otherwise they are abandoned."""

    def __init__(self, storage: Storage, fence: LeaseFence, lease: HeldLease, *, ttl_ms: int) -> None:
        self._storage = storage
        self._queue = storage.queue
        self._fence = fence
        self._lease = lease
        self._ttl_ms = ttl_ms
        self.claims: list[Claim] = []

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The batches that the run has claimed, without commands."""
        return tuple(batch for claim in self.claims for batch in claim.batches if command_of(batch) is None)

    async def next(self) -> Claim | None:
        """Claim what comes next, input or a command, and return the claim; None if nothing is ready."""
        claim = await self._queue.claim(self._fence, boundary=Boundary.IDLE, ttl_ms=self._ttl_ms)
        if not isinstance(claim, Claim) and claim.reason is EmptyReason.COMMAND_AT_HEAD:
            claim = await self._queue.claim_command(self._fence, ttl_ms=self._ttl_ms)
        return claim if isinstance(claim, Claim) else None

    async def narrow(self, claim: Claim, wanted: Sequence[str]) -> list[Claim]:
        """Exchange a claim for one on those of its batches that an earlier attempt had."""
        present = [batch.batch_id for batch in claim.batches if batch.batch_id in wanted]
        if len(present) == len(claim.batches):
            return [claim]
        await self._abandon(claim)
        claim_batches, ttl_ms = self._queue.claim_batches, self._ttl_ms
        again = await self._lease.bridge("claiming the input", claim_batches, self._fence, present, ttl_ms=ttl_ms)
        return [again] if isinstance(again, Claim) else []

    async def early(self) -> list[Claim]:
        """Claim all early input that is ready."""
        claimed: list[Claim] = []
        while (claim := await self._claim_early(64)) is not None:
            claimed.append(claim)
        return claimed

    async def early_again(self, wanted: Sequence[str]) -> list[Claim]:
        """Claim those of the batches that an earlier attempt had taken up which are still in the queue."""
        claimed: list[Claim] = []
        others: list[Claim] = []
        while len(claimed) < len(wanted) and (claim := await self._claim_early(1)) is not None:
            (claimed if claim.batches[0].batch_id in wanted else others).append(claim)
        for claim in others:
            await self._abandon(claim)
        return claimed

    async def seen_before(self, session_id: str, batch_id: str) -> list[Message]:
        """Return the messages of a batch that has left the queue: a turn of its own answered it, or it is dead."""
        session, messages = self._storage.session(session_id), list[Message]()
        while (node := await session.node(item_id(batch_id, len(messages)))) is not None:
            if not isinstance(node.entry, MessageEntry):
                break
            messages.append(node.entry.message)
        letter = None if messages else await find_letter(self._storage, session_id, batch_id)
        return messages if letter is None else input_messages(letter.batch)

    async def find_cancel(self, turn_id: str) -> str | None:
        """Return the reason of a command to cancel this turn, wherever in the queue it is; None without one."""
        async for batch in queued_batches(self._storage, self._fence.resource.id):
            command = command_of(batch)
            if command is not None and command.command == _CANCEL + turn_id:
                return command.reason
        return None

    async def claim_cancel(self, turn_id: str) -> None:
        """Claim the command that cancels this turn if it comes next; otherwise it is consumed later, without effect."""
        claim_command = self._queue.claim_command
        claim = await self._lease.bridge("claiming a command", claim_command, self._fence, ttl_ms=self._ttl_ms)
        if not isinstance(claim, Claim):
            return
        command = command_of(claim.batches[0])
        if command is not None and command.command == _CANCEL + turn_id:
            self.claims.append(claim)
        else:
            await self._abandon(claim)

    async def give_back(self, *, count_attempt: bool) -> None:
        """Abandon all claims; an attempt counts for the input that the turn is named after."""
        for number, claim in enumerate(self.claims):
            await self._abandon(claim, count_attempt=count_attempt and number == 0)

    async def give_back_after(self, count: int) -> None:
        """Abandon the claims that were made after the first so many."""
        for claim in self.claims[count:]:
            await self._abandon(claim)
        del self.claims[count:]

    async def bury(self, reason: str, error: JSON) -> None:
        """Make the input a dead letter; early input that joined it gets its own turn."""
        head, *others = self.claims
        for claim in others:
            await self._abandon(claim)
        await self._lease.bridge("the dead letter", self._queue.bury, head, reason=reason, error=error)

    async def _abandon(self, claim: Claim, *, count_attempt: bool = False) -> None:
        await self._lease.bridge("giving back the input", self._queue.abandon, claim, count_attempt=count_attempt)

    async def _claim_early(self, most: int) -> Claim | None:
        boundary = Boundary.ACTIVE_TURN_CHECKPOINT
        claim = await self._lease.bridge(
            "claiming early input",
            self._queue.claim,
            self._fence,
            boundary=boundary,
            ttl_ms=self._ttl_ms,
            max_batches=most,
        )
        return claim if isinstance(claim, Claim) else None


def cancel_command(turn_id: str, reason: str) -> SessionCommand:
    """Return the command that cancels one turn; it has no effect on any other."""
    return SessionCommand(command=_CANCEL + turn_id, reason=reason)


def is_cancellation(command: SessionCommand) -> bool:
    return command.command.startswith(_CANCEL)


def command_of(batch: Batch) -> SessionCommand | None:
    """Return the command in a batch, or None if the batch is input."""
    payload = batch.payloads[0]
    return payload if isinstance(payload, SessionCommand) else None


def may_merge(batch: Batch) -> bool:
    """Return whether others may be claimed together with this batch."""
    return batch.slot is Slot.JOIN and batch.merge_key is not None


def wanted_agent(claim: Claim, state: TurnState) -> str | None:
    """Return the name of the agent that the input names, or the session remembers; None if neither does."""
    for batch in claim.batches:
        for payload in batch.payloads:
            if isinstance(payload, TurnInput) and AGENT_OPTION in payload.protocol_turn_options:
                return str(payload.protocol_turn_options[AGENT_OPTION])
    known = state.protocol_turn_options.get(AGENT_OPTION)
    return None if known is None else str(known)


def item_id(batch_id: str, index: int) -> str:
    """Return the id of a payload, which is that of its message too."""
    return f"{batch_id}:item:{index}"


def input_messages(batch: Batch) -> list[Message]:
    """Return the messages of a batch, the same in every attempt."""
    messages: list[Message] = []
    for name, payload in zip(batch.item_ids, batch.payloads, strict=True):
        if isinstance(payload, TurnInput):
            parts = tuple([_part(f"{name}:{index}", item) for index, item in enumerate(payload.items)])
            messages.append(Message(id=name, role=Role.USER, parts=parts))
        elif isinstance(payload, ProcessWake):
            messages.append(_wake_message(name, payload))
    return messages


def attachment_ids(batch: Batch) -> set[str]:
    """Return the ids of the attachments that a batch names."""
    inputs = (payload for payload in batch.payloads if isinstance(payload, TurnInput))
    return {item.attachment.id for each in inputs for item in each.items if isinstance(item, AttachmentItem)}


async def waiting_batches(storage: Storage, session_id: str) -> AsyncIterator[Batch]:
    """Yield all input that can still become a turn: queued batches, delayed ones included, then dead letters."""
    async for batch in queued_batches(storage, session_id):
        yield batch
    async for letter in _dead_letters(storage, session_id):
        yield letter.batch


async def find_letter(storage: Storage, session_id: str, batch_id: str) -> DeadLetter | None:
    """Return the dead letter that a batch has become."""
    async for letter in _dead_letters(storage, session_id):
        if letter.batch.batch_id == batch_id:
            return letter
    return None


async def queued_batches(storage: Storage, session_id: str) -> AsyncIterator[Batch]:
    """Yield all queued batches of a session, in order."""
    after_seq = 0
    while page := await storage.queue.list(session_id, limit=_PAGE, after_seq=after_seq):
        for batch in page:
            yield batch
        after_seq = page[-1].seq


async def _dead_letters(storage: Storage, session_id: str) -> AsyncIterator[DeadLetter]:
    after: int | None = None
    while page := await storage.queue.dead(session_id=session_id, limit=_PAGE, after=after):
        for letter in page:
            yield letter
        after = page[-1].position


def _wake_message(message_id: str, wake: ProcessWake) -> Message:
    text = wake.input if isinstance(wake.input, str) else msgspec.json.encode(wake.input).decode()
    origin = ProcessOrigin(
        process_id=wake.process_id,
        event_type=wake.event_type,
        sequence=wake.sequence,
        wake_id=wake.wake_id,
        caused_by=wake.caused_by,
    )
    part = Part(id=f"{message_id}:0", kind=PartKind.TEXT, content=text)
    return Message(id=message_id, role=Role.EVENT, parts=(part,), origin=origin)


def _part(part_id: str, item: TextItem | AttachmentItem) -> Part:
    if isinstance(item, TextItem):
        return Part(id=part_id, kind=PartKind.TEXT, content=item.text)
    kind = PartKind.IMAGE if item.attachment.media_type.startswith("image/") else PartKind.FILE
    return Part(id=part_id, kind=kind, content="", attachment=item.attachment)
