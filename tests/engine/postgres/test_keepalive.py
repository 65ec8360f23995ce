"""Both ends of a connection notice that the other machine is gone."""

from __future__ import annotations

import socket
import sys

import pytest

from lash.testing.postgres_server import PostgresServer
from tests.engine.postgres.kit import Text, opened
from tests.engine.postgres.proxy import proxy_before

_NAMES = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")


@pytest.mark.skipif(sys.platform != "linux", reason="the server takes these settings on Linux only")
async def test_the_server_watches_its_client(postgres_schema_url: str) -> None:
    """Keepalive and the limit on unacknowledged data are set on the server's sockets, and add up to the limit."""
    async with opened(postgres_schema_url, peer_timeout_s=24) as database:
        found = [await database.read_one(Text, "setting", name) for name in _NAMES]
        listening = await database.connect_to_listen()
        try:
            listener = [await listening.fetchval(f"SHOW {name}") for name in _NAMES]
        finally:
            await listening.close()
    assert [each and each.text for each in found] == ["12", "4", "3", "24000"]
    assert listener == ["12", "4", "3", "24000"]


async def test_without_a_limit_the_systems_own_holds(postgres_schema_url: str) -> None:
    """With 0 lash sends no setting."""
    async with opened(postgres_schema_url, peer_timeout_s=0) as database:
        assert await database.read_one(Text, "setting", "tcp_user_timeout") == Text(0, "0")


@pytest.mark.skipif(sys.platform != "linux", reason="the names of the options are those of Linux")
async def test_the_client_watches_its_server(postgres_schema_url: str) -> None:
    """The same holds for the socket of the client, in the pool and for the listening connection."""
    async with opened(postgres_schema_url, peer_timeout_s=24) as database:
        listening = await database.connect_to_listen()
        pooled = await database._connect()
        try:
            for connection in (listening, pooled):
                found = connection._transport.get_extra_info("socket")  # type: ignore[union-attr]
                assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
                assert [found.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [12, 4, 3, 24_000]
        finally:
            await listening.close()
            await database._connections.release(pooled)


async def test_a_unix_socket_has_no_keepalive(own_server: PostgresServer) -> None:
    """A connection without a network works as usual."""
    async with opened(own_server.socket_url, schema="public") as database:
        assert await database.read_one(Text, "setting", "tcp_user_timeout") == Text(0, "0")


async def test_a_transaction_opens_with_its_limit_in_one_round_trip(postgres_schema_url: str) -> None:
    """BEGIN carries the limit on idleness; COMMIT ends it."""
    async with proxy_before(postgres_schema_url) as (proxy, url), opened(url, max_size=1) as database:
        await database.read_one(Text, "setting", "idle_in_transaction_session_timeout")
        before = proxy.round_trips
        async with database.transaction() as transaction:
            assert proxy.round_trips - before == 1
            inside = await transaction.one(Text, "setting", "idle_in_transaction_session_timeout")
        after = await database.read_one(Text, "setting", "idle_in_transaction_session_timeout")
    assert (inside, after) == (Text(0, "5s"), Text(0, "0"))
