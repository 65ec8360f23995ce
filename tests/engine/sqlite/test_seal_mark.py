"""The mark of a sealed storage, and disks that do not take it."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import lash
from tests.factories.sealed import key


async def test_a_storage_that_cannot_be_marked_is_not_opened(tmp_path: Path) -> None:
    """The first opening with a sealer fails on a full disk, so no sealed value is stored without the mark."""
    url = f"sqlite:///{tmp_path}/x.db"

    def full(statement: str) -> None:
        if statement == "seal_keep_mark":
            raise apsw.FullError("database or disk is full")

    with pytest.raises(lash.StorageFailure, match=r"cannot mark the storage as sealed.*disk is full"):
        await lash.open(url, sealer=key("k"), on_statement=full)
    async with await lash.open(url, sealer=key("k")):
        pass
    with pytest.raises(lash.CannotUnseal):
        await lash.open(url)
