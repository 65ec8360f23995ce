"""One turn, as its agent sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, MutableMapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, overload

import msgspec

from lash.base.limits import check_text
from lash.base.replay_key import derived_id, replay_key
from lash.errors import InvalidInput
from lash.model.attachment import AttachmentOwner, OwnerKind
from lash.model.causal import TurnCause
from lash.model.process.process import AgentScope, Grant, Provenance, SessionOriginator
from lash.model.queue import Batch, ProcessWake
from lash.model.record import RecordChange, RecordDelete, RecordPut, RecordValue
from lash.model.session.message import AttachmentRef, Message, Part, PartKind, Role
from lash.model.session.node import Entry, RawNode
from lash.model.session.session import ChildRelation
from lash.model.session.usage import TokenUsage, UsageEntry, UsageSum
from lash.model.value import JSON
from lash.runtime.definition import AgentDefinition, agent_name
from lash.runtime.engine import Program
from lash.runtime.processes.handle import ProcessHandle
from lash.runtime.steps.journal import Journal
from lash.runtime.steps.values import UNTYPED, to_json
from lash.runtime.steps.waits import Waits
from lash.runtime.turns.asking import Asking, TurnProcess
from lash.runtime.turns.cell import CellResult
from lash.runtime.turns.draft import TurnDraft
from lash.runtime.turns.handle import SessionHandle
from lash.runtime.turns.messages import estimate_tokens, newest_within, read_reply, text_of

if TYPE_CHECKING:
    from lash.runtime.core import Core
    from lash.runtime.resources import Resources
    from lash.runtime.turns.run import TurnRun

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_FIRST_READ: Final = 64
"""How many messages are read first if only their tokens are limited."""


class Turn(Waits):
    """One turn of a session: its input, the history, and everything that the turn may do.

    When the agent returns, one commit publishes all of it or nothing. Steps are recorded as they finish, so that a turn
    that runs again after a crash repeats none of them.

    A turn that waits for another session, a process, a wait or a moment is parked: `Suspended`, neither an `Exception`
    nor a cancellation, is raised where it waits, and the next run reaches the same place. See `lash.Context`: what is
    said there about ``finally`` blocks and time limits holds here too.
    """

    def __init__(self, run: TurnRun, core: Core, journal: Journal, draft: TurnDraft) -> None:
        super().__init__(run.parking, journal)
        self._run = run
        self._core = core
        self._asking = Asking(run.session_id, run.turn_id, run.parking, journal, run.batches, core.hooks.traceparent)
        self._draft = draft
        self._streams: Counter[str] = Counter()

    @property
    def session_id(self) -> str:
        return self._run.session_id

    @property
    def turn_id(self) -> str:
        return self._run.turn_id

    @property
    def state(self) -> MutableMapping[str, Any]:
        """The state of the session by name, saved with the turn; values are plain JSON and may be changed in place."""
        return self._draft.state

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._run.attempt

    @property
    def resources(self) -> Resources:
        """What runs of this app keep open between them, such as connections; closed when the app stops."""
        return self._core.resources

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The claimed input of the turn, including early input that joined it."""
        return self._run.batches

    @property
    def text(self) -> str:
        """The text of the users' messages in this turn's input."""
        said = (text_of(message) for message in self._draft.input_messages if message.role is Role.USER)
        return "\n".join(said)

    @property
    def input_messages(self) -> tuple[Message, ...]:
        """The messages of this turn's input, including early input that joined it."""
        return tuple(self._draft.input_messages)

    @property
    def wakes(self) -> tuple[ProcessWake, ...]:
        """The reports of background processes in this turn's input."""
        payloads = (payload for batch in self.batches for payload in batch.payloads)
        return tuple(payload for payload in payloads if isinstance(payload, ProcessWake))

    def messages(
        self,
        last: int | None = None,
        *,
        max_tokens: int | None = None,
        count: Callable[[Message], int] = estimate_tokens,
    ) -> list[Message]:
        """Return the conversation up to now: history, this turn's input, and what the turn added.

        ``max_tokens`` leaves out older messages until the others have at most so many tokens; the last one is always
        there. ``count`` counts the tokens of a message, by default about four bytes to one.

        Only the last messages are read, unless recent turns of this agent have asked for more. An agent that asks for
        more than was read starts again from its beginning, as after a crash, and then has it.
        """
        if max_tokens is None:
            return self._run.messages(last)
        size = _FIRST_READ if last is None else last
        while True:
            messages = self._run.messages(size)
            newest, is_cut = newest_within(messages, max_tokens, count)
            if is_cut or size == last or len(messages) < size:
                return newest
            size *= 2

    def add(self, message: Message | str | Sequence[Part], *, role: Role = Role.ASSISTANT) -> Message:
        """Add a message, a text or parts of a message to the conversation; it is published with the turn."""
        self._journal.check_running()
        return self._draft.add(message, role)

    def add_entry(self, entry: Entry) -> None:
        """Add an entry of any kind, such as a framework's own item; it is published with the turn."""
        self._journal.check_running()
        self._draft.add_entry(entry)

    def raw_path(self, last: int | None = None) -> Awaitable[tuple[RawNode, ...]]:
        """Return the nodes of the conversation before this turn, or the last of them, the same in every attempt."""
        self._journal.check_running()
        return self._run.raw_path(last)

    def add_tool_call(self, call_id: str, name: str, arguments: JSON, result: JSON) -> None:
        """Add a tool call and its result, which belong together; text is stored as it is, anything else as JSON."""
        check_text("call_id", call_id)
        check_text("name", name)
        given, answered = (
            value if isinstance(value, str) else msgspec.json.encode(to_json(value, UNTYPED, what)).decode()
            for value, what in ((arguments, f"the arguments of {name!r}"), (result, f"the result of {name!r}"))
        )
        call = Part(id=f"{call_id}:call", kind=PartKind.TOOL_CALL, content=given, tool_call_id=call_id, tool_name=name)
        answer = Part(
            id=f"{call_id}:result", kind=PartKind.TOOL_RESULT, content=answered, tool_call_id=call_id, tool_name=name
        )
        self._journal.check_running()
        self._draft.add_parts(Role.ASSISTANT, call, answer)

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
        """Add token usage; it is committed with the turn, once, however many attempts that takes."""
        usage = TokenUsage(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cached_input_tokens=cached_input_tokens,
            reasoning_tokens=reasoning_tokens,
        )
        self._draft.usage.append(UsageEntry(source=source, model=model, usage=usage))

    def tokens_used(
        self, *, session_id: str | None = None, agent: str | None = None, since: datetime | None = None
    ) -> Awaitable[list[UsageSum]]:
        """Return the tokens that committed turns used, by model, as a step: of one session, one agent, or since a time.

        What this turn uses is not among them.
        """
        since_ms = None if since is None else round(since.timestamp() * 1_000)
        usage = self._core.storage.usage

        async def tokens_used() -> list[UsageSum]:
            page = await usage.sum(["model"], session_id=session_id, agent=agent, since_ms=since_ms)
            return list(page.sums)

        return self.step(tokens_used)

    async def attach(self, content: bytes, media_type: str, *, label: str | None = None) -> AttachmentRef:
        """Store a file with the session and return the reference to use in messages; it is kept if the turn commits."""
        self._journal.check_running()
        owner = AttachmentOwner(kind=OwnerKind.TURN, id=self.turn_id)
        put = self._core.storage.attachments.put
        reference = await self._run.lease.bridge(
            "an attachment", put, self.session_id, content, media_type, owner=owner, label=label
        )
        self._draft.attachments.append(reference.id)
        return reference

    async def read_attachment(self, attachment_id: str) -> bytes:
        """Return the bytes of a file that a message of the session names."""
        self._journal.check_running()
        get = self._core.storage.attachments.get
        stored = await self._run.lease.bridge("reading an attachment", get, self.session_id, attachment_id)
        return stored.content

    @property
    def records(self) -> tuple[RecordChange, ...]:
        """The changes to records that the turn commits, so far."""
        return self._draft.records.changes()

    def put_record(
        self,
        collection: str,
        key: str,
        value: RecordValue,
        *,
        of_storage: bool = False,
        index: Mapping[str, str] | None = None,
        ttl_ms: int | None = None,
        expires_at_ms: int | None = None,
        expected_version: int | None = None,
    ) -> None:
        """Put a record with the turn's commit: both are stored, or neither is.

        The record is the session's, or with ``of_storage`` the storage's. A later change to the same record replaces
        this one. If another version than the expected one is stored by then, the attempt fails with RecordConflict and
        the agent runs again.
        """
        put = RecordPut(
            collection=collection,
            key=key,
            value=value,
            index={} if index is None else index,
            ttl_ms=ttl_ms,
            expires_at_ms=expires_at_ms,
            expected_version=expected_version,
        )
        self._change_record(put, of_storage=of_storage)

    def delete_record(
        self, collection: str, key: str, *, of_storage: bool = False, expected_version: int | None = None
    ) -> None:
        """Delete a record with the turn's commit; see `put_record`."""
        delete = RecordDelete(collection=collection, key=key, expected_version=expected_version)
        self._change_record(delete, of_storage=of_storage)

    def start(self, process: Program[P, R], *args: P.args, **kwargs: P.kwargs) -> Awaitable[ProcessHandle[R]]:
        """Start a process once; its wakes come to this session. Waiting for its result parks the turn."""
        name = f"start.{process.name}"
        return self._start(self._journal.name(name), name, process, args, kwargs)

    def process(self, process_id: str) -> ProcessHandle[Any]:
        """Return a handle on a process that works for this session; waiting for its result parks the turn."""
        return TurnProcess(self._core.storage, process_id, asking=self._asking)

    def run_cell(self, source: str, *, engine: str = "lashlang") -> Awaitable[CellResult]:
        """Run a piece of a program that a model has written, on an engine of this app.

        Its operations are steps, so a turn that runs again after a crash repeats none that is recorded. Its variables
        are kept in ``turn.state`` under the name of the engine, for later cells of the session. A mistake in the
        program is part of the result and never raised.
        """
        self._journal.check_running()
        return self._core.definitions.engine(engine).run_cell(self, source, self._core)

    async def child(self, session_id: str, *, agent: Any = None) -> SessionHandle:  # noqa: ANN401 (any agent)
        """Create a session that belongs to this one, or return it.

        A question to it waits as `ask` does; inside a step, where a turn cannot be parked, other turns use its slot.
        """
        self._journal.check_running()
        relation = ChildRelation(parent_session_id=self.session_id, caused_by=self._cause())
        create = self._core.storage.sessions.create
        await self._run.lease.bridge("creating a session", create, session_id, relation=relation)
        return self._asking.child(session_id, agent_name(agent))

    @overload
    def ask(
        self, agent: AgentDefinition | str, text: str, *, session_id: str | None = None, timeout_s: float | None = None
    ) -> Awaitable[str]: ...

    @overload
    def ask(
        self,
        agent: AgentDefinition | str,
        text: str,
        *,
        of_type: type[T],
        session_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Awaitable[T]: ...

    def ask(
        self,
        agent: AgentDefinition | str,
        text: str,
        *,
        of_type: type[T] | None = None,
        session_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Awaitable[T] | Awaitable[str]:
        """Ask another agent in a session of its own, once, and return its reply.

        While it waits, the turn takes no memory and no slot; when the reply is there, the agent runs again from its
        beginning, and recorded steps return their results. The session belongs to this one. Its id is made of this
        call, so each question starts a new conversation; with ``session_id`` a conversation is continued. With
        ``of_type`` the reply is read as a value of that type, as in `lash.SessionHandle.ask`.

        Raises TurnFailed if the other turn failed or was cancelled, WaitTimedOut if no reply comes within
        ``timeout_s``, InvalidInput if sessions ask each other more than 16 deep.
        """
        name = agent_name(agent)
        if name is None:
            raise InvalidInput(f"expected an agent or its name, got {type(agent).__name__}")
        asking, key = self._asking, self._journal.name(f"ask.{name}")
        child = asking.child(session_id or asking.derived_id(key, name), name)
        reply = asking.ask(key, child, child.question(text, asking.source_key(key)), timeout_s)
        return reply if of_type is None else _read(reply, of_type)

    async def hand_off(self, agent: AgentDefinition | str) -> object:
        """Let another agent answer this turn, and the later messages of the session that name no agent.

        Return what it returns: ``return await turn.hand_off(expert)``. It sees the same turn: input, conversation,
        state, and what was added. The time limit and the retries stay those of the first agent.
        """
        self._journal.check_running()
        return await self._run.hand_off(agent_name(agent))(self)

    def join_early_input(self) -> Awaitable[list[Message]]:
        """Claim input that arrived meanwhile: the point at which early input joins a running turn.

        Returns the new messages, which are part of the conversation from here on.
        """
        return self._run.checkpoint(self._journal.name("checkpoint"))

    def activity(self, payload: JSON) -> None:
        """Show something to observers of the session, such as a piece of text; it is not part of history."""
        self._core.activity.show(self.session_id, self.turn_id, payload)

    def stream(
        self,
        name: str,
        pieces: AsyncIterable[str] | Callable[P, AsyncIterable[str]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Awaitable[str]:
        """Show pieces of text as they come, and record the whole as a step; after a crash the record is returned.

        ``pieces`` is an async generator, or a function that returns one and its arguments, which take part in the
        identity of the step. Observers get ``{"stream": key}`` first, and each piece as ``{"text": piece}``. A step
        that runs again after a crash shows its pieces again, after the same key.
        """
        self._streams[name] += 1
        key = name if self._streams[name] == 1 else f"{name}#{self._streams[name]}"

        async def whole(*args: P.args, **kwargs: P.kwargs) -> str:
            shown: list[str] = []
            self.activity({"stream": key})
            async for piece in pieces(*args, **kwargs) if callable(pieces) else pieces:
                if not isinstance(piece, str):
                    raise InvalidInput(f"expected pieces of text from stream {name!r}, got {type(piece).__name__}")
                self.activity({"text": piece})
                shown.append(piece)
            return "".join(shown)

        return self.step(name, whole, *args, **kwargs)

    def emit(self, source_type: str, payload: JSON = None, *, source_key: str | None = None) -> Awaitable[Any]:
        """Record an occurrence once, and start the processes that subscribe to it."""
        key = replay_key(self.session_id, self.turn_id, self._journal.name(f"emit:{source_type}"))
        emit, bridge = self._core.emit, self._run.lease.bridge
        return bridge("an occurrence", emit, source_type, payload, key=key, source_key=source_key)

    def _change_record(self, change: RecordChange, *, of_storage: bool) -> None:
        self._journal.check_running()
        self._draft.records.add(change, of_storage=of_storage)

    async def _start(
        self, key: str, name: str, process: Program[Any, R], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ProcessHandle[R]:
        self._journal.check_running()
        scope = AgentScope(session_id=self.session_id)
        registration = await self._core.registration(
            process,
            await self._process_id(key, name, process.name),
            args,
            kwargs,
            provenance=Provenance(originator=SessionOriginator(scope=scope), caused_by=self._cause()),
            wake_session_id=self.session_id,
        )
        storage, bridge = self._core.storage, self._run.lease.bridge
        grant = Grant(scope=scope, process_id=registration.process_id, kind=process.engine, label=process.name)
        await bridge("starting a process", storage.processes.register, registration)
        await bridge("granting a process", storage.grants.grant, grant)
        return TurnProcess(self._core.storage, registration.process_id, process, asking=self._asking)

    async def _process_id(self, key: str, name: str, process: str) -> str:
        """Return the id of a process that the turn starts, the same in every run."""
        if self._run.may_have_run:
            # Earlier versions escaped its parts; one of them may have registered the process.
            head, _, number = key.rpartition(replay_key(name))
            former = replay_key(self.session_id, self.turn_id, f"{head}{replay_key(f'start:{process}')}{number}")
            if await self._run.lease.bridge("a process", self._core.storage.processes.get, former) is not None:
                return former
        return derived_id(self.session_id, self.turn_id.removeprefix("turn:"), key)

    def _cause(self) -> TurnCause:
        return TurnCause(session_id=self.session_id, turn_id=self.turn_id)


async def _read(reply: Awaitable[str], of_type: type[T]) -> T:
    return read_reply(await reply, of_type)
