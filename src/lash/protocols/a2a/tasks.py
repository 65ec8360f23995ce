"""A2A tasks as what a session says about one message: no task is stored beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from a2a.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus
from a2a.utils.errors import TaskNotFoundError

from lash.agents.approvals import WAIT as APPROVAL
from lash.base.replay_key import replay_key
from lash.errors import SessionDeleted, SessionNotFound
from lash.model.effect import TurnScope
from lash.model.queue import turn_id_of
from lash.model.session.node import MessageEntry
from lash.model.wait import CustomIdentity, WaitRecord
from lash.runtime.turns.draft import cancelled_id, reply_id
from lash.runtime.turns.inbox import find_letter, queued_batches
from lash.stores.storage import Storage

CANCELLED: Final = "a2a.cancelled"
"""The collection of tasks that were cancelled before their turn began, which leaves no other trace."""
ENDED: Final = frozenset({TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_CANCELED})
REPLY: Final = "reply"
"""The id of the artifact that holds the reply."""

MayAnswer: TypeAlias = Callable[[WaitRecord], bool]
"""Returns whether the client of a task may answer a wait of its turn."""


class TaskKey(NamedTuple):
    """Which message of which session a task is. The owner comes from the authentication, never from the client."""

    owner: str
    context_id: str
    batch_id: str

    @property
    def task_id(self) -> str:
        return f"{self.batch_id}.{self.context_id}"

    @property
    def session_id(self) -> str:
        return session_of(self.owner, self.context_id)

    @property
    def turn_id(self) -> str:
        return turn_id_of(self.batch_id)

    @classmethod
    def parse(cls, owner: str, task_id: str) -> TaskKey:
        """Return the key in the id of a task; raise TaskNotFoundError for any other text."""
        batch_id, dot, context_id = task_id.partition(".")
        if not (batch_id and dot and context_id):
            raise TaskNotFoundError(f"unknown task {task_id[:80]!r}")
        return cls(owner, context_id, batch_id)


def session_of(owner: str, context_id: str) -> str:
    """Return the session of a context: below a prefix, so that a client reaches no other session."""
    return replay_key("a2a", owner, context_id)


def asks_client(wait: WaitRecord) -> bool:
    """Return True for a wait with a question that is not about the approval of a tool call."""
    identity = wait.identity
    is_approval = isinstance(identity, CustomIdentity) and identity.key.startswith(f"{APPROVAL}:")
    return wait.ask is not None and not is_approval


async def read_task(storage: Storage, key: TaskKey, may_answer: MayAnswer) -> Task:
    """Return the task as it is now; raise TaskNotFoundError if the session does not know the message."""
    try:
        found = await _queued(storage, key, may_answer) or await _ended(storage, key)
    except (SessionNotFound, SessionDeleted):
        found = None
    if found is None:
        raise TaskNotFoundError(f"unknown task {key.task_id[:80]!r}")
    return found


async def open_wait(storage: Storage, key: TaskKey, may_answer: MayAnswer) -> WaitRecord | None:
    """Return what the turn of a task asks its client."""
    scope = TurnScope(session_id=key.session_id, turn_id=key.turn_id)
    return next((each for each in await storage.waits.pending(scope=scope) if may_answer(each)), None)


def reply_artifact(text: str) -> Artifact:
    return Artifact(artifact_id=REPLY, name=REPLY, parts=[Part(text=text)])


async def _queued(storage: Storage, key: TaskKey, may_answer: MayAnswer) -> Task | None:
    async for batch in queued_batches(storage, key.session_id):
        if batch.batch_id == key.batch_id:
            wait = await open_wait(storage, key, may_answer) if batch.attempts else None
            if wait is not None and wait.ask is not None:
                return _task(key, TaskState.TASK_STATE_INPUT_REQUIRED, wait.ask.text)
            return _task(key, TaskState.TASK_STATE_WORKING if batch.attempts else TaskState.TASK_STATE_SUBMITTED)
    return None


async def _ended(storage: Storage, key: TaskKey) -> Task | None:
    session = storage.session(key.session_id)
    nodes = await session.nodes([reply_id(key.turn_id), cancelled_id(key.turn_id)])
    reply = nodes.get(reply_id(key.turn_id))
    if reply is not None and isinstance(reply.entry, MessageEntry):
        return _task(key, TaskState.TASK_STATE_COMPLETED, reply=reply.entry.message.text)
    if nodes:
        return _task(key, TaskState.TASK_STATE_CANCELED)
    if await find_letter(storage, key.session_id, key.batch_id) is not None:
        # The reason is for operators: it may quote what the client must not see.
        return _task(key, TaskState.TASK_STATE_FAILED, "the agent failed")
    if key.turn_id in await session.turns([key.turn_id]):
        return _task(key, TaskState.TASK_STATE_COMPLETED, reply="")
    if await storage.records.get(CANCELLED, key.batch_id, session_id=key.session_id) is not None:
        return _task(key, TaskState.TASK_STATE_CANCELED)
    return None


def _task(key: TaskKey, state: TaskState, said: str | None = None, *, reply: str | None = None) -> Task:
    status = TaskStatus(state=state)
    if said is not None:
        message_id = f"{key.task_id}:{TaskState.Name(state)}"
        message = Message(message_id=message_id, role=Role.ROLE_AGENT, parts=[Part(text=said)])
        message.task_id, message.context_id = key.task_id, key.context_id
        status.message.CopyFrom(message)
    artifacts = [] if reply is None else [reply_artifact(reply)]
    return Task(id=key.task_id, context_id=key.context_id, status=status, artifacts=artifacts)
