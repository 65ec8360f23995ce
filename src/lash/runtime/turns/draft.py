"""The draft of a turn's commit, collected while the turn runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from datetime import UTC, datetime

import msgspec

from lash.base.codec import decode, encode_to_bytes
from lash.base.compression import BlobRef
from lash.errors import InvalidInput
from lash.model.causal import TurnCause
from lash.model.lease import LeaseFence
from lash.model.queue import ClaimCompletion
from lash.model.session.checkpoint import AGENT_OPTION, CheckpointDraft, TurnState
from lash.model.session.commit import Append, Commit, Unchanged
from lash.model.session.message import Message, Part, PartKind, Role
from lash.model.session.node import Entry, MessageEntry, Node
from lash.model.session.trace import TurnTrace
from lash.model.session.usage import TokenUsage, UsageEntry
from lash.model.value import JSON, Value
from lash.runtime.definition import AgentDefinition
from lash.runtime.steps.values import result_type, to_json
from lash.runtime.turns.history import History
from lash.runtime.turns.records import RecordChanges


class _Component(Value, frozen=True, kw_only=True):
    value: JSON = None


class State(MutableMapping[str, JSON]):
    """The state that is saved with the turn, by name; each value is plain JSON.

    A value can be assigned, or changed in place: ``turn.state.setdefault("items", []).append(item)``. Values that are
    not read cost nothing; a list or a dict that was read is compared with what is saved when the turn is committed.
    """

    def __init__(self, saved: dict[str, BlobRef], content: dict[str, bytes]) -> None:
        self._saved = saved
        self._content = content
        self._changed: dict[str, bytes | None] = {}
        self._live: dict[str, JSON] = {}
        """Lists and dicts that the agent has, and may change in place."""

    def __getitem__(self, name: str) -> JSON:
        if name in self._live:
            return self._live[name]
        body = self._body(name)
        if body is None:
            raise KeyError(name)
        value = decode(body, _Component, f"state {name!r}").value
        self._keep(name, value)
        return value

    def __setitem__(self, name: str, value: JSON) -> None:
        self._changed[name] = _encoded(name, value)
        self._keep(name, value)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._changed[name] = None
        self._live.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        kept = [name for name in self._saved if name not in self._changed]
        return iter([*kept, *(name for name, body in self._changed.items() if body is not None)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return any(name == each for each in self)

    def components(self, saved: dict[str, BlobRef]) -> dict[str, bytes | BlobRef]:
        """Return the state to save: the changes of this turn, applied to the state saved by then."""
        self._settle()
        kept = {name: ref for name, ref in saved.items() if name not in self._changed}
        return {**kept, **{name: body for name, body in self._changed.items() if body is not None}}

    def _body(self, name: str) -> bytes | None:
        return self._changed[name] if name in self._changed else self._content[name] if name in self._saved else None

    def _keep(self, name: str, value: JSON) -> None:
        if isinstance(value, list | dict):
            self._live[name] = value
        else:
            self._live.pop(name, None)

    def _settle(self) -> None:
        """Note which values were changed in place; each is encoded once, whether it was or not."""
        for name, value in self._live.items():
            if not _is_encoded(value, self._body(name)):
                self._changed[name] = _encoded(name, value)
        self._live.clear()


def _encoded(name: str, value: JSON) -> bytes:
    return encode_to_bytes(_Component(value=value), _Component, f"state {name!r}")


def _is_encoded(value: JSON, body: bytes | None) -> bool:
    """Return whether a value still has this form; what cannot be encoded has no form."""
    try:
        return msgspec.json.encode(_Component(value=value)) == body
    except (TypeError, ValueError, RecursionError):
        return False


class TurnDraft:
    """The messages, state, usage, attachments and records of one turn."""

    def __init__(self, session_id: str, turn_id: str, history: History) -> None:
        self.session_id = session_id
        self.turn_id = turn_id
        self.state = State(history.component_refs(), history.component_bytes())
        self.usage: list[UsageEntry] = []
        self.attachments: list[str] = []
        self.records = RecordChanges(session_id)
        self.input_messages: list[Message] = []
        self._entries: list[tuple[str, Entry]] = []
        self._published_elsewhere: set[str] = set()

    def messages(self) -> list[Message]:
        """Return the turn's input and what it added, in order."""
        return [entry.message for _, entry in self._entries if isinstance(entry, MessageEntry)]

    def take(self, messages: Iterable[Message], *, publish: bool = True) -> None:
        """Add input. With ``publish=False`` it is shown to the agent, but committed by another turn."""
        for message in messages:
            self.input_messages.append(message)
            self._entries.append((message.id, MessageEntry(message=message)))
            if not publish:
                self._published_elsewhere.add(message.id)

    def add(self, content: object, role: Role) -> Message:
        """Add a message to the conversation."""
        if isinstance(content, Message):
            return self._append(content)
        if isinstance(content, str):
            return self.add_parts(role, Part(id=f"{self._next_id()}:0", kind=PartKind.TEXT, content=content))
        if isinstance(content, Sequence) and all(isinstance(part, Part) for part in content):
            return self.add_parts(role, *content)
        raise InvalidInput(f"expected text, a Message or a list of parts, got {type(content).__name__}")

    def add_parts(self, role: Role, *parts: Part) -> Message:
        """Add a message of these parts."""
        return self._append(Message(id=self._next_id(), role=role, parts=parts))

    def add_entry(self, entry: Entry) -> None:
        """Add an entry of any kind behind what the turn has added."""
        self._entries.append((self._next_id(), entry))

    def reply(self, value: object, agent: AgentDefinition) -> None:
        """Add what an agent returned: nothing for None, JSON for a value that is neither text nor a message."""
        if value is None:
            return
        message_id = reply_id(self.turn_id)
        if isinstance(value, Message):
            message = msgspec.structs.replace(value, id=message_id)
        else:
            part = Part(id=f"{message_id}:0", kind=PartKind.PROSE, content=_reply_text(value, agent))
            message = Message(id=message_id, role=Role.ASSISTANT, parts=(part,))
        self._entries.append((message_id, MessageEntry(message=message)))

    def cancel(self, history: History, entry: Entry) -> None:
        """Keep only the input and the usage, and mark the turn as cancelled."""
        taken = {message.id for message in self.input_messages}
        self._entries = [(node_id, each) for node_id, each in self._entries if node_id in taken]
        self._entries.append((cancelled_id(self.turn_id), entry))
        self.state = State(history.component_refs(), history.component_bytes())
        self.attachments = []
        self.records = RecordChanges(self.session_id)

    def commit(
        self,
        history: History,
        parent: str | None,
        agent: str,
        fence: LeaseFence,
        done: tuple[ClaimCompletion, ...],
        trace: TurnTrace,
    ) -> Commit:
        """Return the commit that adds the draft to the graph below a parent."""
        nodes = self._nodes(parent)
        return Commit(
            session_id=self.session_id,
            expected_revision=history.revision,
            turn_id=self.turn_id,
            fence=fence,
            release=fence,
            config=history.config,
            frames=history.frames,
            current_frame_id=history.current_frame_id,
            graph=Append(nodes=nodes) if nodes else _stay_or_move(history, parent),
            checkpoint=CheckpointDraft(
                turn_state=self._next_state(history.turn_state, agent),
                plugin_snapshot_revision=history.plugin_snapshot_revision,
                components=self.state.components(history.component_refs()),
            ),
            usage=tuple(self.usage),
            completions=done,
            attachments=self._all_attachments(nodes),
            records=self.records.changes(),
            trace=trace,
        )

    def _nodes(self, parent: str | None) -> tuple[Node, ...]:
        nodes: list[Node] = []
        cause = TurnCause(session_id=self.session_id, turn_id=self.turn_id)
        now = datetime.now(UTC)
        for node_id, entry in self._entries:
            if node_id not in self._published_elsewhere:
                nodes.append(Node(node_id=node_id, parent_node_id=parent, timestamp=now, entry=entry, caused_by=cause))
                parent = node_id
        return tuple(nodes)

    def _all_attachments(self, nodes: tuple[Node, ...]) -> tuple[str, ...]:
        """Return the attachments that the turn stored or refers to, so that no sweep removes them."""
        messages = [node.entry.message for node in nodes if isinstance(node.entry, MessageEntry)]
        named = [part.attachment.id for each in messages for part in each.parts if part.attachment is not None]
        return tuple(dict.fromkeys((*self.attachments, *named)))

    def _next_state(self, before: TurnState, agent: str) -> TurnState:
        return TurnState(
            turn_index=before.turn_index + 1,
            token_usage=_sum([before.token_usage, *(entry.usage for entry in self.usage)])
            if self.usage
            else before.token_usage,
            last_prompt_usage=before.last_prompt_usage,
            protocol_turn_options={**before.protocol_turn_options, AGENT_OPTION: agent},
        )

    def _append(self, message: Message) -> Message:
        message = message if message.id else msgspec.structs.replace(message, id=self._next_id())
        self.add_entry(MessageEntry(message=message))
        return message

    def _next_id(self) -> str:
        return f"{self.turn_id}:{len(self._entries)}"


def _sum(tokens: Sequence[TokenUsage]) -> TokenUsage:
    return TokenUsage(
        input_tokens=sum(each.input_tokens for each in tokens),
        output_tokens=sum(each.output_tokens for each in tokens),
        cached_input_tokens=sum(each.cached_input_tokens for each in tokens),
        reasoning_tokens=sum(each.reasoning_tokens for each in tokens),
    )


def _reply_text(value: object, agent: AgentDefinition) -> str:
    if isinstance(value, str):
        return value
    plain = to_json(value, result_type(agent.function), f"the reply of agent {agent.name!r}")
    return msgspec.json.encode(plain).decode()


def _stay_or_move(history: History, leaf_node_id: str | None) -> Unchanged:
    return Unchanged() if leaf_node_id == history.leaf_node_id else Unchanged(leaf_node_id=leaf_node_id)


def reply_id(turn_id: str) -> str:
    """Return the id of the node that holds a turn's reply."""
    return f"{turn_id}:reply"


def cancelled_id(turn_id: str) -> str:
    """Return the id of the node that says that a turn was cancelled."""
    return f"{turn_id}:cancelled"


def consume_command(history: History, fence: LeaseFence, batch_id: str, completion: ClaimCompletion) -> Commit:
    """Return the commit that consumes a command to the session and changes nothing else."""
    return Commit(
        session_id=fence.resource.id,
        expected_revision=history.revision,
        turn_id=f"command:{batch_id}",
        fence=fence,
        config=history.config,
        frames=history.frames,
        current_frame_id=history.current_frame_id,
        checkpoint=CheckpointDraft(
            turn_state=history.turn_state,
            plugin_snapshot_revision=history.plugin_snapshot_revision,
            components={**history.component_refs()},
        ),
        completions=(completion,),
    )
