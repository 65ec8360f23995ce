"""Rules of artifacts: the stored form, and which stored bytes are accepted."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from lash.base.compression import Compression
from lash.errors import CorruptData, InvalidInput
from lash.model.artifact import ArtifactPage, ArtifactRef, ArtifactSummary, ProcessEnvironment
from lash.plan.artifact import (
    ENVIRONMENTS,
    ArtifactRow,
    ArtifactSummaryRow,
    check_artifact_cursor,
    check_artifact_ref,
    decode_artifact_page,
    decode_value,
    encode_value,
    pack_artifact,
    unpack_artifact,
)

CONTENT = b"code"
REF = ArtifactRef(hashlib.sha256(CONTENT).hexdigest())
ROW = ArtifactRow(REF, "plain", 4, CONTENT)


def test_bytes_are_packed_under_their_hash() -> None:
    """The ref is the SHA-256 of the plain bytes; anything but bytes is refused."""
    blob = pack_artifact(CONTENT, Compression.BALANCED)
    assert (str(blob.ref), blob.size, blob.content) == (str(REF), 4, CONTENT)
    with pytest.raises(InvalidInput):
        pack_artifact("code", Compression.BALANCED)


def test_ref_hash_and_stored_ref_must_agree() -> None:
    """A row with another ref, other bytes, another length or an unknown codec is CorruptData."""
    assert unpack_artifact(ROW, REF) == CONTENT
    with pytest.raises(CorruptData, match="expected artifact"):
        unpack_artifact(ROW, ArtifactRef("0" * 64))
    for damage in ({"content": b"CODE"}, {"size": 5}, {"codec": "zstd"}, {"codec": "lzma"}):
        with pytest.raises(CorruptData):
            unpack_artifact(msgspec.structs.replace(ROW, **damage), REF)


def test_a_value_has_one_text() -> None:
    """The text of a value does not depend on the order of keys, and decodes to the value."""
    first = encode_value(ProcessEnvironment(body={"a": 1, "b": {"d": 1, "c": 2}}), ProcessEnvironment)
    second = encode_value(ProcessEnvironment(body={"b": {"c": 2, "d": 1}, "a": 1}), ProcessEnvironment)
    assert first == second == b'{"body":{"a":1,"b":{"c":2,"d":1}}}'
    assert decode_value(first, ProcessEnvironment, REF).body == {"a": 1, "b": {"c": 2, "d": 1}}
    with pytest.raises(InvalidInput):
        encode_value(ProcessEnvironment(body={"a": object()}), ProcessEnvironment)
    with pytest.raises(CorruptData, match=REF):
        decode_value(b"[]", ProcessEnvironment, REF)


def test_a_page_ends_where_there_is_no_next_one() -> None:
    """A page has a cursor exactly if one more row was found than it shows."""
    rows = [ArtifactSummaryRow(digit * 64, 1, 2) for digit in "abc"]
    summaries = tuple(ArtifactSummary(ref=ArtifactRef(digit * 64), size=1, created_at_ms=2) for digit in "abc")
    assert decode_artifact_page(rows, 3) == ArtifactPage(artifacts=summaries)
    assert decode_artifact_page(rows, 2) == ArtifactPage(artifacts=summaries[:2], next_cursor="b" * 64)
    assert decode_artifact_page(rows, 1) == ArtifactPage(artifacts=summaries[:1], next_cursor="a" * 64)
    assert decode_artifact_page([], 2) == ArtifactPage(artifacts=())


def test_refs_and_cursors_are_digests() -> None:
    """Refs and cursors are 64 lowercase hex digits; no cursor means the first page."""
    assert check_artifact_ref(REF) == check_artifact_cursor(REF) == REF
    assert check_artifact_cursor(None) == ""
    for check in (check_artifact_ref, check_artifact_cursor):
        with pytest.raises(InvalidInput):
            check("x")


def test_environments_are_found_where_they_were_put() -> None:
    """The namespace is stored with each environment, so no later version may rename it."""
    assert ENVIRONMENTS == "process_environment"
