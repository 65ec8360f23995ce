"""Stored values as what an operator's model reads of them, with every text from outside marked."""

from __future__ import annotations

from typing import TypeAlias

from lash.cli.failure import reason_of, where
from lash.cli.queue import content_of, kind_of
from lash.cli.wait import identity_text
from lash.model.act import Act
from lash.model.process.event import ProcessEvent
from lash.model.process.process import ProcessRecord
from lash.model.queue import Batch, DeadLetter, QueuedBatch
from lash.model.scope import scope_process_id, scope_session_id
from lash.model.session.message import Message, Part, PartKind
from lash.model.session.node import MessageEntry, Node
from lash.model.session.session import SessionSummary
from lash.model.wait import WaitRecord
from lash.protocols.mcp.untrusted import MOST_IN_ITEM, Marker, moment

Answer: TypeAlias = dict[str, object]


class Items:
    """One method for each kind of value."""

    def __init__(self, marker: Marker) -> None:
        self._marker = marker

    def name(self, name: str | None) -> Answer | None:
        return None if name is None else self._marker.text(name)

    def summary(self, each: SessionSummary) -> Answer:
        counts = each.counts
        return {
            "session_id": each.meta.session_id,
            "state": None if each.state is None else each.state.value,
            "waiting_for": None if each.waiting_for is None else self._marker.text(each.waiting_for),
            "agent": each.agent,
            "owner": self.name(each.meta.owner),
            "user_messages": each.user_message_count,
            "queued": None if counts is None else counts.queued,
            "dead_letters": None if counts is None else counts.dead,
            "active": moment(each.updated_at_ms),
            "begins_with": self._marker.text(each.first_user_message, 120),
        }

    def node(self, node: Node) -> Answer:
        """Return a node; of one that is not a message only its kind."""
        entry = node.entry
        at = node.timestamp.isoformat(timespec="milliseconds")
        if not isinstance(entry, MessageEntry):
            return {"node_id": node.node_id, "at": at, "kind": type(entry).__name__}
        message = entry.message
        said = self._marker.text(whole_text(message), MOST_IN_ITEM)
        return {"node_id": node.node_id, "at": at, "role": message.role.value, "text": said}

    def queued(self, item: QueuedBatch) -> Answer:
        batch = item.batch
        return {
            "session_id": batch.session_id,
            "batch_id": batch.batch_id,
            "state": item.state.value,
            "waiting_for": None if item.parked is None else self._marker.text(item.parked.waiting_for),
            "kind": kind_of(batch.payloads[0]),
            "attempts": batch.attempts,
            "queued": moment(batch.enqueued_at_ms),
            "content": self._marker.text(content_of(batch)),
        }

    def input(self, batch: Batch) -> Answer:
        content = self._marker.text(content_of(batch))
        return {"batch_id": batch.batch_id, "attempts": batch.attempts, "content": content}

    def letter(self, letter: DeadLetter) -> Answer:
        return {
            "session_id": letter.batch.session_id,
            "batch_id": letter.batch.batch_id,
            "attempts": letter.attempts,
            "died": moment(letter.died_at_ms),
            "reason": self._marker.text(f"{letter.reason}{where(letter.error)}"),
            "content": self._marker.text(content_of(letter.batch)),
        }

    def process(self, record: ProcessRecord) -> Answer:
        identity, reason = record.registration.identity, reason_of(record.projection.outcome)
        return {
            "process_id": record.process_id,
            "name": None if identity is None else self.name(identity.label or identity.kind),
            "status": record.status.value,
            "phase": None if record.state is None else record.state.phase.value,
            "events_in_log": record.last_sequence,
            "created": moment(record.created_at_ms),
            "changed": moment(record.updated_at_ms),
            "reason": self._marker.text(reason) if reason else None,
        }

    def event(self, event: ProcessEvent) -> Answer:
        return {
            "number": event.sequence,
            "type": event.event_type,
            "at": moment(event.occurred_at_ms),
            "payload": self._marker.json(event.payload, MOST_IN_ITEM),
        }

    def wait(self, wait: WaitRecord) -> Answer:
        ask = wait.ask
        return {
            "wait_id": wait.key_id,
            "session_id": scope_session_id(wait.scope),
            "process_id": scope_process_id(wait.scope),
            "question": self._marker.text(identity_text(wait.identity) if ask is None else ask.text),
            "details": None if ask is None else self._marker.json(ask.details),
            "answer_schema": None if ask is None else self._marker.json(ask.schema),
            "asked": moment(wait.created_at_ms),
            "deadline": moment(wait.deadline_ms),
        }

    @staticmethod
    def act(act: Act) -> Answer:
        outcome = "unknown" if act.outcome is None else act.outcome.value
        return {
            "at": moment(act.at_ms),
            "by": act.by,
            "act": act.verb,
            "target": act.target,
            "session_id": act.session_id,
            "process_id": act.process_id,
            "outcome": outcome if act.error is None else f"{outcome}: {act.error}",
        }


def whole_text(message: Message) -> str:
    """Return the text of a message with its tool calls, results and files; reasoning is left out."""
    return "\n".join(text for part in message.parts if (text := _part_text(part)))


def _part_text(part: Part) -> str:
    if part.kind in (PartKind.TEXT, PartKind.PROSE):
        return part.content
    if part.kind is PartKind.TOOL_CALL:
        return f"[call of {part.tool_name}: {part.content}]"
    if part.kind is PartKind.TOOL_RESULT:
        return f"[result of {part.tool_name}: {part.content}]"
    return "" if part.attachment is None else f"[file {part.attachment.label or part.attachment.id}]"
