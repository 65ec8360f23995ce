"""``/live``, ``/ready`` and ``/metrics`` of the console: what they show to which client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import lash
from lash.stores.storage import Storage
from lash.web import Access, console
from lash.web.login import ProxyAccess, TokenAccess
from tests.raw import raw
from tests.web.site import ADDRESS, fill, site

in_memory = pytest.mark.parametrize("backend_name", ["memory"], indirect=True)
on_both = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
NEWER = "INSERT INTO lash_migrations (number, name, applied_at_ms) VALUES (9999, 'of_the_future', 0)"


@asynccontextmanager
async def served(
    storage: Storage, access: TokenAccess | ProxyAccess, client: tuple[str, int] = ("127.0.0.1", 1)
) -> AsyncIterator[httpx.AsyncClient]:
    """Serve the console as ``lash web`` does, to a client at an address."""
    app = console(storage, access=access, hosts=["console.test"], open_probes=True)
    transport = httpx.ASGITransport(app=app, client=client)
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as visitor:
        yield visitor


def token_access(token: str | None) -> TokenAccess:
    return TokenAccess(Access.ALL, token=token, port=1, renewed=lambda _: None)


async def status(visitor: httpx.AsyncClient, path: str, headers: Mapping[str, str] | None = None) -> int:
    return (await visitor.get(path, headers=headers)).status_code


@in_memory
async def test_probes_need_no_access(storage: Storage) -> None:
    """A probe gets one word under any Host header; every other path stays closed, and so do forms."""
    async with served(storage, token_access("secret"), client=("10.0.0.9", 1)) as prober:
        for path, word in (("/live", "live\n"), ("/ready", "ready\n")):
            answer = await prober.get(path, headers={"host": "10.1.2.3:8137"})
            assert (answer.status_code, answer.text) == (200, word)
            assert (await prober.head(path)).status_code == 200
            assert (await prober.post(path)).status_code == 403
        assert await status(prober, "/live/") == 403
        assert await status(prober, "/", {"host": "10.1.2.3:8137"}) == 421


@on_both
async def test_a_console_whose_storage_is_newer_is_not_ready(storage: Storage, backend_url: str) -> None:
    """Only visitors with access get the reason; the console itself is live."""
    await raw(backend_url, NEWER)
    async with served(storage, token_access("secret")) as prober:
        answer = await prober.get("/ready")
        assert (answer.status_code, answer.text) == (503, "not ready\n")
        assert await status(prober, "/live") == 200
    async with site(storage, Access.READ) as visitor:
        answer = await visitor.client.get("/ready")
        assert answer.status_code == 503
        assert "NewerSchema: the database has schema 9999" in answer.text


@on_both
async def test_metrics_are_those_of_the_storage(storage: Storage) -> None:
    """The figures of the storage are in the text format, and are not read again for the next reader."""
    await fill(storage, count=2)
    async with served(storage, token_access(None)) as prometheus:
        answer = await prometheus.get("/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = answer.text.splitlines()
        assert 'lash_queue_depth{state="queued"} 2' in lines
        assert "lash_dead_letters 2" in lines
        assert "lash_waits_open 2" in lines
        assert "lash_workers_live 0" in lines
        await lash.SessionHandle(storage, "s0").send("more", key="more")
        assert (await prometheus.get("/metrics")).text == answer.text


@in_memory
async def test_a_token_opens_the_metrics_alone(storage: Storage) -> None:
    """Prometheus sends the token of the console; it opens no page. Being on this machine is not enough."""
    async with served(storage, token_access("secret")) as prometheus:
        for header in ("Bearer secret", "bearer secret"):
            assert await status(prometheus, "/metrics", {"authorization": header}) == 200
        for header in ("", "secret", "Basic secret", "Bearer wrong", "Bearer"):
            assert await status(prometheus, "/metrics", {"authorization": header}) == 403
        assert await status(prometheus, "/", {"authorization": "Bearer secret"}) == 403
        assert await status(prometheus, "/metrics", {"authorization": "Bearer secret", "host": "evil.test"}) == 421


@in_memory
@pytest.mark.parametrize(
    ("address", "headers", "expected"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("10.0.0.9", {}, 403),
        ("127.0.0.1", {"x-forwarded-for": "8.8.8.8"}, 403),
        ("127.0.0.1", {"forwarded": "for=8.8.8.8"}, 403),
        ("127.0.0.1", {"host": "evil.test"}, 421),
    ],
)
async def test_without_a_token_metrics_are_for_this_machine(
    storage: Storage, address: str, headers: dict[str, str], expected: int
) -> None:
    """A program on this machine may read them; a request that a proxy passed on, or of another name, may not."""
    async with served(storage, token_access(None), client=(address, 1)) as prometheus:
        assert await status(prometheus, "/metrics", headers) == expected


@in_memory
async def test_behind_a_proxy_metrics_need_its_header(storage: Storage) -> None:
    """With a trusted proxy, no other request reads the metrics, not even from this machine."""
    async with served(storage, ProxyAccess(Access.READ, "x-user", [])) as prometheus:
        assert await status(prometheus, "/metrics") == 403
        assert await status(prometheus, "/live") == 200


@in_memory
async def test_probes_below_a_path(storage: Storage) -> None:
    """A console that is mounted below a path has its probes there, and opens them only on request."""
    for open_probes, expected in ((True, 200), (False, 403)):
        mounted = console(storage, access=lambda _: None, open_probes=open_probes)
        app = Starlette(routes=[Mount("/ops/lash", mounted)])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ADDRESS) as prober:
            assert await status(prober, "/ops/lash/ready") == expected
            assert await status(prober, "/ops/lash/metrics") == 403
