"""A pooler in transaction mode between lash and its server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import lash
from lash.testing.postgres_server import PostgresServer, find_binaries
from tests.backends import fresh_schema, with_parameters
from tests.proof.faults.chats import Troubles, expected, make_app, said, talk
from tests.proof.faults.postgres.pooler import pooler_before
from tests.proof.faults.work import OPERATIONS

COUNT = 8


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A private server: the pooler reaches it by its socket, which asks for no password."""
    with PostgresServer(binaries=find_binaries()) as server:
        yield server


@pytest.fixture
def schema(server: PostgresServer) -> Iterator[str]:
    with fresh_schema(server.url) as url:
        yield url.partition("schema=")[2]


async def test_everything_works_behind_a_pooler(server: PostgresServer, schema: str) -> None:
    """Storages and a worker share two connections that are switched between transactions, and work as usual."""
    async with pooler_before(server, size=2) as (pooler, url):
        through = with_parameters(url, schema=schema, pooler="transaction")
        async with await lash.open(through) as one, await lash.open(through) as other:
            await one.sessions.create("s")
            for number in range(2):
                for operation in OPERATIONS.values():
                    await asyncio.gather(operation(one, number), operation(other, number))
        async with make_app(through, Troubles()) as app, asyncio.TaskGroup() as group:
            for name in ("a", "b"):
                group.create_task(talk(app, name, COUNT, []))
            for name in ("a", "b"):
                assert await said(app, name, COUNT) == expected(name, COUNT)
        assert pooler.clients > 2
        assert pooler.switches > 20


async def test_a_pooler_that_was_not_announced_is_named(server: PostgresServer, schema: str) -> None:
    """Without the option, opening raises an error that names it."""
    async with pooler_before(server, size=1) as (_, url):
        with pytest.raises(lash.ConfigError, match=r"pooler=transaction|unsupported startup parameter"):
            await lash.open(with_parameters(url, schema=schema))
