"""Sessions of ADK in a lash storage."""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict
from typing import Any, Final

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.platform import time as platform_time
from google.adk.platform import uuid as platform_uuid
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from typing_extensions import override

from lash.adapters.adk import events, scopes
from lash.adapters.attached import Attached, LeftOpen, StorageSource
from lash.adapters.formats import adk_state
from lash.adapters.formats.adk_names import SessionName, app_label, key_prefix, user_label
from lash.adapters.formats.adk_state import NO_STATE, Delta, StoredState, Values
from lash.adapters.histories import histories_of, path_of
from lash.adapters.settled import settled
from lash.base.ids import new_id
from lash.base.shapes import convert
from lash.errors import NodeConflict, RevisionConflict, SessionDeleted, SessionNotFound
from lash.model.session.commit import Append, AppendResult, Commit
from lash.model.session.node import Node
from lash.model.session.session import ActivePath, Retention, SessionFilter, SessionHead, SessionSummary
from lash.stores.storage import Storage

_GONE: Final = (SessionNotFound, SessionDeleted)
_PAGE: Final = 500
_REMEMBERED: Final = 256
"""Sessions whose state an append need not read, because this service wrote it last."""
_STALE: Final = (
    "the session was modified in storage since this object was loaded; load it again with get_session before appending"
)


class LashSessionService(LeftOpen, BaseSessionService):
    """Sessions, events and state: ``Runner(…, session_service=LashSessionService("sqlite:///agents.db"))``.

    It takes a storage URL or an open storage, and works from any event loop. An event and all changes of state that it
    brings, those of its user and its app included, are stored in one commit. An object that another writer has
    overtaken is refused with `StaleSessionError`; concurrent appends to one object are stored one after the other.
    """

    def __init__(self, source: StorageSource = "sqlite://") -> None:
        self._attached = Attached(source)
        # The next two are used in the event loop of the storage alone.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._states: OrderedDict[str, StoredState] = OrderedDict()

    @override
    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Create a session with its first state in one write; raise AlreadyExistsError if the id is taken."""
        name = SessionName.of(app_name, user_id, session_id or "")
        name = name if name.session_id else name._replace(session_id=platform_uuid.new_uuid())
        return await self._attached.settle(lambda storage: self._create(storage, name, state or {}))

    @override
    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return one revision of a session, with all events or the ones that the config selects; None if absent."""
        name = SessionName.of(app_name, user_id, session_id)
        return await self._attached.run(lambda storage: _get(storage, name, config or GetSessionConfig()))

    @override
    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of an app or of one of its users, with state and without events, oldest first."""
        sessions = await self._attached.run(lambda storage: _list(storage, app_name, user_id))
        sessions.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return ListSessionsResponse(sessions=sessions)

    @override
    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with its events and its state; late appends raise SessionNotFoundError."""
        name = SessionName.of(app_name, user_id, session_id)
        await self._attached.settle(lambda storage: storage.sessions.delete(name.lash_id))

    @override
    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user, without prefixes."""
        return await self._attached.run(lambda storage: adk_state.user_values(storage, app_name, user_id))

    @override
    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event and its changes of state in one commit, and apply them to the object.

        Raises StaleSessionError if the object is not the stored revision, and SessionNotFoundError if the session does
        not exist. A cancelled call waits until the event is stored. Repeating a call with the same event stores it
        once.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        return await settled(self._store(session, event), starts_here=self._attached.writes_here())

    async def close(self) -> None:
        """Do nothing: the storage stays open for its other users."""

    async def _store(self, session: Session, event: Event) -> Event:
        delta = scopes.split(event.actions.state_delta or {})
        name = SessionName.of(session.app_name, session.user_id, session.id)
        if await self._attached.run(lambda storage: self._append(storage, name, session, event, delta)):
            self._commit_event_to_session(session, event)
        return event

    async def _create(self, storage: Storage, name: SessionName, given: Values) -> Session:
        delta, now = scopes.split(given), platform_time.get_time()
        _, components = NO_STATE.change(delta.session)
        created = await storage.sessions.create(
            name.lash_id,
            name=name.shown,
            owner=name.owner,
            labels=name.labels,
            metadata=name.metadata,
            retention=Retention.latest(),
            commit=Commit(
                session_id=name.lash_id,
                expected_revision=0,
                checkpoint=adk_state.draft(components, now),
                records=tuple(delta.records(name)),
            ),
        )
        if not created.created:
            raise AlreadyExistsError(f"Session with id {name.session_id} already exists.")
        values = scopes.merged(delta.session, *await _scopes(storage, name))
        return _session(name, values, [], now, created.revision)

    async def _append(self, storage: Storage, name: SessionName, session: Session, event: Event, delta: Delta) -> bool:
        """Store an event; return False if the object need not change. Runs in the event loop of the storage."""
        lock = self._locks.get(name.lash_id)
        if lock is None:
            lock = self._locks[name.lash_id] = asyncio.Lock()
        async with lock:
            while True:
                try:
                    return await self._append_alone(storage, name, session, event, delta)
                except RevisionConflict as conflict:
                    if _marker(session) is not None:
                        raise StaleSessionError(_STALE) from conflict
                except _GONE as gone:
                    raise SessionNotFoundError(f"Session {session.id} not found.") from gone

    async def _append_alone(
        self, storage: Storage, name: SessionName, session: Session, event: Event, delta: Delta
    ) -> bool:
        # What is remembered is the stored state only if the commit below succeeds.
        stored = self._states.pop(name.lash_id, None)
        if stored is None or str(stored.revision) != _marker(session):
            stored, last = await _read_state(storage, name)
            if last is not None and events.is_stored_as(event, last):
                # This call repeats one whose answer was lost.
                _mark(session, stored.revision, stored.updated)
                return all(each.id != event.id for each in session.events)
            _check_current(session, stored)
        node_id = events.node_id_of(event)
        try:
            stored = await _commit(storage, name, stored, event, delta, node_id)
        except NodeConflict:
            other = await storage.session(name.lash_id).node(node_id)
            if other is not None and events.is_stored_as(event, other):
                return False
            stored = await _commit(storage, name, stored, event, delta, f"{node_id}~{new_id()}")
        self._remember(name, stored)
        _mark(session, stored.revision, stored.updated)
        return True

    def _remember(self, name: SessionName, stored: StoredState) -> None:
        self._states[name.lash_id] = stored
        if len(self._states) > _REMEMBERED:
            self._states.popitem(last=False)


async def _commit(
    storage: Storage, name: SessionName, stored: StoredState, event: Event, delta: Delta, node_id: str
) -> StoredState:
    """Store an event and its changes of state below the leaf, and return the new state."""
    small, components = stored.change(delta.session)
    node = events.node_of(event, node_id, stored.leaf)
    result = await storage.session(name.lash_id).commit(
        Commit(
            session_id=name.lash_id,
            expected_revision=stored.revision,
            graph=Append(nodes=(node,)),
            checkpoint=adk_state.draft(components, event.timestamp),
            records=tuple(delta.records(name)),
        )
    )
    appended = AppendResult(revision=result.revision, parent_node_id=stored.leaf)
    histories_of(storage).extend(name.lash_id, appended, node_id, [events.raw_event(node)])
    return StoredState(result.revision, event.timestamp, node_id, small, result.manifest.components)


def _check_current(session: Session, stored: StoredState) -> None:
    """Raise StaleSessionError unless the object is the stored revision.

    An object without a marker was not loaded from this service: its last event decides.
    """
    marker = _marker(session)
    if marker is not None:
        is_current = marker == str(stored.revision)
    elif stored.updated <= session.last_update_time:
        is_current = True
    else:
        is_current = stored.leaf == (events.node_id_of(session.events[-1]) if session.events else None)
    if not is_current:
        raise StaleSessionError(_STALE)


def _marker(session: Session) -> str | None:
    return session._storage_update_marker  # noqa: SLF001 (made by ADK for services that detect stale objects)


def _mark(session: Session, revision: int, updated: float) -> None:
    session._storage_update_marker = str(revision)  # noqa: SLF001 (see above)
    session.last_update_time = updated


async def _read_state(storage: Storage, name: SessionName) -> tuple[StoredState, Node | None]:
    """Return the state of a session, and its last node."""
    session = storage.session(name.lash_id)
    read = await session.load(ActivePath(last=1))
    if read is None:
        return StoredState(await session.revision(), 0.0, None, {}, {}), None
    manifest, leaf = read.checkpoint.manifest, read.head.leaf_node_id
    small = adk_state.small_values(read.checkpoint)
    stored = StoredState(read.head.revision, adk_state.updated_at(manifest), leaf, small, manifest.components)
    return stored, read.graph.nodes[-1] if read.graph.nodes else None


async def _get(storage: Storage, name: SessionName, config: GetSessionConfig) -> Session | None:
    try:
        read = await storage.session(name.lash_id).load(ActivePath(last=1))
        if read is None:
            return None
        found = await _events(storage, name, read.head, config)
    except _GONE:
        return None
    manifest = read.checkpoint.manifest
    values = scopes.merged(adk_state.session_values(read.checkpoint), *await _scopes(storage, name))
    return _session(name, values, found, adk_state.updated_at(manifest), read.head.revision)


async def _events(storage: Storage, name: SessionName, head: SessionHead, config: GetSessionConfig) -> list[Event]:
    """Return the events of a revision that the config selects."""
    wanted = config.num_recent_events
    if wanted == 0 or head.leaf_node_id is None:
        return []
    last = None if config.after_timestamp else wanted
    found = events.decoded(await _raw_events(storage, name, head, last))
    if config.after_timestamp:
        found = [event for event in found if event.timestamp >= config.after_timestamp]
    return found if wanted is None else found[-wanted:]


async def _raw_events(storage: Storage, name: SessionName, head: SessionHead, last: int | None) -> list[bytes]:
    """Return the last events of a revision, or all, from memory if this process has read or added them."""
    histories = histories_of(storage)
    known = histories.find(name.lash_id, head)
    if known is not None:
        return known[-last:] if last is not None else known
    raw = events.raw_events(await path_of(storage.session(name.lash_id), head, last))
    if last is None:
        histories.keep(name.lash_id, head, raw.copy())
    return raw


async def _list(storage: Storage, app_name: str, user_id: str | None) -> list[Session]:
    labels = app_label(app_name) if user_id is None else user_label(app_name, user_id)
    summaries: list[SessionSummary] = []
    cursor: str | None = None
    while True:
        page = await storage.sessions.list(
            SessionFilter(labels=labels), with_checkpoint=True, limit=_PAGE, cursor=cursor
        )
        summaries += page.sessions
        cursor = page.next_cursor
        if cursor is None:
            break
    if not summaries:
        return []
    app = await adk_state.app_values(storage, app_name)
    users = await _values_by_user(storage, app_name, user_id)
    return [_listed(each, app, users) for each in summaries]


async def _values_by_user(storage: Storage, app_name: str, user_id: str | None) -> dict[str, Values]:
    if user_id is None:
        return await adk_state.values_by_user(storage, app_name)
    return {key_prefix(app_name, user_id): await adk_state.user_values(storage, app_name, user_id)}


def _listed(summary: SessionSummary, app: Values, users: dict[str, Values]) -> Session:
    given = convert(summary.meta.metadata, dict[str, str])
    name = SessionName(given["app_name"], given["user_id"], given["session_id"])
    user = users.get(key_prefix(name.app_name, name.user_id), {})
    checkpoint = summary.checkpoint
    if checkpoint is None:
        return _session(name, scopes.merged({}, app, user), [], 0.0, summary.revision)
    values = scopes.merged(adk_state.session_values(checkpoint), app, user)
    return _session(name, values, [], adk_state.updated_at(checkpoint.manifest), summary.revision)


async def _scopes(storage: Storage, name: SessionName) -> tuple[Values, Values]:
    """Return the state of the app and of the user."""
    return await asyncio.gather(
        adk_state.app_values(storage, name.app_name), adk_state.user_values(storage, name.app_name, name.user_id)
    )


def _session(name: SessionName, values: Values, found: list[Event], updated: float, revision: int) -> Session:
    session = Session(
        id=name.session_id,
        app_name=name.app_name,
        user_id=name.user_id,
        state=values,
        events=found,
    )
    _mark(session, revision, updated)
    return session
