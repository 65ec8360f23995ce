"""Damaged artifacts, attachments and byte guards are detected and reported."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import lash
import lash.backend.attachment.attachment
from lash.errors import CorruptData, StorageFailure, StoreUnavailable, SweepIncomplete
from lash.plan.attachment import ABANDONED_AFTER_MS
from tests.factories.bytes import ScriptedBytes
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

CONTENT = b"content" * 1_000
ID = hashlib.sha256(CONTENT).hexdigest()
ELSEWHERE = '{"sweep_id":"x","process":{"host_id":"elsewhere","boot_id":"b","pid":1,"process_start":"1"}}'


async def gone(entry: lash.model.AttachmentEntry) -> bool:
    return True


@pytest.mark.parametrize(
    "damage", ["content = '\\x00'", "size = 6999", "codec = 'lzma'", "codec = 'plain'", f"ref = '{'0' * 64}'"]
)
async def test_a_damaged_artifact_is_never_returned(backend_url: str, backend_name: str, damage: str) -> None:
    """Changed bytes, length, form or ref of an artifact raise CorruptData."""
    if backend_name == "sqlite":
        damage = damage.replace("'\\x00'", "x'00'")
    async with await lash.open(backend_url) as storage:
        await storage.artifacts.put("modules", CONTENT)
    await raw(backend_url, f"UPDATE lash_artifacts SET {damage}")
    async with await lash.open(backend_url) as storage:
        wanted = lash.model.ArtifactRef("0" * 64 if damage.startswith("ref") else ID)
        with pytest.raises(CorruptData):
            await storage.artifacts.get("modules", wanted)


async def test_a_verified_artifact_is_loaded_once(backend_url: str) -> None:
    """A verified artifact is cached: the second read runs no query."""
    async with await lash.open(backend_url) as storage:
        ref = await storage.artifacts.put("modules", CONTENT)
    names: list[str] = []
    async with await lash.open(backend_url, on_statement=names.append) as storage:
        for _ in range(3):
            assert await storage.artifacts.get("modules", ref) == CONTENT
    assert names.count("artifact_get") == 1


@pytest.mark.parametrize("damage", ["size = 6999", "codec = 'lzma'", "codec = 'plain'"])
async def test_damaged_bytes_in_the_database_are_mended_by_a_put(backend_url: str, damage: str) -> None:
    """Damaged bytes raise CorruptData; putting the same bytes again replaces them."""
    async with await lash.open(backend_url) as storage:
        await storage.sessions.create("s")
        await storage.attachments.put("s", CONTENT, "text/plain")
        await raw(backend_url, f"UPDATE lash_attachment_bytes SET {damage}")
        with pytest.raises(CorruptData):
            await storage.attachments.get("s", ID)
        await storage.attachments.put("s", CONTENT, "text/plain")
        assert (await storage.attachments.get("s", ID)).content == CONTENT


async def _set_deleting(url: str, sweeper: str, changed_at_ms: int) -> None:
    await raw(url, "DELETE FROM lash_attachments")
    await raw(
        url,
        f"UPDATE lash_attachment_fences SET phase = 'deleting', sweeper = {sweeper}, changed_at_ms = {changed_at_ms}",
    )


async def test_a_deletion_of_another_machine_is_waited_for(backend_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an unreachable sweeper may still delete the bytes, a put raises and a sweep skips them."""
    monkeypatch.setattr(lash.backend.attachment.attachment, "_LONGEST_PAUSE_S", 0.001)
    byte_store = ScriptedBytes()
    async with await lash.open(backend_url, attachment_bytes=byte_store) as storage:
        await storage.sessions.create("s")
        await storage.attachments.put("s", CONTENT, "text/plain")
        ((now_ms,),) = await raw(backend_url, "SELECT changed_at_ms FROM lash_attachment_fences")
        await _set_deleting(backend_url, f"'{ELSEWHERE}'", now_ms)
        with pytest.raises(StoreUnavailable, match="a sweep is deleting these bytes"):
            await storage.attachments.put("s", CONTENT, "text/plain")
        assert (await storage.attachments.sweep(0, gone)).deleted == ()
        assert byte_store.calls == ["put", "sweep_stale"]

        await _set_deleting(backend_url, f"'{ELSEWHERE}'", now_ms - ABANDONED_AFTER_MS)
        assert (await storage.attachments.sweep(0, gone)).deleted == (ID,)
        await storage.attachments.put("s", CONTENT, "text/plain")
        assert (await storage.attachments.get("s", ID)).content == CONTENT


async def test_a_deletion_that_may_still_happen_keeps_puts_out(
    backend_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a deletion of unknown outcome a put is refused; the next sweep finishes the deletion."""
    monkeypatch.setattr(lash.backend.attachment.attachment, "_LONGEST_PAUSE_S", 0.001)
    byte_store = ScriptedBytes()

    async def time_out(attachment_id: str) -> None:
        raise StoreUnavailable("timed out", outcome_unknown=True)

    async with await lash.open(backend_url, attachment_bytes=byte_store) as storage:
        await storage.sessions.create("s")
        await storage.attachments.put("s", CONTENT, "text/plain")
        byte_store.before_delete = time_out
        with pytest.raises(SweepIncomplete):
            await storage.attachments.sweep(0, gone)
        with pytest.raises(StoreUnavailable, match="a sweep is deleting these bytes"):
            await storage.attachments.put("s", CONTENT, "text/plain")
        byte_store.before_delete = None
        assert (await storage.attachments.sweep(0, gone)).deleted == (ID,)
        await storage.attachments.put("s", CONTENT, "text/plain")


async def test_a_put_that_is_swept_for_ever_says_so(backend_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A put whose announcement is swept every time raises an error that names the cause."""
    monkeypatch.setattr(lash.backend.attachment.attachment, "_LONGEST_PAUSE_S", 0.001)
    byte_store = ScriptedBytes()
    async with await lash.open(backend_url, attachment_bytes=byte_store) as storage:
        await storage.sessions.create("s")

        async def sweep(attachment_id: str) -> None:
            await storage.attachments.sweep(0, gone)

        byte_store.before_put = sweep
        with pytest.raises(StoreUnavailable, match="sweep only older attachments"):
            await storage.attachments.put("s", CONTENT, "text/plain")


async def test_a_sweep_that_broke_off_is_taken_over(backend_url: str) -> None:
    """The next sweep finishes deletions that an interrupted sweep of this process had begun."""
    byte_store = ScriptedBytes()

    async def give_up(attachment_id: str) -> None:
        raise KeyError(attachment_id)

    async with await lash.open(backend_url, attachment_bytes=byte_store) as storage:
        await storage.sessions.create("s")
        await storage.attachments.put("s", CONTENT, "text/plain")
        byte_store.before_delete = give_up
        with pytest.raises(KeyError):
            await storage.attachments.sweep(0, gone)
        assert await raw(backend_url, "SELECT phase FROM lash_attachment_fences") == [("deleting",)]
        byte_store.before_delete = None
        assert (await storage.attachments.sweep(0, gone)).deleted == (ID,)


@pytest.mark.parametrize("statement", ["attachment_uncommitted", "attachment_unnamed", "attachment_move"])
async def test_a_database_that_fails_on_the_way_ends_the_sweep(backend_url: str, statement: str) -> None:
    """A sweep that cannot read its roots, or cannot write, deletes no bytes and returns a partial report."""
    failing = False

    def fail(name: str) -> None:
        if failing and name == statement:
            raise StorageFailure("the disk failed")

    byte_store = ScriptedBytes()
    async with await lash.open(backend_url, attachment_bytes=byte_store, on_statement=fail) as storage:
        await storage.sessions.create("s")
        await storage.attachments.put("s", CONTENT, "text/plain")
        failing = True
        with pytest.raises(SweepIncomplete, match="the disk failed") as raised:
            await storage.attachments.sweep(0, gone)
        assert len(raised.value.report.swept) == (statement != "attachment_uncommitted")
        assert raised.value.report.deleted == ()
        assert set(byte_store.contents) == {ID}


async def test_the_lesser_durability_counts(backend_url: str, tmp_path: Path) -> None:
    """Attachments on a durable database are no more durable than their byte store."""
    async with await lash.open(backend_url, attachment_bytes=ScriptedBytes()) as storage:
        assert (storage.durability, storage.attachments.durability) == ("durable", "inline")
    async with await lash.open(backend_url, attachment_bytes=lash.FileBytes(tmp_path)) as storage:
        assert storage.attachments.durability == "durable"
