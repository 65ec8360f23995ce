"""The adapters answer as ADK's own services do, over long series of random calls."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.artifacts.base_artifact_service import ArtifactVersion, BaseArtifactService
from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.platform import time as platform_time
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from pydantic import BaseModel

from lash.adapters.adk import LashArtifactService, LashSessionService

_CALLS = 200
_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -7,
    2**80,
    1.5,
    "",
    "text",
    "ö\n",
    [],
    [1, [None]],
    {"k": {"n": 1}},
    "x" * 3000,
)
_KEYS = ("a", "b", "user:a", "user:b", "app:a", "app:b", "temp:a", "with space", "a:b")
_SERVICES: dict[str, Callable[[Path], BaseSessionService]] = {
    "memory": lambda _: InMemorySessionService(),
    "sqlite file": lambda path: SqliteSessionService(str(path / "theirs.db")),
    "database": lambda path: DatabaseSessionService(f"sqlite+aiosqlite:///{path}/theirs.db"),
}


class _Clock:
    """The time of both services, which moves by halves of a second."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0


@pytest.fixture
def clock() -> Iterator[_Clock]:
    made = _Clock()
    platform_time.set_time_provider(lambda: made.now)
    yield made
    platform_time.reset_time_provider()


async def _answer(call: Awaitable[Any]) -> object:
    """Return what a call has returned, as plain values, or the kind of its error."""
    try:
        return _plain(await call)
    except Exception as error:  # noqa: BLE001 (its kind is compared)
        return type(error).__name__


def _plain(value: Any) -> object:  # noqa: ANN401 (any answer of ADK)
    if isinstance(value, ListSessionsResponse):
        return [each.model_dump() for each in value.sessions]
    if isinstance(value, ArtifactVersion):
        # The URI names the service.
        return value.model_dump(exclude={"canonical_uri"})
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.model_dump() if isinstance(value, BaseModel) else value


class _Sessions:
    """Random calls of two services; every answer of ours must be theirs."""

    def __init__(self, seed: int, clock: _Clock, ours: BaseSessionService, theirs: BaseSessionService) -> None:
        self._random = random.Random(seed)
        self._clock = clock
        self._services = (ours, theirs)
        self._numbers = itertools.count()
        # `DatabaseSessionService` is the one that does not strip them.
        self._padded = () if isinstance(theirs, DatabaseSessionService) else (" b ", "\ta")

    async def run(self, calls: int) -> None:
        ways = [self._create, self._get, self._get, self._list, self._delete, self._user_state]
        for _ in range(calls):
            self._clock.now += self._random.choice((0, 0.5, 1))
            await self._random.choice(ways + [self._append] * 6)()

    async def _same(self, name: str, **arguments: Any) -> None:  # noqa: ANN401 (passed on)
        ours, theirs = [await _answer(getattr(each, name)(**copy.deepcopy(arguments))) for each in self._services]
        assert ours == theirs, (name, arguments)

    async def _create(self) -> None:
        name = self._name() | {"session_id": self._random.choice(("a", "b", "a/b", "ö", *self._padded))}
        await self._same("create_session", **name, state=self._random.choice((None, self._delta())))

    async def _get(self) -> None:
        await self._same("get_session", **self._session_name(), config=self._config())

    async def _list(self) -> None:
        name = self._name()
        await self._same("list_sessions", **name | self._random.choice(({}, {"user_id": None})))

    async def _delete(self) -> None:
        if self._random.random() < 0.4:
            await self._same("delete_session", **self._session_name())

    async def _user_state(self) -> None:
        await self._same("get_user_state", **self._name())

    async def _append(self) -> None:
        """Append an event to what each service has returned; the event and the object must then be equal too."""
        name, config, event, answers = self._session_name(), self._config(), self._event(), []
        for service in self._services:
            session = await service.get_session(**name, config=config)
            if session is None:
                session = Session(id=name["session_id"], app_name=name["app_name"], user_id=name["user_id"])
            given = event.model_copy(deep=True)
            answer = await _answer(service.append_event(session, given))
            # ADK's services differ in what they leave of the object if they raise.
            answers.append(
                (answer, None, None) if isinstance(answer, str) else (answer, _plain(given), _plain(session))
            )
        assert answers[0] == answers[1], (name, event)

    def _name(self) -> dict[str, Any]:
        return {"app_name": self._random.choice(("shop", "b/c")), "user_id": self._random.choice(("ann", "bob", ""))}

    def _session_name(self) -> dict[str, Any]:
        return self._name() | {"session_id": self._random.choice(("a", "b", "a/b", "ö", "never", *self._padded))}

    def _delta(self) -> dict[str, Any]:
        keys = self._random.sample(_KEYS, self._random.randrange(4))
        return {key: self._random.choice(_VALUES) for key in keys}

    def _config(self) -> GetSessionConfig | None:
        since = self._random.choice((None, None, self._clock.now - self._random.randrange(8)))
        last = self._random.choice((None, None, 0, 1, 2, 50))
        return self._random.choice((None, GetSessionConfig(num_recent_events=last, after_timestamp=since)))

    def _event(self) -> Event:
        number = next(self._numbers)
        parts = [
            types.Part(text=f"text {number}"),
            types.Part(function_call=types.FunctionCall(id=f"c{number}", name="f", args={"a": [1, None]})),
            types.Part(inline_data=types.Blob(data=b"\x00\xff", mime_type="image/png")),
        ]
        return Event(
            id=f"e{number}",
            timestamp=self._clock.now,
            invocation_id=f"i{number}",
            author=self._random.choice(("user", "agent")),
            partial=self._random.choice((None, None, None, False, True)),
            branch=self._random.choice((None, "x.y")),
            content=self._random.choice((None, types.Content(role="user", parts=self._random.sample(parts, 2)))),
            actions=EventActions(state_delta=self._delta(), artifact_delta={"f": number}),
        )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("theirs", _SERVICES)
async def test_sessions(url: str, tmp_path: Path, clock: _Clock, theirs: str, seed: int) -> None:
    """Creations, reads, filters, lists, deletions and appends, of padded, odd and missing ids, by several users."""
    service = _SERVICES[theirs](tmp_path)
    try:
        await _Sessions(seed, clock, LashSessionService(url), service).run(_CALLS)
    finally:
        if isinstance(service, DatabaseSessionService | SqliteSessionService):
            await service.close()


class _Artifacts:
    """Random calls of two artifact services; every answer of ours must be theirs."""

    def __init__(self, seed: int, clock: _Clock, ours: BaseArtifactService, theirs: BaseArtifactService) -> None:
        self._random = random.Random(seed)
        self._clock = clock
        self._services = (ours, theirs)

    async def run(self, calls: int) -> None:
        names = ("load_artifact", "get_artifact_version", "list_versions", "list_artifact_versions", "delete_artifact")
        for _ in range(calls):
            self._clock.now += 0.5
            name = self._random.choice(names)
            if self._random.random() < 0.4:
                await self._same("save_artifact", **self._name(), artifact=self._part(), custom_metadata=self._meta())
            elif self._random.random() < 0.2:
                scope = self._name() | {"session_id": self._random.choice((None, "s", "other", "never"))}
                await self._same("list_artifact_keys", **{key: scope[key] for key in scope if key != "filename"})
            elif name != "delete_artifact" or self._random.random() < 0.3:
                version = {"version": self._random.choice((None, None, 0, 1, 2, 99, -1))}
                await self._same(name, **self._name(), **(version if name.startswith(("load", "get")) else {}))

    async def _same(self, name: str, **arguments: Any) -> None:  # noqa: ANN401 (passed on)
        ours, theirs = [await _answer(getattr(each, name)(**copy.deepcopy(arguments))) for each in self._services]
        assert ours == theirs, (name, arguments)

    def _name(self) -> dict[str, Any]:
        filename = self._random.choice(("f", "g.txt", "a/b c.png", "user:f", "user:a/b", "ö"))
        of_user = filename.startswith("user:")
        return {
            "app_name": self._random.choice(("shop", "other")),
            "user_id": self._random.choice(("ann", "bob")),
            "session_id": self._random.choice(("s", "other", *([None] if of_user else []))),
            "filename": filename,
        }

    def _meta(self) -> dict[str, Any] | None:
        return self._random.choice((None, {}, {"a": [1, {"b": None}], "n": 2**70}))

    def _part(self) -> Any:  # noqa: ANN401 (a part or a dict)
        return self._random.choice(
            (
                types.Part(text="short"),
                types.Part(text="long " * 20_000),
                types.Part.from_bytes(data=b"\x00\xff" * 100, mime_type="image/png"),
                types.Part.from_bytes(data=b"", mime_type="text/plain"),
                types.Part(file_data=types.FileData(file_uri="gs://bucket/file", mime_type="text/html")),
                types.Part(),
                {"inlineData": {"mimeType": "text/plain", "data": "aGk="}},
                {"text": "of a dict"},
            )
        )


@pytest.mark.parametrize("seed", range(3))
async def test_artifacts(url: str, clock: _Clock, seed: int) -> None:
    """Saves, loads, versions, metadata, lists and deletions, in the scopes of sessions and users."""
    await _Artifacts(seed, clock, LashArtifactService(url), InMemoryArtifactService()).run(_CALLS)
