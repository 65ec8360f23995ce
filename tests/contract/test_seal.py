"""Sealed storages: nothing is stored in the clear, keys can be rotated, and a wrong key is an error."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import lash
from lash.plan.sealed import SEALED_COLUMNS
from lash.stores.storage import Storage
from lash.transfer import copy_storage, export_session, import_session, move_storage
from tests.factories.sealed import PLANTED, key, plant, planted_columns, planted_files
from tests.factories.session import commit, created, node, started
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)
_NEVER_PLANTED = {("lash_secrets", "secret"), ("lash_nodes", "packed"), ("lash_processes", "start_payload")}
"""Made by the storage itself, what is compressed, and a holder, whose lease names it as well."""


@asynccontextmanager
async def opened(url: str, sealer: lash.Sealer | None) -> AsyncIterator[Storage]:
    async with await lash.open(url, sealer=sealer, compression=lash.Compression.LOW_LATENCY) as storage:
        yield storage


async def say(storage: Storage, revision: int, node_id: str, parent: str | None = None) -> None:
    await storage.session("s").commit(commit(revision, node(node_id, parent, f"{PLANTED} {node_id}")))


async def texts(storage: Storage) -> list[str]:
    read = await storage.session("s").load()
    assert read is not None
    return [lash.text_of(each.entry.message) for each in read.graph.nodes]  # type: ignore[union-attr]


async def test_no_value_is_stored_in_the_clear(backend_url: str) -> None:
    """A text that is part of every kind of value is nowhere in the database."""
    async with opened(backend_url, key("k")) as storage:
        await plant(storage)
        assert await storage.maintenance.find_damage() == ()
    assert await planted_columns(backend_url) == set()
    if backend_url.startswith("sqlite"):
        assert planted_files(backend_url) == []


class Padded:
    """A sealer that makes every value long, as one may that stores a wrapped key with each."""

    def seal(self, value: bytes, place: bytes) -> bytes:
        return bytes(4_096) + len(place).to_bytes(4) + place + value

    def unseal(self, sealed: bytes, place: bytes) -> bytes:
        assert sealed[4_100:].startswith(place)
        return sealed[4_100 + len(place) :]

    def is_current(self, sealed: bytes) -> bool:
        return sealed.startswith(bytes(4_096))


async def test_an_erased_node_is_left_out_however_long_its_seal_is(backend_url: str) -> None:
    """Nothing takes a long sealed body for one with content."""
    async with opened(backend_url, Padded()) as storage:
        session = await started(storage, "s", "a", "b", "c", "d")
        assert await session.erase(["c"]) == 1
        await storage.maintenance.rewrap()
        for last in (2, 3, 9):
            expected = ["a", "b", "d"][-last:]
            assert [each.node_id for each in await session.raw_path(last=last)] == expected


async def test_without_a_sealer_the_same_values_are_found(backend_url: str) -> None:
    """The text is found in exactly the columns that are sealed, so that the search above can fail."""
    async with opened(backend_url, None) as storage:
        await plant(storage)
    sealed = {(table, column) for table, columns in SEALED_COLUMNS.items() for column in columns}
    assert await planted_columns(backend_url) == sealed - _NEVER_PLANTED
    if backend_url.startswith("sqlite"):
        assert planted_files(backend_url) != []


async def test_a_sealed_storage_cannot_be_opened_without_its_key(backend_url: str) -> None:
    """Without a sealer, without the key and with another key of the same id, opening names the remedy."""
    async with opened(backend_url, key("k")) as storage:
        await started(storage)
    with pytest.raises(lash.CannotUnseal, match=r"open it with its sealer"):
        await lash.open(backend_url)
    with pytest.raises(lash.CannotUnseal, match=r"unknown key 'k', expected one of 'other'"):
        await lash.open(backend_url, sealer=key("other"))
    with pytest.raises(lash.CannotUnseal, match=r"key 'k' does not open the value"):
        await lash.open(backend_url, sealer=key("k", 8))


async def test_values_from_before_the_sealer_are_read(backend_url: str) -> None:
    """A plain storage that gets a sealer keeps its values, and seals new ones."""
    async with opened(backend_url, None) as storage:
        await created(storage)
        await say(storage, 0, "old")
    async with opened(backend_url, key("k")) as storage:
        await say(storage, 1, "new", "old")
        assert await texts(storage) == [f"{PLANTED} old", f"{PLANTED} new"]
        assert (await storage.sessions.list()).sessions[0].first_user_message == f"{PLANTED} old"
    stored = await planted_columns(backend_url)
    assert ("lash_nodes", "body") in stored
    bodies = [row[0] for row in await raw(backend_url, "SELECT body FROM lash_nodes ORDER BY seq")]
    assert [body[:1] for body in bodies] == ["{", "~"]


async def test_a_storage_without_its_sealer_reads_no_garbage(backend_url: str) -> None:
    """A storage that was open before another program began to seal raises CannotUnseal, and reads its own values."""
    async with opened(backend_url, None) as plain, opened(backend_url, key("k")) as sealed:
        await created(sealed)
        await say(sealed, 0, "a")
        with pytest.raises(lash.CannotUnseal):
            await plain.session("s").load()


async def test_keys_are_rotated(backend_url: str) -> None:
    """With two keys both old and new values are read; once they are sealed again, the old key is not needed."""
    old, new = bytes([1]) * 32, bytes([2]) * 32
    async with opened(backend_url, lash.AesGcm({"old": old})) as storage:
        await plant(storage)
    async with opened(backend_url, lash.AesGcm({"new": new, "old": old}, current="new")) as storage:
        await say(storage, 1, "b", "a")
        assert await texts(storage) == [f"{PLANTED} short", f"{PLANTED} b"]
        report = await storage.maintenance.rewrap()
        assert report.rows > len(SEALED_COLUMNS) - 3
        assert await storage.maintenance.rewrap() == lash.model.RewrapReport()
        await storage.maintenance.prune_activity(older_than_ms=0)
    async with opened(backend_url, lash.AesGcm({"new": new})) as storage:
        assert await texts(storage) == [f"{PLANTED} short", f"{PLANTED} b"]
        assert await storage.maintenance.find_damage() == ()


async def test_rewrapping_seals_a_plain_storage(backend_url: str) -> None:
    """A storage that was plain is sealed whole, and reads as before."""
    async with opened(backend_url, None) as storage:
        await plant(storage)
        await storage.maintenance.prune_activity(older_than_ms=0)
        assert await storage.maintenance.rewrap() == lash.model.RewrapReport()
    async with opened(backend_url, key("k")) as storage:
        await storage.maintenance.rewrap()
        assert await texts(storage) == [f"{PLANTED} short"]
        assert await storage.maintenance.find_damage() == ()
    assert await planted_columns(backend_url) == set()


async def test_a_value_belongs_to_its_row(backend_url: str) -> None:
    """A sealed value that was moved to another row is not read, and the audit names the row."""
    async with opened(backend_url, key("k")) as storage:
        await created(storage)
        await say(storage, 0, "a")
        await say(storage, 1, "b", "a")
        of_a = "(SELECT o.body FROM lash_nodes AS o WHERE o.node_id = 'a')"
        await raw(backend_url, f"UPDATE lash_nodes SET body = {of_a} WHERE node_id = 'b'")
        with pytest.raises(lash.CannotUnseal, match=r'node at \["node","b"\]: key .k. does not open'):
            await storage.session("s").load()
        (damage,) = await storage.maintenance.find_damage()
        assert damage.where == "node 'b' of session 's'"


async def test_a_repeated_call_is_recognised(backend_url: str) -> None:
    """Sealing the same value twice gives other bytes; a repetition is still a repetition."""
    async with opened(backend_url, key("k")) as storage:
        await created(storage)
        first = await storage.session("s").commit(commit(0, node("a"), turn_id="t"))
        assert await storage.session("s").commit(commit(0, node("a"), turn_id="t")) == first
        assert await storage.session("s").commit(commit(1, node("a"))) is not None
        draft = lash.model.BatchDraft(session_id="s", payloads=(lash.model.TurnInput.of_text("x"),), source_key="once")
        assert (await storage.queue.enqueue(draft)).created
        assert not (await storage.queue.enqueue(draft)).created
        with pytest.raises(lash.errors.SourceKeyConflict):
            await storage.queue.enqueue(
                lash.model.BatchDraft(session_id="s", payloads=(lash.model.TurnInput.of_text("y"),), source_key="once")
            )


@pytest.mark.parametrize("transfer", [copy_storage, move_storage])
async def test_a_storage_is_transferred_to_another_key(backend_url: str, tmp_path: Path, transfer: object) -> None:
    """The target seals with its own key what the source unsealed with its own."""
    target_url = f"sqlite:///{tmp_path / 'target.db'}"
    async with opened(backend_url, key("source")) as source, opened(target_url, key("target", 9)) as target:
        await created(source)
        await say(source, 0, "a")
        await source.attachments.put("s", PLANTED.encode(), "text/plain")
        await transfer(source, target)  # type: ignore[operator]
    async with opened(target_url, key("target", 9)) as target:
        assert await texts(target) == [f"{PLANTED} a"]
        assert await target.maintenance.find_damage() == ()
    assert await planted_columns(target_url) == set()


async def test_an_exported_file_is_plain(backend_url: str) -> None:
    """An export can be imported without the key, so its file is in the clear."""
    stream = io.BytesIO()
    async with opened(backend_url, key("k")) as storage:
        await created(storage)
        await say(storage, 0, "a")
        await export_session(storage, "s", stream)
    assert PLANTED.encode() in stream.getvalue()
    stream.seek(0)
    async with await lash.open("sqlite://") as plain:
        await import_session(plain, stream)
        assert await texts(plain) == [f"{PLANTED} a"]


async def test_attachments_in_files_are_sealed(backend_url: str, tmp_path: Path) -> None:
    """Bytes outside the database are sealed too, and sealed again under another key."""
    byte_store = lash.FileBytes(tmp_path / "bytes")
    old, new = bytes([1]) * 32, bytes([2]) * 32
    async with await lash.open(backend_url, sealer=lash.AesGcm({"old": old}), attachment_bytes=byte_store) as storage:
        await created(storage)
        ref = await storage.attachments.put("s", PLANTED.encode(), "text/plain")
        assert (await storage.attachments.get("s", ref.id)).content == PLANTED.encode()
    files = [file for file in (tmp_path / "bytes").rglob("*") if file.is_file()]
    assert files
    assert all(PLANTED.encode() not in file.read_bytes() for file in files)
    both = lash.AesGcm({"new": new, "old": old}, current="new")
    async with await lash.open(backend_url, sealer=both, attachment_bytes=byte_store) as storage:
        assert (await storage.maintenance.rewrap()).attachments == 1
    async with await lash.open(backend_url, sealer=lash.AesGcm({"new": new}), attachment_bytes=byte_store) as storage:
        assert (await storage.attachments.get("s", ref.id)).content == PLANTED.encode()
