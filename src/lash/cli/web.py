"""``lash web``: the console in a browser."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from lash.cli.command import command
from lash.cli.shell import Shell

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from lash.stores.storage import Storage
    from lash.web.console import Console

_PORT: Final = 8137


@command(
    "web",
    "lash web",
    "lash web --allow act",
    "lash web --host 0.0.0.0 --allow-host lash.internal --token $TOKEN",
    "lash web --host 0.0.0.0 --allow-host lash.internal --trust-header X-Forwarded-User --trusted-proxy 10.0.0.0/8",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=_PORT, show_default=True, help="The port; 0 takes a free one."
)
@click.option(
    "--allow",
    type=click.Choice(("read", "act")),
    default="read",
    show_default=True,
    help="What visitors may do: only read, or also send, cancel, requeue and answer.",
)
@click.option(
    "--token", envvar="LASH_WEB_TOKEN", help="A token of your own for the address.  [default: $LASH_WEB_TOKEN]"
)
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A name under which browsers reach it.")
@click.option("--trust-header", metavar="HEADER", help="The header in which a proxy names the visitor it has let in.")
@click.option("--trusted-proxy", "proxies", multiple=True, metavar="NETWORK", help="Where that proxy may be.")
async def web(
    shell: Shell,
    host: str,
    port: int,
    allow: str,
    token: str | None,
    hosts: tuple[str, ...],
    trust_header: str | None,
    proxies: tuple[str, ...],
) -> None:
    """Show the storage in a browser: sessions, processes, queues, waits and workers, live.

    It prints an address with a token that works once; the browser then has a cookie. Without --allow act the pages only
    read. It listens on this machine alone by default; on any other address it needs a token of your own, or a proxy.
    /live and /ready answer without a token. /metrics needs your own token as a bearer token; without one it is for
    programs on this machine.
    """
    import asyncio
    import signal

    _check(host, token, trust_header, proxies)
    async with shell.storage() as storage:
        from lash.web.server import Server, listening

        with listening(host, port) as listener:
            address = f"http://{_shown(host)}:{listener.getsockname()[1]}/"
            app, streams = _app(shell, storage, address, allow, token, (*hosts, host), trust_header, proxies)
            server = Server(app, streams)
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, server.stop)
            await server.run(listener)


def _check(host: str, token: str | None, header: str | None, proxies: Sequence[str]) -> None:
    """Raise unless what is asked for is safe."""
    if bool(header) != bool(proxies):
        raise click.UsageError("expected --trust-header and --trusted-proxy together, got one of them")
    if not _is_loopback(host) and not token and not header:
        raise click.UsageError(
            f"{host} can be reached from other machines; set --token or LASH_WEB_TOKEN, "
            "or name a proxy with --trust-header and --trusted-proxy"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _shown(host: str) -> str:
    """Return the host for an address: one that a browser on this machine can open."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 (compared, not bound)
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _app(
    shell: Shell,
    storage: Storage,
    address: str,
    allow: str,
    token: str | None,
    hosts: tuple[str, ...],
    header: str | None,
    proxies: Sequence[str],
) -> tuple[ASGIApp, Console]:
    """Return what is served, and the console in it."""
    from lash.web import Access, console
    from lash.web.login import ProxyAccess, TokenAccess

    access = Access.ALL if allow == "act" else Access.READ
    if header is not None:
        try:
            networks = [ipaddress.ip_network(each) for each in proxies]
        except ValueError as error:
            raise click.UsageError(f"expected a network such as 10.0.0.0/8 for --trusted-proxy: {error}") from None
        shell.done(f"the console listens on {address}", {"address": address})
        made = console(storage, access=ProxyAccess(access, header, networks), hosts=hosts, open_probes=True)
        return made, made
    port = int(address.rstrip("/").rpartition(":")[2])
    check = TokenAccess(access, token=token, port=port, renewed=lambda new: _tell(shell, address, new))
    _tell(shell, address, check.token)
    made = console(storage, access=check, hosts=hosts, open_probes=True)
    return check.wrap(made), made


def _tell(shell: Shell, address: str, token: str) -> None:
    url = f"{address}?token={token}"
    shell.done(f"open {url}", {"address": address, "url": url})
