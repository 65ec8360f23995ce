"""A server that a test may stop, beside the one that all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lash.testing.postgres_server import PostgresServer, find_binaries


@pytest.fixture(scope="module")
def module_server() -> Iterator[PostgresServer]:
    with PostgresServer(binaries=find_binaries()) as server:
        yield server


@pytest.fixture
def own_server(module_server: PostgresServer) -> Iterator[PostgresServer]:
    """A running private server, which the test may stop; it runs again for the next test."""
    yield module_server
    module_server.start()
