"""Nothing of the console is reached without access, from another site, or under another name."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

import lash
from lash.stores.storage import Storage
from lash.web import Access, console
from lash.web.acts import ACTS
from lash.web.edge import HEADERS, MAX_BODY
from lash.web.pages import PAGES
from tests.web.site import ADDRESS, Site, fill, site

OTHERS = (
    "events",
    "events?page=sessions",
    "attachment?id=x",
    "static/console.css",
    "static/console.js",
    "static/",
    "live",
    "ready",
    "metrics",
    "theme?theme=dark",
    "x",
)
PATHS = (*PAGES, *OTHERS)


@pytest_asyncio.fixture
async def memory() -> AsyncIterator[Storage]:
    """A storage in memory: the edge does not depend on the backend."""
    async with await lash.open("sqlite://") as opened:
        await fill(opened)
        yield opened


async def test_every_route_is_walked(memory: Storage) -> None:
    """The addresses of these tests name every route that the console has."""
    served = console(memory, access=lambda _: Access.ALL)
    assert isinstance(served._edge._app, Starlette)
    routes = {str(getattr(route, "path", "")).removeprefix("/") for route in served._edge._app.routes}
    walked = {path.partition("?")[0].partition("/")[0] for path in PATHS} | set(ACTS)
    assert routes == walked - {"x"}


@pytest.mark.parametrize("path", PATHS)
async def test_every_route_needs_access(memory: Storage, path: str) -> None:
    """Without access every address is refused, static files and the stream included, and every method."""
    async with site(memory, None) as visitor:
        for method in ("GET", "HEAD", "POST"):
            response = await visitor.client.request(method, f"/{path}")
            assert response.status_code == 403
            assert "lash" not in response.text


@pytest.mark.parametrize("action", ACTS)
async def test_every_act_needs_the_right_to_act(memory: Storage, action: str) -> None:
    """A visitor that may only read cannot act, even with a token; nor can a form without its token."""
    async with site(memory, Access.READ) as visitor:
        assert (await visitor.post(action, {})).status_code == 403
        assert '<form class="act"' not in await visitor.get("queue?show=dead")
    async with site(memory, Access.ALL) as visitor:
        response = await visitor.client.post(f"/{action}", data={"session": "s0"})
        assert response.status_code == 403
        assert "load the page again" in response.text


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://evil.test"},
        {"origin": "null"},
    ],
)
async def test_forms_of_other_sites_are_refused(memory: Storage, headers: dict[str, str]) -> None:
    """A form that another site sends is refused, even if it knew the token."""
    async with site(memory) as visitor:
        await visitor.get("queue")
        fields = {"session": "dead0", "batch": "x", "form_token": visitor.token}
        response = await visitor.client.post("/requeue", data=fields, headers=headers)
        assert response.status_code == 403


async def test_a_large_form_is_refused(memory: Storage) -> None:
    """A body over the limit, or one without a length, is refused before it is read."""
    async with site(memory) as visitor:
        await visitor.get("queue")
        large = await visitor.client.post("/send", content=b"x" * (MAX_BODY + 1))
        assert large.status_code == 413

        async def pieces() -> AsyncIterator[bytes]:
            yield b"session=s0"

        assert (await visitor.client.post("/send", content=pieces())).status_code == 413


@pytest.mark.parametrize("path", ["", "static/console.css", "x", "session?id=unknown"])
async def test_every_response_has_the_headers(memory: Storage, path: str) -> None:
    """Pages, files and errors carry the content security policy and forbid caching."""
    async with site(memory) as visitor:
        response = await visitor.client.get(f"/{path}")
        for name, value in HEADERS.items():
            assert response.headers[name] == value
        assert "unsafe" not in response.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("host", "status"),
    [("console.test", 200), ("127.0.0.1:8137", 200), ("[::1]:8137", 200), ("localhost", 200), ("evil.test", 421)],
)
async def test_other_hosts_are_refused(memory: Storage, host: str, status: int) -> None:
    """A page of another name that resolves to this machine cannot read the console."""
    async with site(memory, hosts=["console.test"]) as visitor:
        assert (await visitor.client.get("/", headers={"host": host})).status_code == status


async def test_other_methods_and_websockets_are_refused(memory: Storage) -> None:
    """Only reads and forms exist; a web socket is closed before it is accepted."""
    async with site(memory) as visitor:
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            assert (await visitor.client.request(method, "/sessions")).status_code == 405
        assert (await visitor.client.post("/sessions", data={})).status_code == 405
    app = console(memory, access=lambda _: Access.ALL)
    with pytest.raises(WebSocketDisconnect), TestClient(app).websocket_connect("/events"):
        pass


async def test_it_is_mounted_below_a_path(memory: Storage) -> None:
    """All addresses are relative, so that pages, files and forms work below any path."""
    app = Starlette(routes=[Mount("/ops/lash", console(memory, access=lambda _: Access.ALL))])
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS, follow_redirects=True) as client:
        visitor = Site(client)
        page = await visitor.get("ops/lash/sessions")
        assert 'href="static/console.css"' in page
        assert 'href="/' not in page
        assert 'action="/' not in page
        sent = await client.post("/ops/lash/cancel-process", data={"process": "p0", "form_token": visitor.token})
        assert sent.url == f"{ADDRESS}/ops/lash/process?id=p0&done=asked+it+to+stop"


async def test_access_must_be_given(memory: Storage) -> None:
    """A console cannot be made without an access check."""
    with pytest.raises(lash.ConfigError, match="decides who may see"):
        console(memory, access=None)  # type: ignore[arg-type]
