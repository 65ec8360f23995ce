"""Laws of records: versions, compare-and-set, expiry, owners, and lists by key and by index field."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from lash.errors import InvalidInput, RecordConflict, SessionDeleted, SessionNotFound
from lash.model.record import Record, RecordDelete, RecordPut
from lash.stores.storage import Storage
from lash.testing.harness import Harness

VALUES: Final[tuple[Any, ...]] = (
    *(
        None,
        True,
        0,
        -7,
        2**63 - 1,
        1.5,
        "",
        "text \U0001f600",
        [],
        {},
        [1, [2, {"a": None}]],
        {"k": {"n": [1.5, "x"]}},
    ),
    *(b"", b"\x00\xff", b'{"a": 1}', b"long " * 2_000, "long " * 2_000),
)
LONGEST: Final = "\U0001f600"
"""Four bytes in UTF-8, the most that a character takes."""


async def _keys(storage: Storage, collection: str, **options: Any) -> list[str]:  # noqa: ANN401 (passed through)
    return [record.key for record in await storage.records.list(collection, **options)]


class TestRecord:
    """Laws of records."""

    async def test_a_value_comes_back_as_it_was_put(self, harness: Harness) -> None:
        """JSON returns as the same JSON and bytes as the same bytes, in the storage's scope and in a session's."""
        storage = await harness.open()
        await storage.sessions.create("s")
        for session_id in (None, "s"):
            for number, value in enumerate(VALUES):
                assert await storage.records.put("values", str(number), value, session_id=session_id) == 1
            for number, value in enumerate(VALUES):
                record = await storage.records.get("values", str(number), session_id=session_id)
                assert record is not None
                assert (record.value, type(record.value)) == (value, type(value))
                assert (record.collection, record.key, record.session_id) == ("values", str(number), session_id)

    async def test_a_record_carries_its_version_times_and_index(self, harness: Harness) -> None:
        """The version rises by one with each put; creation stays; index fields are those of the last put."""
        storage, start_ms = await harness.open(), harness.clock.now_ms()
        assert await storage.records.put("users", "ann", {"n": 1}, index={"team": "red", "city": "Ulm"}) == 1
        await harness.clock.advance(10)
        assert await storage.records.put("users", "ann", {"n": 2}, index={"team": "blue"}) == 2
        assert await storage.records.get("users", "ann") == Record(
            collection="users",
            key="ann",
            value={"n": 2},
            version=2,
            index={"team": "blue"},
            created_at_ms=start_ms,
            updated_at_ms=start_ms + 10,
        )

    async def test_another_version_is_a_conflict(self, harness: Harness) -> None:
        """A put or delete that expects another version raises RecordConflict with both, and changes nothing."""
        storage = await harness.open()
        records = storage.records
        with pytest.raises(RecordConflict) as raised:
            await records.put("c", "k", 1, expected_version=1)
        assert (raised.value.collection, raised.value.key) == ("c", "k")
        assert (raised.value.expected, raised.value.actual, raised.value.session_id) == (1, 0, None)
        assert await records.put("c", "k", 1, expected_version=0) == 1
        for wrong in (0, 2):
            with pytest.raises(RecordConflict, match="is at version 1"):
                await records.put("c", "k", 2, expected_version=wrong)
            with pytest.raises(RecordConflict):
                await records.delete("c", "k", expected_version=wrong)
        assert await records.put("c", "k", 2, expected_version=1) == 2
        found = await records.get("c", "k")
        assert found is not None
        assert (found.value, found.version) == (2, 2)
        assert await records.delete("c", "k", expected_version=2)
        with pytest.raises(RecordConflict, match="does not exist"):
            await records.delete("c", "k", expected_version=2)

    async def test_a_deleted_record_is_gone_and_its_key_is_free(self, harness: Harness) -> None:
        """Deleting returns whether there was a record; the next put of its key starts at version 1."""
        storage = await harness.open()
        await storage.records.put("c", "k", 1)
        await storage.records.put("c", "k", 2)
        assert [await storage.records.delete("c", "k") for _ in range(2)] == [True, False]
        assert await storage.records.get("c", "k") is None
        assert await storage.records.delete("c", "k", expected_version=0) is False
        assert await storage.records.put("c", "k", 3) == 1

    async def test_many_are_put_and_deleted_whole_or_not_at_all(self, harness: Harness) -> None:
        """A conflict of one change refuses all; versions come in the order of the puts."""
        storage = await harness.open()
        await storage.sessions.create("s")
        first = [RecordPut(collection="c", key=key, value=key) for key in ("b", "a", "c")]
        owned = RecordPut(collection="c", key="a", value="own", session_id="s")
        assert await storage.records.put_many([*first, owned]) == (1, 1, 1, 1)
        assert await storage.records.put_many(first[:1]) == (2,)
        changed = [RecordPut(collection="c", key=key, value="new", expected_version=1) for key in ("a", "b")]
        with pytest.raises(RecordConflict) as raised:
            await storage.records.put_many([*changed, RecordPut(collection="c", key="d", value=0)])
        assert (raised.value.key, raised.value.actual) == ("b", 2)
        found = await storage.records.get_many("c", ["a", "b", "c", "d"])
        assert {key: (record.value, record.version) for key, record in found.items()} == {
            "a": ("a", 1),
            "b": ("b", 2),
            "c": ("c", 1),
        }
        gone = [RecordDelete(collection="c", key=key) for key in ("a", "nothing")]
        with pytest.raises(RecordConflict):
            await storage.records.delete_many([*gone, RecordDelete(collection="c", key="b", expected_version=1)])
        assert await storage.records.delete_many(gone) == 1
        assert await _keys(storage, "c") == ["b", "c"]
        assert await _keys(storage, "c", session_id="s") == ["a"]
        assert await storage.records.put_many([]) == ()
        assert await storage.records.delete_many([]) == 0
        assert await storage.records.get_many("c", []) == {}

    async def test_an_expired_record_is_absent(self, harness: Harness) -> None:
        """From its expiry on, a record is neither read nor listed, its version is 0, and its key is free."""
        storage, start_ms = await harness.open(), harness.clock.now_ms()
        await storage.records.put("c", "k", 1, ttl_ms=1_000, index={"f": "x"})
        await storage.records.put("c", "l", 1, expires_at_ms=start_ms + 2_000)
        await storage.records.put("c", "m", 1)
        record = await storage.records.get("c", "k")
        assert record is not None
        assert record.expires_at_ms == start_ms + 1_000
        await harness.clock.advance(999)
        assert await _keys(storage, "c") == ["k", "l", "m"]
        await harness.clock.advance(1)
        assert await storage.records.get("c", "k") is None
        assert await _keys(storage, "c") == ["l", "m"]
        assert await _keys(storage, "c", where={"f": "x"}) == []
        with pytest.raises(RecordConflict):
            await storage.records.put("c", "k", 2, expected_version=1)
        assert await storage.records.delete("c", "k") is False
        await storage.records.put("c", "k", 1, ttl_ms=1)
        await harness.clock.advance(1)
        assert await storage.records.put("c", "k", 2, expected_version=0) == 1
        renewed = await storage.records.get("c", "k")
        assert renewed is not None
        assert (renewed.expires_at_ms, renewed.created_at_ms) == (None, start_ms + 1_001)

    async def test_pruning_removes_what_expired(self, harness: Harness) -> None:
        """Pruning removes expired records only, at most as many as asked for, by default all up to now."""
        storage, start_ms = await harness.open(), harness.clock.now_ms()
        for number in range(5):
            await storage.records.put("c", str(number), number, ttl_ms=1_000 + number)
        await storage.records.put("c", "kept", 1)
        assert await storage.records.prune() == 0
        await harness.clock.advance(1_003)
        assert await storage.records.prune(expired_before_ms=start_ms + 1_001) == 1
        assert await storage.records.prune(limit=2) == 2
        assert [await storage.records.prune() for _ in range(2)] == [1, 0]
        assert await _keys(storage, "c") == ["4", "kept"]

    async def test_keys_are_listed_in_order_from_both_ends(self, harness: Harness) -> None:
        """Pages follow code points in both directions, start after a key, and never overlap or leave gaps."""
        storage = await harness.open()
        keys = sorted(
            ["a", "a/1", "a/10", "a/2", "b", "B", "\x01", "é", "z\ud7ff", "z\ue000", "z\U0010ffff", "\U0010ffff"]
        )
        await storage.records.put_many([RecordPut(collection="c", key=key, value=key) for key in reversed(keys)])
        await storage.records.put("d", "a/3", 1)
        assert await _keys(storage, "c") == keys
        assert await _keys(storage, "c", reverse=True) == keys[::-1]
        for reverse in (False, True):
            expected = keys[::-1] if reverse else keys
            for size in (1, 5):
                seen: list[str] = []
                while page := await _keys(storage, "c", limit=size, after=seen[-1] if seen else None, reverse=reverse):
                    seen += page
                assert seen == expected
        for prefix in ("a", "a/", "a/1", "b", "z", "z\ud7ff", "z\U0010ffff", "\U0010ffff", "none"):
            wanted = [key for key in keys if key.startswith(prefix)]
            assert await _keys(storage, "c", prefix=prefix) == wanted
            assert await _keys(storage, "c", prefix=prefix, reverse=True) == wanted[::-1]
        assert await _keys(storage, "c", prefix="a/", after="a/1") == ["a/10", "a/2"]
        assert await _keys(storage, "c", prefix="a/", after="a/2", reverse=True) == ["a/10", "a/1"]
        assert await _keys(storage, "c", prefix="a/", after="b") == []
        assert await _keys(storage, "c", prefix="b", after="a") == ["b"]
        assert await _keys(storage, "c", prefix="a/", after="A", reverse=True) == []

    async def test_records_are_listed_by_index_fields(self, harness: Harness) -> None:
        """``where`` finds records by any of their fields and by several, whichever other fields they have."""
        storage = await harness.open()
        indexes = {
            "1": {"user": "ann"},
            "2": {"user": "ann", "kind": "note"},
            "3": {"a": "x", "kind": "note", "user": "ann", "z": "y"},
            "4": {"user": "bob", "kind": "note"},
            "5": {},
            "6": {"kind": "user=ann"},
        }
        await storage.records.put_many(
            [RecordPut(collection="c", key=key, value=key, index=index) for key, index in indexes.items()]
        )
        queries: list[dict[str, str]] = [
            *({"user": "ann"}, {"kind": "note"}, {"z": "y"}, {"kind": "user=ann"}, {"user": "nobody"}, {}),
            *({"user": "ann", "kind": "note"}, {"kind": "note", "user": "bob"}, indexes["3"]),
        ]
        for where in queries:
            wanted = [key for key, index in indexes.items() if where.items() <= index.items()]
            assert await _keys(storage, "c", where=where) == wanted
            assert await _keys(storage, "c", where=where, reverse=True) == wanted[::-1]
        assert await _keys(storage, "c", where={"user": "ann"}, after="1", limit=1) == ["2"]
        assert await _keys(storage, "c", where={"user": "ann"}, prefix="3") == ["3"]
        await storage.records.put("c", "2", "moved", index={"user": "bob"})
        assert await _keys(storage, "c", where={"user": "ann"}) == ["1", "3"]
        assert await _keys(storage, "c", where={"user": "bob"}) == ["2", "4"]
        await storage.records.delete("c", "4")
        assert await _keys(storage, "c", where={"kind": "note"}) == ["3"]

    async def test_owners_are_apart(self, harness: Harness) -> None:
        """The same collection and key in the storage and in two sessions are three records."""
        storage = await harness.open()
        await storage.sessions.create("s")
        await storage.sessions.create("t")
        for number, owner in enumerate((None, "s", "t")):
            await storage.records.put("c", "k", number, session_id=owner)
        await storage.records.put("only", "k", 1, session_id="t")
        assert await storage.records.delete("c", "k", session_id="s")
        assert [await storage.records.get("c", "k", session_id=owner) is None for owner in (None, "s", "t")] == [
            False,
            True,
            False,
        ]
        assert await storage.records.collections() == ("c",)
        assert await storage.records.collections(session_id="s") == ()
        assert await storage.records.collections(session_id="t") == ("c", "only")

    async def test_records_go_with_their_session(self, harness: Harness) -> None:
        """Deleting a session deletes its records; one of the same id starts without any."""
        storage = await harness.open()
        await storage.sessions.create("s")
        await storage.records.put("c", "k", 1, session_id="s", index={"f": "x"})
        await storage.records.put("c", "k", 1)
        await storage.sessions.delete("s")
        calls: list[Any] = [
            lambda: storage.records.get("c", "k", session_id="s"),
            lambda: storage.records.put("c", "k", 1, session_id="s"),
            lambda: storage.records.delete("c", "k", session_id="s"),
            lambda: storage.records.list("c", session_id="s"),
            lambda: storage.records.collections(session_id="s"),
        ]
        for call in calls:
            with pytest.raises(SessionDeleted):
                await call()
        await storage.sessions.create("s")
        assert await storage.records.get("c", "k", session_id="s") is None
        assert await storage.records.put("c", "k", 1, session_id="s") == 1
        assert await _keys(storage, "c") == ["k"]
        report = await storage.maintenance.collect_garbage(dry_run=True)
        assert report.is_clean

    async def test_an_unknown_session_has_no_records(self, harness: Harness) -> None:
        """Calls about a session that never existed raise SessionNotFound, and a put of many writes nothing."""
        storage = await harness.open()
        with pytest.raises(SessionNotFound):
            await storage.records.put_many(
                [
                    RecordPut(collection="c", key="k", value=1),
                    RecordPut(collection="c", key="k", value=1, session_id="x"),
                ]
            )
        with pytest.raises(SessionNotFound):
            await storage.records.get_many("c", ["k"], session_id="x")
        assert await storage.records.get("c", "k") is None

    async def test_records_survive_reopening(self, harness: Harness) -> None:
        """A record survives closing and reopening the storage."""
        await (await harness.open()).records.put("c", "k", {"a": 1}, index={"f": "x"})
        storage = await harness.reopen()
        assert [record.value for record in await storage.records.list("c", where={"f": "x"})] == [{"a": 1}]

    async def test_concurrent_increments_are_all_counted(self, harness: Harness) -> None:
        """Of callers that compare and set at once, exactly one succeeds per version, and blind puts count all."""
        storage = await harness.open()

        async def increment() -> None:
            while True:
                found = await storage.records.get("counters", "c")
                count, version = (found.value, found.version) if found is not None else (0, 0)
                assert isinstance(count, int)
                try:
                    await storage.records.put("counters", "c", count + 1, expected_version=version)
                except RecordConflict:
                    continue
                return

        await asyncio.gather(*(increment() for _ in range(8)))
        found = await storage.records.get("counters", "c")
        assert found is not None
        assert (found.value, found.version) == (8, 8)
        versions = await asyncio.gather(*(storage.records.put("counters", "blind", 1) for _ in range(8)))
        assert sorted(versions) == list(range(1, 9))

    async def test_the_longest_names_are_stored(self, harness: Harness) -> None:
        """Names, fields and keys of the greatest lengths are stored, found and listed together."""
        storage = await harness.open()
        collection, key, text = LONGEST * 64, LONGEST * 255, LONGEST * 255
        index = {f"{letter * 32}": text for letter in "abcd"}
        await storage.records.put(collection, key, 1, index=index)
        assert await _keys(storage, collection, where=index, prefix=key) == [key]
        assert await _keys(storage, collection, where=index, reverse=True) == [key]


BAD: Final[tuple[dict[str, Any], ...]] = (
    *({"collection": bad} for bad in ("", " ", "x" * 65, "a\0b", None, 1)),
    *({"key": bad} for bad in ("", "x" * 256, "a\0b", None, b"k")),
    *({"value": bad} for bad in (float("nan"), {1: 2}, {"a": {1}}, 2**64, "\ud800", b"x" * (16 * 1024 * 1024 + 1))),
    *({"index": bad} for bad in ({"": "x"}, {"a b": "x"}, {"a": ""}, {"a": 1}, {1: "x"}, {"a" * 33: "x"}, ["a"])),
    *({"index": bad} for bad in ({"a": "x" * 256}, dict.fromkeys("abcde", "x"))),
    *({"expected_version": bad} for bad in (-1, True, "1", 1.0)),
    *({"ttl_ms": bad} for bad in (0, -1, "1", True)),
    *({"expires_at_ms": "1"}, {"expires_at_ms": 1, "ttl_ms": 1}, {"session_id": ""}, {"session_id": 5}),
)


async def test_what_cannot_be_a_record_is_refused(harness: Harness) -> None:
    """A name, value, index, version or expiry outside its limits is InvalidInput, and nothing is written."""
    storage = await harness.open()
    for bad in BAD:
        arguments = {"collection": "c", "key": "k", "value": 1, **bad}
        with pytest.raises(InvalidInput):
            await storage.records.put(**arguments)
    twice = RecordPut(collection="c", key="k", value=1)
    bad_calls: tuple[Any, ...] = ([twice, twice], [twice] * 1_001, [RecordDelete(collection="c", key="k")], "k", [1])
    for given in bad_calls:
        with pytest.raises(InvalidInput):
            await storage.records.put_many(given)
    with pytest.raises(InvalidInput):
        await storage.records.delete_many([twice])  # type: ignore[list-item]
    assert await storage.records.collections() == ()


async def test_what_cannot_be_read_is_refused(harness: Harness) -> None:
    """Keys, prefixes, fields and page sizes outside their limits are InvalidInput."""
    storage = await harness.open()
    for keys in ("k", [""], [1], [str(number) for number in range(1_001)], 5):
        with pytest.raises(InvalidInput):
            await storage.records.get_many("c", keys)  # type: ignore[arg-type]
    bad: tuple[dict[str, Any], ...] = (
        *({"limit": 0}, {"limit": 1_001}, {"after": ""}, {"after": 1}, {"prefix": "\0"}, {"prefix": None}),
        *({"where": ["a"]}, {"where": {"a": 1}}, {"where": dict.fromkeys("abcde", "x")}),
    )
    for options in bad:
        with pytest.raises(InvalidInput):
            await storage.records.list("c", **options)
    with pytest.raises(InvalidInput):
        await storage.records.prune(limit=0)
