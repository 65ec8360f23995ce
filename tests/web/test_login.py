"""Who gets in with ``lash web``: a token that works once, a token of one's own, or a proxy that names visitors."""

from __future__ import annotations

import ipaddress

import httpx
import pytest
from click.testing import CliRunner

import lash
from lash.cli.root import root
from lash.cli.shell import Shell
from lash.web import Access, console
from lash.web.login import ProxyAccess, TokenAccess
from tests.web.site import ADDRESS


async def test_a_generated_token_works_once() -> None:
    """The address becomes a cookie, and does not work again; the next one is announced."""
    renewed: list[str] = []
    access = TokenAccess(Access.READ, token=None, port=1, renewed=renewed.append)
    first = access.token
    async with await lash.open("sqlite://") as storage:
        app = access.wrap(console(storage, access=access))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ADDRESS) as browser:
            assert (await browser.get("/sessions")).status_code == 403
            entered = await browser.get("/", params={"token": first})
            assert (entered.status_code, entered.headers["location"]) == (303, "./")
            cookie = entered.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
            assert (await browser.get("/sessions")).status_code == 200
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ADDRESS) as other:
            assert (await other.get("/", params={"token": first})).status_code == 403
            assert (await other.get("/", params={"token": renewed[0]})).status_code == 303
    assert first not in renewed


async def test_a_token_of_ones_own_works_again() -> None:
    """Several people can log in with a given token; a wrong one is refused."""
    access = TokenAccess(Access.READ, token="secret", port=1, renewed=lambda _: None)
    async with await lash.open("sqlite://") as storage:
        app = access.wrap(console(storage, access=access))
        for _ in range(2):
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ADDRESS) as browser:
                assert (await browser.get("/", params={"token": "wrong"})).status_code == 403
                assert (await browser.get("/", params={"token": "secret"})).status_code == 303
                assert (await browser.get("/")).status_code == 200


@pytest.mark.parametrize(
    ("address", "name", "status"), [("10.1.2.3", "ada", 200), ("10.1.2.3", "", 403), ("192.168.0.1", "ada", 403)]
)
async def test_a_proxy_names_the_visitor(address: str, name: str, status: int) -> None:
    """The header counts only if it comes from the network of the proxy."""
    access = ProxyAccess(Access.READ, "X-Forwarded-User", [ipaddress.ip_network("10.0.0.0/8")])
    async with await lash.open("sqlite://") as storage:
        transport = httpx.ASGITransport(app=console(storage, access=access), client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as browser:
            assert (await browser.get("/", headers={"x-forwarded-user": name})).status_code == status


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "can be reached from other machines"),
        (["--host", "192.168.1.5"], "can be reached from other machines"),
        (["--trust-header", "X-User"], "together"),
        (["--trusted-proxy", "10.0.0.0/8"], "together"),
    ],
)
def test_an_open_door_is_refused(arguments: list[str], message: str) -> None:
    """On an address that others reach, it does not start without a token or a proxy."""
    result = CliRunner().invoke(root, ["web", "--url", "sqlite:///x.db", *arguments], obj=Shell())
    assert result.exit_code == 2
    assert message in result.output
