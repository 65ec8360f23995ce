"""A console with a client, and a storage that has something of everything."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
from starlette.requests import Request

import lash
from lash.model.causal import ProcessCause
from lash.model.effect import ProcessScope
from lash.model.process.process import ProcessIdentity, Provenance
from lash.model.queue import ClaimedTurn
from lash.model.wait import CustomIdentity
from lash.stores.storage import Storage
from lash.web import Access, console
from lash.web.access import Visitor
from tests.factories.process import process, registered
from tests.factories.session import commit, node, owner, spent
from tests.factories.trigger import trigger

ADDRESS: Final = "http://console.test"


class Site:
    """A browser without JavaScript: it keeps cookies, follows links, and sends the forms of a page."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def get(self, path: str, status: int = 200) -> str:
        """Return the text of a page."""
        response = await self.client.get(f"/{path}")
        assert response.status_code == status, (path, response.status_code, response.text[:500])
        return response.text

    async def post(self, action: str, fields: Mapping[str, str], *, on: str = "inbox") -> httpx.Response:
        """Send a form with the token of a page."""
        await self.client.get(f"/{on}")
        return await self.client.post(f"/{action}", data={**fields, "form_token": self.token})

    @property
    def token(self) -> str:
        return self.client.cookies["lash_form"]


@asynccontextmanager
async def site(
    storage: Storage | lash.App,
    access: Access | Visitor | None = Access.ALL,
    **options: Any,  # noqa: ANN401 (those of console)
) -> AsyncIterator[Site]:
    """Serve the console to a client of the same event loop."""

    def check(_request: Request) -> Access | Visitor | None:
        return access

    app = console(storage, access=check, **options)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        yield Site(client)


async def fill(storage: Storage, count: int = 2, text: str = "hello") -> None:
    """Put sessions with branches, queued and dead input, waits, processes, triggers and schedules into a storage."""
    for number in range(count):
        session_id = f"s{number}"
        await storage.sessions.create(session_id, name=text, owner=text, labels={"team": text})
        session = storage.session(session_id)
        nodes = (node("a", None, text), node("b", "a", text), node("c", "a", text))
        await session.commit(commit(0, *nodes, session_id=session_id, usage=(spent(10, 2, model=text),)))
        handle = lash.SessionHandle(storage, session_id)
        await handle.send(text, key=f"queued{number}")
        await _bury(storage, f"dead{number}", text)
        await storage.attachments.put(session_id, text.encode(), "text/html", label=text)
        await registered(storage, f"p{number}")
        child = Provenance(caused_by=ProcessCause(process_id=f"p{number}"))
        identity = ProcessIdentity(kind="k", label=text)
        await storage.processes.register(process(f"q{number}", identity=identity, provenance=child))
        await storage.sessions.fork(session_id, f"fork-{session_id}", node_id="b")
        scope = ProcessScope(process_id=f"p{number}")
        await storage.waits.open(await storage.waits.key(scope, CustomIdentity(key=text)))
        await storage.triggers.register(trigger(f"t{number}"))


async def _bury(storage: Storage, session_id: str, text: str) -> None:
    await storage.sessions.create(session_id)
    await lash.SessionHandle(storage, session_id).send(text)
    claimed = await storage.queue.claim_turn(session_id, owner("w"), ttl_ms=60_000)
    assert isinstance(claimed, ClaimedTurn)
    await storage.queue.bury(claimed.claim, reason=text, error={"traceback": text})
    await storage.leases.release(claimed.lease.fence)


class Counted:
    """A storage that counts the calls of its stores."""

    def __init__(self, found: object, calls: list[str], name: str = "") -> None:
        self._found = found
        self._calls = calls
        self._name = name

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the storage has)
        found = getattr(self._found, name)
        path = f"{self._name}.{name}".lstrip(".")
        if isinstance(found, enum.Enum):
            return found
        if not callable(found):
            return Counted(found, self._calls, path)

        def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 (those of the store)
            if path == "session":
                return Counted(found(*arguments, **named), self._calls, path)
            self._calls.append(path)
            return found(*arguments, **named)

        return call
