"""Rules of records: names, key ranges, index fields, versions and expiry."""

from __future__ import annotations

from typing import Any

import pytest

from lash.base.compression import Compression, StoredBlob, pack
from lash.base.limits import MAX_INTEGER
from lash.errors import CorruptData, InvalidInput, RecordConflict
from lash.model.record import RecordDelete, RecordPut
from lash.plan.key_range import KeyRange, key_range
from lash.plan.record import (
    EncodedChange,
    RecordName,
    RecordRow,
    StoredValue,
    check_call,
    check_changes,
    check_collection,
    check_kinds,
    check_name,
    check_scope,
    decode_fields,
    encode_delete,
    encode_fields,
    encode_put,
    encode_where,
    expected_versions,
    is_brief,
    require_versions,
    version_of,
)

VALUE = StoredValue(form="json", blob=pack(b"1", Compression.LOW_LATENCY))
MEBIBYTE = 1024 * 1024


def sized(size: int) -> StoredValue:
    """Return a value that claims a size."""
    blob = VALUE.blob
    return StoredValue(form="bytes", blob=StoredBlob(blob.ref, blob.codec, size, blob.content))


def put(key: str = "k", value: StoredValue = VALUE, **others: Any) -> EncodedChange:  # noqa: ANN401 (fields of a put)
    return encode_put(RecordPut(collection="c", key=key, value=None, **others), value)


def test_a_name_has_an_owner_a_collection_and_a_key() -> None:
    """A name is checked part by part; no session means the storage."""
    assert check_name("c", "k", None) == RecordName(None, "c", "k")
    assert check_name("c", "k", "s") == RecordName("s", "c", "k")
    assert check_scope(None) is None
    assert check_collection("x" * 64) == "x" * 64
    for bad in (("", "k", None), ("c", "", None), ("c", "k", ""), ("x" * 65, "k", None), (None, "k", None)):
        with pytest.raises(InvalidInput):
            check_name(*bad)


def test_a_put_is_encoded_with_its_expiry() -> None:
    """A time to live counts from now and never exceeds 64 bits; an absolute expiry stays as it is."""
    change = put(session_id="s", index={"b": "2", "a": "1"}, ttl_ms=5, expected_version=3)
    assert (change.name, change.expected_version) == (RecordName("s", "c", "k"), 3)
    assert change.put is not None
    assert change.put.fields == ("a=1", "b=2", None, None)
    assert (change.put.expiry(10), change.put.expiry(MAX_INTEGER)) == (15, MAX_INTEGER)
    absolute, never = put(expires_at_ms=7).put, put().put
    assert absolute is not None
    assert never is not None
    assert (absolute.expiry(10), never.expiry(10)) == (7, None)


def test_a_put_has_one_expiry_and_a_value_of_limited_size() -> None:
    """Two expiries, or more than 16 MiB, are InvalidInput."""
    with pytest.raises(InvalidInput, match="got both"):
        put(ttl_ms=1, expires_at_ms=1)
    assert put(value=sized(16 * MEBIBYTE)).size == 16 * MEBIBYTE
    with pytest.raises(InvalidInput, match="16,777,216"):
        put(value=sized(16 * MEBIBYTE + 1))
    shortest = put(ttl_ms=1).put
    assert shortest is not None
    assert shortest.expiry(0) == 1
    for bad in ({"ttl_ms": 0}, {"expires_at_ms": "x"}, {"expected_version": -1}):
        with pytest.raises(InvalidInput):
            put(**bad)


def test_a_deletion_has_no_value() -> None:
    """A deletion has a name and an expected version, and brings no bytes."""
    change = encode_delete(RecordDelete(collection="c", key="k", expected_version=0))
    assert (change.name, change.expected_version, change.put) == (RecordName(None, "c", "k"), 0, None)
    assert change.size == 0
    assert encode_delete(RecordDelete(collection="c", key="k")).expected_version is None


def test_only_the_expected_kinds_are_changed() -> None:
    """A list or tuple of these kinds is returned; anything else is InvalidInput."""
    wanted = RecordPut(collection="c", key="k", value=1)
    assert check_kinds([wanted], (RecordPut,)) == [wanted]
    assert check_kinds((), (RecordPut, RecordDelete)) == ()
    for bad in ("x", {wanted.key: wanted}, None):
        with pytest.raises(InvalidInput, match="a tuple of RecordPut"):
            check_kinds(bad, (RecordPut,))
    with pytest.raises(InvalidInput, match="expected RecordPut or RecordDelete, got int"):
        check_kinds([1], (RecordPut, RecordDelete))


def test_one_call_is_limited() -> None:
    """At most 1,000 changes of different records with at most 64 MiB are one call."""
    check_call([put(str(number)) for number in range(1_000)])
    with pytest.raises(InvalidInput, match="1,001"):
        check_call([put(str(number)) for number in range(1_001)])
    with pytest.raises(InvalidInput, match="changed twice"):
        check_changes([put(), put()])
    with pytest.raises(InvalidInput, match="changed twice"):
        check_call([put(), encode_delete(RecordDelete(collection="c", key="k"))])
    check_changes([put(), put(session_id="s")])
    four = [put(str(number), sized(16 * MEBIBYTE)) for number in range(4)]
    check_call(four)
    with pytest.raises(InvalidInput, match="67,108,865"):
        check_call([*four, put("last")])


def test_few_small_changes_are_brief() -> None:
    """Up to 16 changes and 64 KiB are brief."""
    assert is_brief([put(str(number), sized(4_096)) for number in range(16)])
    assert not is_brief([put(str(number)) for number in range(17)])
    assert not is_brief([put(value=sized(65_537))])


def test_versions_are_compared_in_order() -> None:
    """The first change that expects another version is the conflict; None expects nothing, 0 no record."""
    stored = {RecordName(None, "c", "a"): 2, RecordName(None, "c", "e"): 0}
    require_versions([put("a"), put("a", expected_version=2), put("b", expected_version=0)], stored)
    require_versions([put("e", expected_version=0)], stored)
    with pytest.raises(RecordConflict) as raised:
        require_versions([put("a"), put("b", expected_version=1), put("a", expected_version=1)], stored)
    assert (raised.value.key, raised.value.expected, raised.value.actual) == ("b", 1, 0)
    with pytest.raises(RecordConflict) as raised:
        require_versions([put("a", expected_version=0)], stored)
    assert (raised.value.key, raised.value.expected, raised.value.actual) == ("a", 0, 2)


def test_expected_versions_satisfy_their_changes() -> None:
    """The versions under which all changes hold are the expected ones."""
    changes = [put("a", expected_version=2), put("b", expected_version=0), put("d")]
    assert expected_versions(changes) == {RecordName(None, "c", "a"): 2}
    require_versions(changes, expected_versions(changes))


def test_an_expired_record_has_version_0() -> None:
    """From its expiry on, a record counts as absent."""
    assert [version_of(3, 10, now_ms) for now_ms in (9, 10, 11)] == [3, 0, 0]
    assert version_of(3, None, 11) == 3


@pytest.mark.parametrize(
    ("prefix", "after", "reverse", "expected"),
    [
        ("", None, False, KeyRange("", "\U0010ffff" * 256)),
        ("a", None, False, KeyRange("a", "b")),
        ("a\ud7ff", None, True, KeyRange("a\ud7ff", "a\ue000")),
        ("a\U0010ffff", None, False, KeyRange("a\U0010ffff", "b")),
        ("\U0010ffff", None, False, KeyRange("\U0010ffff", "\U0010ffff" * 256)),
        ("", "k", False, KeyRange("k\x01", "\U0010ffff" * 256)),
        ("", "k", True, KeyRange("", "k")),
        ("a", "ab", False, KeyRange("ab\x01", "b")),
        ("a", "ab", True, KeyRange("a", "ab")),
        ("b", "a", False, KeyRange("b", "c")),
        ("a", "z", True, KeyRange("a", "b")),
    ],
)
def test_a_page_is_a_range_of_keys(prefix: str, after: str | None, reverse: bool, expected: KeyRange) -> None:  # noqa: FBT001
    """A prefix and the last key of the page before give one half-open range."""
    assert key_range(prefix, after, reverse=reverse) == expected


def test_what_cannot_be_a_range_is_refused() -> None:
    """Prefix and key are texts within their limits."""
    for prefix, after in (("\0", None), (None, None), ("x" * 256, None), ("", ""), ("", 5)):
        with pytest.raises(InvalidInput):
            key_range(prefix, after, reverse=False)


def test_index_fields_are_stored_in_order() -> None:
    """Fields are texts in their order, filled up with None, and return as they were."""
    assert encode_fields({}) == (None, None, None, None)
    full = {"d": "4", "c_1": "=", "B": "2", "a": "1"}
    assert encode_fields(full) == ("B=2", "a=1", "c_1==", "d=4")
    assert decode_fields(encode_fields(full)) == full
    assert encode_where(full) == ("d=4", "c_1==", "B=2", "a=1")
    assert encode_where(None) == encode_where({}) == ()


@pytest.mark.parametrize(
    "bad", [["a"], {"": "x"}, {"1a": "x"}, {"a b": "x"}, {"a" * 33: "x"}, {"a": ""}, {"a": 1}, {1: "x"}]
)
def test_what_cannot_be_an_index_field_is_refused(bad: object) -> None:
    """Names are short identifiers, values are identifiers, and there are at most four."""
    for encode, what in ((encode_fields, "index"), (encode_where, "where")):
        with pytest.raises(InvalidInput):
            encode(bad)
        with pytest.raises(InvalidInput, match=f"^{what} has 5 fields; at most 4"):
            encode(dict.fromkeys("abcde", "x"))


@pytest.mark.parametrize(
    "stored",
    [("b=1", "a=1", None, None), (None, "a=1", None, None), ("a=1", "a=2", None, None)],
)
def test_index_fields_out_of_order_are_corrupt(stored: tuple[str | None, ...]) -> None:
    """Stored fields that no put writes are CorruptData."""
    with pytest.raises(CorruptData, match="not in order"):
        decode_fields(stored)


def test_index_fields_that_no_put_accepts_are_corrupt() -> None:
    """Stored fields that a put refuses are CorruptData with the reason."""
    with pytest.raises(CorruptData, match=r"cannot be read: index\.a is blank"):
        decode_fields(("a=", None, None, None))


def test_a_row_has_four_fields() -> None:
    """The fields of a row are its four columns."""
    row = RecordRow("k", 1, "json", "h", "plain", 1, b"1", "a=1", "b=2", None, None, None, 0, 0)
    assert row.fields == ("a=1", "b=2", None, None)
