"""The contract of attachments: announced before they are written, verified when read, stamped once."""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path
from typing import Any, Final

import pytest

from lash.bytestore.file import FileBytes
from lash.errors import AttachmentNotFound, InvalidInput, SessionDeleted, SessionNotFound
from lash.model.attachment import AttachmentEntry, AttachmentOwner, OwnerKind
from lash.model.session.message import AttachmentRef
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.harnesses import BytesHarness
from tests.factories.session import created
from tests.s3_server import S3Server

UNKNOWN: Final = "0" * 64
BAD_IDS: Final[tuple[Any, ...]] = (
    *("", "x", "0" * 63, "0" * 65, "A" * 64, "../../../../etc/passwd", "/" + "0" * 63, "0" * 63 + "\n", "0" * 63 + "/"),
    *("0" * 61 + "/..", "\0" + "0" * 63, "\u0660" * 64, b"0" * 64, None, 7),
)
BAD_PUTS: Final[dict[str, dict[str, Any]]] = {
    "content as text": {"content": "text"},
    "content missing": {"content": None},
    "content that can change": {"content": bytearray(b"x")},
    "session missing": {"session_id": None},
    "session blank": {"session_id": " "},
    "no subtype": {"media_type": "image"},
    "empty subtype": {"media_type": "image/"},
    "two slashes": {"media_type": "image/png/x"},
    "parameters": {"media_type": "text/plain; charset=utf-8"},
    "line break": {"media_type": "image/png\n"},
    "media type of another type": {"media_type": b"image/png"},
    "long media type": {"media_type": "image/" + "x" * 300},
    "width zero": {"width": 0},
    "width as text": {"width": "1"},
    "height below zero": {"height": -1},
    "height too large": {"height": 2**63},
    "label of another type": {"label": 5},
    "label with NUL": {"label": "a\0b"},
    "label too long": {"label": "x" * 5_000},
    "owner of another type": {"owner": "turn"},
    "owner without an id": {"owner": AttachmentOwner(kind=OwnerKind.TURN, id="")},
    "owner of an unknown kind": {"owner": AttachmentOwner(kind="job", id="1")},  # type: ignore[arg-type]
}


def digest(content: bytes) -> str:
    """Return the id that bytes must have."""
    return hashlib.sha256(content).hexdigest()


def turn(owner_id: str) -> AttachmentOwner:
    """Return a turn that owns attachments."""
    return AttachmentOwner(kind=OwnerKind.TURN, id=owner_id)


async def uncommitted(storage: Storage) -> list[tuple[str, str]]:
    """Return session and id of every uncommitted attachment, as listed."""
    page = await storage.attachments.list_uncommitted()
    return [(entry.session_id, entry.ref.id) for entry in page.entries]


async def entry_of(storage: Storage, session_id: str, attachment_id: str) -> AttachmentEntry:
    """Return a manifest entry, which must exist."""
    entry = await storage.attachments.entry(session_id, attachment_id)
    assert entry is not None
    return entry


class TestAttachment:
    """Laws of putting, reading and stamping."""

    async def test_an_attachment_comes_back_whole(self, harness: Harness) -> None:
        """Bytes, id, length, media type, size and label come back; the id is the SHA-256 of the bytes."""
        storage = await harness.open()
        await created(storage)
        for content in (b"", b"\0", b"hello", bytes(range(256)) * 5_000):
            ref = await storage.attachments.put("s", content, "image/png", width=3, height=4, label="a cat")
            expected = AttachmentRef(
                id=digest(content), media_type="image/png", byte_len=len(content), width=3, height=4, label="a cat"
            )
            assert ref == expected
            found = await (await harness.open()).attachments.get("s", ref.id)
            assert (found.ref, found.content) == (expected, content)

    async def test_attachments_survive_reopening(self, harness: Harness) -> None:
        """A durable storage returns the attachment after closing and reopening."""
        storage = await harness.open()
        await created(storage)
        ref = await storage.attachments.put("s", b"durable" * 1_000, "text/plain")
        await storage.attachments.commit_refs("s", [ref.id])
        storage = await harness.reopen()
        assert (await storage.attachments.get("s", ref.id)).content == b"durable" * 1_000

    async def test_durability_is_what_the_storage_promises(self, harness: Harness) -> None:
        """Attachments are never more durable than their storage."""
        storage = await harness.open()
        assert storage.attachments.durability == storage.durability

    @pytest.mark.parametrize(
        ("given", "normal"),
        [
            ("image/jpg", "image/jpeg"),
            ("IMAGE/JPG", "image/jpeg"),
            ("Application/PDF", "application/pdf"),
            ("image/svg+xml", "image/svg+xml"),
            ("application/vnd.ms-excel", "application/vnd.ms-excel"),
        ],
    )
    async def test_media_types_have_one_spelling(self, harness: Harness, given: str, normal: str) -> None:
        """Any type is accepted and kept in lower case; image/jpg is image/jpeg."""
        storage = await harness.open()
        await created(storage)
        ref = await storage.attachments.put("s", b"x", given)
        assert ref.media_type == normal
        assert (await storage.attachments.get("s", ref.id)).ref.media_type == normal

    async def test_an_unknown_attachment_is_not_found(self, harness: Harness) -> None:
        """An id that the session does not have raises AttachmentNotFound, even if another session has it."""
        storage = await harness.open()
        await created(storage)
        await created(storage, "other")
        ref = await storage.attachments.put("other", b"theirs", "text/plain")
        for attachment_id in (UNKNOWN, ref.id):
            with pytest.raises(AttachmentNotFound) as raised:
                await storage.attachments.get("s", attachment_id)
            assert (raised.value.session_id, raised.value.attachment_id) == ("s", attachment_id)
            assert await storage.attachments.entry("s", attachment_id) is None

    async def test_an_attachment_is_listed_until_it_is_stamped(self, harness: Harness) -> None:
        """An announced attachment is listed with its owner until it is stamped; it stays readable afterwards."""
        storage = await harness.open()
        await created(storage)
        first = await storage.attachments.put("s", b"1", "text/plain", owner=turn("t"))
        await harness.clock.advance(1)
        second = await storage.attachments.put("s", b"2", "text/plain")
        assert await uncommitted(storage) == [("s", first.id), ("s", second.id)]
        assert (await entry_of(storage, "s", first.id)).owner == turn("t")

        assert await storage.attachments.commit_refs("s", [first.id]) == (first.id,)

        assert await uncommitted(storage) == [("s", second.id)]
        assert (await storage.attachments.get("s", first.id)).content == b"1"

    async def test_stamping_touches_the_named_session_only(self, harness: Harness) -> None:
        """Stamping ignores unknown ids and those of another session, and leaves them out of the answer."""
        storage = await harness.open()
        await created(storage)
        await created(storage, "other")
        theirs = await storage.attachments.put("other", b"theirs", "text/plain")
        mine = await storage.attachments.put("s", b"mine", "text/plain")
        stamped = await storage.attachments.commit_refs("s", [theirs.id, UNKNOWN, mine.id, mine.id])
        assert stamped == (mine.id,)
        assert await uncommitted(storage) == [("other", theirs.id)]
        assert await storage.attachments.commit_refs("s", []) == ()

    async def test_the_first_stamp_stays(self, harness: Harness) -> None:
        """Neither stamping nor putting again moves the stamp or the time of a committed announcement."""
        storage = await harness.open()
        await created(storage)
        start = harness.clock.now_ms()
        ref = await storage.attachments.put("s", b"x", "text/plain", owner=turn("t"))
        await storage.attachments.commit_refs("s", [ref.id])
        await harness.clock.advance(1_000)
        assert await storage.attachments.commit_refs("s", [ref.id]) == (ref.id,)
        await storage.attachments.put("s", b"x", "text/plain", owner=turn("later"))
        entry = await entry_of(storage, "s", ref.id)
        assert (entry.intent_at_ms, entry.committed_at_ms, entry.owner) == (start, start, turn("t"))
        assert await uncommitted(storage) == []

    async def test_putting_again_renews_an_announcement(self, harness: Harness) -> None:
        """Before the stamp, the latest put sets time and owner; a put without an owner keeps the owner."""
        storage = await harness.open()
        await created(storage)
        ref = await storage.attachments.put("s", b"x", "text/plain", owner=turn("first"))
        await harness.clock.advance(1_000)
        await storage.attachments.put("s", b"x", "text/plain", owner=turn("second"))
        entry = await entry_of(storage, "s", ref.id)
        assert (entry.intent_at_ms, entry.owner) == (harness.clock.now_ms(), turn("second"))
        await storage.attachments.put("s", b"x", "text/plain")
        assert (await entry_of(storage, "s", ref.id)).owner == turn("second")

    async def test_the_latest_description_stands(self, harness: Harness) -> None:
        """The same bytes are stored once, with the description of the latest put."""
        storage = await harness.open()
        await created(storage)
        await storage.attachments.put("s", b"x", "text/plain", width=1, label="old")
        ref = await storage.attachments.put("s", b"x", "image/png", height=2)
        found = await storage.attachments.get("s", ref.id)
        assert found.ref == ref == AttachmentRef(id=digest(b"x"), media_type="image/png", byte_len=1, height=2)

    async def test_sessions_describe_the_same_bytes_apart(self, harness: Harness) -> None:
        """Two sessions with the same bytes have an entry each; stamping or forgetting one leaves the other."""
        storage = await harness.open()
        await created(storage)
        await created(storage, "other")
        ref = await storage.attachments.put("s", b"x", "text/plain", label="mine")
        await storage.attachments.put("other", b"x", "text/plain", label="theirs")
        await storage.attachments.commit_refs("s", [ref.id])
        assert await uncommitted(storage) == [("other", ref.id)]
        assert await storage.attachments.forget("s", ref.id)
        assert (await storage.attachments.get("other", ref.id)).ref.label == "theirs"
        with pytest.raises(AttachmentNotFound):
            await storage.attachments.get("s", ref.id)

    async def test_forgetting_removes_the_line(self, harness: Harness) -> None:
        """A forgotten attachment is gone, committed or not; forgetting an unknown one is not an error."""
        storage = await harness.open()
        await created(storage)
        ref = await storage.attachments.put("s", b"x", "text/plain")
        assert [await storage.attachments.forget("s", ref.id) for _ in range(2)] == [True, False]
        assert await uncommitted(storage) == []
        with pytest.raises(AttachmentNotFound):
            await storage.attachments.get("s", ref.id)

    async def test_uncommitted_attachments_are_listed_by_time_and_id(self, harness: Harness) -> None:
        """Oldest first, then by id; an age selects those at least that old; pages do not overlap."""
        storage = await harness.open()
        await created(storage)
        await created(storage, "other")
        expected: list[str] = []
        for moment in range(3):
            contents = [b"%d-%d" % (moment, number) for number in range(3)]
            for content in contents:
                await storage.attachments.put("s", content, "text/plain")
            await storage.attachments.put("other", contents[0], "text/plain")
            expected.extend(sorted(digest(content) for content in [*contents, contents[0]]))
            await harness.clock.advance(10)
        listed: list[str] = []
        cursor = None
        while True:
            page = await storage.attachments.list_uncommitted(limit=5, cursor=cursor)
            listed.extend(entry.ref.id for entry in page.entries)
            cursor = page.next_cursor
            if cursor is None:
                break
        assert listed == expected
        for age, count in ((10, 12), (11, 8), (20, 8), (21, 4), (30, 4), (31, 0)):
            assert len((await storage.attachments.list_uncommitted(age)).entries) == count

    async def test_attachments_of_a_session_are_listed_by_id(self, harness: Harness) -> None:
        """A session's attachments are listed, stamped or not, and no others; pages neither overlap nor skip."""
        storage = await harness.open()
        await created(storage)
        await created(storage, "other")
        await storage.attachments.put("other", b"apart", "text/plain")
        contents = [b"%d" % number for number in range(7)]
        for content in contents:
            await storage.attachments.put("s", content, "text/plain")
        await storage.attachments.commit_refs("s", [digest(b"3")])
        listed: list[AttachmentEntry] = []
        cursor = None
        while True:
            page = await storage.attachments.list("s", limit=3, cursor=cursor)
            assert len(page.entries) <= 3
            listed.extend(page.entries)
            cursor = page.next_cursor
            if cursor is None:
                break
        assert [entry.ref.id for entry in listed] == sorted(digest(content) for content in contents)
        assert [entry.ref.id for entry in listed if entry.committed_at_ms is not None] == [digest(b"3")]
        assert (await storage.attachments.list("other")).entries[0].ref.id == digest(b"apart")
        with pytest.raises(SessionNotFound):
            await storage.attachments.list("unknown")
        with pytest.raises(InvalidInput):
            await storage.attachments.list("s", cursor="x")

    async def test_no_session_no_attachment(self, harness: Harness) -> None:
        """Every call on a session that never existed or was deleted raises, and announces nothing."""
        storage = await harness.open()
        await created(storage, "deleted")
        ref = await storage.attachments.put("deleted", b"x", "text/plain")
        await storage.sessions.delete("deleted")
        for session_id, error in (("never", SessionNotFound), ("deleted", SessionDeleted)):
            calls = (
                storage.attachments.put(session_id, b"x", "text/plain"),
                storage.attachments.get(session_id, ref.id),
                storage.attachments.entry(session_id, ref.id),
                storage.attachments.commit_refs(session_id, [ref.id]),
                storage.attachments.forget(session_id, ref.id),
            )
            for call in calls:
                with pytest.raises(error):
                    await call
        assert await uncommitted(storage) == []

    @pytest.mark.parametrize("bad", BAD_IDS)
    async def test_what_is_no_id_is_refused(self, harness: Harness, bad: Any) -> None:  # noqa: ANN401
        """An id that is not 64 lowercase hex digits is InvalidInput everywhere."""
        storage = await harness.open()
        await created(storage)
        calls = (
            storage.attachments.get("s", bad),
            storage.attachments.entry("s", bad),
            storage.attachments.commit_refs("s", [bad]),
            storage.attachments.commit_refs("s", bad),
            storage.attachments.forget("s", bad),
        )
        for call in calls:
            with pytest.raises(InvalidInput):
                await call

    @pytest.mark.parametrize("case", BAD_PUTS)
    async def test_what_cannot_be_put_is_refused(self, harness: Harness, case: str) -> None:
        """An invalid put raises InvalidInput and announces nothing."""
        storage = await harness.open()
        await created(storage)
        values: dict[str, Any] = {"session_id": "s", "content": b"x", "media_type": "image/png"} | BAD_PUTS[case]
        with pytest.raises(InvalidInput):
            await storage.attachments.put(**values)
        assert await uncommitted(storage) == []

    @pytest.mark.parametrize(
        "bad",
        [
            {"limit": 0},
            {"limit": 5_000},
            {"older_than_ms": -1},
            {"older_than_ms": None},
            {"cursor": "x"},
            {"cursor": 5},
            {"cursor": "bnVsbA=="},
            {"cursor": "WzEsIngiLDNd"},
        ],
    )
    async def test_what_is_no_page_is_refused(self, harness: Harness, bad: dict[str, Any]) -> None:
        """Ages, page sizes and cursors are checked."""
        with pytest.raises(InvalidInput):
            await (await harness.open()).attachments.list_uncommitted(**bad)


class TestAttachmentFiles(TestAttachment):
    """On each backend, with the bytes in files."""

    @pytest.fixture
    def harness(self, harness: Harness, tmp_path: Path) -> BytesHarness:
        return BytesHarness(harness, FileBytes(tmp_path / "attachments"))


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"])
class TestAttachmentS3(TestAttachment):
    """On each durable backend, with the bytes in a real S3 server."""

    @pytest.fixture
    def harness(self, harness: Harness, s3_server: S3Server) -> BytesHarness:
        return BytesHarness(harness, s3_server.byte_store(prefix=uuid.uuid4().hex))
