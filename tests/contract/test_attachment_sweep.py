"""The contract of sweeps: they remove only what nothing needs, and bytes survive every race."""

from __future__ import annotations

import asyncio

import pytest

from lash.errors import (
    AttachmentNotFound,
    CorruptData,
    SessionNotFound,
    StorageFailure,
    StoreUnavailable,
    SweepIncomplete,
)
from lash.model.attachment import AttachmentEntry, AttachmentOwner, OwnerKind
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.test_attachment import digest, entry_of, turn, uncommitted
from tests.factories.bytes import ScriptedBytes
from tests.factories.session import created

DAY = 24 * 60 * 60 * 1000


async def nobody_lives(_: AttachmentEntry) -> bool:
    """Answer that the owner is gone."""
    return True


async def owners_live(entry: AttachmentEntry) -> bool:
    """Answer that every owner may still commit, and that attachments without an owner are not needed."""
    return entry.owner is None


async def scripted(harness: Harness, *session_ids: str) -> tuple[Storage, ScriptedBytes]:
    """Open a storage on a scripted byte store, with sessions."""
    byte_store = ScriptedBytes()
    storage = await harness.open(attachment_bytes=byte_store)
    for session_id in session_ids or ("s",):
        await created(storage, session_id)
    return storage, byte_store


class TestAttachmentSweep:
    """Laws of sweeping, and of the bytes behind the manifest."""

    async def test_an_attachment_is_announced_before_its_bytes(self, harness: Harness) -> None:
        """The manifest names bytes before they are written; without a session none are written."""
        storage, byte_store = await scripted(harness)
        seen: list[list[tuple[str, str]]] = []

        async def look(_: str) -> None:
            seen.append(await uncommitted(storage))

        byte_store.before_put = look
        await storage.attachments.put("s", b"x", "text/plain")
        assert seen == [[("s", digest(b"x"))]]
        with pytest.raises(SessionNotFound):
            await storage.attachments.put("never", b"y", "text/plain")
        assert byte_store.calls == ["put"]

    async def test_a_put_that_fails_can_be_repeated(self, harness: Harness) -> None:
        """A failed write leaves an announcement without bytes, which is not found; a retry recovers."""
        storage, byte_store = await scripted(harness)

        async def fail(_: str) -> None:
            raise StorageFailure("the disk is full")

        byte_store.before_put = fail
        with pytest.raises(StorageFailure, match="the disk is full"):
            await storage.attachments.put("s", b"x", "text/plain")
        assert await uncommitted(storage) == [("s", digest(b"x"))]
        with pytest.raises(AttachmentNotFound):
            await storage.attachments.get("s", digest(b"x"))
        byte_store.before_put = None
        ref = await storage.attachments.put("s", b"x", "text/plain")
        assert (await storage.attachments.get("s", ref.id)).content == b"x"

    async def test_damage_is_never_absence_and_a_put_mends_it(self, harness: Harness) -> None:
        """Truncated, swapped or missing bytes of a committed attachment raise CorruptData until put again."""
        storage, byte_store = await scripted(harness)
        ref = await storage.attachments.put("s", b"content", "text/plain")
        await storage.attachments.commit_refs("s", [ref.id])
        for damage in (b"cont", b"CONTENT", b"", None):
            byte_store.contents.clear()
            if damage is not None:
                byte_store.contents[ref.id] = damage
            with pytest.raises(CorruptData, match=ref.id):
                await storage.attachments.get("s", ref.id)
            await storage.attachments.put("s", b"content", "text/plain")
            assert (await storage.attachments.get("s", ref.id)).content == b"content"

    async def test_what_is_old_and_ownerless_is_swept(self, harness: Harness) -> None:
        """An old announcement without an owner is removed with its bytes; a young or committed one stays."""
        storage, byte_store = await scripted(harness)
        old = await storage.attachments.put("s", b"old one", "text/plain")
        committed = await storage.attachments.put("s", b"committed", "text/plain")
        await storage.attachments.commit_refs("s", [committed.id])
        await harness.clock.advance(1_000)
        young = await storage.attachments.put("s", b"young", "text/plain")

        report = await storage.attachments.sweep(1_000, owners_live)

        assert [entry.ref for entry in report.swept] == [old]
        assert (report.deleted, report.freed_bytes, report.dry_run) == ((old.id,), 7, False)
        assert (report.kept, report.refused, report.failed) == ((), (), ())
        assert set(byte_store.contents) == {committed.id, young.id}
        with pytest.raises(AttachmentNotFound):
            await storage.attachments.get("s", old.id)
        assert (await storage.attachments.get("s", committed.id)).content == b"committed"

    async def test_the_host_is_asked_about_what_has_no_owner_too(self, harness: Harness) -> None:
        """The host is asked about ownerless attachments too: a queued message may still name one."""
        storage, byte_store = await scripted(harness)
        ref = await storage.attachments.put("s", b"of a message", "text/plain")

        async def a_message_names_it(entry: AttachmentEntry) -> bool:
            return entry.ref != ref

        report = await storage.attachments.sweep(0, a_message_names_it)
        assert ([entry.ref for entry in report.kept], report.swept) == ([ref], ())
        assert set(byte_store.contents) == {ref.id}

    async def test_a_living_owner_keeps_its_attachments_at_any_age(self, harness: Harness) -> None:
        """A live turn or process keeps its announcements at any age; they go once it is gone."""
        storage, byte_store = await scripted(harness)
        process = AttachmentOwner(kind=OwnerKind.PROCESS, id="p")
        mine = await storage.attachments.put("s", b"turn", "text/plain", owner=turn("t"))
        theirs = await storage.attachments.put("s", b"process", "text/plain", owner=process)
        await harness.clock.advance(400 * DAY)
        asked: list[tuple[str, AttachmentOwner | None]] = []

        async def only_the_turn_lives(entry: AttachmentEntry) -> bool:
            asked.append((entry.session_id, entry.owner))
            return entry.owner == process

        report = await storage.attachments.sweep(DAY, owners_live)
        assert {entry.ref.id for entry in report.kept} == {mine.id, theirs.id}
        assert (report.swept, report.deleted) == ((), ())
        report = await storage.attachments.sweep(DAY, only_the_turn_lives)
        assert set(asked) == {("s", turn("t")), ("s", process)}
        assert [entry.ref.id for entry in report.kept] == [mine.id]
        assert report.deleted == (theirs.id,)
        assert set(byte_store.contents) == {mine.id}

    async def test_an_owner_that_cannot_be_asked_about_is_left_alone(self, harness: Harness) -> None:
        """If the liveness question fails or has no clear answer, nothing is removed, and the report lists it."""
        storage, byte_store = await scripted(harness)
        broken = await storage.attachments.put("s", b"broken", "text/plain", owner=turn("broken"))
        vague = await storage.attachments.put("s", b"vague", "text/plain", owner=turn("vague"))
        free = await storage.attachments.put("s", b"free", "text/plain")

        async def unsure(entry: AttachmentEntry) -> bool:
            if entry.owner == turn("broken"):
                raise RuntimeError("the registry is unreadable")
            return True if entry.owner is None else None  # type: ignore[return-value]

        report = await storage.attachments.sweep(0, unsure)
        assert {problem.attachment_id for problem in report.refused} == {broken.id, vague.id}
        assert any("the registry is unreadable" in problem.reason for problem in report.refused)
        assert report.deleted == (free.id,)
        assert set(byte_store.contents) == {broken.id, vague.id}
        assert len(await uncommitted(storage)) == 2

    async def test_bytes_stay_while_any_session_names_them(self, harness: Harness) -> None:
        """Sweeping one session's entry never removes bytes that another session names, committed or not."""
        storage, byte_store = await scripted(harness, "s", "committed", "announced")
        ref = await storage.attachments.put("s", b"shared", "text/plain")
        await storage.attachments.put("committed", b"shared", "text/plain")
        await storage.attachments.put("announced", b"shared", "text/plain", owner=turn("t"))
        await storage.attachments.commit_refs("committed", [ref.id])

        report = await storage.attachments.sweep(0, owners_live)
        assert ([entry.session_id for entry in report.swept], report.deleted) == (["s"], ())
        await storage.attachments.forget("committed", ref.id)
        assert (await storage.attachments.sweep(0, owners_live)).deleted == ()
        assert (await storage.attachments.get("announced", ref.id)).content == b"shared"
        assert (await storage.attachments.sweep(0, nobody_lives)).deleted == (ref.id,)
        assert byte_store.contents == {}

    async def test_the_bytes_of_deleted_sessions_are_swept(self, harness: Harness) -> None:
        """After deleting its sessions, one sweep removes all their bytes."""
        storage, byte_store = await scripted(harness, "s", "other")
        refs = [await storage.attachments.put("s", b"%d" % number, "text/plain") for number in range(3)]
        await storage.attachments.put("other", b"0", "text/plain")
        await storage.attachments.commit_refs("s", [ref.id for ref in refs])
        await storage.sessions.delete("s")
        assert set((await storage.attachments.sweep(DAY, owners_live)).deleted) == {refs[1].id, refs[2].id}
        await storage.sessions.delete("other")
        assert (await storage.attachments.sweep(DAY, owners_live)).deleted == (refs[0].id,)
        assert byte_store.contents == {}

    async def test_a_dry_run_foresees_and_changes_nothing(self, harness: Harness) -> None:
        """A dry run reports what the sweep would do, and changes neither manifest nor bytes."""
        storage, byte_store = await scripted(harness, "s", "other", "deleted")
        for session_id in ("s", "other"):
            await storage.attachments.put(session_id, b"both", "text/plain")
        kept = await storage.attachments.put("s", b"half", "text/plain")
        await storage.attachments.put("other", b"half", "text/plain", owner=turn("t"))
        await storage.attachments.put("deleted", b"orphan", "text/plain")
        await storage.sessions.delete("deleted")
        before, listed = dict(byte_store.contents), await uncommitted(storage)

        foreseen = await storage.attachments.sweep(0, owners_live, dry_run=True)

        assert (byte_store.contents, await uncommitted(storage)) == (before, listed)
        assert foreseen.dry_run
        done = await storage.attachments.sweep(0, owners_live)
        assert (set(foreseen.swept), set(foreseen.kept)) == (set(done.swept), set(done.kept))
        assert set(foreseen.deleted) == set(done.deleted) == {digest(b"both"), digest(b"orphan")}
        assert foreseen.freed_bytes == done.freed_bytes == 10
        assert set(byte_store.contents) == {kept.id}

    async def test_a_failing_deletion_surfaces_with_what_was_done(self, harness: Harness) -> None:
        """The report lists both deleted bytes and failed deletions; the next sweep retries the failed ones."""
        storage, byte_store = await scripted(harness)
        refs = [await storage.attachments.put("s", b"%d" % number, "text/plain") for number in range(4)]

        async def fail(attachment_id: str) -> None:
            if attachment_id == refs[1].id:
                raise StorageFailure("permission denied")
            if attachment_id == refs[2].id:
                raise StoreUnavailable("timed out", outcome_unknown=True)

        byte_store.before_delete = fail
        with pytest.raises(SweepIncomplete, match="could not delete the bytes of 2") as raised:
            await storage.attachments.sweep(0, nobody_lives)
        report = raised.value.report
        assert {problem.attachment_id for problem in report.failed} == {refs[1].id, refs[2].id}
        assert set(report.deleted) == {refs[0].id, refs[3].id}
        assert len(report.swept) == 4
        byte_store.before_delete = None
        assert set((await storage.attachments.sweep(0, nobody_lives)).deleted) == {refs[1].id, refs[2].id}
        assert byte_store.contents == {}

    async def test_a_failing_byte_store_surfaces_with_what_was_done(self, harness: Harness) -> None:
        """A failure ends the sweep with a partial report, its cause and the advice to retry."""
        storage, byte_store = await scripted(harness)
        ref = await storage.attachments.put("s", b"x", "text/plain")

        async def fail(_: str) -> None:
            raise StorageFailure("the directory is gone")

        byte_store.before_tidy = fail
        with pytest.raises(SweepIncomplete, match="the directory is gone") as raised:
            await storage.attachments.sweep(0, nobody_lives)
        assert raised.value.report.deleted == (ref.id,)
        assert isinstance(raised.value.__cause__, StorageFailure)

    async def test_a_put_revokes_what_is_condemned(self, harness: Harness) -> None:
        """A put revokes a failed deletion, and the next sweep keeps the bytes."""
        storage, byte_store = await scripted(harness)
        ref = await storage.attachments.put("s", b"x", "text/plain")

        async def fail(_: str) -> None:
            raise StorageFailure("read-only")

        byte_store.before_delete = fail
        with pytest.raises(SweepIncomplete):
            await storage.attachments.sweep(0, nobody_lives)
        byte_store.before_delete = None
        await storage.attachments.put("s", b"x", "text/plain")
        await storage.attachments.commit_refs("s", [ref.id])
        assert (await storage.attachments.sweep(0, nobody_lives)).deleted == ()
        assert (await storage.attachments.get("s", ref.id)).content == b"x"

    async def test_a_sweep_between_announcement_and_bytes_loses_nothing(self, harness: Harness) -> None:
        """If a sweep removes the announcement while bytes are being written, the put starts again."""
        storage, byte_store = await scripted(harness)
        reports = []

        async def sweep_once(_: str) -> None:
            byte_store.before_put = None
            reports.append(await storage.attachments.sweep(0, nobody_lives))

        byte_store.before_put = sweep_once
        ref = await storage.attachments.put("s", b"x", "text/plain")
        assert [report.deleted for report in reports] == [(ref.id,)]
        assert byte_store.calls.count("put") == 2
        assert await storage.attachments.commit_refs("s", [ref.id]) == (ref.id,)
        assert (await storage.attachments.get("s", ref.id)).content == b"x"

    async def test_a_put_waits_until_bytes_are_deleted(self, harness: Harness) -> None:
        """A put during a deletion of the same bytes writes them after it, not before."""
        storage, byte_store = await scripted(harness, "s", "other")
        ref = await storage.attachments.put("s", b"x", "text/plain")
        puts: list[asyncio.Task[object]] = []

        async def put_meanwhile(_: str) -> None:
            puts.append(asyncio.create_task(storage.attachments.put("other", b"x", "text/plain")))
            done = (await asyncio.wait(puts, timeout=0.05))[0]
            assert done == set()

        byte_store.before_delete = put_meanwhile
        assert (await storage.attachments.sweep(0, nobody_lives)).deleted == (ref.id,)
        assert await puts[0] == ref
        assert byte_store.calls[:2] == ["put", "delete"]
        assert sorted(byte_store.calls[2:]) == ["put", "sweep_stale"]
        assert (await storage.attachments.get("other", ref.id)).content == b"x"

    async def test_a_stamp_while_a_sweep_asks_keeps_the_attachment(self, harness: Harness) -> None:
        """An attachment that is committed or put again after the sweep has read it is not removed."""
        storage, byte_store = await scripted(harness)
        committed = await storage.attachments.put("s", b"committed", "text/plain", owner=turn("t"))
        renewed = await storage.attachments.put("s", b"renewed", "text/plain", owner=turn("t"))

        async def meanwhile(entry: AttachmentEntry) -> bool:
            await harness.clock.advance(1)
            if entry.ref.id == committed.id:
                await storage.attachments.commit_refs("s", [committed.id])
            else:
                await storage.attachments.put("s", b"renewed", "text/plain", owner=turn("t"))
            return True

        report = await storage.attachments.sweep(0, meanwhile)
        assert {committed.id, renewed.id} <= {entry.ref.id for entry in report.kept}
        assert report.deleted == ()
        assert (await entry_of(storage, "s", committed.id)).committed_at_ms is not None
        assert set(byte_store.contents) == {committed.id, renewed.id}

    async def test_a_read_that_meets_a_sweep_is_no_damage(self, harness: Harness) -> None:
        """Bytes forgotten and swept during a read are not found; bytes put again meanwhile are read."""
        storage, byte_store = await scripted(harness)
        ref = await storage.attachments.put("s", b"x", "text/plain")
        await storage.attachments.commit_refs("s", [ref.id])

        async def forget_and_sweep(attachment_id: str) -> None:
            byte_store.before_get = None
            await storage.attachments.forget("s", attachment_id)
            await storage.attachments.sweep(0, nobody_lives)

        byte_store.before_get = forget_and_sweep
        with pytest.raises(AttachmentNotFound):
            await storage.attachments.get("s", ref.id)
        await storage.attachments.put("s", b"x", "text/plain")
        byte_store.contents.clear()

        async def put_again(_: str) -> None:
            if byte_store.calls.count("get") == 3:
                byte_store.before_get = None
                await storage.attachments.put("s", b"x", "text/plain")

        byte_store.before_get = put_again
        assert (await storage.attachments.get("s", ref.id)).content == b"x"

    async def test_two_sweeps_delete_everything_once(self, harness: Harness) -> None:
        """Concurrent sweeps share the work; each of the bytes is deleted by one of them."""
        storage, byte_store = await scripted(harness)
        refs = [await storage.attachments.put("s", b"%d" % number, "text/plain") for number in range(10)]
        for ref in refs:
            await storage.attachments.forget("s", ref.id)

        async def give_way(_: str) -> None:
            await asyncio.sleep(0)

        byte_store.before_delete = give_way
        reports = await asyncio.gather(*(storage.attachments.sweep(0, nobody_lives) for _ in range(3)))
        deleted = [attachment_id for report in reports for attachment_id in report.deleted]
        assert sorted(deleted) == sorted(ref.id for ref in refs)
        assert byte_store.calls.count("delete") == 10
        assert byte_store.contents == {}
