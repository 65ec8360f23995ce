"""What an agent sees of one turn."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, MutableMapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from lash.codec import decode, encode
from lash.errors import InvalidInput
from lash.model.message import AttachmentRef, Message, Part, PartKind, ProcessOrigin, Role
from lash.model.queue import AttachmentItem, Batch, ProcessWake, TextItem, TurnInput
from lash.model.usage import TokenUsage, UsageEntry
from lash.model.value import JSON, BlobRef, Value
from lash.runtime.definition import ProcessDefinition
from lash.runtime.effect import Journal, StepOptions
from lash.runtime.policy import STEP_RETRY, Retry
from lash.runtime.process import Steps

if TYPE_CHECKING:
    from lash.runtime.handle import ProcessHandle
    from lash.runtime.run_turn import TurnRun
    from lash.runtime.session import SessionHandle

P = ParamSpec("P")
R = TypeVar("R")


class _Component(Value, frozen=True, kw_only=True):
    value: JSON = None


class State(MutableMapping[str, JSON]):
    """The state that is saved with the turn, by name; each value is plain JSON.

    What is not touched is kept as it is and costs nothing.
    """

    def __init__(self, saved: dict[str, BlobRef], content: dict[str, bytes]) -> None:
        self._parts: dict[str, bytes | BlobRef] = dict(saved)
        self._content = content

    def __getitem__(self, name: str) -> JSON:
        part = self._parts[name]
        body = part if isinstance(part, bytes) else self._content[name]
        return decode(body, _Component, f"state {name!r}").value

    def __setitem__(self, name: str, value: JSON) -> None:
        self._parts[name] = encode(_Component(value=value), _Component, f"state {name!r}").encode()

    def __delitem__(self, name: str) -> None:
        del self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._parts))

    def __len__(self) -> int:
        return len(self._parts)

    def components(self) -> dict[str, bytes | BlobRef]:
        """Return what the commit saves."""
        return dict(self._parts)


class Turn(Steps):
    """One turn of a session: what came in, what was said before, and everything that the turn may do.

    What it does is published by one commit when the agent returns, whole or not at all. Steps are recorded as they
    happen, so that a turn that is run again after a crash repeats none of them.
    """

    def __init__(self, run: TurnRun, journal: Journal, state: State) -> None:
        super().__init__(journal, StepOptions())
        self._run = run
        self.state = state
        self.usage_entries: list[UsageEntry] = []

    @property
    def session_id(self) -> str:
        return self._run.session_id

    @property
    def turn_id(self) -> str:
        return self._run.turn_id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._run.attempt

    @property
    def batches(self) -> tuple[Batch, ...]:
        """What the turn has claimed, early input that joined it included."""
        return self._run.batches

    @property
    def text(self) -> str:
        """What users said in this turn's input."""
        said = (text_of(message) for message in self._run.input_messages if message.role is Role.USER)
        return "\n".join(said)

    @property
    def wakes(self) -> tuple[ProcessWake, ...]:
        """What background processes reported in this turn's input."""
        payloads = (payload for batch in self.batches for payload in batch.payloads)
        return tuple(payload for payload in payloads if isinstance(payload, ProcessWake))

    def messages(self, last: int | None = None) -> list[Message]:
        """Return the conversation up to now: history, this turn's input, and what the turn added."""
        everything = self._run.messages()
        return everything if last is None else everything[-last:]

    def options(
        self, *, key: str | None = None, once: bool = False, retry: Retry = STEP_RETRY, timeout_s: float | None = None
    ) -> Steps:
        """Return what runs steps otherwise: under a key of their own, never twice, with retries, with a time limit."""
        return Steps(self._journal, StepOptions(key=key, once=once, retry=retry, timeout_s=timeout_s))

    def add(self, message: Message | str, *, role: Role = Role.ASSISTANT) -> Message:
        """Add a message to the conversation; it is published with the turn."""
        return self._run.add(message if isinstance(message, Message) else self._run.new_message(role, message))

    def add_tool_call(self, call_id: str, name: str, arguments: str, result: str) -> None:
        """Add a tool call and its result, which belong together."""
        call = Part(
            id=f"{call_id}:call", kind=PartKind.TOOL_CALL, content=arguments, tool_call_id=call_id, tool_name=name
        )
        answer = Part(
            id=f"{call_id}:result", kind=PartKind.TOOL_RESULT, content=result, tool_call_id=call_id, tool_name=name
        )
        self._run.add(self._run.new_message(Role.ASSISTANT, call, answer))

    def usage(
        self,
        model: str,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cached_input_tokens: int = 0,
        reasoning_tokens: int = 0,
        source: str = "turn",
    ) -> None:
        """Account for tokens; they are booked with the turn, once, however often it was tried."""
        usage = TokenUsage(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cached_input_tokens=cached_input_tokens,
            reasoning_tokens=reasoning_tokens,
        )
        self.usage_entries.append(UsageEntry(source=source, model=model, usage=usage))

    async def attach(self, content: bytes, media_type: str, *, label: str | None = None) -> AttachmentRef:
        """Store a file with the session and return the reference to use in messages; it is kept if the turn commits."""
        self._journal.check_running()
        return await self._run.attach(content, media_type, label)

    def start(self, process: ProcessDefinition[P, R], *args: P.args, **kwargs: P.kwargs) -> Awaitable[ProcessHandle[R]]:
        """Start a process once; what it wakes comes back to this session."""
        return self._run.start(self._journal.name(f"start:{process.name}"), process, args, kwargs)

    async def child(self, session_id: str, *, agent: Any = None) -> SessionHandle:  # noqa: ANN401 (any agent)
        """Create a session that belongs to this one, or return it."""
        self._journal.check_running()
        return await self._run.child(session_id, agent)

    def checkpoint(self) -> Awaitable[list[Message]]:
        """Take up what came in meanwhile: the safe boundary at which early input joins a running turn.

        Returns the new messages, which are part of the conversation from here on.
        """
        return self._run.checkpoint(self._journal.name("checkpoint"))

    def activity(self, payload: JSON) -> None:
        """Show something to those who observe the session, such as a piece of text; it is not part of history."""
        self._run.activity(payload)

    def emit(self, source_type: str, payload: JSON = None, *, source_key: str | None = None) -> Awaitable[Any]:
        """Tell that something happened, once; the processes that were subscribed to it are started by it."""
        return self._run.emit(self._journal.name(f"emit:{source_type}"), source_type, payload, source_key)


def text_of(message: Message) -> str:
    """Return the text of a message."""
    kinds = (PartKind.TEXT, PartKind.PROSE)
    return "\n".join(part.content for part in message.parts if part.kind in kinds)


def input_messages(batch: Batch) -> list[Message]:
    """Return the messages that a batch means; the same ones in every attempt."""
    messages: list[Message] = []
    for item_id, payload in zip(batch.item_ids, batch.payloads, strict=True):
        if isinstance(payload, TurnInput):
            parts = tuple(_part(f"{item_id}:{index}", item) for index, item in enumerate(payload.items))
            messages.append(Message(id=item_id, role=Role.USER, parts=parts))
        elif isinstance(payload, ProcessWake):
            text = payload.input if isinstance(payload.input, str) else msgspec.json.encode(payload.input).decode()
            origin = ProcessOrigin(
                process_id=payload.process_id,
                event_type=payload.event_type,
                sequence=payload.sequence,
                wake_id=payload.wake_id,
                caused_by=payload.caused_by,
            )
            part = Part(id=f"{item_id}:0", kind=PartKind.TEXT, content=text)
            messages.append(Message(id=item_id, role=Role.EVENT, parts=(part,), origin=origin))
    return messages


def reply_message(message_id: str, reply: object) -> Message | None:
    """Return what an agent's return value says; None says nothing."""
    match reply:
        case None:
            return None
        case str():
            part = Part(id=f"{message_id}:0", kind=PartKind.PROSE, content=reply)
            return Message(id=message_id, role=Role.ASSISTANT, parts=(part,))
        case Message():
            return msgspec.structs.replace(reply, id=message_id)
    raise InvalidInput(f"an agent returns text, a Message or None, not {type(reply).__name__}")


def now() -> datetime:
    """Return the time that people see beside a message."""
    return datetime.now(UTC)


def _part(part_id: str, item: TextItem | AttachmentItem) -> Part:
    if isinstance(item, TextItem):
        return Part(id=part_id, kind=PartKind.TEXT, content=item.text)
    return Part(id=part_id, kind=PartKind.IMAGE, content="", attachment=item.attachment)
