"""One turn of one session: claim its input, run its agent, publish all of it in one commit."""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, Any

from lash.errors import (
    ClaimLost,
    InvalidInput,
    LashError,
    LeaseLost,
    RevisionConflict,
    SessionDeleted,
    SessionNotFound,
    UnknownDefinition,
)
from lash.model.attachment import AttachmentOwner, OwnerKind
from lash.model.causal import TurnCause
from lash.model.checkpoint import CheckpointDraft, TurnState
from lash.model.commit import Append, Commit, Unchanged
from lash.model.effect import CheckpointPoint, TurnCheckpoint, TurnScope
from lash.model.lease import Lease
from lash.model.message import AttachmentRef, Message, Part, PartKind, Role
from lash.model.node import Entry, MessageEntry, Node, ProtocolEntry
from lash.model.process import Grant, Provenance, Scope, SessionOriginator
from lash.model.queue import Batch, Boundary, Claim, SessionCommand, TurnInput
from lash.model.session import ChildRelation
from lash.model.usage import TokenUsage, UsageEntry
from lash.model.value import JSON
from lash.plan.effect import replay_key
from lash.runtime.definition import AgentDefinition, ProcessDefinition
from lash.runtime.effect import Journal, root_branch
from lash.runtime.errors import Suspended
from lash.runtime.history import History
from lash.runtime.hooks import TURN
from lash.runtime.turn import State, Turn, input_messages, now, reply_message

if TYPE_CHECKING:
    from lash.runtime.core import Core
    from lash.runtime.handle import ProcessHandle
    from lash.runtime.session import SessionHandle

CANCEL_TURN = "cancel_turn"
AGENT_OPTION = "agent"
PLUGIN = "lash"


class TurnEnd(enum.Enum):
    """How a turn's run ended."""

    COMMITTED = "committed"
    NOTHING = "nothing"
    FAILED = "failed"
    BURIED = "buried"
    LOST = "lost"
    RELEASED = "released"
    UNKNOWN = "unknown"


class TurnRun:
    """One turn under a lease, and what it may be asked by the turn that the agent sees."""

    def __init__(self, core: Core, lease: Lease) -> None:
        self._core = core
        self._storage = core.storage
        self._lease = lease
        self.session_id = lease.session_id
        self.turn_id = ""
        self.attempt = 0
        self.input_messages: list[Message] = []
        self._claims: list[Claim] = []
        self._added: list[tuple[str, Entry]] = []
        self._attachments: list[str] = []
        self._cancel_reason: str | None = None
        self._task: asyncio.Task[object] | None = None
        self._released = False
        self._lost = False
        self._history = History()
        self._journal: Journal | None = None

    @property
    def batches(self) -> tuple[Batch, ...]:
        return tuple(batch for claim in self._claims for batch in claim.batches if not _is_command(batch))

    async def run(self) -> TurnEnd:
        """Run one turn if there is input; never raise for what the application did. The lease is free afterwards."""
        try:
            end = await self._run()
        except (LeaseLost, ClaimLost):
            self._core.hooks.note("lease.lost", session_id=self.session_id, turn_id=self.turn_id)
            return TurnEnd.LOST
        except (SessionDeleted, SessionNotFound):
            return TurnEnd.LOST
        if end is TurnEnd.NOTHING:
            await self._storage.leases.release(self._lease.fence)
        return end

    def cancel(self, reason: str) -> None:
        """Let the agent see a cancellation at what it awaits; the turn ends as cancelled."""
        self._cancel_reason = reason
        if self._task is not None:
            self._task.cancel()

    def release(self) -> None:
        """Give the turn back: another run goes on from its records."""
        self._released = True
        self._stop()

    def lose(self) -> None:
        """Stop at once and write nothing: somebody else has the session now."""
        self._lost = True
        self._stop()

    async def renew(self) -> None:
        """Keep the lease and every claim under it; raise LeaseLost if somebody else has the session."""
        await self._storage.leases.renew(self._lease.fence, ttl_ms=self._core.options.ttl_ms)

    async def obey(self) -> None:
        """Look for an order to the session while the turn runs."""
        claim = await self._storage.queue.claim_command(self._lease.fence, ttl_ms=self._core.options.ttl_ms)
        if not isinstance(claim, Claim):
            return
        command = _command(claim)
        if command is not None and command.command == CANCEL_TURN:
            self._claims.append(claim)
            self.cancel(command.reason)
        else:
            await self._storage.queue.abandon(claim, count_attempt=False)

    # What the turn asks for.

    def messages(self) -> list[Message]:
        added = [entry.message for _, entry in self._added if isinstance(entry, MessageEntry)]
        return [*self._history.messages(), *added]

    def new_message(self, role: Role, *content: str | Part) -> Message:
        message_id = f"{self.turn_id}:{len(self._added)}"
        return _message(message_id, role, content)

    def add(self, message: Message) -> Message:
        self._require_journal().check_running()
        self._added.append((f"{self.turn_id}:{len(self._added)}", MessageEntry(message=message)))
        return message

    async def attach(self, content: bytes, media_type: str, label: str | None) -> AttachmentRef:
        owner = AttachmentOwner(kind=OwnerKind.TURN, id=self.turn_id)
        reference = await self._storage.attachments.put(self.session_id, content, media_type, owner=owner, label=label)
        self._attachments.append(reference.id)
        return reference

    async def start(
        self, key: str, process: ProcessDefinition[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ProcessHandle[Any]:
        self._require_journal().check_running()
        scope = Scope(session_id=self.session_id)
        provenance = Provenance(
            originator=SessionOriginator(scope=scope),
            caused_by=TurnCause(session_id=self.session_id, turn_id=self.turn_id),
        )
        registration = self._core.registration(
            process,
            replay_key(self.session_id, self.turn_id, key),
            args,
            kwargs,
            provenance=provenance,
            wake_session_id=self.session_id,
        )
        await self._storage.processes.register(registration)
        await self._storage.grants.grant(
            Grant(scope=scope, process_id=registration.process_id, kind="python", label=process.name)
        )
        return self._core.process_handle(registration.process_id, process)

    async def child(self, session_id: str, agent: object) -> SessionHandle:
        cause = TurnCause(session_id=self.session_id, turn_id=self.turn_id)
        relation = ChildRelation(parent_session_id=self.session_id, caused_by=cause)
        await self._storage.sessions.create(session_id, relation=relation)
        return self._core.session_handle(session_id, agent)

    async def checkpoint(self, key: str) -> list[Message]:
        """Claim early input and record which, so that a later attempt takes the same at the same place."""
        journal = self._require_journal()
        command = TurnCheckpoint(checkpoint=CheckpointPoint.AFTER_WORK)
        known = journal.peek(key, command)
        wanted = None if known is None else _batch_ids(known.outcome)
        claimed = await self._claim_early(wanted)
        if known is None:

            async def outcome() -> JSON:
                return {"batch_ids": [batch.batch_id for claim in claimed for batch in claim.batches]}

            await journal.recorded(key, command, outcome)
        self._claims.extend(claimed)
        new = [message for claim in claimed for batch in claim.batches for message in input_messages(batch)]
        for message in new:
            self._added.append((message.id, MessageEntry(message=message)))
        self.input_messages.extend(new)
        return new

    def activity(self, payload: JSON) -> None:
        self._core.activity(self.session_id, self.turn_id, payload)

    async def emit(self, key: str, source_type: str, payload: JSON, source_key: str | None) -> object:
        self._require_journal().check_running()
        name = replay_key(self.session_id, self.turn_id, key)
        return await self._core.emit(source_type, payload, key=name, source_key=source_key)

    # The run.

    async def _run(self) -> TurnEnd:
        await self._obey_before_turn()
        claim = await self._claim_input()
        if claim is None:
            return TurnEnd.NOTHING
        head = claim.batches[0]
        self._claims.append(claim)
        self.turn_id, self.attempt = f"turn:{head.batch_id}", head.attempts
        self._history = await self._core.histories.load(self._storage, self.session_id)
        try:
            agent = self._core.agent(self._agent_name(claim))
        except UnknownDefinition as unknown:
            self._core.hooks.note("definition.unknown", session_id=self.session_id, message=str(unknown))
            return await self._give_back(TurnEnd.UNKNOWN, pause_s=self._core.options.poll_s, count_attempt=False)
        with self._core.hooks.span(TURN, session_id=self.session_id, turn_id=self.turn_id, attempt=self.attempt):
            return await self._drive(agent)

    async def _drive(self, agent: AgentDefinition) -> TurnEnd:
        scope = TurnScope(session_id=self.session_id, turn_id=self.turn_id)
        journal = Journal(
            self._storage,
            scope,
            self._lease.fence,
            self._core.owner,
            self._core.hooks,
            ttl_ms=self._core.options.ttl_ms,
        )
        self._journal = journal
        await journal.load()
        self.input_messages = [message for batch in self.batches for message in input_messages(batch)]
        self._added = [(message.id, MessageEntry(message=message)) for message in self.input_messages]
        turn = Turn(self, journal, State(self._history.component_refs(), self._history.component_bytes()))

        async def body() -> object:
            root_branch()
            async with asyncio.timeout(agent.timeout_s):
                return await agent.function(turn)

        self._task = asyncio.create_task(body(), name=f"lash-turn {self.turn_id}")
        await asyncio.wait({self._task})
        return await self._settle(agent, turn, self._task)

    async def _settle(self, agent: AgentDefinition, turn: Turn, task: asyncio.Task[object]) -> TurnEnd:
        if self._lost:
            self._core.hooks.note("lease.lost", session_id=self.session_id, turn_id=self.turn_id)
            return TurnEnd.LOST
        if self._released:
            return await self._give_back(TurnEnd.RELEASED, count_attempt=False)
        if task.cancelled():
            if self._cancel_reason is None:
                return await self._fail(agent, asyncio.CancelledError("the agent ended itself by a cancellation"))
            self._added = [each for each in self._added if each[0] in {message.id for message in self.input_messages}]
            entry = ProtocolEntry(plugin_id=PLUGIN, payload={"type": "turn_cancelled", "reason": self._cancel_reason})
            self._added.append((f"{self.turn_id}:cancelled", entry))
            return await self._commit(agent, turn)
        error = task.exception()
        if error is None:
            try:
                reply = reply_message(f"{self.turn_id}:reply", task.result())
                if reply is not None:
                    self._added.append((reply.id, MessageEntry(message=reply)))
                return await self._commit(agent, turn)
            except (InvalidInput, LashError) as failure:
                error = failure
        if isinstance(error, LeaseLost | ClaimLost | SessionDeleted | SessionNotFound):
            raise error
        return await self._fail(agent, error)

    async def _commit(self, agent: AgentDefinition, turn: Turn) -> TurnEnd:
        """Publish the turn. Should somebody have committed beside the lease, its nodes go behind theirs."""
        while True:
            commit = self._build_commit(agent, turn)
            try:
                result = await self._storage.session(self.session_id).commit(commit)
            except RevisionConflict:
                self._history = await self._core.histories.load(self._storage, self.session_id)
                continue
            self._core.histories.advance(self.session_id, commit, result)
            return TurnEnd.COMMITTED

    def _build_commit(self, agent: AgentDefinition, turn: Turn) -> Commit:
        nodes: list[Node] = []
        parent = self._history.leaf_node_id
        cause = TurnCause(session_id=self.session_id, turn_id=self.turn_id)
        for node_id, entry in self._added:
            nodes.append(Node(node_id=node_id, parent_node_id=parent, timestamp=now(), entry=entry, caused_by=cause))
            parent = node_id
        fence = self._lease.fence
        return Commit(
            session_id=self.session_id,
            expected_revision=self._history.revision,
            turn_id=self.turn_id,
            fence=fence,
            release=fence,
            config=self._history.config,
            frames=self._history.frames,
            current_frame_id=self._history.current_frame_id,
            graph=Append(nodes=tuple(nodes)) if nodes else Unchanged(),
            checkpoint=CheckpointDraft(
                turn_state=self._next_state(agent, turn.usage_entries), components=turn.state.components()
            ),
            usage=tuple(turn.usage_entries),
            completions=tuple(claim.completion for claim in self._claims),
            attachments=tuple(dict.fromkeys(self._attachments)),
        )

    def _next_state(self, agent: AgentDefinition, usage: list[UsageEntry]) -> TurnState:
        before = self._history.turn_state
        tokens = [before.token_usage, *(entry.usage for entry in usage)]
        return TurnState(
            turn_index=before.turn_index + 1,
            token_usage=TokenUsage(
                input_tokens=sum(each.input_tokens for each in tokens),
                output_tokens=sum(each.output_tokens for each in tokens),
                cached_input_tokens=sum(each.cached_input_tokens for each in tokens),
                reasoning_tokens=sum(each.reasoning_tokens for each in tokens),
            ),
            last_prompt_usage=before.last_prompt_usage,
            protocol_turn_options={**before.protocol_turn_options, AGENT_OPTION: agent.name},
        )

    async def _fail(self, agent: AgentDefinition, error: BaseException) -> TurnEnd:
        """Try again later, or make the input a dead letter if this was the last attempt."""
        text = f"{type(error).__qualname__}: {error}"
        if self.attempt < agent.retry.max_attempts:
            self._core.hooks.note(
                "turn.retried", session_id=self.session_id, turn_id=self.turn_id, attempt=self.attempt, error=text
            )
            return await self._give_back(TurnEnd.FAILED, pause_s=agent.retry.pause_s(self.attempt))
        first, *others = self._claims
        for claim in others:
            await self._storage.queue.abandon(claim, count_attempt=False)
        await self._storage.queue.bury(first, reason=text[:1_000], error={"attempts": self.attempt})
        await self._storage.leases.release(self._lease.fence)
        self._core.hooks.note("turn.buried", session_id=self.session_id, turn_id=self.turn_id, error=text)
        return TurnEnd.BURIED

    async def _give_back(self, end: TurnEnd, *, pause_s: float = 0, count_attempt: bool = True) -> TurnEnd:
        for claim in self._claims:
            await self._storage.queue.abandon(claim, count_attempt=count_attempt)
        await self._storage.leases.release(self._lease.fence, pause_ms=round(pause_s * 1_000))
        return end

    async def _claim_input(self) -> Claim | None:
        """Claim what the turn is for: after a failed attempt exactly what that attempt had claimed."""
        queue, fence, ttl_ms = self._storage.queue, self._lease.fence, self._core.options.ttl_ms
        claim = await queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=ttl_ms)
        if not isinstance(claim, Claim):
            return None
        attempts = claim.batches[0].attempts
        same = [batch.batch_id for batch in claim.batches if batch.attempts == attempts]
        if len(same) == len(claim.batches):
            return claim
        # What has joined the group since the last attempt waits for the next turn: this one is already recorded.
        await queue.abandon(claim, count_attempt=False)
        again = await queue.claim_batches(fence, same, ttl_ms=ttl_ms)
        return again if isinstance(again, Claim) else None

    async def _claim_early(self, wanted: list[str] | None) -> list[Claim]:
        """Claim all early input that is ready, or exactly what an earlier attempt had claimed here."""
        claimed: list[Claim] = []
        while wanted is None or sum(len(claim.batches) for claim in claimed) < len(wanted):
            claim = await self._storage.queue.claim(
                self._lease.fence, boundary=Boundary.ACTIVE_TURN_CHECKPOINT, ttl_ms=self._core.options.ttl_ms
            )
            if not isinstance(claim, Claim):
                break
            claimed.append(claim)
        if wanted is not None:
            found = [batch.batch_id for claim in claimed for batch in claim.batches]
            if found != wanted:
                raise InvalidInput(
                    f"turn {self.turn_id!r} had taken up the early input {wanted} here, and finds {found} now"
                )
        return claimed

    async def _obey_before_turn(self) -> None:
        """Consume orders that came while no turn was running: there is nothing to cancel."""
        while True:
            claim = await self._storage.queue.claim_command(self._lease.fence, ttl_ms=self._core.options.ttl_ms)
            if not isinstance(claim, Claim):
                return
            history = await self._core.histories.load(self._storage, self.session_id)
            commit = Commit(
                session_id=self.session_id,
                expected_revision=history.revision,
                turn_id=f"command:{claim.batches[0].batch_id}",
                fence=self._lease.fence,
                config=history.config,
                frames=history.frames,
                current_frame_id=history.current_frame_id,
                checkpoint=CheckpointDraft(turn_state=history.turn_state, components={**history.component_refs()}),
                completions=(claim.completion,),
            )
            result = await self._storage.session(self.session_id).commit(commit)
            self._core.histories.advance(self.session_id, commit, result)

    def _agent_name(self, claim: Claim) -> str | None:
        for batch in claim.batches:
            for payload in batch.payloads:
                if isinstance(payload, TurnInput) and AGENT_OPTION in payload.protocol_turn_options:
                    return str(payload.protocol_turn_options[AGENT_OPTION])
        known = self._history.turn_state.protocol_turn_options.get(AGENT_OPTION)
        return None if known is None else str(known)

    def _require_journal(self) -> Journal:
        assert self._journal is not None, "the agent runs only after its journal was read"
        return self._journal

    def _stop(self) -> None:
        if self._journal is not None:
            self._journal.stop(Suspended())
        if self._task is not None:
            self._task.cancel()


def _is_command(batch: Batch) -> bool:
    return any(isinstance(payload, SessionCommand) for payload in batch.payloads)


def _command(claim: Claim) -> SessionCommand | None:
    payload = claim.batches[0].payloads[0]
    return payload if isinstance(payload, SessionCommand) else None


def _batch_ids(outcome: JSON) -> list[str]:
    ids = outcome.get("batch_ids") if isinstance(outcome, dict) else None
    return [str(each) for each in ids] if isinstance(ids, list) else []


def _message(message_id: str, role: Role, content: tuple[str | Part, ...]) -> Message:
    parts = tuple(
        part if isinstance(part, Part) else Part(id=f"{message_id}:{index}", kind=PartKind.TEXT, content=part)
        for index, part in enumerate(content)
    )
    return Message(id=message_id, role=role, parts=parts)
