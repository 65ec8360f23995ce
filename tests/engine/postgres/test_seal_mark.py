"""The mark of a sealed storage, and roles that may not write it."""

from __future__ import annotations

import pytest

import lash
from tests.engine.postgres.copies import plain_role
from tests.factories.sealed import key


async def test_a_role_that_cannot_mark_the_storage_does_not_open_it_first(postgres_storage_url: str) -> None:
    """The first opening with a sealer writes the mark or fails; later ones only read it."""
    async with await lash.open(postgres_storage_url):
        pass
    async with plain_role(postgres_storage_url, "SELECT") as reader:
        with pytest.raises(lash.StorageFailure, match="cannot mark the storage as sealed; open it with its sealer"):
            await lash.open(reader, sealer=key("k"))
        async with await lash.open(postgres_storage_url, sealer=key("k")):
            pass
        async with await lash.open(reader, sealer=key("k")) as storage:
            assert await storage.sessions.open("s") is None
