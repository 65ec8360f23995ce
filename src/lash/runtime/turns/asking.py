"""Asking other sessions inside a turn: the turn is parked until the reply is there."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lash.base.codec import content_hash
from lash.base.replay_key import replay_key
from lash.base.shapes import convert
from lash.errors import InvalidInput, ProcessFailed, ProcessPruned, SessionNotFound, TurnFailed, WaitTimedOut
from lash.model.causal import TurnCause
from lash.model.process.process import Outcome
from lash.model.queue import Batch, BatchDraft, Enqueued, Payload, TurnInput
from lash.model.session.session import ChildRelation
from lash.model.value import JSON
from lash.runtime.processes.context import read_outcome
from lash.runtime.processes.handle import ProcessHandle, R
from lash.runtime.steps.journal import Journal
from lash.runtime.steps.steps import constant, milliseconds, operation
from lash.runtime.steps.values import UNTYPED
from lash.runtime.turns.handle import SessionHandle

if TYPE_CHECKING:
    from lash.runtime.engine import Program
    from lash.runtime.turns.parking import TurnParking
from lash.stores.storage import Storage

MAX_DEPTH: Final = 16
"""How deep sessions may ask sessions. An agent that asks itself without end stops here."""
DEPTH_OPTION: Final = "ask_depth"
"""How many sessions have asked each other before this message."""
_ASKED: Final = re.compile(r"^(?:[\w.]*TurnFailed: the turn of message '[^']*' to session '[^']*' failed: )+")
"""The beginning of the reason of a turn that failed because a turn that it asked did."""
_ID_DIGITS: Final = 12
_ROOT_LENGTH: Final = 100
"""How much of the asking session's id the id of a derived session repeats."""


class Asking:
    """What one run of a turn asks other sessions, and the processes that it waits for."""

    def __init__(
        self,
        session_id: str,
        turn_id: str,
        parking: TurnParking,
        journal: Journal,
        batches: tuple[Batch, ...],
        traceparent: Callable[[], str | None],
    ) -> None:
        self._session_id = session_id
        self._turn_id = turn_id
        self._parking = parking
        self._journal = journal
        self.traceparent = traceparent
        self._depth = _depth_of(batches)
        self._priority = max((batch.priority for batch in batches), default=0)

    @property
    def may_park(self) -> bool:
        """Whether the caller is a branch of the agent itself, which can be parked, and not a step or a foreign task."""
        return self._journal.lines.is_own

    @contextlib.contextmanager
    def slot_yielded(self) -> Iterator[None]:
        """Let another turn of the worker run while this one waits in memory."""
        with self._parking.slot_yielded():
            yield

    def child(self, session_id: str, agent: str | None) -> ChildSession:
        return ChildSession(self._parking.storage, session_id, agent=agent, asking=self)

    def derived_id(self, key: str, agent: str) -> str:
        """Return the id of the session that is created for one question: the same in every run."""
        root = self._session_id.partition("/")[0][:_ROOT_LENGTH]
        digits = content_hash(replay_key(self._session_id, self._turn_id, key).encode())[:_ID_DIGITS]
        return f"{root}/{agent}-{digits}"

    def name(self, name: str) -> str:
        """Return the key under which the next wait of a name is recorded."""
        return self._journal.name(name)

    def source_key(self, key: str) -> str:
        """Return the source key of the question that is recorded under a key."""
        return replay_key(self._session_id, self._turn_id, key)

    async def ask(self, key: str, child: ChildSession, draft: BatchDraft, timeout_s: float | None) -> str:
        """Return the reply of a session, or park the turn until it is there; the reply is recorded."""
        command = operation(f"ask:{child.session_id}", msgspec.to_builtins(draft.payloads))
        known = self._journal.peek(key, command)
        if known is None:
            await self._journal.begin_new()
            due_ms = await self._deadline(key, milliseconds(timeout_s))
            outcome = await self._reply(child, draft, due_ms)
            known = await self._journal.recorded(key, command, constant(outcome))
        kept = known.outcome if isinstance(known.outcome, dict) else {}
        if "failed" in kept:
            failed = TurnFailed(child.session_id, str(kept.get("batch_id")), str(kept["failed"]))
            raise self._journal.as_recorded(failed)
        if kept.get("timed_out"):
            raise self._journal.as_recorded(WaitTimedOut(None, f"reply of {child.session_id!r}", timeout_s or 0))
        return str(kept.get("text", ""))

    async def outcome(self, key: str, process_id: str, timeout_s: float | None) -> Outcome:
        """Return the outcome of a process, or park the turn until it ends; the outcome is recorded."""
        command = operation("result", process_id)
        known = self._journal.peek(key, command)
        if known is None:
            await self._journal.begin_new()
            due_ms = await self._deadline(key, milliseconds(timeout_s))
            ended: JSON = msgspec.to_builtins(await self._ended(process_id, due_ms))
            known = await self._journal.recorded(key, command, constant(ended))
        if known.outcome is None:
            raise self._journal.as_recorded(WaitTimedOut(None, f"end of process {process_id!r}", timeout_s or 0))
        outcome: Outcome = convert(known.outcome, Outcome)
        return outcome

    def as_recorded(self, error: ProcessFailed) -> ProcessFailed:
        """Return the error after noting that it is the same in every run."""
        return self._journal.as_recorded(error)

    async def _reply(self, child: ChildSession, draft: BatchDraft, due_ms: int | None) -> JSON:
        if self._depth >= MAX_DEPTH:
            raise InvalidInput(
                f"session {self._session_id!r} would ask {child.session_id!r} at depth {self._depth + 1}, and at most "
                f"{MAX_DEPTH} are allowed; end the chain, or let a process start the work"
            )
        draft = _asked_by(draft, self._session_id, depth=self._depth + 1, priority=self._priority)
        while True:
            sent = await self._parking.lease.bridge("asking a session", self._enqueue, child, draft)
            try:
                reply = None if sent.created else await self._parking.lease.bridge("a reply", child.reply, sent)
            except TurnFailed as failed:
                return {"failed": _first_cause(failed.reason), "batch_id": failed.batch_id}
            if reply is not None:
                return {"text": reply}
            if due_ms is not None and self._parking.now_ms() >= due_ms:
                return {"timed_out": True}
            await self._parking.block(due_ms, f"session {child.session_id}")

    async def _enqueue(self, child: ChildSession, draft: BatchDraft) -> Enqueued:
        storage = self._parking.storage
        try:
            return await storage.queue.enqueue(draft)
        except SessionNotFound:
            cause = TurnCause(session_id=self._session_id, turn_id=self._turn_id)
            relation = ChildRelation(parent_session_id=self._session_id, caused_by=cause)
            await storage.sessions.create(child.session_id, relation=relation)
            return await storage.queue.enqueue(draft)

    async def _ended(self, process_id: str, due_ms: int | None) -> Outcome | None:
        while True:
            get = self._parking.storage.processes.get
            record = await self._parking.lease.bridge("the end of a process", get, process_id)
            if record is None:
                raise ProcessPruned(process_id)
            if record.projection.outcome is not None:
                return record.projection.outcome
            if due_ms is not None and self._parking.now_ms() >= due_ms:
                return None
            # The end of a process wakes the session that it works for, also one that comes before the parking.
            await self._parking.block(due_ms, f"process {process_id}")

    async def _deadline(self, key: str, timeout_ms: int | None) -> int | None:
        return None if timeout_ms is None else await self._parking.deadline(key, timeout_ms)


class ChildSession(SessionHandle):
    """A session that a turn works with. A question to it parks the turn, or yields its slot inside a step."""

    def __init__(self, storage: Storage, session_id: str, *, agent: str | None, asking: Asking) -> None:
        super().__init__(storage, session_id, agent=agent, traceparent=asking.traceparent)
        self._asking = asking

    def question(self, text: str, key: str) -> BatchDraft:
        """Return a message to the session under a source key."""
        return self._draft(text, key)

    def _key(self, key: str | None) -> str:
        if key is None and self._asking.may_park:
            # The same in every run.
            return self._asking.source_key(self._asking.name(f"ask.{self.session_id}"))
        return super()._key(key)

    async def _ask(self, draft: BatchDraft, timeout_s: float | None) -> str:
        if not self._asking.may_park:
            with self._asking.slot_yielded():
                return await super()._ask(draft, timeout_s)
        key = replay_key("ask", self.session_id, draft.source_key or "")
        return await self._asking.ask(key, self, draft, timeout_s)

    async def reply(self, sent: Enqueued) -> str | None:
        """Return the reply to a message, None if it is not there yet; raise TurnFailed if there will be none."""
        return await self._replies.read(sent)


class TurnProcess(ProcessHandle[R]):
    """A process that a turn has started. Waiting for its result parks the turn, or yields its slot inside a step."""

    def __init__(
        self, storage: Storage, process_id: str, process: Program[Any, R] | None = None, *, asking: Asking
    ) -> None:
        super().__init__(storage, process_id, process)
        self._asking = asking
        self._declared = UNTYPED if process is None else process.result_type

    async def result(self, *, timeout_s: float | None = None) -> R:
        if not self._asking.may_park:
            with self._asking.slot_yielded():
                return await super().result(timeout_s=timeout_s)
        name = self._asking.name(f"result.{self.process_id}")
        outcome = await self._asking.outcome(name, self.process_id, timeout_s)
        try:
            value: R = read_outcome(self.process_id, outcome, self._declared)
        except ProcessFailed as failed:
            raise self._asking.as_recorded(failed) from None
        return value


def _asked_by(draft: BatchDraft, session_id: str, *, depth: int, priority: int) -> BatchDraft:
    """Return the message as a question of a session, which is woken when the message is answered.

    It is at least as urgent as what the session was asked.
    """
    payloads = tuple(_at_depth(payload, depth) for payload in draft.payloads)
    urgency = max(draft.priority, priority)
    return msgspec.structs.replace(draft, payloads=payloads, wake_session_id=session_id, priority=urgency)


def _at_depth(payload: Payload, depth: int) -> Payload:
    if not isinstance(payload, TurnInput):
        return payload
    options = {**payload.protocol_turn_options, DEPTH_OPTION: depth}
    return msgspec.structs.replace(payload, protocol_turn_options=options)


def _first_cause(reason: str) -> str:
    """Return why the last of a chain of questions failed; the chain itself would fill the text."""
    return _ASKED.sub("", reason) or reason


def _depth_of(batches: tuple[Batch, ...]) -> int:
    """Return how many sessions have asked each other before this input."""
    inputs = (payload for batch in batches for payload in batch.payloads if isinstance(payload, TurnInput))
    depths = (payload.protocol_turn_options.get(DEPTH_OPTION) for payload in inputs)
    return max((depth for depth in depths if isinstance(depth, int)), default=0)
