"""Sessions, agents and messages of Strands in a lash storage."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from strands.session.session_repository import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage
from typing_extensions import override

from lash.adapters.attached import Attached, StorageSource
from lash.adapters.strands import messages
from lash.adapters.strands.messages import AGENTS, MULTI_AGENTS, Place
from lash.errors import InvalidInput, RecordConflict, SessionDeleted, SessionNotFound
from lash.model.record import RecordPut
from lash.model.session.commit import Commit
from lash.model.session.session import Retention
from lash.stores.storage import Storage

if TYPE_CHECKING:
    from strands.multiagent.base import MultiAgentBase

T = TypeVar("T")


class LashSessionRepository(SessionRepository):
    """Sessions for `RepositorySessionManager`: ``LashSessionRepository("sqlite:///agents.db")``.

    It takes a storage URL or an open storage. Methods block, and may be called from any thread, inside a running event
    loop too. Nothing is overwritten by a create: an agent or a message that exists with other content raises
    SessionException, as does every write to a session that was deleted.
    """

    def __init__(self, source: StorageSource = "sqlite://") -> None:
        self._attached = Attached(source)

    @override
    def create_session(self, session: Session, **kwargs: Any) -> Session:
        """Create a session, or raise SessionException if it exists."""
        place = Place(session.session_id)
        value = {"json": json.dumps(session.to_dict())}

        async def create(storage: Storage) -> bool:
            put = RecordPut(collection=messages.SESSION, key=messages.SESSION, value=value, session_id=place.lash_id)
            commit = Commit(session_id=place.lash_id, expected_revision=0, records=(put,))
            created = await storage.sessions.create(
                place.lash_id,
                name=place.name,
                labels={"framework": "strands"},
                retention=Retention.latest(),
                commit=commit,
            )
            return created.created

        if not self._attached.block(create):
            raise SessionException(f"Session {session.session_id} already exists")
        return session

    @override
    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        """Return a session; None if it does not exist."""
        found = self._read(Place(session_id), messages.SESSION, messages.SESSION)
        return None if found is None else Session.from_dict(found)

    def delete_session(self, session_id: str, **kwargs: Any) -> None:  # noqa: ANN401, ARG002 (as Strands' own)
        """Delete a session with its agents and messages, or raise SessionException if it does not exist."""
        place = Place(session_id)
        if not self._attached.block(lambda storage: storage.sessions.delete(place.lash_id)):
            raise SessionException(f"Session {session_id} does not exist")

    @override
    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Add an agent to a session."""
        place, agent_id = Place(session_id), session_agent.agent_id
        if not self._create(place, AGENTS, messages.part(agent_id), session_agent.to_dict()):
            raise SessionException(f"Agent {agent_id} already exists in session {session_id}")

    @override
    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        """Return an agent; None if it does not exist."""
        found = self._read(Place(session_id), AGENTS, messages.part(agent_id))
        return None if found is None else SessionAgent.from_dict(found)

    @override
    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Replace an agent, except for the time of its creation; raise SessionException if it does not exist."""
        key = messages.part(session_agent.agent_id)
        if not self._update(Place(session_id), AGENTS, key, session_agent):
            raise SessionException(f"Agent {session_agent.agent_id} in session {session_id} does not exist")

    @override
    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Add a message to an agent; a repeated call with the same message changes nothing."""
        place, message_id = Place(session_id), _checked(session_message.message_id)
        encoded = json.dumps(session_message.to_dict())
        self._run(place, lambda storage: messages.add(storage, place, agent_id, message_id, encoded))

    @override
    def read_message(self, session_id: str, agent_id: str, message_id: int, **kwargs: Any) -> SessionMessage | None:
        """Return a message; None if it does not exist."""
        found = self._read(Place(session_id), messages.MESSAGES, messages.key(agent_id, _checked(message_id)))
        return None if found is None else SessionMessage.from_dict(found)

    @override
    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Replace a message, except for the time of its creation; raise SessionException if it does not exist."""
        key = messages.key(agent_id, _checked(session_message.message_id))
        if not self._update(Place(session_id), messages.MESSAGES, key, session_message):
            raise SessionException(f"Message {session_message.message_id} does not exist")

    @override
    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **kwargs: Any
    ) -> list[SessionMessage]:
        """Return the messages of an agent in the order of their numbers, or a page of them; none if it is unknown."""
        place = Place(session_id)

        async def read(storage: Storage) -> list[str]:
            try:
                return await messages.page(storage, place, agent_id, limit, offset)
            except (SessionNotFound, SessionDeleted):
                return []

        return [SessionMessage.from_dict(json.loads(each)) for each in self._attached.block(read)]

    @override
    def create_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:
        """Store the state of a graph or a swarm, and replace one that exists."""
        place, key = Place(session_id), messages.part(multi_agent.id)
        value = {"json": json.dumps(multi_agent.serialize_state())}
        self._run(
            place,
            lambda storage: storage.records.put(MULTI_AGENTS, key, value, session_id=place.lash_id),
        )

    @override
    def read_multi_agent(self, session_id: str, multi_agent_id: str, **kwargs: Any) -> dict[str, Any] | None:
        """Return the state of a graph or a swarm; None if there is none."""
        return self._read(Place(session_id), MULTI_AGENTS, messages.part(multi_agent_id))

    @override
    def update_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:
        """Replace the state of a graph or a swarm, or raise SessionException if there is none."""
        if self.read_multi_agent(session_id, multi_agent.id) is None:
            raise SessionException(f"MultiAgent state {multi_agent.id} in session {session_id} does not exist")
        self.create_multi_agent(session_id, multi_agent)

    def _read(self, place: Place, collection: str, key: str) -> dict[str, Any] | None:
        async def read(storage: Storage) -> dict[str, Any] | None:
            try:
                record = await storage.records.get(collection, key, session_id=place.lash_id)
            except (SessionNotFound, SessionDeleted):
                return None
            return None if record is None else messages.decoded(record)

        return self._attached.block(read)

    def _create(self, place: Place, collection: str, key: str, value: dict[str, Any]) -> bool:
        """Write a new record; return False if there is one with other content."""
        stored = {"json": json.dumps(value)}

        async def create(storage: Storage) -> bool:
            try:
                await storage.records.put(collection, key, stored, session_id=place.lash_id, expected_version=0)
            except RecordConflict:
                record = await storage.records.get(collection, key, session_id=place.lash_id)
                return record is not None and record.value == stored
            return True

        return self._run(place, create)

    def _update(self, place: Place, collection: str, key: str, new: SessionAgent | SessionMessage) -> bool:
        """Replace a record and keep the time of its creation; return False if there is none."""

        async def update(storage: Storage) -> bool:
            while (record := await storage.records.get(collection, key, session_id=place.lash_id)) is not None:
                new.created_at = messages.decoded(record)["created_at"]
                value = messages.replaced(record, json.dumps(new.to_dict()))
                try:
                    await storage.records.put(
                        collection, key, value, session_id=place.lash_id, expected_version=record.version
                    )
                except RecordConflict:
                    # Another caller has written it; the last one wins.
                    continue
                return True
            return False

        return self._run(place, update)

    def _run(self, place: Place, use: Callable[[Storage], Awaitable[T]]) -> T:
        try:
            return self._attached.block(use)
        except (SessionNotFound, SessionDeleted) as error:
            raise SessionException(f"Session {place.session_id} does not exist") from error
        except InvalidInput as error:
            raise SessionException(str(error)) from error


def _checked(message_id: object) -> int:
    if not isinstance(message_id, int) or isinstance(message_id, bool) or message_id < 0:
        raise ValueError(f"expected a message id of 0 or more, got {message_id!r}")
    return message_id
