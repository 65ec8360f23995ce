"""What managers of Strands rely on beyond its own tests of storages."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from strands.storage import Storage
from strands.types.exceptions import StorageError

import lash
from lash.adapters.strands import LashStorage
from lash.adapters.strands import storage as adapter

NINE_MIB = 9 * 1024 * 1024


async def test_bytes_are_shared_by_all_objects_on_a_url(url: str) -> None:
    """Any bytes come back, under the normalised key, until they are deleted."""
    one, other = LashStorage(url), LashStorage(url)
    assert isinstance(one, Storage)
    content = bytearray(b"\x00\xff\n")
    await one.write("//a///b/", content)  # type: ignore[arg-type]
    content[0] = 1
    assert await other.read("a/b") == b"\x00\xff\n"
    await other.write("a/b", b"")
    assert await one.read("/a/b") == b""
    await one.delete("a/b")
    await one.delete("a/b")
    assert await other.read("a/b") is None
    assert await other.list("") == []
    for wrong in ("", "/", "a/../b", "a\\b"):
        with pytest.raises(StorageError):
            await one.write(wrong, b"x")


async def test_keys_are_listed_by_prefix(url: str) -> None:
    """Full keys, sorted, also if they cannot be keys of lash."""
    storage = LashStorage(url)
    long = [f"{'x/' * 150}{name}" for name in ("b", "a", "c")]
    # The last one is what a long key is stored as.
    keys = ["b/1", "a/2", "a/10", "ab", "ä", "a\x01b", "a\0b", " ", *long, adapter._stored_key(long[0])]
    for key in keys:
        await storage.write(key, key.encode())
    assert await storage.list("") == sorted(keys)
    assert await storage.list("a/") == ["a/10", "a/2"]
    assert await storage.list("a") == ["a\0b", "a\x01b", "a/10", "a/2", "ab"]
    assert await storage.list("a\0") == ["a\0b"]
    assert await storage.list("x/" * 150) == sorted(long)
    assert await storage.list(long[0]) == [long[0]]
    for key in keys:
        assert await storage.read(key) == key.encode()
        await storage.delete(key)
    assert await storage.list() == []


async def test_large_values(url: str) -> None:
    """A value larger than a record is stored whole, replaced by smaller and larger ones, and leaves nothing behind."""
    storage = LashStorage(url)
    for content in (b"a" * NINE_MIB, b"b" * 2 * NINE_MIB, b"c"):
        await storage.write("large", content)
        assert await storage.read("large") == content
    await storage.delete("large")
    records = lash.shared(url).records
    assert await records.list(adapter.PARTS) == await records.list(adapter.KEYS) == ()
    with pytest.raises(StorageError, match="bytes"):
        await storage.write("huge", b"x" * 65 * 1024 * 1024)
    assert await storage.read("huge") is None


async def test_readers_see_one_value_or_the_other(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While two writers replace values of several parts, no read is a mixture."""
    monkeypatch.setattr(adapter, "_PART_BYTES", 4)
    storage, other = LashStorage(url), LashStorage(url)
    values = {b"a" * 9, b"b" * 14, b"c"}
    await storage.write("k", b"c")

    async def write(value: bytes) -> None:
        for _ in range(8):
            await storage.write("k", value)

    async def read() -> set[bytes | None]:
        return {await other.read("k") for _ in range(20)}

    *_, seen, seen_too = await asyncio.gather(*map(write, sorted(values)), read(), read())
    assert seen | seen_too <= values
    assert await other.read("k") in values


async def test_a_write_that_ends_early_leaves_no_parts_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next write or delete removes the parts that a killed process has not removed."""
    monkeypatch.setattr(adapter, "_PART_BYTES", 4)
    storage, records = LashStorage(url), lash.shared(url).records
    await storage.write("k", b"a" * 9)
    with monkeypatch.context() as killed:
        remove, calls = adapter._remove, []

        async def removes_the_first_time(*arguments: Any) -> None:  # noqa: ANN401 (what it takes)
            calls.append(arguments)
            if len(calls) % 2:
                await remove(*arguments)

        # A process is killed after its write, and then a second one.
        killed.setattr(adapter, "_remove", removes_the_first_time)
        await storage.write("k", b"b" * 9)
        assert len(await records.list(adapter.PARTS)) == 5
        await storage.write("k", b"c")
        assert len(await records.list(adapter.PARTS)) == 3
    await storage.write("k", b"d" * 9)
    assert await storage.read("k") == b"d" * 9
    assert len(await records.list(adapter.PARTS)) == 3
    await storage.delete("k")
    assert await records.list(adapter.PARTS) == ()


async def test_namespaces(url: str) -> None:
    """A view sees the keys below its prefix alone, and its search too; views nest."""
    storage = LashStorage(url)
    view = storage.namespace("/memory//ann/")
    await view.write("notes/x.md", b"the harbour of Ulm")
    await storage.write("memory/bob/x.md", b"the harbour of Bonn")
    assert await storage.list("memory/ann") == ["memory/ann/notes/x.md"]
    assert await view.list() == ["notes/x.md"]
    assert await view.namespace("notes").read("x.md") == b"the harbour of Ulm"
    assert [result.key for result in await view.search("harbour")] == ["notes/x.md"]
    assert {result.key for result in await storage.search("harbour")} == {"memory/ann/notes/x.md", "memory/bob/x.md"}
    await view.delete("notes/x.md")
    assert await storage.list() == ["memory/bob/x.md"]


def test_one_object_serves_several_event_loops(url: str) -> None:
    """Threads with loops of their own use one storage."""
    storage = LashStorage(url)
    threads = [
        threading.Thread(target=lambda n=n: asyncio.run(storage.write(f"k{n}", b"x")))  # type: ignore[misc]
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asyncio.run(storage.list("k")) == ["k0", "k1", "k2"]


async def test_a_storage_of_the_program(url: str) -> None:
    """It shares its data with an object on the URL, and stays open."""
    async with await lash.open(url) as opened:
        await LashStorage(opened).write("a", b"1")
        assert await LashStorage(url).read("a") == b"1"
        await LashStorage(url).write("b", b"2")
        assert await LashStorage(opened).list("") == ["a", "b"]
