"""Files of older versions are read, and each file has the oldest version that knows its content."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final

import msgspec
import pytest

from lash.model.session.node import BytesEntry, ErasedEntry, MessageEntry, Node
from lash.stores.storage import Storage
from lash.transfer import import_session
from tests.factories.session import MOMENT, commit, node, started
from tests.transfer.kit import carried, comparable, exported, opened, parsed

FILES: Final = Path(__file__).parent / "files"
"""Written by lash as it was when a version was the newest one, and never changed."""


@pytest.mark.parametrize("version", [1, 2])
async def test_a_file_of_an_older_version_is_read(backend_url: str, version: int) -> None:
    """It is imported whole, and its export has the same lines and the same version."""
    file = (FILES / f"version-{version}.jsonl").read_bytes()
    async with opened(backend_url) as (storage,):
        imported = await import_session(storage, io.BytesIO(file))
        assert (imported.created, imported.counts.nodes, imported.batches_added) == (True, 6, 3)
        again = await exported(storage, with_queue=True)
        assert comparable(again) == comparable(file)
        assert parsed(again)[0]["version"] == version
        assert len(await storage.records.list("notes", session_id="s")) == (0 if version == 1 else 2)


async def _with_bytes(storage: Storage) -> None:
    content = BytesEntry(plugin_type="pickle", content=b"\xff\x00")
    await storage.session("s").commit(
        commit(1, Node(node_id="new", parent_node_id="b", timestamp=MOMENT, entry=content))
    )


async def _with_native(storage: Storage) -> None:
    entry = node("new").entry
    assert isinstance(entry, MessageEntry)
    native = msgspec.structs.replace(entry, native={"type": "message", "id": "m1"})
    await storage.session("s").commit(
        commit(1, Node(node_id="new", parent_node_id="b", timestamp=MOMENT, entry=native))
    )


async def _with_erased(storage: Storage) -> None:
    await storage.session("s").erase(["b"])


@pytest.mark.parametrize("fill", [_with_bytes, _with_native, _with_erased])
async def test_newer_entries_make_a_file_of_version_3(fill: object) -> None:
    """Each kind of newer entry raises the version, so that an older lash refuses the file at its first line."""
    assert callable(fill)
    async with opened("sqlite://", "sqlite://") as (source, target):
        await started(source, "s", "a", "b")
        assert parsed(await exported(source))[0]["version"] == 1
        await fill(source)
        file = await exported(source)
        assert parsed(file)[0]["version"] == 3
        assert comparable(await carried(source, target)) == comparable(file)
        found = await target.session("s").nodes(["new", "b"])
        assert isinstance(found["b"].entry, ErasedEntry) == (fill is _with_erased)
