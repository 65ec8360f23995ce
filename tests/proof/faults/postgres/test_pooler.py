"""pgbouncer between lash and its server, with few connections to it."""

from __future__ import annotations

import asyncio

import pytest

import lash
from lash.testing.postgres_server import PostgresServer
from tests.backends import with_parameters
from tests.pgbouncer import PgBouncer
from tests.proof.faults.chats import Troubles, expected, make_app, said, talk
from tests.proof.faults.work import OPERATIONS

COUNT = 8


@pytest.mark.parametrize(("mode", "size"), [("transaction", 2), ("session", 60)])
async def test_everything_works_behind_a_pooler(
    postgres_server: PostgresServer, postgres_storage_url: str, mode: str, size: int
) -> None:
    """Storages and a worker share the pooler's connections to the server, and work as usual."""
    with PgBouncer(postgres_server.url, mode, pool_size=size) as pooler:
        through = pooler.through(postgres_storage_url)
        if mode == "transaction":
            through = with_parameters(through, pooler="transaction")
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
